"""Which samples a forward pass is given, or which earlier pass it goes on from."""

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.identity import Samples, attended, hash_of, identifying, is_one_sample
from trainparity.parity.recording.padding import Tokens
from trainparity.parity.recording.passes import Pass
from trainparity.parity.recording.returned import Returned
from trainparity.parity.recording.sketch import row_digests
from trainparity.parity.recording.tensors import tensors


class Origins:
    """Of one recorded model: the samples of its passes, and what they returned to be known by it again."""

    def __init__(self, samples: Samples | None) -> None:
        self._samples = samples
        self._returned = Returned()
        self.given: Tensor | None = None
        """By whose rows the samples of the last pass are known."""
        self.lengths: set[int] = set()
        """Numbers of a sample in the passes of training."""
        _ALL.add(self)
        self.begin()

    def close(self) -> None:
        """Be no source for the passes of models beside this one any more."""
        _ALL.discard(self)

    def turned(self, found: Pass) -> Pass | None:
        """Return a pass as it is if the model is given time first; None where its samples are another pass's."""
        given = self.given
        if given is None or given.ndim < 2 or found.source is not None or found.samples is None:
            return None
        rows, told = given.transpose(0, 1), self._samples is not None or bool(self._expected)
        return found.turned(found.samples if told else row_digests(rows).cpu(), Tokens.of(rows))

    def begin(self, expected: Sequence[Tensor] = ()) -> None:
        """Begin a step; `expected` gives the samples of each micro-batch, where the loop knows them."""
        self._expected = list(expected)
        self._micro_batch, self._taken = 0, 0
        self._source: nn.Module | None = None
        self._returned.begin()
        self.aside = torch.zeros((), dtype=torch.int64)
        """Hash of the samples, known by their contents, that passed without gradients; as `samples` of a trace."""

    def next_micro_batch(self) -> None:
        """Note that a backward pass has ended."""
        self._micro_batch, self._taken = self._micro_batch + 1, 0
        self._returned.end_micro_batch(keep=len(_ALL) > 1)  # as a discriminator gets what it has judged before
        self._source = None

    def add(self, found: Pass, made: list[Tensor]) -> None:
        """Add what a pass returned."""
        self._returned.add(found, made)

    def returned(self) -> list[Tensor]:
        """Return what the passes of this micro-batch have returned."""
        return self._returned.tensors()

    def made(self, given: Tensor) -> tuple[Pass, int] | None:
        """Return the pass of this micro-batch that returned a tensor that another is given, and as which of all."""
        return self._returned.place(given)

    @unseen
    def add_aside(self, module: nn.Module, inputs: Any, keywords: Any, output: Any) -> None:
        """Add a call without gradients: it may be a frozen part, whose output another part is given."""
        self._returned.add_aside(module, inputs, keywords, list(tensors(output)))
        given = identifying(inputs, keywords)
        if given is not None and self._samples is None and not self._expected:
            self.aside += hash_of(row_digests(given[None] if is_one_sample(given, module) else given).cpu())

    def place(
        self, found: Pass, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], *, time_first: bool
    ) -> Pass | None:
        """Find out which samples a pass is given; return the earlier pass that it goes on from, if it does.

        They lie in the second dimension where the module is given `time_first`.
        """
        given, self.given = identifying(inputs, keywords), None
        if given is None:
            return None
        if (arguments := self._returned.given_aside(module, given)) is not None:
            inputs, keywords = arguments
            given = identifying(inputs, keywords)
            if given is None:
                return None
        self.given = given
        turned = time_first and given.ndim > 1
        rows = given[None] if is_one_sample(given, module) else given.transpose(0, 1) if turned else given
        own = self._returned.source(given)
        others = None if own else self._pass_beside(given)
        earlier = own or others
        if earlier is None and (given.grad_fn is not None or module is not self._source):
            earlier = self._returned.last_of(len(rows), module)  # another part is called, with as many rows
        if earlier is not None:
            found.after(earlier)
            # Parts beside one another, as a critic beside an actor, are given the same samples, or other ones.
            earlier.handed_on |= own is not None or others is not None or given.grad_fn is not None
            earlier.judged_elsewhere |= others is not None and given.grad_fn is not None
        elif given.grad_fn is None:
            self._source = module if self._source is None else self._source  # a model may have a truth of its own
            found.of(self._identities(inputs, keywords, rows), Tokens.of(rows, attended(inputs, keywords)))
            found.time_first = turned
            if module.training and len(rows):
                self.lengths.add(rows[:1].numel())
        # Else another model made the input: there are no samples to know it by.
        return earlier

    def _pass_beside(self, given: Tensor) -> Pass | None:
        """Return the pass of another model that a tensor came from."""
        beside = [origins._returned for origins in _ALL if origins is not self]
        now = (one for returned in beside if (one := returned.source(given)))
        earlier = (one for returned in beside if (one := returned.earlier_source(given)))
        return next(now, None) or next(earlier, None)

    def _identities(self, inputs: tuple[Any, ...], keywords: dict[str, Any], rows: Tensor) -> Tensor:
        if self._micro_batch < len(self._expected) and self._taken >= len(self._expected[self._micro_batch]):
            self.next_micro_batch()  # its backward pass was not seen
        if self._micro_batch < len(self._expected):
            known = self._expected[self._micro_batch]
            part = known[self._taken : self._taken + len(rows)]
            self._taken += len(part)
            if len(part) == len(rows):
                return part
        if self._samples is not None:
            return self._samples(inputs, keywords).detach().flatten().to("cpu", torch.int64)
        return row_digests(rows).cpu()


_ALL: weakref.WeakSet[Origins] = weakref.WeakSet()
"""Of all models that are recorded in this process: one may be given what another returned."""
