"""Activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174)."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint


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
    BatchNorm's running statistics or the vectors of a spectral norm, is dropped.
    """

    def __init__(self, block: nn.Module) -> None:
        self._owners = [module for module in block.modules() if any(True for _ in module.buffers(recurse=False))]
        self._written: set[_Place] = set()
        """Buffers that a forward pass was seen to write."""
        self._modes: set[tuple[bool, ...]] = set()
        """Of training or evaluation, module by module, in which that was looked for."""

    def __call__(self, forward: Callable[..., Any], *inputs: Any, **keywords: Any) -> Any:
        """Call the block's own `forward`."""
        if torch.compiler.is_compiling():  # what is compiled writes buffers once
            return checkpoint(forward, *inputs, use_reentrant=False, **keywords)
        # In place: of tensors among the keywords checkpoint would not look where they are, nor at their generator.
        call, given = partial(_with_keywords, forward, [*keywords]), (*keywords.values(), *inputs)
        mode = tuple(module.training for module in self._owners)
        buffers = self._buffers() if mode not in self._modes else {at: _at(at) for at in self._written}
        begun = {at: (buffer, buffer._version, buffer.detach().clone()) for at, buffer in buffers.items()}
        again = _Again({at: copy for at, (_, _, copy) in begun.items()}, given)
        output = checkpoint(call, *given, use_reentrant=False, context_fn=again.contexts)
        if mode not in self._modes:
            self._modes.add(mode)
            self._written |= {at for at, then in begun.items() if _was_written(_at(at), *then)}
        return output

    def _buffers(self) -> "dict[_Place, Tensor]":
        return {(owner, name): buffer for owner in self._owners for name, buffer in owner.named_buffers(recurse=False)}


_Place = tuple[nn.Module, str]
"""A module, and the name of its buffer."""


def _at(place: _Place) -> Tensor:
    module, name = place
    buffer: Tensor = module._buffers[name]  # type: ignore[assignment]
    return buffer


def _was_written(now: Tensor, buffer: Tensor, version: int, copy: Tensor) -> bool:
    # BatchNorm's kernels write without a new version.
    return now is not buffer or now._version != version or not torch.equal(now, copy)


def _with_keywords(forward: Callable[..., Any], names: Sequence[str], *given: Any) -> Any:
    """Call something with values by their names, and the others as they are."""
    return forward(*given[len(names) :], **dict(zip(names, given, strict=False)))


def versioned(given: Any) -> list[Tensor]:
    """Return the tensors in what a block is given of which a change in place can be told."""
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and not leaf.is_inference()]


class _Again:
    """The second pass of a call."""

    def __init__(self, begun: dict[_Place, Tensor], given: Any) -> None:
        """Begin with the buffers as they were, and with the same inputs: they must not have been changed."""
        self._begun = begun
        self._versions = [(weakref.ref(leaf), leaf._version) for leaf in versioned(given)]

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return what is around the first pass, and around the second."""
        return nullcontext(), self._from_the_same()

    @contextmanager
    def _from_the_same(self) -> Iterator[None]:
        """Leave the buffers of the model alone."""
        for reference, version in self._versions:
            if (leaf := reference()) is not None and leaf._version != version:
                raise RuntimeError(
                    f"a tensor {list(leaf.shape)} that a block was given was changed in place after it: the block "
                    "can't be computed again in backward"
                )
        own = {at: _at(at) for at in self._begun}
        for (module, name), copy in self._begun.items():
            module._buffers[name] = copy
        try:
            yield
        finally:
            for (module, name), buffer in own.items():
                module._buffers[name] = buffer
