"""Ranks that come to a step, and one that does not."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import local
from types import SimpleNamespace

import pytest
import torch

from tests.support.scripts import torchrun
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording import meeting, presence, ranks
from trainparity.parity.recording.meeting import Meeting, Patience, Place, State

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


@pytest.mark.parametrize("arguments", [(), ("on every rank",)], ids=["on rank 0", "on every rank"])
def test_a_step_that_one_rank_leaves_out_is_named_and_not_waited_for(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(ON_RANK_0)
    command = [*torchrun().split(), str(tmp_path / "train.py"), str(tmp_path / "run"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    said = "recorded no further, at step 0 rank 1 does not make the optimizer step that rank 0 makes: it has begun 2"
    assert (said in done.stderr) == (not arguments)


ALONE = (
    ON_RANK_0.replace("import meeting\n", "import meeting, presence\n")
    .replace("meeting.GRACE_S = 0.5", "meeting.UNHEARD_S, presence.ABSENCE_S = 0.2, 2")
    .replace("record(model", "rank == 0 and record(model")
)


def test_a_rank_that_records_alone_says_for_whom_it_waits(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE)
    command = [*torchrun().split(), str(tmp_path / "train.py"), str(tmp_path / "run"), "on every rank"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr.count("rank 0 waits for rank 1, which records nothing so far: all ranks must") == 1
    assert "recorded no further, at step 0 rank 1 has not come" in done.stderr


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


@pytest.mark.slow
def test_a_rank_that_does_not_clip_is_named_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CLIPPED)
    for run, arguments in (("right", ["on every rank"]), ("wrong", [])):
        command = [*torchrun().split(), str(tmp_path / "train.py"), str(tmp_path / run), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr[-4000:]
    found = compare_folders(tmp_path / "right", tmp_path / "wrong")
    assert (found.cause, found.step) == ("clipping", 0), found
    assert "rank 1 of" in (found.explanation or "")


def test_a_rank_that_goes_on_is_waited_for_and_one_that_stands_still_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "GRACE_S", 0.05)
    monkeypatch.setattr(presence, "ABSENCE_S", 0.2)
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    asked = count()
    monkeypatch.setattr(meeting, "time", SimpleNamespace(monotonic=lambda: 0.02 * next(asked)))
    mine = State(3, 1, 2)
    seen = [State(2, 2, passes) for passes in range(9)] + [State(3, 0, passes) for passes in range(9)]
    goes_on = iter([*seen, State(3, 1, 2)])
    patience = Patience(lambda rank: next(goes_on), mine)
    assert not any(patience.lost() for _ in range(len(seen) + 1))
    for still, said, waits in (
        (State(3, 0, 3), "rank 1 does not make the optimizer step", 2),
        (State(3, 0, 0), "rank 1 has not come", 8),  # as one that waits in a collective
        (State(0, 0, 0), "rank 1 has not come", 8),  # as one that never trains
    ):
        patience = Patience(lambda rank, still=still: still, mine)  # type: ignore[misc]
        answers = [patience.lost() for _ in range(12)]
        assert not any(answers[:waits]) and answers[-1].startswith(said)


@pytest.mark.parametrize("outputs", [2, 3], ids=["one model", "stages of a pipeline"])
def test_ranks_that_train_other_parameters_are_told_before_they_gather(
    outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = torch.distributed.HashStore()
    monkeypatch.setattr(presence, "store_of_group", lambda: store)
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    both = [Meeting(torch.nn.Linear(4, width)) for width in (2, outputs)]
    both[1]._presence._name = both[1]._name = both[0]._name
    current = local()
    monkeypatch.setattr(ranks, "rank", lambda: current.rank)
    monkeypatch.setattr(ranks, "gather", lambda mine: torch.stack([mine, mine]))

    def come(rank: int) -> str:
        current.rank = rank
        both[rank].meet(Place.UPDATE)
        return both[rank].parted

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(come, range(2)))
    current.rank = 0
    for one in both:
        one.close()
    assert said[0] == said[1] and ("as the stages of a pipeline do" in said[0]) == (outputs == 3)
