"""What the passes of a model have returned: a tensor that a later pass is given is known by it."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from trainparity.parity.recording.identity import identifying
from trainparity.parity.recording.passes import Pass
from trainparity.parity.recording.sketch import row_digests


class _Made:
    """Passes with the tensors that they returned, which are found by where they lie in memory."""

    def __init__(self) -> None:
        self._passes: list[tuple[Pass, list[Tensor]]] = []
        self._by_place: dict[int, tuple[Pass, int, Tensor]] = {}
        """The last pass that returned what lies there, and as which of all."""

    def __iter__(self) -> Iterator[tuple[Pass, list[Tensor]]]:
        return iter(self._passes)

    def add(self, found: Pass, made: list[Tensor]) -> None:
        """Add what a pass returned; it is held, so that nothing else comes to lie there."""
        self._passes.append((found, made))
        places = [(place, number, tensor) for number, tensor in enumerate(made) if (place := _place(tensor))]
        self._by_place |= {place: (found, number, tensor) for place, number, tensor in reversed(places)}

    def find(self, given: Tensor) -> tuple[Pass, int] | None:
        """Return the last pass that returned a tensor, or what it is a view of, and as which of all."""
        found = self._by_place.get(_place(given))
        if found is None or _place(found[2]) != _place(given):  # memory that was let go since
            return None
        return found[:2]

    def last_of(self, count: int, but: Pass | None) -> Pass | None:
        """Return the last pass with so many samples, `but` one."""
        passes = (one for one, _ in reversed(self._passes) if one is not but)
        return next((one for one in passes if one.samples is not None and len(one.samples) == count), None)


class Returned:
    """Passes with the tensors that they returned, in this step and the one before."""

    def __init__(self) -> None:
        self._now = _Made()
        """Of this micro-batch."""
        self._kept = _Made()
        """Of this step, before its last backward pass."""
        self._past = _Made()
        """Of the step before."""
        self._aside: tuple[nn.Module, Any, Any, list[Tensor]] | None = None
        """A call without gradients, its arguments and results: it may be a frozen part's."""
        self._frozen: tuple[nn.Module, Pass] | None = None
        """Such a part, and the pass that it was taken for."""
        self._first_aside: tuple[nn.Module, Any, Any] | None = None
        """The first such call of this micro-batch since an evaluation: what others make of it may be features."""

    def begin(self) -> None:
        """Begin a step."""
        self._past, self._kept = self._kept, _Made()
        self._now, self._aside, self._first_aside = _Made(), None, None

    def end_micro_batch(self, *, keep: bool) -> None:
        """Begin a micro-batch; `keep` what was returned in the last one, where another model may be given it yet."""
        for one, made in self._now if keep else ():
            self._kept.add(one, [tensor.detach() for tensor in made])
        self._now, self._first_aside = _Made(), None

    def add(self, found: Pass, made: list[Tensor]) -> None:
        """Add what a pass returned."""
        self._now.add(found, made)

    def tensors(self) -> list[Tensor]:
        """Return what the passes of this micro-batch have returned."""
        return [tensor for _, made in self._now for tensor in made]

    def add_aside(self, module: nn.Module, inputs: Any, keywords: Any, made: list[Tensor]) -> None:
        """Add what a call without gradients was given and returned, in place of the last such call."""
        self._aside = module, inputs, keywords, made
        if self._first_aside is None or _holds_either(module, self._first_aside[0]):
            self._first_aside = module, inputs, keywords

    def given_aside(self, module: nn.Module, given: Tensor) -> tuple[Any, Any] | None:
        """Return the arguments of the call without gradients that made what a module is given; once."""
        if self._aside is not None and _shares(given, self._aside[-1]):
            (_, inputs, keywords, _), self._aside = self._aside, None
            return inputs, keywords
        if self._first_aside is None or module in self._first_aside[0].modules() or given.grad_fn is not None:
            return None  # one that holds this module has made more of its input than what this is given
        _, inputs, keywords = self._first_aside
        if not _may_be_features(given, identifying(inputs, keywords)):
            return None
        self._first_aside = None
        return inputs, keywords

    def source(self, given: Tensor) -> Pass | None:
        """Return the pass of this micro-batch that a tensor came from."""
        self._take_in_aside(given)
        found = self._now.find(given)
        return found[0] if found else None

    def place(self, given: Tensor) -> tuple[Pass, int] | None:
        """Return the pass of this micro-batch that returned a tensor, or what it is a view of, and as which of all."""
        return self._now.find(given)

    def earlier_source(self, given: Tensor) -> Pass | None:
        """Return the pass of this step or the one before that a tensor came from, where backward has come through."""
        found = self._kept.find(given) or self._past.find(given)
        return found[0] if found else None

    def last_of(self, count: int, module: nn.Module) -> Pass | None:
        """Return the last pass of this micro-batch with so many samples, which a module may go on from.

        Not its own without gradients, as of a generator whose samples a critic was given before.
        """
        own = self._frozen is not None and _holds_either(module, self._frozen[0])
        return self._now.last_of(count, self._frozen[1] if self._frozen and own else None)

    def _take_in_aside(self, given: Tensor) -> None:
        """Take the last call without gradients for a frozen part of the model if it made a tensor."""
        if self._aside is None or not _shares(given, self._aside[-1]):
            return
        (module, inputs, keywords, made), self._aside = self._aside, None
        source = identifying(inputs, keywords)
        if source is not None:
            frozen = Pass(False, 0, torch.zeros(0))
            frozen.of(row_digests(source).cpu())
            self._now.add(frozen, made)
            self._frozen = module, frozen


def _holds_either(module: nn.Module, other: nn.Module) -> bool:
    """Tell whether one module is the other, or holds it: the batch before it, as an evaluation's, is done with then."""
    return module is other or other in module.modules() or module in other.modules()


def _may_be_features(given: Tensor, source: Tensor | None) -> bool:
    """Tell whether functions, of which nothing is seen, may have made a tensor of what parts return for a batch.

    Each sample is a point then that was an image, a sequence or tokens before; views of a sample have one form.
    """
    if source is None or not given.ndim or not source.ndim or len(given) != len(source):
        return False
    of_tokens = given.is_floating_point() and not source.is_floating_point()
    return given.ndim < source.ndim or of_tokens


def _shares(given: Tensor, made: Sequence[Tensor]) -> bool:
    """Tell whether a tensor is one of those that a pass returned, or a view of it."""
    place = _place(given)
    return place != 0 and place in {_place(tensor) for tensor in made}


def _place(tensor: Tensor) -> int:
    """Return where a tensor's numbers begin in memory; 0: nowhere, as of a shard or inside a transform (`grad`)."""
    if is_traceable_wrapper_subclass(tensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return 0
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # as of a sparse one
        return 0
