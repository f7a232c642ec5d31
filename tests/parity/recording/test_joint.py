"""Several optimizers that make one step together, as where backward makes the updates, are judged as one."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import Verdict

STEPS = 5


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def _batches() -> list[Tensor]:
    return list(torch.randn(STEPS, 16, 6, generator=torch.Generator().manual_seed(1)))


def _one(folder: Path, make: Callable[[list[Any]], torch.optim.Optimizer], scaler: Any = None) -> None:
    model = _net()
    optimizer = make(list(model.parameters()))
    _loop(folder, model, optimizer, [optimizer], scaler)


def _each(folder: Path, make: Callable[[list[Any]], torch.optim.Optimizer], scaler: Any = None) -> None:
    model = _net()
    optimizers = [make([parameter]) for parameter in model.parameters()]
    _loop(folder, model, optimizers, optimizers, scaler)


def _loop(folder: Path, model: nn.Module, recorded: Any, optimizers: list[torch.optim.Optimizer], scaler: Any) -> None:
    with trainparity.record(model, recorded, folder):
        for number, batch in enumerate(_batches()):
            loss = model(batch).square().mean()
            (scaler.scale(loss) if scaler else loss).backward()
            if scaler and number == 2:
                for parameter in model.parameters():
                    parameter.grad.fill_(torch.inf)
            for optimizer in optimizers:
                scaler.step(optimizer) if scaler else optimizer.step()
            if scaler:
                scaler.update()
            model.zero_grad()


def _in_backward(folder: Path, make: Callable[[list[Any]], torch.optim.Optimizer], left_out: int = -1) -> None:
    model = _net()
    optimizers = {p: make([p]) for n, p in enumerate(model.parameters()) if n != left_out}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)
    with trainparity.record(model, optimizers, folder) as recorder:
        for batch in _batches():
            model(batch).square().mean().backward()
    assert recorder.step == STEPS
    assert [p.grad for p in optimizers] == [None] * len(optimizers)


def _adamw(parameters: list[Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def _judged(folder: Path) -> Verdict:
    return compare_folders(folder / "one", folder / "other")


@pytest.mark.parametrize("other", [_each, _in_backward])
def test_an_optimizer_for_each_parameter_is_the_same_training(tmp_path: Path, other: Callable[..., None]) -> None:
    _one(tmp_path / "one", _adamw)
    other(tmp_path / "other", _adamw)
    assert _judged(tmp_path).verdict == "bitwise"


def _clipped_one_by_one(
    inside: bool, folder: Path, twin: int, *, limit: float = 0.03, fault: float = 1.0, by_hand: bool = False
) -> None:
    """Clip each parameter's gradient by itself, where it has come or after the backward pass."""
    model = _net()
    optimizers = {p: _adamw([p]) for p in model.parameters()}

    def update(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad[0] *= fault
        if by_hand:
            parameter.grad.mul_((limit / (parameter.grad.norm() + 1e-6)).clamp(max=1.0))
        else:
            nn.utils.clip_grad_norm_([parameter], limit)
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    if inside:
        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(update)
    with trainparity.record(model, optimizers, folder, twin=twin, interval=1):
        for batch in _batches():
            model(batch).square().mean().backward()
            if not inside:
                for parameter in reversed([*optimizers]):
                    update(parameter)


@pytest.mark.parametrize("limit", [0.03, 1e9])
@pytest.mark.parametrize("options", [{}, {"by_hand": True}, {"fault": 0.9}, {"limit": 0.02}], ids=str)
def test_gradients_may_be_clipped_each_where_it_has_come(limit: float, options: dict[str, Any], tmp_path: Path) -> None:
    reference = partial(_clipped_one_by_one, True, limit=limit)
    for inside in (True, False):
        found = compared(
            reference, partial(_clipped_one_by_one, inside, **{"limit": limit, **options}), tmp_path / str(inside)
        )
        if options.keys() <= {"by_hand"}:
            assert found.verdict in ("bitwise", "equivalent"), found.explanation
        else:
            assert found.verdict == "different", found
            assert found.cause == ("backward" if "fault" in options else "clipping"), (found.cause, found.explanation)


def test_another_rate_of_optimizers_that_backward_calls_is_a_difference(tmp_path: Path) -> None:
    _one(tmp_path / "one", _adamw)
    _in_backward(tmp_path / "other", lambda parameters: torch.optim.AdamW(parameters, lr=2e-2))
    assert (_judged(tmp_path).verdict, _judged(tmp_path).cause) == ("different", "learning-rate")


def test_a_parameter_that_none_of_them_holds_is_named(tmp_path: Path) -> None:
    _one(tmp_path / "one", _adamw)
    _in_backward(tmp_path / "other", _adamw, left_out=2)
    assert _judged(tmp_path).cause == "parameters-not-updated"


def _by_layer(folder: Path, left_out: int = -1, unscaled: int = 3, scaler: torch.amp.GradScaler | None = None) -> None:
    """Train each layer by an optimizer of its own, of which one may make no step, or keep the loss scale."""
    model = _net()
    layers = [layer for layer in model.children() if isinstance(layer, nn.Linear)]
    optimizers = [_adamw(list(layer.parameters())) for layer in layers]
    with trainparity.record(model, optimizers, folder):
        for batch in _batches():
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = model(batch).square().mean()
            (scaler.scale(loss) if scaler else loss).backward()
            for optimizer in optimizers[:unscaled] if scaler else ():
                scaler.unscale_(optimizer)  # type: ignore[union-attr]
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            for number, optimizer in enumerate(optimizers):
                if number != left_out:
                    scaler.step(optimizer) if scaler else optimizer.step()
            if scaler:
                scaler.update()


@pytest.mark.parametrize("left_out", [0, 2])
def test_an_optimizer_that_makes_no_step_leaves_gradients_that_are_not_applied(left_out: int, tmp_path: Path) -> None:
    _by_layer(tmp_path / "one")
    _by_layer(tmp_path / "other", left_out)
    found = _judged(tmp_path)
    assert (found.cause, found.step) == ("parameters-not-updated", 0), found.explanation


def test_gradients_of_an_optimizer_that_makes_no_step_are_seen_without_clipping(tmp_path: Path) -> None:
    _each(tmp_path / "one", _adamw)
    model = _net()
    optimizers = [_adamw([parameter]) for parameter in model.parameters()]
    _loop(tmp_path / "other", model, optimizers, optimizers[1:], None)
    assert _judged(tmp_path).cause == "parameters-not-updated", _judged(tmp_path).explanation


@pytest.mark.parametrize("unscaled", [0, 1, 2, 3])
def test_the_loss_scale_that_one_of_them_keeps_is_named(unscaled: int, tmp_path: Path) -> None:
    for name, count in (("one", 3), ("other", unscaled)):
        _by_layer(tmp_path / name, unscaled=count, scaler=torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert _judged(tmp_path).cause == ("grad-scaler" if unscaled < 3 else None), _judged(tmp_path).explanation


def test_steps_that_a_loss_scaler_skips_are_counted_once(tmp_path: Path) -> None:
    _one(tmp_path / "one", _adamw, torch.amp.GradScaler("cpu", init_scale=1024.0))
    _each(tmp_path / "other", _adamw, torch.amp.GradScaler("cpu", init_scale=1024.0))
    found = _judged(tmp_path)
    assert (found.verdict, found.steps_compared) == ("bitwise", STEPS), (found.reason, found.explanation)


def test_several_optimizers_keep_no_state_of_windows(tmp_path: Path) -> None:
    model = _net()
    with pytest.raises(ValueError, match="every= needs one optimizer"):
        trainparity.record(model, [_adamw([p]) for p in model.parameters()], tmp_path, every=2)


def test_no_optimizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="the optimizer is a list that holds none"):
        trainparity.record(_net(), [], tmp_path)
