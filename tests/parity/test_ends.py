"""What runs come to after the last traced step, and how many steps they make, are part of the verdict."""

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared
from tests.support.warm import python
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace


def train(
    steps: int, other_rate_from: int, parts: int, after: float, folder: Path, twin: int, *, loads: bool = False
) -> None:
    """Train with the default interval: the first 8 steps and every 50th are traced."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for step in range(steps):
            if step == other_rate_from:
                optimizer.param_groups[0]["lr"] = 0.5
            optimizer.zero_grad()
            for samples in torch.randn(16, 4, generator=draws).chunk(parts):
                (model(samples).square().mean() / parts).backward()
            optimizer.step()
        if after:
            nn.init.constant_(model.weight, after)
        if loads:
            model.load_state_dict({name: torch.ones_like(value) for name, value in model.state_dict().items()})


REFERENCE = partial(train, 30, -1, 1, 0.0)


def test_another_rate_in_steps_that_are_not_traced_shows_at_the_end(tmp_path: Path) -> None:
    verdict = compared(REFERENCE, partial(train, 30, 20, 1, 0.0), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "unknown", 29)
    assert "agree in all 8 steps that were traced, the last of them step 7" in (verdict.explanation or "")
    assert "interval=1" in (verdict.advice or "")


@pytest.mark.parametrize(("parts", "verdict"), [(1, "bitwise"), (4, "equivalent")])
def test_right_runs_end_alike(parts: int, verdict: str, tmp_path: Path) -> None:
    assert compared(REFERENCE, partial(train, 30, -1, parts, 0.0), tmp_path).verdict == verdict
    assert "end/digest" in Trace.load(tmp_path / "test").arrays


def test_without_twins_a_bound_is_used_there_too(tmp_path: Path) -> None:
    for name, rate_from, parts in (("a", -1, 1), ("right", -1, 4), ("wrong", 20, 4)):
        train(30, rate_from, parts, 0.0, tmp_path / name, 0)
    verdicts = [compare_folders(tmp_path / "a", tmp_path / name).verdict for name in ("right", "wrong")]
    assert verdicts == ["equivalent", "different"]


def test_of_runs_of_other_lengths_no_more_than_their_traced_steps_can_be_said(tmp_path: Path) -> None:
    verdict = compared(REFERENCE, partial(train, 20, -1, 1, 0.0), tmp_path)
    assert verdict.verdict == "cannot judge"
    assert "made 30 steps and" in (verdict.reason or "") and "8 traced steps are bitwise" in (verdict.reason or "")


def test_of_what_a_loop_writes_into_weights_after_its_last_step_nothing_is_said(tmp_path: Path) -> None:
    """As where it copies the best ones, which rounding may choose otherwise: training's are not there any more."""
    ended = (partial(train, 30, -1, parts, after) for parts, after in ((1, 1.0), (4, 2.0)))
    verdict = compared(*ended, tmp_path)
    assert verdict.verdict == "cannot judge"
    assert "8 traced steps are equivalent, and then" in (verdict.reason or "")
    assert "nor of the steps after step 7" in (verdict.reason or "")


def test_what_both_loops_write_there_hides_nothing(tmp_path: Path) -> None:
    ended = (partial(train, 30, -1, parts, 1.0) for parts in (1, 4))
    assert compared(*ended, tmp_path).verdict == "equivalent"


def test_what_is_loaded_at_the_end_hides_no_other_training(tmp_path: Path) -> None:
    """As the best weights, which a trainer loads."""
    right, wrong = (partial(train, 30, since, 4, 0.0, loads=True) for since in (-1, 20))
    reference = partial(train, 30, -1, 1, 0.0, loads=True)
    assert compared(reference, right, tmp_path / "right").verdict == "equivalent"
    assert compared(reference, wrong, tmp_path / "wrong").verdict == "different"


def clamps(model: nn.Module, made: int, steps: int) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.3, 0.3)


def halves(model: nn.Module, made: int, steps: int) -> None:
    if made == steps:
        model.half()


