"""Scripts that seed nothing: their runs repeat themselves, and their ranks draw apart as they do without us."""

import sys
from pathlib import Path

import pytest

from tests.support.scripts import PLAIN, torchrun, trainparity, write
from tests.support.warm import python
from trainparity.parity.compare import compare_folders
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.recording.trace import Trace
from trainparity.parity.verdict import judge_traces

UNSEEDED = PLAIN.replace("    torch.manual_seed(0)\n", "")
RANKS = UNSEEDED.replace(
    "def main():\n",
    "def main(rank=None):\n"
    "    import torch.distributed as dist, os\n"
    "    meet = {'init_method': 'file://' + os.path.abspath('meet'), 'rank': rank, 'world_size': 2}\n"
    "    dist.init_process_group('gloo', **({} if rank is None else meet))\n",
)
SPAWNED = RANKS.replace("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=2)\n")


def record(folder: Path, name: str, *command: object, twins: int = 0) -> Path:
    done = trainparity("run", name, "--twins", twins, "--steps", 3, "--", *command, "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "meet").unlink(missing_ok=True)
    return folder / name


def test_a_script_without_a_seed_repeats_itself(tmp_path: Path) -> None:
    write(tmp_path, UNSEEDED)
    first, second = (record(tmp_path, name, python(), twins=twins) for name, twins in (("a", 1), ("b", 0)))
    found = compare_folders(first, second)
    assert found.verdict == "bitwise" and found.calibrated
    reference, twin = Trace.load(first), Trace.load(first / "twins/1")
    assert judge_traces(reference, twin, NoiseFloor(reference, [twin]), 16.0).verdict == "equivalent"


def test_a_seed_that_is_lost_is_seen(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    seeded = record(tmp_path, "a", python(), twins=1)
    write(tmp_path, UNSEEDED)
    found = compare_folders(seeded, record(tmp_path, "b", python()))
    assert (found.verdict, found.cause) == ("different", "weights-not-loaded")


@pytest.mark.slow
def test_ranks_without_a_seed_start_from_weights_of_their_own(tmp_path: Path) -> None:
    """The same ones each time, or nothing could be said of them."""
    write(tmp_path, RANKS)
    started = compare_folders(*(record(tmp_path, name, *torchrun().split()) for name in "ab"))
    assert (started.verdict, started.ranks_agree) == ("bitwise", False)
    write(tmp_path, SPAWNED)
    spawned = compare_folders(tmp_path / "a", record(tmp_path, "c", sys.executable))
    assert (spawned.verdict, spawned.ranks_agree) == ("bitwise", False)
