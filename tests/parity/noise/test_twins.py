"""Twins that are no runs of the reference's training: the distance to them is no rounding, and excuses nothing."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared, train_towards_one
from tests.support.synthetic import all_but, scaled, trace, twins
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.noise.twins import of_another_run
from trainparity.parity.recording.trace import Trace
from trainparity.parity.verdict import judge_traces

OTHER_CODE = {"from the start": scaled(1.001), "from a later step": scaled(1.01, since=2)}


@pytest.mark.parametrize("when", OTHER_CODE)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_twins_of_other_code_hide_no_fault(when: str, count: int) -> None:
    moved = twins(count, gradients=OTHER_CODE[when])
    other = trace(twin=9, gradients=scaled(1.005, since=2))
    verdict = judge_traces(trace(), other, NoiseFloor(trace(), moved), 16.0)
    assert verdict.verdict == "cannot judge", verdict.explanation
    assert "in every parameter at once, which rounding does not do: it is no twin of this run" in str(verdict.reason)


def test_one_twin_of_other_code_is_named() -> None:
    moved = [trace(twin=1), trace(twin=2, gradients=OTHER_CODE["from a later step"])]
    found = of_another_run(trace(), moved)
    assert found is not None and found.startswith("twin 2 parts from the reference in step 2, by 0.01 in the gradient")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_right_twins_are_twins(count: int) -> None:
    assert of_another_run(trace(), twins(count)) is None


def test_what_rounding_decides_in_some_parameters_makes_no_other_training() -> None:
    """As where a ReLU is at its kink: gradients of the layers in front of it part, those behind it do not."""
    kink = scaled(1.001, "a.weight", "a.bias", since=2)
    assert of_another_run(trace(), twins(gradients=kink)) is None
    assert of_another_run(trace(), [trace(twin=1), trace(twin=2, gradients=kink)]) is None


def test_gradients_of_weights_that_have_parted_make_no_other_training() -> None:
    """As where Adam turns the sign of an element that is nearly zero."""
    moved = twins(2, gradients=OTHER_CODE["from a later step"])
    for twin in moved:
        twin.arrays["start/sketch"][2:, 0] *= 1.01
    assert of_another_run(trace(), moved) is None


def test_beyond_untraced_steps_nothing_is_said() -> None:
    steps = [0, 1, 20, 21]
    moved = [trace(twin=1), trace(twin=2, gradients=OTHER_CODE["from a later step"], layout={"steps": steps})]
    assert of_another_run(trace(layout={"steps": steps}), moved) is None


@pytest.mark.parametrize("array", ["made_elsewhere", "judged_elsewhere"])
def test_another_model_may_part_all_parameters_at_once(array: str) -> None:
    """As a discriminator at its kink does with a generator's gradients."""
    other: dict[str, Any] = {array: torch.ones(4, dtype=torch.int64)}
    assert of_another_run(trace(**other), twins(2, gradients=OTHER_CODE["from a later step"], **other)) is None


@pytest.mark.parametrize(
    ("twin", "said"),
    [
        ({"lr": lambda step: 0.1 if step < 2 else 0.101}, "ran with another lr of the optimizer"),
        ({"layout": {"choices": {"mode": "other"}}}, "ran with other choices"),
        ({"frozen": ~all_but("a.bias")}, "ran with other frozen"),
        ({"layout": {"modules": {"(model)": "Other"}}}, "ran with other modules"),
    ],
)
def test_a_twin_with_other_facts_is_none(twin: dict[str, Any], said: str) -> None:
    found: list[Trace] = [*twins(1), trace(twin=2, **twin)]
    assert str(of_another_run(trace(), found)).startswith(f"twin 2 {said}")


def test_a_twin_that_takes_another_path_through_the_model_is_a_twin() -> None:
    """As past an expert that no sample of it is given to: nothing is known of what that returns."""
    reference, [twin] = trace(), twins(1)
    kept = [name for name in reference.layout.activations if name != "norm"]
    columns = [reference.layout.activations.index(name) for name in kept]
    past = {key: array[:, columns] for key, array in twin.arrays.items() if key.startswith("activation")}
    other = Trace(twin.layout.model_copy(update={"activations": kept}), twin.arrays | past)
    floor, whole = NoiseFloor(reference, [other]), NoiseFloor(reference, [twin])
    assert floor.flaw is None and torch.equal(floor["gradient"], whole["gradient"])
    known = [floor["activation"][:, columns], whole["activation"][:, columns]]
    assert torch.equal(*known) and judge_traces(reference, trace(twin=9), floor, 16.0).verdict == "equivalent"


class CoarseMomentum(torch.optim.Optimizer):
    """Keeps its momentum in bf16."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            kept = self.state[parameter]
            momentum = kept.get("momentum", torch.zeros_like(parameter).bfloat16())
            kept["momentum"] = (0.9 * momentum.float() + parameter.grad).bfloat16()
            parameter -= 0.1 * kept["momentum"].float()


@pytest.mark.parametrize("seed", range(6))
def test_twins_of_a_single_matrix_whose_state_is_coarse_are_twins(seed: int, tmp_path: Path) -> None:
    def train(folder: Path, twin: int, parts: int = 1) -> None:
        torch.manual_seed(seed)
        model = nn.Linear(256, 4)
        train_towards_one(model, CoarseMomentum(model.parameters()), torch.randn(6, 32, 256), folder, twin, parts=parts)

    assert compared(train, partial(train, parts=2), tmp_path).verdict == "equivalent"


def test_a_twin_that_meets_a_kink_of_the_loss_is_a_twin(tmp_path: Path) -> None:
    """As of total variation, whose sign turns where two neighbours are equal: all gradients part at once, by little."""

    def train(folder: Path, twin: int, parts: int = 1) -> None:
        torch.manual_seed(4)
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 3, 3, padding=1))
        optimizer, draws = torch.optim.Adam(model.parameters(), lr=1e-3), torch.Generator().manual_seed(104)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for _ in range(8):
                optimizer.zero_grad()
                for images in torch.rand(4, 3, 16, 16, generator=draws).chunk(parts):
                    made = model(images)
                    varies = sum(made.diff(dim=axis).abs().mean() for axis in (2, 3))
                    (((made - images).square().mean() + 0.1 * varies) / parts).backward()
                optimizer.step()

    assert compared(train, partial(train, parts=2), tmp_path).verdict == "equivalent"


def test_noise_that_a_twin_adds_to_its_gradients_is_no_kink() -> None:
    def noisy(step: int, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: found + 0.01 * torch.randn_like(found) for name, found in gradients.items()}

    found = of_another_run(trace(), [trace(twin=1), trace(twin=2, gradients=noisy)])
    assert found is not None and "in every parameter at once" in found
