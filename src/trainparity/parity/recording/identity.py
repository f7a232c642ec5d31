"""What the samples of a forward pass are known by."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainparity.parity.recording.formats import is_inexact
from trainparity.parity.recording.sketch import mix, row_digests
from trainparity.parity.recording.tensors import as_dense, has_rows

Samples = Callable[[tuple[Any, ...], dict[str, Any]], Tensor]
"""From the arguments of the model's forward to the identities of its samples: int64 [B]."""


def identities(samples: str | Samples | None) -> Samples | None:
    """Return what tells the samples, given by itself or as the name of one of the forward's arguments.

    Raises:
        TypeError: it is neither; and by what is returned, where it gives no integers.
        KeyError: by what is returned, where there is no such argument.
    """
    if samples is None:
        return None
    if not callable(samples) and not (isinstance(samples, str) and samples):
        raise TypeError(f"samples is {samples!r}; give the name of an argument of the model's forward, or a function")
    given = samples if callable(samples) else _argument(samples)

    def checked(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
        found: Any = given(inputs, keywords)
        if not isinstance(found, Tensor) or found.dtype not in _INTEGERS:
            what = f"a tensor of {found.dtype}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise TypeError(f"samples gave {what}; each sample is known by an integer: a tensor [B] of int64")
        return found

    return checked


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _argument(name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    def argument(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        named = next((i for i in inputs if isinstance(i, dict) and name in i), keywords)
        if name not in named:
            raise KeyError(f"samples={name!r}: the model's forward got no such argument; there are {sorted(named)}")
        return named[name]

    return argument


def identifying(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor | None:
    """Return the tensor [B, ...] by whose rows samples are known: the first that the model is given.

    The first alone, as wrappers hand labels to the module that they call and loops without one don't. Tokens that
    an `attention_mask` leaves out don't count, so that padding on the right does not make another sample. Of a list of
    images, which differ in size, it is their hashes.
    """
    if inputs and isinstance(inputs[0], list) and _are_images(inputs[0]):
        return torch.stack([row_digests(image[None])[0] for image in inputs[0]])
    named = _named(inputs, keywords)
    leaves = [named["input_ids"]] if named else tree_leaves((inputs, keywords))
    dense = (as_dense(leaf) for leaf in leaves if isinstance(leaf, Tensor))
    tensor = next((leaf for leaf in dense if has_rows(leaf)), None)
    mask = attended(inputs, keywords)
    return tensor if tensor is None or mask is None else tensor * mask.to(tensor.dtype)


def attended(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor | None:
    """Return the `attention_mask` that the model is given for each of its `input_ids`; None without one."""
    named = _named(inputs, keywords)
    tokens, mask = named.get("input_ids"), named.get("attention_mask")
    if not isinstance(tokens, Tensor) or not isinstance(mask, Tensor):
        return None
    return mask if mask.shape == tokens.shape else None


def _named(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    return next((leaf for leaf in (*inputs, keywords) if isinstance(leaf, dict) and "input_ids" in leaf), {})


def is_one_sample(given: Tensor, module: nn.Module) -> bool:
    """Tell whether a vector is the features of one sample, as reinforcement learning gives them, and not a batch."""
    first = next((part for part in module.modules() if isinstance(part, nn.Linear)), None)
    return given.ndim == 1 and is_inexact(given) and first is not None and first.in_features == len(given)


def never_zero(samples: Tensor) -> Tensor:
    """Return identities of which none is zero: zeros pad the ranks' lists to one length."""
    return torch.where(samples >= 0, samples + 1, samples)


def hash_of(samples: Tensor) -> Tensor:
    """Hash samples in any order; hashes of two lists add up to that of both."""
    return mix(never_zero(samples)).sum()


def _are_images(values: list[Any]) -> bool:
    """Tell whether a list holds images [C, H, W], as detection models are given: each is a sample."""
    return bool(values) and all(isinstance(v, Tensor) and v.ndim == 3 and len(v) in (1, 3, 4) for v in values)
