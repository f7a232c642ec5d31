"""What runs come to after the last traced step, and how many steps they make, are part of the verdict."""

import copy
import subprocess
import time
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
from trainparity.records.base import RecordError


def train(
    steps: int, other_rate_from: int, parts: int, after: float, folder: Path, twin: int, *,
    loads: bool = False, replaces: bool = False,
) -> None:  # fmt: skip
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
        if replaces:
            model.weight, model.bias = (nn.Parameter(torch.ones_like(old)) for old in (model.weight, model.bias))
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


def test_new_parameters_in_their_place_are_written_too(tmp_path: Path) -> None:
    """They hide what the steps before made, and the verdict says so."""
    ended = (partial(train, 30, since, 1, 0.0, replaces=True) for since in (-1, 15))
    said = compared(*ended, tmp_path).not_compared[0]
    assert said.startswith("compared by the weights at the end alone: steps 8 to 29: into these the loops have written")


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


def shrinks(model: nn.Module, made: int, steps: int) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)


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
    does: Callable[[nn.Module, int, int], None], parts: int, other_rate_from: int, folder: Path, twin: int,
    interval: int | None = None,
) -> None:  # fmt: skip
    """Train 20 steps in a loop that does something to the weights after each."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=interval):
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


def writes_a_checkpoint(model: nn.Module, made: int, steps: int) -> None:
    """Evaluate a copy, and load the model's own weights again, before weights are cut off."""
    if made == steps:
        copy.deepcopy(model).load_state_dict(model.state_dict())
        model.load_state_dict(model.state_dict())
    shortens(model, made, steps)


@torch.no_grad()
def shortens(model: nn.Module, made: int, steps: int) -> None:
    for parameter in model.parameters():
        parameter.mul_(0.9)


def test_what_is_loaded_into_a_copy_or_leaves_weights_as_they_are_is_no_end(tmp_path: Path) -> None:
    verdict = compared(partial(train_and, shortens, 1, -1), partial(train_and, writes_a_checkpoint, 1, -1), tmp_path)
    assert verdict.verdict == "bitwise" and not verdict.reason, verdict


def new_optimizer(
    first: int, other_rate_from: int, steps: int, folder: Path, twin: int, *, head: bool = False, loads: bool = False
) -> None:
    """Train in two phases, the second with an optimizer that is not recorded, maybe of the head alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    draws = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for step in range(steps):
            if step == first and loads:
                model.load_state_dict(model.state_dict())
            if step in (first, other_rate_from):
                trained = model[1].parameters() if head else model.parameters()
                optimizer = torch.optim.SGD(trained, lr=0.2 if step == first else 0.5)
            optimizer.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("first", "loads", "head"), [(8, False, False), (12, False, True), (8, True, True), (12, True, False)]
)
def test_steps_of_a_new_optimizer_that_is_not_recorded_pass_for_no_equal_ones(
    first: int, loads: bool, head: bool, tmp_path: Path
) -> None:
    """Whether the last step of the first one is traced or not."""
    run = partial(new_optimizer, head=head, loads=loads)
    reference = partial(run, first, -1, 20)
    assert compared(reference, reference, tmp_path / "right").verdict == "bitwise"
    verdict = compared(reference, partial(run, first, 15, 20), tmp_path / "wrong")
    assert verdict.verdict == "cannot judge" and "`go_on_with`" in (verdict.advice or "")


def loads_best(
    parts_of: Callable[[nn.Module], nn.Module], other_rate_from: int, records: bool, folder: Path, twin: int
) -> None:
    """Train 20 steps, from the 8th on with an optimizer that may not be recorded, and load the first weights."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    best = copy.deepcopy(model.state_dict())
    draws = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(parts_of(model), optimizer, folder, twin=twin, first=8) as recorder:
        for step in range(20):
            if step == 8:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                if records:
                    recorder.go_on_with(optimizer)
            if step == other_rate_from:
                optimizer.param_groups[0]["lr"] = 0.5
            optimizer.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            optimizer.step()
        model.load_state_dict(best)


@pytest.mark.parametrize(("records", "wrong"), [(True, "different"), (False, "cannot judge")])
@pytest.mark.parametrize("parts_of", [nn.Identity, lambda model: nn.ModuleList([model])], ids=["model", "part"])
def test_what_is_loaded_after_other_steps_hides_them_not(
    parts_of: Callable[[nn.Module], nn.Module], records: bool, wrong: str, tmp_path: Path
) -> None:
    """Whether an optimizer that is recorded makes them, and whether a part of what is recorded is loaded."""
    of = (lambda model: model) if parts_of is nn.Identity else parts_of
    verdict = compared(*(partial(loads_best, of, since, records) for since in (-1, 15)), tmp_path)
    assert verdict.verdict == wrong, verdict


