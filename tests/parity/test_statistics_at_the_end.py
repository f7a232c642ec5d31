"""The running statistics that a run ends with are part of the verdict: averages are evaluated with them."""

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from math import nan
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, update_bn

import trainparity
from tests.support.against_twins import LABELS, compared
from tests.support.warm import python
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.integrity import flaw
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import RecordError

BATCHES = torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(2))
"""What statistics are made of at the end."""

AtTheEnd = Callable[[nn.Module, AveragedModel], object]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, samples: Tensor, parts: int, coarse: bool) -> None:
    """Make a step in so many passes, under bf16 autocast where asked."""
    optimizer.zero_grad()
    for images, labels in zip(samples.chunk(parts), LABELS.chunk(parts), strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
            outputs = model(images)
        (cross_entropy(outputs.float(), labels) / parts).backward()
    optimizer.step()


def train(
    at_the_end: AtTheEnd, folder: Path, twin: int, *, interval: int = 1, parts: int = 1, steps: int = 12,
    coarse: bool = False, use_buffers: bool = True,
) -> None:  # fmt: skip
    """Train beside an average, and do something after the last step. In parts BatchNorm is frozen, as it must be."""
    torch.manual_seed(0)
    model = network()
    average = AveragedModel(model, use_buffers=use_buffers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(nn.ModuleList([model, average]), optimizer, folder, twin=twin, interval=interval):
        for _ in range(steps):
            step(model, optimizer, torch.randn(16, 4, generator=draws), parts, coarse)
            average.update_parameters(model)
        at_the_end(model, average)


def makes(model: nn.Module, average: AveragedModel) -> None:
    update_bn(BATCHES, average)


def makes_of(batches: Tensor, model: nn.Module, average: AveragedModel) -> None:
    update_bn(batches, average)


def leaves_out(model: nn.Module, average: AveragedModel) -> None:
    pass


@torch.no_grad()
def validates(model: nn.Module, average: AveragedModel) -> None:
    average.eval()(BATCHES[0])
    model.eval()(BATCHES[0])


@torch.no_grad()
def validates_in_training_mode(model: nn.Module, average: AveragedModel) -> None:
    model(BATCHES[0] + 1)


def loads_its_best(then: AtTheEnd, model: nn.Module, average: AveragedModel) -> None:
    """Load other weights and statistics into the model that was trained."""
    model.load_state_dict({name: value * 0 for name, value in model.state_dict().items()})
    then(model, average)


def swaps(then: AtTheEnd, model: nn.Module, average: AveragedModel) -> None:
    """Evaluate averaged weights in the place of the trained ones, which are put back."""
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(average.module.state_dict())
    validates(model, average)
    model.load_state_dict(kept)
    then(model.train(), average)


def writes_a_checkpoint(then: AtTheEnd, model: nn.Module, average: AveragedModel) -> None:
    average.load_state_dict(average.state_dict())
    then(model, average)


WRONG: dict[str, tuple[AtTheEnd, AtTheEnd]] = {
    "left out": (makes, leaves_out),
    "left out in the reference": (leaves_out, makes),
    "made of other samples": (makes, partial(makes_of, 2 * BATCHES + 1)),
    "left out after the best are loaded": (partial(loads_its_best, makes), partial(loads_its_best, leaves_out)),
    "left out after a checkpoint": (partial(writes_a_checkpoint, makes), partial(writes_a_checkpoint, leaves_out)),
}


@pytest.mark.parametrize("interval", [1, 50])
@pytest.mark.parametrize("fault", WRONG)
def test_other_statistics_of_an_average_are_seen(fault: str, interval: int, tmp_path: Path) -> None:
    verdict = compared(*(partial(train, each, interval=interval) for each in WRONG[fault]), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.link) == ("different", "buffers-only", "buffers"), verdict
    assert (verdict.weights, verdict.step) == ("bitwise", 11)
    assert "first 1.module.1.running_mean, 1.module.1.running_var: weights agree" in (verdict.explanation or "")
    assert "`update_bn`" in (verdict.advice or "")


@pytest.mark.parametrize("use_buffers", [True, False])
@pytest.mark.parametrize("interval", [1, 50])
def test_so_they_are_without_twins(interval: int, use_buffers: bool, tmp_path: Path) -> None:
    """The average's are the trained model's until they are made anew, or an average of these."""
    for name, each in (("a", makes), ("b", leaves_out)):
        train(each, tmp_path / name, 0, interval=interval, use_buffers=use_buffers)
    assert compare_folders(tmp_path / "a", tmp_path / "b").cause == "buffers-only"


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_passed_in_training_mode_after_the_last_step_is_seen(swapped: bool, tmp_path: Path) -> None:
    right, wrong = (partial(swaps, each) if swapped else each for each in (leaves_out, validates_in_training_mode))
    verdict = compared(partial(train, right), partial(train, wrong), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "buffers-only"), verdict
    assert verdict.evidence["buffers"] == ["0.1.running_mean", "0.1.running_var"]
    assert "without model.eval()" in (verdict.advice or "")


def test_statistics_that_are_not_finite_at_the_end_pass_for_no_equal_ones(tmp_path: Path) -> None:
    runs = [partial(train, partial(fills, value, another)) for value, another in ((1e3, 1.0), (nan, 1.0), (nan, 2.0))]
    found = [compared(runs[one], runs[other], tmp_path / f"{one}{other}") for one, other in ((0, 1), (1, 2), (1, 1))]
    assert [verdict.verdict for verdict in found] == ["different", "cannot judge", "bitwise"], found
    assert "not finite when a run ends" in (found[1].reason or "")
    found[0].write(tmp_path / "verdict.json")


def fills(first: float, others: float, model: nn.Module, average: AveragedModel) -> None:
    buffer = average.get_buffer("module.1.running_mean")
    buffer.fill_(others)
    buffer[0] = first


def both(also: AtTheEnd, model: nn.Module, average: AveragedModel) -> None:
    makes(model, average)
    also(model, average)


@pytest.mark.parametrize("interval", [1, 50])
def test_validation_in_evaluation_mode_is_no_difference(interval: int, tmp_path: Path) -> None:
    reference, test = partial(train, makes), partial(train, partial(both, validates))
    verdict = compared(partial(reference, interval=interval), partial(test, interval=interval), tmp_path)
    assert verdict.verdict == "bitwise" and not verdict.reason, verdict


@pytest.mark.parametrize("twins", [True, False])
@pytest.mark.parametrize("interval", [1, 50])
def test_another_order_of_samples_makes_the_same_statistics(interval: int, twins: bool, tmp_path: Path) -> None:
    """Up to rounding: whole batches, and the samples of each, come the other way round."""
    reference = partial(train, makes, interval=interval)
    test = partial(train, partial(makes_of, BATCHES.flip(0, 1)), interval=interval)
    verdict = compared(reference, test, tmp_path)
    if not twins:
        shutil.rmtree(tmp_path / "reference/twins")
        verdict = compare_folders(tmp_path / "reference", tmp_path / "test")
    assert (verdict.verdict, verdict.weights) == ("equivalent", "bitwise"), verdict
    assert 0 < (verdict.distance_over_floor or 0.0) < 4


def in_parts(parts: int, at_the_end: AtTheEnd, coarse: bool, interval: int, folder: Path, twin: int) -> None:
    """Train with a BatchNorm that is in evaluation mode, as where it is fine-tuned."""

    class Frozen(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> "Frozen":
            return super().train(False)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), Frozen(12), nn.Tanh(), nn.Linear(12, 10))
    model.train()
    average = nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 10)).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(nn.ModuleList([model, average]), optimizer, folder, twin=twin, interval=interval):
        for _ in range(20):
            step(model, optimizer, torch.randn(16, 4, generator=draws), parts, coarse)
            with torch.no_grad():
                for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    ours.lerp_(theirs, 0.2)
        at_the_end(model, average)  # type: ignore[arg-type]


