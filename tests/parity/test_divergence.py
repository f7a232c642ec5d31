"""A run that diverged is told where it shows first."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import trainparity
from tests.support.synthetic import judge, trace
from trainparity.parity.compare import compare_folders
from trainparity.parity.divergence import divergence
from trainparity.parity.recording.trace import Trace


def spoilt(key: str, row: int, column: int | None = None) -> str | None:
    """Spoil a value, and the weights of the step after it, as they follow from it."""
    found = trace()
    arrays: dict[str, Tensor] = {name: array.clone() for name, array in found.arrays.items()}
    arrays[key][(row,) if column is None else (row, column)] = math.nan
    arrays["weight/norm"][min(row + 1, 3) :] = torch.inf
    found.arrays.update(arrays)
    return divergence(found)


@pytest.mark.parametrize("factor", [math.nan, math.inf, 0.0])
def test_a_batch_that_is_spoilt_is_no_batch_of_repeated_samples(factor: float, tmp_path: Path) -> None:
    """All its samples are alike then."""
    for name, by, twins in (("a", 1.0, 2), ("spoilt", factor, 0)):
        for twin in range(1 + twins):
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with trainparity.record(model, optimizer, tmp_path / name, twin=twin, interval=1):
                for number, batch in enumerate(torch.randn(4, 16, 4)):
                    model(batch * by if number == 2 else batch).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
    verdict = compare_folders(tmp_path / "a", tmp_path / "spoilt")
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "samples", 2)
    assert "16 samples are replaced by others" in (verdict.explanation or "")
    assert ("diverged" in (verdict.explanation or "")) == bool(factor)


def test_a_run_that_did_not_diverge_is_none() -> None:
    assert divergence(trace()) is None


@pytest.mark.parametrize(
    ("key", "column", "first"),
    [
        ("loss", None, "the loss, at step 1"),
        ("activation/sketch", 2, "the output of norm, at step 1"),
        ("activation_gradient/sketch", 5, "the gradient of the output of the model, at step 1"),
        ("gradient/norm", 2, "the gradient of b.weight, at step 1"),
    ],
)
def test_the_first_in_the_order_of_a_step_is_named(key: str, column: int | None, first: str) -> None:
    assert spoilt(key, 1, column) == f"its weights are not finite after step 2; the first was {first}"


def test_a_reference_whose_first_step_diverged_did_not_leave_its_weights_alone() -> None:
    spoil = {"gradients": lambda step, found: {name: gradient * math.nan for name, gradient in found.items()}}
    reason = judge(spoil, {}).reason or ""
    assert reason.startswith("left diverged: its weights are not finite after step 0; the first was the gradient of a.")


def test_of_the_other_run_it_is_said_beside_the_cause() -> None:
    spoil = {"gradients": lambda step, found: {name: gradient * math.nan for name, gradient in found.items()}}
    found = judge({}, spoil)
    said = "; right diverged: its weights are not finite after step 0; the first was the gradient of a."
    assert found.verdict == "different" and said in (found.explanation or "")


def test_weights_may_be_the_first() -> None:
    found = trace()
    found.arrays["weight/norm"] = found.arrays["weight/norm"].clone()
    found.arrays["weight/norm"][3, 1] = torch.inf
    expected = "its weights are not finite after step 3; the first was the weight a.bias, at step 3"
    assert divergence(found) == expected


def test_a_loss_that_nobody_logged_and_a_model_without_modules_are_passed_over() -> None:
    found = trace()
    arrays = {name: array.clone() for name, array in found.arrays.items()}
    arrays["loss"][:] = math.nan
    arrays["activation/sketch"] = arrays["activation/sketch"][:, :0]
    arrays["weight/norm"][2:] = torch.inf
    found.arrays.update(arrays)
    expected = "its weights are not finite after step 2; the first was the weight a.weight, at step 2"
    assert divergence(found) == expected


@pytest.mark.parametrize("log", ["never", "after the step", "seldom"])
def test_a_loss_that_is_not_logged_in_a_step_is_not_the_first(log: str, tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, tmp_path) as recorder:
        for step in range(5):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 2)).square().mean() * (math.nan if step == 3 else 1)
            loss.backward()
            if log == "seldom" and step % 2:
                recorder.log(loss=loss)
            optimizer.step()
            if log == "after the step":
                recorder.log(loss=loss)
    first = "the loss" if log == "seldom" else "the gradient of the output of the model"
    expected = f"its weights are not finite after step 3; the first was {first}, at step 3"
    assert divergence(Trace.load(tmp_path)) == expected
