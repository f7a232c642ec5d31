"""One training forward pass as it is seen: its samples, and sums of what its modules return and are given back."""

from collections import Counter, defaultdict
from collections.abc import Callable, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from trainparity.parity.recording.apart import has_numbers, unseen
from trainparity.parity.recording.formats import as_real, is_inexact, where_float64_is
from trainparity.parity.recording.generators import state_outside_of_torch
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.later import Later
from trainparity.parity.recording.names import OUTPUT, of_call, of_sums, of_whole
from trainparity.parity.recording.padding import Tokens
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.signs import Signs
from trainparity.parity.recording.tensors import has_rows, in_memory, rows_of, tensors
from trainparity.parity.recording.time_first import batch_first
from trainparity.parity.recording.views import Views


class Pass:
    """A call of the model, or of a part of it that the loop calls by itself.

    What a module returns [B, ...] is summed over the samples, each times a random number that belongs to the sample,
    and so is the gradient of it. Such a sum does not depend on how the batch was cut into micro-batches and over ranks.
    Where a sample has few numbers, as in a regression or a classifier, there are several such sums, with other signs.
    """

    def __init__(self, training: bool, state: int, evaluating: Tensor) -> None:
        self.training, self.state, self.evaluating = training, state, evaluating
        self.samples: Tensor | None = None
        """Identities, int64 [B]; None: the pass takes what an earlier one, or another model, returned."""
        self.source: Pass | None = None
        """The pass whose samples these are, where the loop calls parts of a model one after the other."""
        self.frozen = False
        """Whether the whole model takes no gradient in it: it is a part of the loss of another one."""
        self.given_by_another = False
        """Whether it is given what another model has made, and gives it a gradient."""
        self.handed_on = False
        """Whether a later pass is given what it returned."""
        self.judged_elsewhere = False
        """Whether another model is given it to make the loss of it, as a discriminator is."""
        self.reached = False
        """Whether a backward pass came through it."""
        self.backwards: set[int] = set()
        """The numbers of those, as autograd counts them."""
        self.drew = False
        """Whether it drew random numbers."""
        self.state_outside = state_outside_of_torch()
        """Of the generators that hardly a model draws from, at its begin."""
        self.differentiable = False
        """Whether a gradient came through it that can be differentiated again: `create_graph`."""
        self.activations: dict[str, Tensor] = {}
        self._gradients: defaultdict[int, dict[str, Tensor]] = defaultdict(dict)
        """Of each backward pass by its number."""
        self.numbers: Counter[str] = Counter()
        """How many numbers these are of."""
        self._calls: Counter[str] = Counter()
        self._handles: list[RemovableHandle] = []
        self.outputs: list[str] = []
        """The names of what the loop got from it, among the activations."""
        self.part = ""
        """The module that is called; of the whole model the name of its output."""
        self.returned: list[str] = []
        """The names of all that it returned, in its order."""
        self._signs: Signs | None = None
        """Of the samples."""
        self.time_first = False
        """Whether the model is given [T, B, ...]: samples lie in the second dimension."""
        self.views = Views()
        """Which rows are those of several views of all samples."""

    def of(self, samples: Tensor, tokens: Tokens | None = None) -> None:
        """Take samples by their identities, int64 [B], and the tokens that they are made of, if they are."""
        self.samples, self._signs = samples, Signs(samples, tokens)

    def turned(self, samples: Tensor, tokens: Tokens | None) -> "Pass":
        """Return the same pass, looked at as one of other samples, which lie in the second dimension."""
        other = Pass(self.training, self.state, self.evaluating)
        other.frozen, other.state_outside, other.time_first = self.frozen, self.state_outside, True
        other.given_by_another, other.part = self.given_by_another, self.part
        other.of(samples, tokens)
        return other

    def after(self, source: "Pass") -> None:
        """Take the samples of an earlier pass, in its order."""
        self.source, self._signs, self.time_first = source, source._signs, source.time_first
        self.views = source.views

    def counts(self) -> bool:
        """Tell whether the pass belongs to the training: one in evaluation mode does if backward came through it."""
        return not self.frozen and (self.training or self.reached)

    def is_of_another_loss(self, thrown_away: Set[int]) -> bool:
        """Tell whether it is part of another model's loss alone, as a critic of an actor's.

        Then the gradients of its backward passes are among those that the loop has `thrown_away`, by their numbers.
        """
        return self.given_by_another and bool(self.backwards) and self.backwards <= thrown_away

    def reach(self) -> None:
        """Note that a backward pass came through it, and through those that its samples came by."""
        self.backwards.add(torch._C._current_graph_task_id())
        found: Pass | None = self
        while found is not None and not found.reached:
            found.reached = True
            found = found.source

    def see(self, module: str, output: Any, sketches: Later, noise: Noise | None) -> str | None:
        """Add what a module returned, and later its gradient; return its name, None without a tensor [B, ...] in it.

        A twin's `noise` is added to the gradient after it was seen.
        """
        self._calls[module] += 1
        name = of_call(module, min(self._calls[module], _MOST_CALLS))
        inexact = (tensor for tensor in tensors(output) if is_inexact(tensor))
        return name if any(self.see_tensor(name, tensor, sketches, noise) for tensor in inexact) else None

    def see_draws(self, state: int) -> None:
        """Note whether the pass has drawn random numbers, by the state of torch's generators after it."""
        drew_outside = state_outside_of_torch() != self.state_outside
        self.drew = drew_outside or state != self.state
        if drew_outside:
            self.state = derived_seed(self.state, self.state_outside)

    def see_tensor(self, name: str, tensor: Tensor, sketches: Later, noise: Noise | None) -> bool:
        """Add one tensor, and later its gradient; tell whether its rows are samples."""
        if not self._see_values(name, tensor, sketches):
            return False
        if tensor.requires_grad:

            def given_back(gradient: Tensor | None) -> Tensor | None:
                if gradient is None or not has_numbers(gradient):  # None: of an LSTM's second backward pass
                    return None
                return self._given_back(name, gradient, sketches, noise)

            self.hook(tensor, given_back)
        return True

    def hook(self, tensor: Tensor, given_back: Callable[[Tensor | None], Tensor | None]) -> None:
        """Look at the gradient of what a module has returned."""
        handle = tensor.register_hook(given_back)  # type: ignore[no-untyped-call]
        if isinstance(tensor, nn.Parameter):  # which outlives the pass
            self._handles.append(handle)

    def let_go(self) -> None:
        """Leave no hooks on parameters that modules have returned."""
        while self._handles:
            self._handles.pop().remove()

    def _see_values(self, name: str, tensor: Tensor, sketches: Later) -> bool:
        if not tensor.ndim or is_dtensor(tensor) or (sums := self._sums(tensor, own_alone=True)) is None:
            return False
        _add(self.activations, name, sums, sketches)
        assert self._signs is not None  # else there were no sums
        self.numbers[name] += self._signs.numbers(self._batch_first(tensor)) * (1 + tensor.is_complex())
        return True

    def _batch_first(self, tensor: Tensor) -> Tensor:
        assert self._signs is not None
        return batch_first(tensor, len(self._signs)) if self.time_first else tensor

    def _sums(self, tensor: Tensor, *, own_alone: bool = False) -> Tensor | None:
        """Return the signed sums over the samples; None where the rows are no samples."""
        if not self._signs or not has_rows(tensor):
            return None
        by_sample = self.views.by_sample(self._batch_first(tensor), len(self._signs))
        return self._signs.sum(by_sample, own_alone=own_alone)

    def see_returned(self, name: str, tensor: Tensor, sketches: Later) -> str | None:
        """Add what the model returns that has no row for each sample, and later its gradient; return its name.

        So a graph's class is, where the samples are its nodes, or a sequence's, where they are its time steps [T, B].
        What the sums of its rows [..., C] and of their squares are, and of the gradients g and of each row times its g,
        does not depend on how the batch was cut, and another order of the labels changes the last.
        """
        if not tensor.ndim or not tensor.requires_grad or not in_memory(tensor):
            return None
        rows, of_sums_name = rows_of(tensor), of_sums(name)
        _add(self.activations, of_sums_name, torch.cat([rows.sum(0), rows.square().sum(0)]), sketches)
        self.numbers[of_sums_name] += tensor.numel()

        def given_back(gradient: Tensor | None) -> None:
            if gradient is not None and has_numbers(gradient):
                given = rows_of(gradient)
                self._add_gradient(of_sums_name, torch.cat([given.sum(0), (rows * given).sum(0)]), sketches)

        self.hook(tensor, unseen(given_back))
        return of_sums_name

    def see_whole(self, name: str, tensor: Tensor, sketches: Later) -> str | None:
        """Add a tensor whose rows are no samples, as an RNN's hidden state; return its name, None if it has no numbers.

        The sum over micro-batches depends on how the batch was cut.
        """
        if not in_memory(tensor):
            return None
        exact, whole = where_float64_is(as_real(tensor.detach())).double(), of_whole(name)
        _add(self.activations, whole, torch.nan_to_num(exact, posinf=_INFINITE, neginf=-_INFINITE), sketches)
        return whole

    @unseen
    def _given_back(self, name: str, gradient: Tensor, sketches: Later, noise: Noise | None) -> Tensor | None:
        if (sums := self._sums(gradient)) is not None:
            self._add_gradient(name, sums, sketches)
        return noise(gradient) if noise is not None and not name.startswith(OUTPUT) else None

    def _add_gradient(self, name: str, sums: Tensor, sketches: Later) -> None:
        """Add what a backward pass gave back."""
        self.differentiable |= torch.is_grad_enabled()
        _add(self._gradients[torch._C._current_graph_task_id()], name, sums, sketches)

    def gradients(self, aside: Set[int]) -> dict[str, Tensor]:
        """Return what backward passes gave back in sum, but for some of these by their numbers."""
        found: dict[str, Tensor] = {}
        for number, given in self._gradients.items():
            if number not in aside:
                for name, sketch in given.items():
                    found[name] = found[name] + sketch if name in found else sketch
        return found


_INFINITE = 1e4
"""What stands for infinity in a mask."""

_MOST_CALLS = 8
"""Calls of one module within a pass that are told apart; further ones are added to the last."""


def _add(sums: dict[str, Tensor], name: str, tensor: Tensor, sketches: Later) -> None:
    """Add a tensor's sketch to those of its name, which is there at once."""
    sums.setdefault(name, _NOTHING)

    def add(sketch: Tensor) -> None:
        sums[name] = sums[name] + sketch if sums[name].ndim else sketch

    sketches.add(tensor, add)


_NOTHING = torch.zeros((), dtype=torch.float64)
"""What sketches are added to."""
