"""Updates of optimizers that divide each element by its own size, where rounding turns the sign of a small one."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support import synthetic
from trainparity.parity.compare import compare_folders
from trainparity.parity.noise.distance import distances
from trainparity.parity.noise.normalisation import amplified
from trainparity.parity.recording.sketch import LEVELS, levels
from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Verdict

SIZE, BATCH, STEPS = 64, 16, 3


class Scales(nn.Module):
    """Its gradient is the mean of its inputs, whatever its weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight


def batch(step: int) -> Tensor:
    """Return inputs [BATCH, SIZE] whose first column cancels but for a few roundings, which no twin happens to turn."""
    inputs = torch.randn(BATCH, SIZE, generator=torch.Generator().manual_seed(step)) + 1
    inputs[-1, 0] = -inputs[:-1, 0].double().sum()
    inputs[-1, 0] += 1e-5
    return inputs


def run(
    folder: Path, name: str, *, twin: int = 0, turned: bool = False, optimizer: str = "Adam", decay: float = 0
) -> None:
    model = Scales()
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-2)
    with trainparity.record(model, made, folder / name, twin=twin):
        for step in range(STEPS):
            made.zero_grad()
            model(batch(step)).sum(1).mean().backward()
            if turned:
                model.weight.grad[0] *= -1  # type: ignore[index]
            made.step()
            with torch.no_grad():
                model.weight *= 1 - decay


def judged(folder: Path, **changed: object) -> Verdict:
    for twin in (0, 1):
        run(folder, "a", twin=twin, **{k: v for k, v in changed.items() if k == "optimizer"})  # type: ignore[arg-type]
    run(folder, "b", **changed)  # type: ignore[arg-type]
    return compare_folders(folder / "a", folder / "b")


def test_a_sign_that_rounding_turns_is_no_difference(tmp_path: Path) -> None:
    found = judged(tmp_path, turned=True)
    assert found.verdict == "equivalent", found
    apart = distances(Trace.load(tmp_path / "a"), Trace.load(tmp_path / "b"), "update")
    assert apart[0, 0] == pytest.approx(2 / SIZE**0.5, rel=0.1)  # one element of 64 went the other way


def run_in_bf16(folder: Path, name: str, *, twin: int = 0, turned: int = 0, shift: float = 0) -> None:
    """Train a layer of 32 outputs, of which the first has next to no gradient for its bias."""
    torch.manual_seed(0)
    model = nn.Linear(16, 32)
    made = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with trainparity.record(model, made, folder / name, twin=twin):
        for inputs in torch.randn(STEPS, BATCH, 16):
            made.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs = model(inputs)
            outputs.float().square().mean().backward()
            assert model.bias.grad is not None
            model.bias.grad[0] *= 1e-4
            model.bias.grad[:turned] *= -1
            made.step()
            with torch.no_grad():
                model.bias += torch.arange(32) % 2 * shift


@pytest.mark.parametrize(("turned", "shift", "verdict"), [(1, 0.0, "equivalent"), (0, 1e-3, "different")])
def test_few_signs_that_turn_are_no_other_update_in_a_coarse_format(
    turned: int, shift: float, verdict: str, tmp_path: Path
) -> None:
    for twin in range(3):
        run_in_bf16(tmp_path, "a", twin=twin)
    run_in_bf16(tmp_path, "b", turned=turned, shift=shift)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == verdict, found


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_weights_that_decay_by_hand_are_one(tmp_path: Path, optimizer: str) -> None:
    assert judged(tmp_path, decay=0.01, optimizer=optimizer).verdict == "different"


def test_elements_are_counted_by_size() -> None:
    found = levels(torch.tensor([1.0, -1.0, 1.0, 0.1, 1e-6, 0.0]))
    assert found.sum() == pytest.approx(5 / 6) and len(found) == LEVELS
    assert found[0] == pytest.approx(3 / 6) and found[1] == pytest.approx(1 / 6)
    assert levels(torch.zeros(3)).sum() == 0 and levels(torch.tensor([torch.nan, 1.0])).sum() == 0
    assert levels(torch.zeros(0)).sum() == 0


def test_only_what_normalises_amplifies_and_more_noise_more() -> None:
    trace = synthetic.trace()
    noise = torch.full((4, 4), 1e-7, dtype=torch.float64)
    assert not amplified(trace, "update", noise).any()  # SGD
    trace = synthetic.trace(layout={"optimizer": "Adam"})
    none, little, much = (amplified(trace, "update", times * noise) for times in (1, 1e5, 1e9))
    assert not none.any()  # all elements are far larger
    assert (little > 0).any() and (much > little).all() and (much <= 2.6 / 16).all()
