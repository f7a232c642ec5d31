"""States of trainings on disk: what optimizers keep in other ways than torch's own, and files that are damaged."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import trainparity
from tests.support.on_ranks import on_ranks
from trainparity import checkpoints
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Layout
from trainparity.records.base import RecordError


class Counting(torch.optim.Optimizer):
    """Keeps a Python number of each parameter."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, **options})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["made"] = state.get("made", 0) + 1
            parameter -= self.param_groups[0]["lr"] / state["made"] * parameter.grad


def train(folder: Path, optimizer: Callable[..., torch.optim.Optimizer], *, width: int = 5, **options: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, width), nn.Tanh(), nn.Linear(width, 3))
    made = optimizer(model.parameters())
    with trainparity.record(model, made, folder, every=3, interval=1, **options):
        for step in range(8):
            made.zero_grad()
            batch = torch.randn(4, 7, generator=torch.Generator().manual_seed(step))
            model(batch).square().mean().backward()
            made.step()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
        lambda p: torch.optim.Adam(p, betas=(torch.tensor(0.9), torch.tensor(0.999)), foreach=False),
        Counting,
    ],
    ids=["tensor as rate", "tensors as betas", "Python numbers"],
)
def test_windows_keep_what_an_optimizer_keeps(tmp_path: Path, optimizer: Callable[..., Any]) -> None:
    train(tmp_path / "a", optimizer)
    train(tmp_path / "b", optimizer, follow=tmp_path / "a")
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict == "bitwise"


def test_a_state_is_loaded_with_its_numbers_and_options(tmp_path: Path) -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    kept, loaded = (Counting(model.parameters(), scale=scale) for model, scale in zip(models, (2.0, 3.0), strict=True))
    kept.param_groups[0]["table"] = torch.ones(2)
    for _ in range(2):
        models[0](torch.ones(1, 2)).sum().backward()
        kept.step()
    checkpoints.save(tmp_path / "state", models[0], kept, {}, {}, main=True)
    checkpoints.load(tmp_path / "state", models[1], loaded, keep_settings=True)
    assert loaded.state[models[1].bias]["made"] == 2 and loaded.param_groups[0]["scale"] == 3.0
    assert torch.equal(models[1].weight, models[0].weight)
    checkpoints.load(tmp_path / "state", models[1], loaded)
    assert loaded.param_groups[0]["scale"] == 2.0


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="Counting has a builtin_function_or_method as 'of', not a tensor"):
        train(tmp_path, lambda parameters: Counting(parameters, of=len))


def test_it_is_named_before_the_training_begins(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(RecordError, match="Counting has a float32 as 'lr'"):
        trainparity.record(model, Counting(model.parameters(), lr=np.float32(0.1)), tmp_path, every=2)


class Odd(Counting):
    """Keeps something that is written by no rule: `kept` makes it of a parameter's state, or of the whole."""

    def __init__(self, parameters: Any, kept: Callable[[Any], None]) -> None:
        super().__init__(parameters)
        kept(self.state)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (lambda state: state.update({"all": {"step": 0}}), "keeps 'all' beside what it keeps of each parameter"),
        (lambda state: state.update({"step": 3}), "keeps 'step' beside what it keeps of each parameter"),
    ],
)
def test_a_state_that_cannot_be_kept_ends_the_recording_alone(
    tmp_path: Path, kept: Callable[[Any], None], said: str
) -> None:
    with pytest.warns(UserWarning, match=f"recorded no further, at step 3 .*{said}"):
        train(tmp_path, lambda parameters: Odd(parameters, kept))
    layout = Layout.read(tmp_path / "trace.json")
    assert layout.made == 3 and said in layout.cut_short


@pytest.mark.parametrize("refusing", [0, 1])
def test_one_rank_of_fsdp2_that_cannot_keep_its_state_ends_the_recording_on_all(tmp_path: Path, refusing: int) -> None:
    recorded = on_ranks(2, tmp_path, _sharded, str(tmp_path / "run"), refusing)
    assert [trained.tolist() for trained in recorded] == [[8.0, 1.0], [8.0, 1.0]]
    assert "keeps a dict as 'odd'" in Layout.read(tmp_path / "run/trace.json").cut_short


def _sharded(rank: int, folder: str, refusing: int) -> Tensor:
    """Train shards of which one rank keeps something odd; return the steps, and whether recording ended before them."""
    torch.manual_seed(0)
    model = fully_shard(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)), mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.Adam(model.parameters())
    with trainparity.record(model, optimizer, folder, every=3, interval=1) as recorder:
        for step in range(8):
            optimizer.zero_grad()
            model(torch.ones(4, 8) + rank).square().sum().backward()
            optimizer.step()
            if step == 1 and rank == refusing:
                optimizer.state[next(model.parameters())]["odd"] = {}
        return torch.tensor([step + 1.0, bool(recorder.ended)])