class Slowly(torch.optim.Optimizer):
    """An optimizer around another one, as Lookahead (Zhang et al., 2019): every other step it halves the weights."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, inner.defaults)
        self.inner, self.made = inner, 0

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        self.inner.step()
        self.made += 1
        if self.made % 2 == 0:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(0.5)


def around(rate: float, recorded: str, folder: Path, twin: int) -> None:
    """Train 20 steps with an optimizer that holds another one, of which either is recorded."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    outer = Slowly(inner)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, outer if recorded == "outer" else inner, folder, twin=twin):
        for step in range(20):
            if step == 19:
                inner.param_groups[0]["lr"] = rate
            inner.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            outer.step()


@pytest.mark.parametrize("recorded", ["outer", "inner"])
def test_steps_around_or_inside_of_recorded_ones_are_their_own(recorded: str, tmp_path: Path) -> None:
    reference, wrong = (partial(around, rate, recorded) for rate in (0.1, 0.5))
    assert compared(reference, reference, tmp_path / "right").verdict == "bitwise"
    assert not Trace.load(tmp_path / "right/test").layout.written
    assert compared(reference, wrong, tmp_path / "wrong").verdict == "different"


def puts_back(model: nn.Module, made: int, steps: int) -> None:
    """As a loop over folds does at each one's end: weights begin anew, in a way that no hook sees."""
    if made == steps:
        torch.manual_seed(0)
        for parameter, first in zip(model.parameters(), nn.Linear(4, 3).parameters(), strict=True):
            parameter.data.copy_(first.data)


def draws_anew(model: nn.Module, made: int, steps: int) -> None:
    if made == steps:
        torch.manual_seed(1)
        for parameter in model.parameters():
            nn.init.normal_(parameter)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (puts_back, "NOT compared: steps 8 to 19: when the run ends"),
        (draws_anew, "compared by the weights at the end alone: steps 8 to 19: into these the loops have written"),
    ],
)
def test_equal_ends_that_loops_have_written_are_no_silent_proof(
    does: Callable[[nn.Module, int, int], None], said: str, tmp_path: Path
) -> None:
    verdict = compared(partial(train_and, does, 1, -1), partial(train_and, does, 1, 12), tmp_path)
    assert verdict.verdict == "bitwise" and said in verdict.not_compared[0]


def test_a_run_that_ends_with_its_last_traced_step_and_one_that_goes_on_are_told_apart(tmp_path: Path) -> None:
    reference, longer = partial(new_optimizer, 8, -1, 8), partial(new_optimizer, 8, -1, 20)
    assert compared(reference, longer, tmp_path).verdict == "cannot judge"


def with_teacher(
    seed: int, moves: bool, parts: int, averages_to: int, folder: Path, twin: int, *,
    loads: bool = False, asks: bool = False,
) -> None:  # fmt: skip
    """Train 12 steps in bf16, all traced, beside weights that no optimizer holds, and that may ask for gradients."""
    torch.manual_seed(0)
    student = nn.Linear(4, 16)
    torch.manual_seed(seed)
    teacher = nn.Linear(4, 16).requires_grad_(asks)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(nn.ModuleList([student, teacher]), optimizer, folder, twin=twin, interval=1):
        for step in range(12):
            optimizer.zero_grad()
            for samples in torch.randn(16, 4, generator=draws).chunk(parts):
                with torch.autocast("cpu", torch.bfloat16):
                    output, target = student(samples).float(), teacher(samples).detach().float()
                (output.square().mean() + 1e-5 * (output - target).square().mean()).div(parts).backward()
            optimizer.step()
            if moves and step < averages_to and loads:
                ours, theirs = teacher.state_dict(), student.state_dict()
                teacher.load_state_dict({name: ours[name].lerp(theirs[name], 0.1) for name in ours})
            elif moves and step < averages_to:
                with torch.no_grad():
                    for mine, its in zip(teacher.parameters(), student.parameters(), strict=True):
                        mine.lerp_(its, 0.1)


