"""Adam's bias corrections are surely made in double precision by torch's own code on Python's numbers alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainparity.parity.recording.corrections import made_in_double
from trainparity.parity.recording.joint import Joint


class Own(torch.optim.Adam):
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make no step."""


def told(optimizer: torch.optim.Optimizer, compiled: bool = False) -> bool:
    """Return what is told inside of a step."""
    found = []
    optimizer.register_step_pre_hook(torch.compiler.disable(lambda *_: found.append(made_in_double(optimizer))))
    step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    step()
    return found[-1]


def adam(kind: Any = torch.optim.Adam, **options: Any) -> torch.optim.Optimizer:
    return kind(nn.Linear(2, 2).parameters(), lr=0.01, **options)


def test_torchs_own_steps_are() -> None:
    assert told(adam()) and told(adam(foreach=True)) and told(adam(torch.optim.AdamW, foreach=False))
    assert told(adam(torch.optim.RAdam)) and told(adam(torch.optim.NAdam)) and told(adam(torch.optim.SGD))
    scheduled = adam()
    torch.optim.lr_scheduler.ConstantLR(scheduled)  # wraps its step
    assert told(scheduled)
    assert made_in_double(Joint([adam(), adam()]))


@pytest.mark.parametrize(
    "options",
    [
        {"fused": True},
        {"capturable": True},
        {"differentiable": True},
        {"betas": (torch.tensor(0.9), torch.tensor(0.999))},
    ],
    ids=lambda options: next(iter(options)),
)
def test_others_may_not_be(options: dict[str, bool | tuple[Tensor, Tensor]]) -> None:
    if "betas" in options:
        options = {**options, "foreach": False}
    assert not made_in_double(adam(**options))
    assert not made_in_double(Joint([adam(), adam(**options)]))


def test_nor_are_those_of_code_that_is_not_torchs() -> None:
    assert not told(adam(Own))
    patched = adam()
    patched.step = lambda closure=None: None  # type: ignore[method-assign, assignment, misc]
    assert not made_in_double(patched)


def test_nor_are_those_of_a_compiled_step() -> None:
    assert not told(adam(), compiled=True)
    optimizer, found = adam(), []
    optimizer.register_step_pre_hook(torch.compiler.disable(lambda *_: found.append(made_in_double(optimizer))))

    @torch.compile(backend="eager")
    def whole() -> None:
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    whole()
    assert found == [False]