@pytest.mark.parametrize(("twins", "coarse"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("interval", [1, 50])
def test_statistics_of_weights_that_rounding_parts_are_the_same(
    interval: int, twins: bool, coarse: bool, tmp_path: Path
) -> None:
    reference, right, wrong = (
        partial(in_parts, parts, end, coarse, interval) for parts, end in ((1, makes), (2, makes), (2, leaves_out))
    )
    for twin in range(3 if twins else 1):
        reference(tmp_path / "reference", twin)
    found = []
    for name, run in (("right", right), ("wrong", wrong)):
        run(tmp_path / name, 0)
        found.append(compare_folders(tmp_path / "reference", tmp_path / name))
    assert [verdict.verdict for verdict in found] == ["equivalent", "different"], found
    assert found[1].cause == "buffers-only"


def test_what_is_loaded_at_the_end_is_none_of_the_training(tmp_path: Path) -> None:
    """As the best statistics, which one run alone loads."""
    reference, test = partial(train, makes), partial(train, partial(loads_its_best, makes))
    assert compared(reference, test, tmp_path).verdict == "bitwise"


def test_of_other_buffers_and_of_models_without_statistics_nothing_is_kept(tmp_path: Path) -> None:
    train(makes, tmp_path / "a", 0, steps=3)
    trace = Trace.load(tmp_path / "a")
    known = trace.arrays["end/buffer_digest"] != 0
    assert [name for name, is_ in zip(trace.layout.buffers, known.tolist(), strict=True) if is_] == [
        f"{model}.running_{kind}" for model in ("0.1", "1.module.1") for kind in ("mean", "var")
    ]
    assert bool((trace.arrays["end/buffer_sketch"][~known] == 0).all())
    tracked = nn.Sequential(nn.Conv1d(4, 3, 1), nn.InstanceNorm1d(3, track_running_stats=True))
    untracked = nn.Sequential(nn.Conv1d(4, 3, 1), nn.BatchNorm1d(3, track_running_stats=False))
    for number, model in enumerate((nn.Linear(5, 2), untracked, tracked)):
        arrays = _trace_of(model, tmp_path / str(number)).arrays
        assert ("end/buffer_digest" in arrays) == (model is tracked)


def _trace_of(model: nn.Module, folder: Path, after: Callable[[nn.Module], object] = id) -> Trace:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder):
        optimizer.zero_grad()
        model(torch.ones(8, 4, 5)).square().sum().backward()
        optimizer.step()
        after(model)
    return Trace.load(folder)


def frees(model: nn.Module) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.untyped_storage().resize_(0)


def moves_away(model: nn.Module) -> None:
    model.to("meta")


@pytest.mark.parametrize("after", [frees, moves_away])
def test_what_is_not_there_any_more_breaks_nothing(after: Callable[[nn.Module], object], tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(4))
    assert "end/buffer_digest" not in _trace_of(model, tmp_path, after).arrays


def test_traces_of_earlier_versions_are_judged_as_before(tmp_path: Path) -> None:
    for name, each in (("a", makes), ("b", leaves_out)):
        train(each, tmp_path / name, 0, steps=3)
        trace = Trace.load(tmp_path / name)
        for array in ("end/buffer_sketch", "end/buffer_digest"):
            del trace.arrays[array]
        trace.save(tmp_path / "earlier" / name)
    for one, other in (("earlier/a", "earlier/b"), ("a", "earlier/b"), ("earlier/a", "b")):
        assert compare_folders(tmp_path / one, tmp_path / other).verdict == "bitwise"


def test_a_part_of_them_is_no_whole_trace(tmp_path: Path) -> None:
    train(makes, tmp_path / "a", 0, steps=3)
    trace = Trace.load(tmp_path / "a")
    part = {name: array for name, array in trace.arrays.items() if name != "end/buffer_sketch"}
    assert flaw(trace.layout, part) == "end/buffer_sketch: missing"
    Trace(trace.layout, part).save(tmp_path / "b")
    with pytest.raises(RecordError, match="end/buffer_sketch: missing"):
        Trace.load(tmp_path / "b")


SHARDED = """
import sys
import torch, trainparity
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = trainparity.record(model, optimizer, sys.argv[1], interval=1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().sum().backward()
    optimizer.step()
if sys.argv[2] == "passes":
    with torch.no_grad():
        model(torch.randn(8, 4))
dist.destroy_process_group()
"""


def test_beside_shards_they_are_known_as_this_rank_holds_them(tmp_path: Path) -> None:
    """Where all steps are traced, the weights at the end are known too."""
    for name in ("ends", "passes"):
        done = subprocess.run([python(), "-c", SHARDED, str(tmp_path / name), name], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    verdict = compare_folders(tmp_path / "ends", tmp_path / "passes")
    assert (verdict.verdict, verdict.cause) == ("different", "buffers-only"), verdict
    assert {"end/buffer_digest"} == {
        name for name in Trace.load(tmp_path / "ends").arrays if name.startswith("end/") and name.endswith("digest")
    }
