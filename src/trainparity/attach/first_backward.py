"""Sees the first backward pass of a training that calls no module, and clipping before its first step."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainparity.attach.owners import parameters_of
from trainparity.parity.recording import intercept

_MOST_NODES = 100_000
"""Operations of a loss that are looked at for the tensors that it is made of."""


class FirstBackward(intercept.Listener):
    """Tells of the optimizer that updates what a backward pass reaches, until `end`."""

    def __init__(
        self, optimizers: Callable[[], Sequence[torch.optim.Optimizer]], then: Callable[[torch.optim.Optimizer], None]
    ) -> None:
        self._optimizers, self._then, self._ended = optimizers, then, False
        self.seen = False
        """Whether there was a backward pass, of whatever."""
        intercept.listen(self)

    def end(self) -> None:
        """Tell nothing any more; it stays among those that are told, as it may be called while they are."""
        self._ended = True

    def backward(self, roots: Sequence[Tensor], *, given: bool) -> None:
        """Look for the optimizer of what the pass will reach."""
        self.seen = True
        if not self._ended:
            self._tell(_leaves(roots))

    def clipping(self, clipped: Sequence[Tensor], max_norm: float, total_norm: Tensor) -> None:
        """Look for the optimizer of what has a gradient: it was made after the backward pass."""
        if not self._ended:
            held = (tensor for one in self._optimizers() for tensor in parameters_of(one).values())
            self._tell({id(tensor): tensor.numel() for tensor in held if tensor.grad is not None})

    def _tell(self, reached: dict[int, int]) -> None:
        shares = [(sum(reached.get(key, 0) for key in parameters_of(one)), one) for one in self._optimizers()]
        most, optimizer = max(shares, key=lambda share: share[0], default=(0, None))
        if most and optimizer is not None:
            self._then(optimizer)


def _leaves(roots: Sequence[Tensor]) -> dict[int, int]:
    """Return the sizes of the leaves that a backward pass adds gradients to, by identity."""
    stack = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen, found = set(stack), dict[int, int]()
    while stack and len(seen) < _MOST_NODES:
        node = stack.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable.numel()
        parents = [parent for parent, _ in node.next_functions if parent is not None and parent not in seen]
        seen.update(parents)
        stack += parents
    return found
