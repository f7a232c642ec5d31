"""Weights that the loop writes after a step's last forward pass and before its update: an average that lags a step."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from trainparity.parity.recording import stacks
from trainparity.parity.recording.kinds import is_dtensor


class Written:
    """Compares weights that no optimizer holds where a step's last forward pass ends and where its update begins.

    A model may write its average in its own `forward`, as MoCo's does, a loop before it calls the average's own part,
    as BYOL's do. Of a part that is called again and again, as a cell, the first call of a micro-batch is looked at, and
    none that comes after the last backward pass.

    All of them in the first two steps, and from then on those that the loop has written since the step before: what is
    frozen for good costs nothing. Of a tensor that is spread over ranks this rank's part is looked at.
    """

    def __init__(self, parameters: Callable[[], Sequence[Tensor]], is_held: Callable[[], set[int]]) -> None:
        """`is_held` tells which parameters the optimizer holds, by identity."""
        self._parameters, self._is_held = parameters, is_held
        self._steps = 0
        self._moving = torch.zeros(0, dtype=torch.bool)
        self._left: Tensor | None = None
        self.begin()

    def begin(self) -> None:
        """Look at a new step."""
        self._before: dict[int, int] = {}
        self._passed: dict[int, int] = {}
        """The same where the last pass ends, which may be one that no backward pass follows, as for a log."""
        self._called: set[nn.Module] = set()

    def passed(self, part: nn.Module) -> None:
        """Look at the weights that a forward pass of the model, or of a part of it, has left."""
        if part not in self._called:
            self._called.add(part)
            self._passed = self._digests(self._looked_at())

    def backward_ended(self) -> None:
        """Keep what was before it, and look at the passes of the next micro-batch, too."""
        self._before = self._passed
        self._called.clear()

    def updates(self, starts: Tensor) -> Tensor:
        """Return which parameters were written since then: bool [P].

        Args:
            starts: Sketches of all parameters where the update begins; zeros on other ranks than the first.
        """
        parameters = self._parameters()
        if self._left is not None and self._left.shape == starts.shape:
            since = (starts != self._left).any(1)
            self._moving = self._moving | since if len(self._moving) == len(since) else since
        before = self._before or self._passed
        self._before, self._passed = {}, {}
        now = self._digests([parameter for parameter in parameters if id(parameter) in before])
        return torch.tensor([id(p) in now and now[id(p)] != before[id(p)] for p in parameters], dtype=torch.bool)

    def ends(self, weights: Tensor) -> None:
        """Note sketches of the weights that the step has left."""
        self._left, self._steps = weights, self._steps + 1

    def _looked_at(self) -> list[Tensor]:
        held = self._is_held()
        every = self._parameters()
        if self._steps >= _IN_FULL:
            every = [parameter for parameter, moves in zip(every, self._moving.tolist(), strict=False) if moves]
        return [parameter for parameter in every if id(parameter) not in held]

    def _digests(self, parameters: Sequence[Tensor]) -> dict[int, int]:
        if not parameters:
            return {}
        (found,) = stacks.measured((p.to_local() if is_dtensor(p) else p for p in parameters), stacks.digests)
        return {id(parameter): int(digest) for parameter, digest in zip(parameters, found.tolist(), strict=True)}


_IN_FULL = 2
"""Steps after which it is known what the loop writes between them."""