@pytest.mark.parametrize("moves", [False, True])
def test_a_teacher_that_starts_from_other_weights_is_named_though_bf16_hides_it(moves: bool, tmp_path: Path) -> None:
    """Where it never moves, it is none of the training, and what gradients do not show is nothing."""
    reference, other = (partial(with_teacher, seed, moves, parts, 12) for seed, parts in ((1, 1), (2, 4)))
    verdict = compared(reference, other, tmp_path)
    assert verdict.verdict == ("different" if moves else "equivalent")
    assert verdict.cause == ("weights-not-loaded" if moves else None)


def beside_its_average(parts: int, averages_to: int, folder: Path) -> None:
    """Train 8 steps under bf16 autocast beside an average in fp32, all traced."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with trainparity.record(nn.ModuleList([model, average]), optimizer, folder, interval=1):
        for step, samples in enumerate(torch.randn(8, 12, 16, generator=torch.Generator().manual_seed(1))):
            optimizer.zero_grad()
            for part, labels in zip(samples.chunk(parts), (torch.arange(12) % 4).chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    output = model(part)
                nn.functional.cross_entropy(output.float(), labels).div(parts).backward()
            optimizer.step()
            if step < averages_to:
                with torch.no_grad():
                    for mine, its in zip(average.parameters(), model.parameters(), strict=True):
                        mine.lerp_(its, 0.1)


def test_without_twins_an_average_ends_as_far_off_as_the_weights_that_it_follows(tmp_path: Path) -> None:
    for name, parts, averages_to in (("a", 1, 8), ("right", 3, 8), ("stopped", 3, 5)):
        beside_its_average(parts, averages_to, tmp_path / name)
    right, stopped = (compare_folders(tmp_path / "a", tmp_path / name) for name in ("right", "stopped"))
    assert right.verdict == "equivalent", right.explanation
    assert (stopped.verdict, stopped.cause) == ("different", "weights-not-loaded"), stopped.explanation


def with_average(until: int, folder: Path, twin: int) -> None:
    """Train 300 steps beside an average of few weights in bf16, which one run stops to make."""
    torch.manual_seed(0)
    model = nn.Linear(128, 2048, bias=False).bfloat16()
    average = nn.Linear(128, 1, bias=False).bfloat16().requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(nn.ModuleList([model, average]), optimizer, folder, twin=twin):
        for step in range(300):
            optimizer.zero_grad()
            samples = torch.randn(4, 128, generator=draws).bfloat16()
            (model(samples) - samples.repeat(1, 16)).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                if step < until:
                    average.weight.mul_(0.9).add_(model.weight[:1], alpha=0.1)


def test_an_average_in_bf16_that_stops_is_seen_however_long_a_run_is(tmp_path: Path) -> None:
    verdict = compared(partial(with_average, 300), partial(with_average, 4), tmp_path)
    assert verdict.verdict == "different" and "the noise floor apart after the last step" in (verdict.reason or ""), (
        verdict
    )


def test_what_a_loop_leaves_out_after_the_last_step_is_seen_where_all_are_traced(tmp_path: Path) -> None:
    reference, other = (partial(with_teacher, 1, True, 1, averages_to) for averages_to in (12, 11))
    verdict = compared(reference, other, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "unknown")
    assert "agree in all 12 steps, and end with other weights" in (verdict.explanation or "")


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize(("averages_to", "verdict"), [(12, "equivalent"), (11, "different")])
def test_an_average_that_is_loaded_in_each_step_ends_with_its_last_load(
    averages_to: int, verdict: str, asks: bool, tmp_path: Path
) -> None:
    """Of which parameters may ask for gradients that nobody takes, as a target network's."""
    reference = partial(with_teacher, 1, True, 1, 12, asks=asks)
    other = partial(with_teacher, 1, True, 4, averages_to, loads=True, asks=asks)
    assert compared(reference, other, tmp_path).verdict == verdict


def test_weights_that_are_not_finite_at_the_end_pass_for_no_equal_ones(tmp_path: Path) -> None:
    """NaN has the same bits whatever it was made of."""
    broken = partial(train, 30, 20, 1, float("nan"))
    verdict = compared(broken, partial(train, 30, -1, 1, float("nan")), tmp_path)
    assert verdict.verdict == "cannot judge" and "not finite any more" in (verdict.reason or "")


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


def test_a_folder_that_cannot_be_made_is_told_before_the_training() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(RecordError, match="/proc/none/runs: can't be recorded into: No such file or directory"):
        trainparity.record(model, torch.optim.SGD(model.parameters()), "/proc/none/runs")