def averages(model: nn.Module, made: int, steps: int) -> None:
    """Evaluate averaged weights every 5 steps, and at the end."""
    if made % 5 == 0:
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for weights in ([each * 0.5 for each in kept], kept):
                for parameter, values in zip(model.parameters(), weights, strict=True):
                    parameter.copy_(values)


def train_and(
    does: Callable[[nn.Module, int, int], None], parts: int, other_rate_from: int, folder: Path, twin: int
) -> None:
    """Train 20 steps in a loop that does something to the weights after each."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for step in range(20):
            if step == other_rate_from:
                optimizer.param_groups[0]["lr"] = 0.5
            optimizer.zero_grad()
            for samples in torch.randn(16, 4, generator=draws).chunk(parts):
                (model(samples).square().mean() / parts).backward()
            optimizer.step()
            does(model, step + 1, 20)


@pytest.mark.parametrize(("does", "wrong"), [(clamps, "different"), (averages, "different"), (halves, "cannot judge")])
def test_what_a_loop_does_to_weights_after_steps_hides_no_other_training(
    does: Callable[[nn.Module, int, int], None], wrong: str, tmp_path: Path
) -> None:
    """As a critic's that clamps them after each: what it always does is its training's."""
    reference = partial(train_and, does, 1, -1)
    assert compared(reference, partial(train_and, does, 4, -1), tmp_path / "right").verdict == "equivalent"
    assert compared(reference, partial(train_and, does, 1, 12), tmp_path / "wrong").verdict == wrong


def new_optimizer(first: int, other_rate_from: int, steps: int, folder: Path, twin: int) -> None:
    """Train in two phases, the second with an optimizer that is not recorded."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    draws = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for step in range(steps):
            if step in (first, other_rate_from):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if step == first else 0.5)
            optimizer.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize("first", [8, 12])
def test_steps_of_a_new_optimizer_that_is_not_recorded_pass_for_no_equal_ones(first: int, tmp_path: Path) -> None:
    """Whether the last step of the first one is traced or not."""
    reference = partial(new_optimizer, first, -1, 20)
    right, wrong = partial(new_optimizer, first, -1, 20), partial(new_optimizer, first, 15, 20)
    assert compared(reference, right, tmp_path / "right").verdict == "bitwise"
    verdict = compared(reference, wrong, tmp_path / "wrong")
    assert verdict.verdict == "cannot judge" and "`go_on_with`" in (verdict.advice or "")


def test_a_run_that_ends_with_its_last_traced_step_and_one_that_goes_on_are_told_apart(tmp_path: Path) -> None:
    reference, longer = partial(new_optimizer, 8, -1, 8), partial(new_optimizer, 8, -1, 20)
    assert compared(reference, longer, tmp_path).verdict == "cannot judge"


def test_a_recorder_that_is_open_is_named(tmp_path: Path) -> None:
    """As in a notebook, which does not end before it compares."""
    model = nn.Linear(2, 1)
    with trainparity.record(model, torch.optim.SGD(model.parameters()), tmp_path / "a"):
        found = compare_folders(tmp_path / "a", tmp_path / "a")
    assert found.verdict == "cannot judge" and "its Recorder is still open: call its close()" in (found.reason or "")


def test_a_file_is_no_folder_to_record_into(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file is a file; give a folder to record into"):
        trainparity.record(model, torch.optim.SGD(model.parameters()), tmp_path / "file")


SHARDED = """
import sys
import torch, trainparity
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = trainparity.record(model, optimizer, sys.argv[1])
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_shards_are_left_out_where_their_ranks_have_parted(tmp_path: Path) -> None:
    """What they hold can't be put together when the process ends; what was traced is kept."""
    done = subprocess.run([python(), "-c", SHARDED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trace = Trace.load(tmp_path)
    assert trace.layout.made == 12 and len(trace.layout.steps) == 8 and "end/digest" not in trace.arrays
    verdict = compare_folders(tmp_path, tmp_path)
    assert verdict.verdict == "bitwise" and "NOT compared: the steps after step 7, to step 11" in (verdict.reason or "")
