"""What makes a twin: weights, outputs of modules and gradients on their way back that differ by rounding."""

from collections.abc import Callable, Set
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.parity.recording.formats import (
    UNIT_ROUNDOFF,
    as_complex,
    as_real,
    is_inexact,
    is_packed,
    number_format,
    where_float64_is,
)
from trainparity.parity.recording.groups import part
from trainparity.parity.recording.hooks import Hook
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.tensors import is_strided


def perturb(model: nn.Module, unit_roundoff: float, seed: int, without: Set[int] = frozenset()) -> None:
    """Move every weight by half an ulp up or down at random, in place, but for those `without`, by identity.

    In a precision below fp32 the ulp is that precision's, as its products round that coarsely. Ranks that hold
    the same weights move them alike; shards are moved where they lie. Integers stay, and numbers of fewer than 16 bits
    (fp8): no rounding of what computes with them makes others of them. So do tensors that can't be written number by
    number: expanded and nested ones, and those of mkldnn.
    """
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            if id(parameter) in without or not is_inexact(parameter) or is_packed(parameter) or parameter.is_meta:
                continue
            if _is_written_whole(parameter):
                continue
            local = parameter.to_local() if is_dtensor(parameter) else parameter
            place = part(parameter) if is_dtensor(parameter) else 0
            generator = torch.Generator().manual_seed(derived_seed(seed, index, place))
            exact = where_float64_is(as_real(local)).double()
            signs = torch.randint(0, 2, exact.shape, generator=generator, dtype=torch.int8) * 2 - 1
            moved = exact * (1 + unit_roundoff * signs.to(exact.device, exact.dtype))
            # `data`: a forward pass may go on that has used the weight, and its backward pass may come yet.
            local.data.copy_(as_complex(moved) if local.is_complex() else moved)


def _is_written_whole(tensor: torch.Tensor) -> bool:
    """Tell whether no number of a tensor can be written by itself: several are one in memory, as a frozen mask's."""
    if not is_strided(tensor):
        return tensor.is_nested or tensor.is_mkldnn
    return any(not step and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))


class Noise:
    """Moves each number of a tensor by one unit in its last place, up or down at random.

    Another order of a sum rounds each of its terms otherwise. Where terms nearly cancel, the sum moves by many times
    its own last place, and twins whose terms are all equal would not show it.
    """

    def __init__(self, seed: int, tf32: bool) -> None:
        """`seed` is that of one step: an interrupted twin that resumes makes the same noise again."""
        self._seed, self._count = seed, 0
        self._units = {torch.float32: UNIT_ROUNDOFF["tf32"]} if tf32 else {}

    def __call__(self, tensor: torch.Tensor, unit: float = 0.0) -> torch.Tensor:
        """Return the moved tensor, of the same shape and dtype; `unit` is a coarser format's roundoff."""
        if tensor.is_nested:
            return tensor
        if tensor.is_complex():
            return as_complex(self(as_real(tensor), unit))
        self._count += 1
        unit = unit or self._units.get(tensor.dtype, number_format(tensor.dtype).unit_roundoff)
        generator = torch.Generator(tensor.device).manual_seed(derived_seed(self._seed, self._count))
        given = tensor.detach()
        exact = given if given.dtype == torch.float64 else given.float()
        scale = _up_or_down(exact, unit, generator)
        moved = (exact * scale).to(given.dtype)
        # A sigmoid that has reached one stays a probability: losses refuse what lies beyond.
        goes_beyond = (given.abs() <= 1) & (moved.abs() > 1)
        by = torch.nan_to_num(moved - given, posinf=0.0, neginf=0.0) * ~goes_beyond
        # The sum is exact, and autograd keeps no tensor for it: activation checkpointing counts what is kept.
        result = tensor + by
        if result.requires_grad:
            result.register_hook(partial(_times, scale))  # type: ignore[no-untyped-call]
        return result


def _times(scale: Tensor, gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else (gradient * scale).to(gradient.dtype)


def _up_or_down(like: Tensor, unit: float, generator: torch.Generator) -> Tensor:
    """Return 1 + 2 x unit or 1 - 2 x unit, at random, for each number of a tensor of fp32 or fp64."""
    # A byte of what one call draws for each number: a call for each takes six times as long on a CPU.
    words = torch.empty(-(-like.numel() // 8), dtype=torch.int64, device=like.device).random_(generator=generator)
    ups = (words.view(torch.uint8)[: like.numel()] & 1).view(like.shape)
    return ups.to(like.dtype).mul_(4 * unit).add_(1 - 2 * unit)


class OtherOrder:
    """Hooks by which a twin's normalisation layers sum in another order, in traced steps.

    What they sum over has up to a million numbers: over the positions of images one after the other with channels last,
    in a cascade else; and in bf16 over all rows for the gradient of a LayerNorm's bias, on a CPU in bf16 itself.
    Rounding that noise on each number does not show, as it averages out.
    """

    def __init__(self, module: nn.Module, active: Callable[[], bool]) -> None:
        """Attach to a layer, ahead of other hooks; `active` tells whether the pass is to be changed.

        One that checkpointing runs again inside backward is to be changed as the first was.
        """
        self._active, self._turned = active, False
        before, after = Hook(self._turn), Hook(self._turn_back)
        self.handles = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def _turn(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        given = inputs[0] if inputs and isinstance(inputs[0], Tensor) else None
        plain = given is not None and is_strided(given) and not is_dtensor(given)
        self._turned = plain and self._active()
        return (_in_other_order(module, inputs[0]), *inputs[1:]) if self._turned else None

    def _turn_back(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return _in_other_order(module, output) if self._turned else None


def sums_over_rows(module: nn.Module) -> bool:
    """Tell whether a layer takes means over the positions of an image, or its gradients sum over many rows.

    A class of one's own over LayerNorm, as one for images that moves channels last itself, has its rows elsewhere.
    """
    rows = isinstance(module, nn.LayerNorm) and type(module).forward is nn.LayerNorm.forward
    return rows or isinstance(module, (nn.modules.batchnorm._NormBase, nn.GroupNorm))


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _in_other_order(module: nn.Module, tensor: Tensor) -> Tensor:
    """Return an image in the other memory format, or rows from the last to the first; twice, they are as they were."""
    if isinstance(module, nn.LayerNorm):
        return tensor.flip(tuple(range(tensor.ndim - len(module.normalized_shape))))
    if tensor.ndim not in _CHANNELS_LAST:
        return tensor
    return tensor.contiguous(
        memory_format=_CHANNELS_LAST[tensor.ndim] if tensor.is_contiguous() else torch.contiguous_format
    )