@pytest.mark.slow
def test_a_full_disk_ends_the_recording_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FULL_DISK)
    command = [sys.executable, "-W", "always", script, tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "recorded no further, at step 3" in done.stderr and not (tmp_path / "run/trace.json").exists()


FULL_DISK = """
import resource, signal, sys
import torch, trainparity

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
recorder = trainparity.record(model, optimizer, sys.argv[1], every=3)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
for _ in range(8):
    optimizer.zero_grad()
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
recorder.close()
print("trained")
"""


class Named(Counting):
    """Keeps what has no value yet, and under a name with a dot."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state.setdefault("exp.avg", torch.zeros_like(parameter)).lerp_(parameter.grad, 0.5)
            assert state.setdefault("longest", None) is None
            parameter -= 0.1 * state["exp.avg"]


def test_a_state_is_kept_with_all_of_its_names(tmp_path: Path) -> None:
    train(tmp_path / "a", Named)
    train(tmp_path / "b", Named, follow=tmp_path / "a")
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict == "bitwise"


def test_states_of_an_earlier_run_and_of_other_steps_are_not_loaded(tmp_path: Path) -> None:
    train(tmp_path / "a", Counting)
    assert sorted(state.name for state in (tmp_path / "a/windows").iterdir()) == ["step-000003", "step-000006"]
    (tmp_path / "a/windows/step-000003").rename(tmp_path / "a/windows/step-000009")
    with pytest.raises(RecordError, match="step-000003: no such folder; copy it with the trace"):
        train(tmp_path / "b", Counting, follow=tmp_path / "a")
    (tmp_path / "a/windows/step-000006").rename(tmp_path / "a/windows/step-000003")
    (tmp_path / "a/windows/step-000009").rename(tmp_path / "a/windows/step-000006")
    with pytest.raises(RecordError, match="step-000003: holds the state of step 6"):
        train(tmp_path / "b", Counting, follow=tmp_path / "a")
    model = nn.Linear(2, 2)
    trainparity.record(model, Counting(model.parameters()), tmp_path / "a", every=3).close()
    assert not list((tmp_path / "a/windows").iterdir())


def test_a_run_does_not_follow_itself(tmp_path: Path) -> None:
    train(tmp_path / "a", Counting)
    with pytest.raises(ValueError, match="is the folder that this run is recorded into"):
        train(tmp_path / "a", Counting, follow=tmp_path / "a")
    assert (tmp_path / "a/trace.json").exists()


@pytest.mark.parametrize("file", ["state.safetensors", "state.json"])
@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:-3] + bytes([b[-3] ^ 16]) + b[-2:], lambda b: b"", lambda b: b"[]"]
)
def test_a_damaged_state_is_not_loaded(tmp_path: Path, file: str, damage: Callable[[bytes], bytes]) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    checkpoints.save(tmp_path / "state", model, optimizer, {}, {}, main=True)
    path = tmp_path / "state" / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordError, match="state: damaged"):
        checkpoints.load(tmp_path / "state", model, optimizer)


def test_the_state_of_another_optimizer_or_model_is_named(tmp_path: Path) -> None:
    train(tmp_path / "a", lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    with pytest.raises(
        RecordError, match=r"step-000003: the state of another optimizer: it holds momentum_buffer, and "
    ):
        train(tmp_path / "b", torch.optim.Adam, follow=tmp_path / "a")
    with pytest.raises(RecordError, match=r"(?s)step-000003: the state of another model: .*size mismatch"):
        train(tmp_path / "c", torch.optim.SGD, width=6, follow=tmp_path / "a")
    train(tmp_path / "d", lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), follow=tmp_path / "a")
    assert compare_folders(tmp_path / "a", tmp_path / "d").verdict == "bitwise"


def test_what_lies_in_the_place_of_a_state_is_removed(tmp_path: Path) -> None:
    train(tmp_path / "a", Counting)
    (tmp_path / "a/windows/step-000009").write_text("")
    (tmp_path / "a/windows/step-000012").symlink_to(tmp_path)
    train(tmp_path / "a", Counting)
    assert sorted(state.name for state in (tmp_path / "a/windows").iterdir()) == ["step-000003", "step-000006"]
    assert tmp_path.is_dir()
