"""Steps of optimizers that are not recorded on a model that is, as of the one that a loop's second phase makes."""

import weakref
from functools import cache
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_RECORDED: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
"""Those that are recorded by anyone in this process, now or before; not those in whose place another one is."""


def given_up(optimizer: torch.optim.Optimizer) -> None:
    """Note that an optimizer's steps are recorded no more, though the recording of its model goes on."""
    _RECORDED.difference_update(_each(optimizer))


def recorded(optimizer: torch.optim.Optimizer) -> None:
    """Note that an optimizer's steps are recorded."""
    _RECORDED.update(_each(optimizer))


def _each(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return an optimizer and those that step together in it."""
    return [optimizer, *getattr(optimizer, "members", ())]


class Unrecorded:
    """Counts, of one model, the steps of optimizers that nobody records since the last recorded one.

    None that are made inside of a recorded step, or that make one, as an optimizer does that wraps another.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._recorded = self._since = self._usual = 0
        self._inside = False
        self.updated = set[int]()
        """The model's parameters, by identity, that such optimizers hold: their gradients are applied, too."""
        self._began: dict[int, int] = {}
        """How many recorded steps there were when one began that is not, by its optimizer's identity."""
        _COUNTING.add(self)

    @property
    def more(self) -> bool:
        """Whether there were more since the last recorded step than before any."""
        return self._since > self._usual

    def begins(self) -> None:
        """Note that a recorded step begins."""
        _see_all_steps()
        self._inside, self._usual = True, max(self._usual, self._since)

    def made(self) -> None:
        """Note that a recorded step was made."""
        self._inside, self._since = False, 0
        self._recorded += 1

    def seen(self) -> None:
        """Note that the weights were looked at: what is made from now on is more."""
        self._since = min(self._since, self._usual)

    def close(self) -> None:
        """Count no more."""
        _COUNTING.discard(self)

    def other_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that a step begins that is not recorded."""
        self._began[id(optimizer)] = self._recorded

    def other_made(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that such a step was made."""
        before = self._began.pop(id(optimizer), None)
        if before == self._recorded and not self._inside and (updated := self._of_model(optimizer)):
            self._since += 1
            self.updated |= updated

    def _of_model(self, optimizer: torch.optim.Optimizer) -> set[int]:
        own = set(map(id, self._model.parameters()))
        return own & {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


_COUNTING: weakref.WeakSet[Unrecorded] = weakref.WeakSet()


@cache
def _see_all_steps() -> None:
    """Register hooks that stay for this process: recording may end inside of one, where torch goes through them.

    It may begin there, too: this is called when a recorded step begins, where torch has gone through those before it.
    """
    register_optimizer_step_pre_hook(_begins)
    register_optimizer_step_post_hook(_made)


@_disable_dynamo  # which would compile it with a step
def _begins(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if _COUNTING and optimizer not in _RECORDED:
        for one in [*_COUNTING]:
            one.other_begins(optimizer)


@_disable_dynamo
def _made(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if _COUNTING and optimizer not in _RECORDED:
        for one in [*_COUNTING]:
            one.other_made(optimizer)
