"""Activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174)."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from trainparity.parity.recording.tensors import is_strided


def recompute_in_backward(blocks: Sequence[nn.Module]) -> None:
    """Make each block keep only its inputs, and run its forward pass again in the backward pass.

    The method `forward` is replaced, not the module, so parameters keep their names. The training is the same, see
    `Recomputed`.
    """
    for block in blocks:
        block.forward = partial(Recomputed(block), block.forward)


class Recomputed:
    """Calls of a block whose forward pass runs again in backward, as the first did.

    The second pass draws the same random numbers, and begins with the same buffers: what it writes into them, as
    BatchNorm's running statistics or the vectors of a spectral norm, is dropped. Large buffers, as a mask is, are kept
    for it once they were seen to be written.
    """

    def __init__(self, block: nn.Module) -> None:
        self._owners = [module for module in block.modules() if any(True for _ in module.buffers(recurse=False))]
        self._written: set[_Place] = set()
        """Large buffers that a forward pass was seen to write."""
        self._modes: set[tuple[bool, ...]] = set()
        """Of training or evaluation, module by module, in which that was looked for number by number."""

    def __call__(self, forward: Callable[..., Any], *inputs: Any, **keywords: Any) -> Any:
        """Call the block's own `forward`."""
        if torch.compiler.is_compiling():  # what is compiled writes buffers once
            return checkpoint(forward, *inputs, use_reentrant=False, **keywords)
        # In place: of tensors among the keywords checkpoint would not look where they are, nor at their generator.
        call, given = partial(_with_keywords, forward, [*keywords]), (*keywords.values(), *inputs)
        mode = tuple(module.training for module in self._owners)
        buffers = self._buffers()
        large = {at: (buffer, buffer._version) for at, buffer in buffers.items() if buffer.nbytes > _SMALL}
        kept = self._written if mode in self._modes else large.keys()
        again = _Again({at: buffer for at, buffer in buffers.items() if at not in large or at in kept}, given)
        output = checkpoint(call, *given, use_reentrant=False, context_fn=lambda: (nullcontext(), again))
        self._modes.add(mode)
        written = {at for at, then in large.items() if _was_written(_at(at), *then, again.begun.get(at))}
        self._written |= written
        again.lost = [name for _, name in written - again.begun.keys()]
        return output

    def _buffers(self) -> "dict[_Place, Tensor]":
        return {(owner, name): buffer for owner in self._owners for name, buffer in owner.named_buffers(recurse=False)}


_SMALL = 1 << 20
"""Bytes of a buffer that is kept for each call, as it may be written in any: some are from a later step on."""

_Place = tuple[nn.Module, str]
"""A module, and the name of its buffer."""


def _at(place: _Place) -> Tensor:
    module, name = place
    buffer: Tensor = module._buffers[name]  # type: ignore[assignment]
    return buffer


def _was_written(now: Tensor, buffer: Tensor, version: int, copy: Tensor | None) -> bool:
    # BatchNorm's kernels write without a new version.
    return now is not buffer or now._version != version or (copy is not None and not torch.equal(now, copy))


def _copies(buffers: Mapping[_Place, Tensor]) -> dict[_Place, Tensor]:
    """Copy buffers: those that lie in one memory, as one that two modules share and its views, lie in one again."""
    memories: dict[tuple[torch.device, int], torch.UntypedStorage] = {}
    others: dict[int, Tensor] = {}

    def copy(buffer: Tensor) -> Tensor:
        plain = type(buffer) is Tensor and is_strided(buffer)
        special = not plain or buffer.is_quantized or buffer.is_conj() or buffer.is_neg()
        if special or (memory := buffer.untyped_storage()).nbytes() > max(_SMALL, buffer.nbytes):
            return others.setdefault(id(buffer), buffer.detach().clone())
        where = buffer.device, memory.data_ptr()
        if where not in memories:
            memories[where] = memory.clone()  # type: ignore[no-untyped-call]
        return buffer.new_empty(0).set_(memories[where], buffer.storage_offset(), buffer.shape, buffer.stride())

    with torch.no_grad():
        return {at: copy(buffer) for at, buffer in buffers.items()}


def _with_keywords(forward: Callable[..., Any], names: Sequence[str], *given: Any) -> Any:
    """Call something with values by their names, and the others as they are."""
    return forward(*given[len(names) :], **dict(zip(names, given, strict=False)))


def versioned(given: Any) -> list[Tensor]:
    """Return the tensors in what a block is given of which a change in place can be told."""
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and not leaf.is_inference()]


class _Again(AbstractContextManager[None]):
    """Around each further pass of a call: backward may come through it several times."""

    def __init__(self, buffers: Mapping[_Place, Tensor], given: Any) -> None:
        """Begin with the buffers as they are now, and with the same inputs: they must not have been changed."""
        self.begun = _copies(buffers)
        self.lost: list[str] = []
        """Large buffers that the first pass has written, and no pass before it: what they were is not known."""
        self._versions = [(weakref.ref(leaf), leaf._version) for leaf in versioned(given)]

    def __enter__(self) -> None:
        """Leave the buffers of the model alone."""
        for reference, version in self._versions:
            if (leaf := reference()) is not None and leaf._version != version:
                raise RuntimeError(
                    f"a tensor {list(leaf.shape)} that a block was given was changed in place after it: the block "
                    "can't be computed again in backward"
                )
        if self.lost:
            raise RuntimeError(
                f"a block wrote its buffer {', '.join(self.lost)}, which it did not in earlier passes, and can't be "
                "computed again as it began; go on from a checkpoint without recomputation"
            )
        self._own = {at: _at(at) for at in self.begun}
        self._put(_copies(self.begun))

    def __exit__(self, *_: object) -> None:
        """Give the model its own again."""
        self._put(self._own)

    def _put(self, buffers: Mapping[_Place, Tensor]) -> None:
        for (module, name), buffer in buffers.items():
            module._buffers[name] = buffer
