"""Ranks that come to a step, and one that does not."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import local

import pytest
import torch

from tests.support.scripts import torchrun
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording import meeting, ranks
from trainparity.parity.recording.meeting import Meeting, OtherModel, Place, RankLeftBehind, State, wait_for

ON_RANK_0 = """
import sys, torch
from torch.nn.parallel import DistributedDataParallel
from trainparity import record
from trainparity.parity.recording import meeting

meeting.GRACE_S = 0.5
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
record(model, optimizer, sys.argv[1], interval=1)
for step in range(3):
    model(torch.ones(3, 4)).sum().backward()
    if rank == 0 or len(sys.argv) > 2:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(("arguments", "code"), [((), 1), (("on every rank",), 0)], ids=["on rank 0", "on every rank"])
def test_a_step_that_one_rank_leaves_out_is_named_and_not_waited_for(
    arguments: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(ON_RANK_0)
    command = [*torchrun().split(), str(tmp_path / "train.py"), str(tmp_path / "run"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr[-4000:]
    said = "rank 1 does not make the optimizer step that rank 0 makes: it has begun 2 forward passes"
    assert (said in done.stderr) == bool(code)


CLIPPED = ON_RANK_0.replace(
    """    if rank == 0 or len(sys.argv) > 2:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
""",
    """    if rank == 0 or len(sys.argv) > 2:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
""",
)


def test_a_rank_that_does_not_clip_is_named_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CLIPPED)
    for run, arguments in (("right", ["on every rank"]), ("wrong", [])):
        command = [*torchrun().split(), str(tmp_path / "train.py"), str(tmp_path / run), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr[-4000:]
    found = compare_folders(tmp_path / "right", tmp_path / "wrong")
    assert (found.cause, found.step) == ("clipping", 0), found
    assert "rank 1 of" in (found.explanation or "")


def test_a_rank_that_is_behind_or_goes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "GRACE_S", 0.05)
    mine, passes = State(3, 1, 2), count(3)
    behind = iter([State(2, 2, 9)] * 20 + [State(3, 0, 2)] * 20 + [State(3, 1, 2)])
    wait_for(lambda: next(behind), mine, 1)
    validates = iter([State(3, 0, next(passes)) for _ in range(20)] + [State(4, 0, 0)])
    wait_for(lambda: next(validates), mine, 1)
    with pytest.raises(RankLeftBehind, match="rank 1 does not make"):
        wait_for(lambda: State(3, 0, 3), mine, 1)


@pytest.mark.parametrize("outputs", [2, 3], ids=["one model", "stages of a pipeline"])
def test_ranks_that_train_other_parameters_are_told_before_they_gather(
    outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = torch.distributed.HashStore()
    monkeypatch.setattr(meeting, "_store", lambda: store)
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    both = [Meeting(torch.nn.Linear(4, width)) for width in (2, outputs)]
    both[1]._name = both[0]._name
    said: list[str] = []

    def meet(rank: int) -> None:
        try:
            both[rank].meet(Place.UPDATE)
        except OtherModel as error:
            said.append(str(error))

    with ThreadPoolExecutor(2) as pool:
        current = local()
        monkeypatch.setattr(ranks, "rank", lambda: current.rank)

        def come(rank: int) -> None:
            current.rank = rank
            meet(rank)

        list(pool.map(come, range(2)))
    assert len(said) == (0 if outputs == 2 else 2)
    assert all("as the stages of a pipeline do" in text for text in said)
