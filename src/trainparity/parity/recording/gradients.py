"""A step's gradients, read where they are: before they are clipped, and as the update is given them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.averaged import held_alike, means
from trainparity.parity.recording.backward import BackwardHooks
from trainparity.parity.recording.holders import Holders
from trainparity.parity.recording.sketch import Sketcher
from trainparity.parity.recording.snapshot import GRADIENT, Snapshot, norms


class Gradients:
    """Records them between `begin` and `end`. An optimizer may overwrite or drop them, so none is read after it."""

    def __init__(
        self, parameters: Callable[[], Sequence[Tensor]], holders: Callable[[], Holders], backward: BackwardHooks
    ) -> None:
        """`holders` tells which rank updates what; it is asked where all ranks are."""
        self._parameters, self._holders, self._backward = parameters, holders, backward

    def begin(self, arrays: Snapshot, sketch: Sketcher) -> None:
        """Record a new step into its arrays."""
        self._arrays, self._mean = arrays, Snapshot(sketch)
        self._seen, self._backwards = False, 0
        self._unclipped: dict[Tensor, Tensor] = {}
        self._held_after = 0

    def hold(self, parameters: Sequence[Tensor]) -> None:
        """Keep gradients as they are before they are clipped, where others have been applied already.

        Of several calls in a backward pass the first of each parameter, and none of an earlier pass.
        """
        if self._held_after != self._backward.count:
            self._held_after, self._unclipped = self._backward.count, {}
        new = (parameter for parameter in parameters if parameter not in self._unclipped)
        self._unclipped |= {p: p.grad.detach().clone() for p in new if p.grad is not None}

    @property
    def outdated(self) -> bool:
        """Whether a backward pass came after they were last seen, or none was seen at all."""
        return self._backward.count > self._backwards

    def see(self, *, again: bool) -> bool:
        """Record them, if that was not done, or is to be done `again`; tell whether it was. Every rank must call it."""
        if self._seen and not again:
            return False
        self._seen, self._backwards = True, self._backward.count
        parameters = self._parameters()
        gradients = self._holders().tensors(parameters, [parameter.grad for parameter in parameters])
        every = ranks.gather_alike({
            "rank/gradient": torch.tensor(self._arrays.record(GRADIENT, gradients)),
            "rank/total": self._backward.total(),
            "rank/missing": torch.tensor([gradient is None for gradient in gradients]),
        })  # fmt: skip
        self._arrays |= every
        self._mean.clear()
        if ranks.are_apart(every["rank/gradient"]):
            self._arrays["rank/gradient_apart"] = ranks.apart(self._arrays[f"{GRADIENT}/digest"])
            self._mean.record(GRADIENT, means(parameters, gradients))
        return True

    def see_applied(self, *, again: bool) -> None:
        """Record what the update is given: its norms, and all of it if that is not what was seen before."""
        if self._unclipped and self._held_after == self._backward.count:
            with _in_place(self._unclipped):
                self.see(again=True)
            again = False
        if self.see(again=again):
            for arrays in filter(None, (self._arrays, self._mean)):
                arrays["applied/norm"] = arrays[f"{GRADIENT}/norm"].clone()
            return
        parameters = self._parameters()
        gradients = [parameter.grad for parameter in parameters]
        self._arrays["applied/norm"] = self._holders().numbers(norms(gradients))
        if self._mean:
            self._mean["applied/norm"] = self._holders().numbers(norms(means(parameters, gradients)))

    @property
    def applied_seen(self) -> bool:
        """Whether it is known what the update was given."""
        return "applied/norm" in self._arrays

    def end(self) -> None:
        """Take the mean over ranks of a parameter that ranks with other gradients hold alike after the update.

        Such an update averages them itself. Of one that they hold apart, as each its own, the rank's is taken.
        """
        if not self._mean:
            return
        alike = held_alike(self._parameters())
        for name, mean in self._mean.items():
            self._arrays[name] = torch.where(alike.view(-1, *[1] * (mean.ndim - 1)), mean, self._arrays[name])


@contextmanager
def _in_place(gradients: Mapping[Tensor, Tensor]) -> Iterator[None]:
    """Give parameters other gradients meanwhile."""
    before = [(parameter, parameter.grad) for parameter in gradients]
    for parameter, gradient in gradients.items():
        parameter.grad = gradient
    try:
        yield
    finally:
        for parameter, had in before:
            parameter.grad = had