def test_arguments_in_another_order_are_told(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(TypeError, match=r"the folder is a SGD; give a path: record\(model, optimizer, folder\)"):
        trainparity.record(tmp_path, model, torch.optim.SGD(model.parameters()))  # type: ignore[arg-type]


SHARDED = """
import sys
import torch, trainparity
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
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
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        done = subprocess.run([python(), "-c", SHARDED, str(folder)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    trace = Trace.load(folders[0])
    assert trace.layout.made == 12 and len(trace.layout.steps) == 8 and "end/digest" not in trace.arrays
    verdict = compare_folders(*folders)
    assert verdict.verdict == "bitwise" and verdict.not_compared[0].startswith("NOT compared: steps 8 to 11: when the")


FULL = """
import resource, signal, sys
import torch, trainparity
from torch import nn

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters())
trainparity.record(model, optimizer, sys.argv[1])
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
"""


def test_a_disk_that_is_full_when_the_training_ends_costs_the_trace_and_is_said_in_a_line(tmp_path: Path) -> None:
    done = subprocess.run([python(), "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "its trace was not written: [Errno 27] File too large" in done.stderr
    assert not list(tmp_path.iterdir())


SLOW = """
import sys, time
from pathlib import Path
import torch, trainparity
from torch import nn

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters())
with trainparity.record(model, optimizer, sys.argv[1]):
    Path(sys.argv[2]).touch()
    while not (Path(sys.argv[1]) / "trace.json").exists():
        time.sleep(0.01)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


def test_a_run_that_another_one_has_recorded_over_leaves_its_trace_and_says_so(tmp_path: Path) -> None:
    command = [python(), "-c", SLOW, str(tmp_path / "run"), str(tmp_path / "begun")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as slow:
        while not (tmp_path / "begun").exists() and slow.poll() is None:
            time.sleep(0.01)
        REFERENCE(tmp_path / "run", 0)
        _, said = slow.communicate(timeout=60)
    assert slow.returncode == 0 and "a run that began later has recorded here; its trace stays" in said
    assert Trace.load(tmp_path / "run").layout.made == 30


def test_a_module_that_is_first_called_in_the_step_that_fails_damages_no_trace(tmp_path: Path) -> None:
    torch.manual_seed(0)
    body, extra = nn.Linear(4, 8), nn.Linear(8, 8)
    model = nn.ModuleList([body, extra])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="no memory"), trainparity.record(model, optimizer, tmp_path):
        for step in range(4):
            optimizer.zero_grad()
            made = body(torch.randn(8, 4))
            if step == 3:
                extra(made)
                raise RuntimeError("no memory")
            made.square().mean().backward()
            optimizer.step()
    trace = Trace.load(tmp_path)
    assert trace.layout.steps == [0, 1, 2] and not any(name.startswith("1") for name in trace.layout.activations)


def test_a_run_that_ends_after_an_older_one_replaces_its_trace(tmp_path: Path) -> None:
    recorders = []
    for name, steps in (("older", 2), ("newer", 3)):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        recorders.append((trainparity.record(model, optimizer, tmp_path / name), model, optimizer, steps))
    for recorder, model, optimizer, steps in recorders:
        for _ in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        recorder.close()
    for name in ("trace.json", "trace.safetensors"):  # as of two processes that record into one folder
        (tmp_path / "newer" / name).unlink()
    (older, *_), (newer, *_) = recorders
    older.folder = newer.folder
    older._write()
    assert Trace.load(newer.folder).layout.made == 2
    newer._write()
    assert Trace.load(newer.folder).layout.made == 3
    with pytest.warns(UserWarning, match="a run that began later has recorded here; its trace stays"):
        older._write()
    assert Trace.load(newer.folder).layout.made == 3


@pytest.mark.parametrize("unknown", ["reference", "test"])
def test_an_end_that_ranks_hold_in_parts_is_not_compared_with_what_a_loop_has_written(
    unknown: str, tmp_path: Path
) -> None:
    """As FSDP2 leaves it: there the weights are known that the last step has left, before a decay of the loop."""
    runs = (partial(train_and, shrinks, parts, -1, interval=1) for parts in (1, 4))
    assert compared(*runs, tmp_path).verdict == "equivalent"
    for folder in {tmp_path / unknown, *(tmp_path / unknown / "twins").glob("*")}:
        trace = Trace.load(folder)
        Trace(trace.layout, {name: a for name, a in trace.arrays.items() if not name.startswith("end/")}).save(folder)
    found = compare_folders(tmp_path / "reference", tmp_path / "test")
    assert found.verdict == "equivalent" and str(found.reason).startswith("NOT compared: what ")
