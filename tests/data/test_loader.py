"""Batches from worker processes: the same as without, and every way in which the workers can fail is survived."""

import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainparity.data.datasets import prepare
from trainparity.data.loader import micro_batches
from trainparity.data.prepared import Prepared
from trainparity.data.store import load
from trainparity.data.workers import WorkersFailed
from trainparity.params import Digits, Fake, Loader

CURSED = 13
"""A sample that something happens at, if a worker loads it."""
NUM_BATCHES = 20

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and resource limits of Linux")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("digits")
    prepare(Digits(name="digits", limit=40), folder / "data", folder / "downloads")
    return load(folder / "data")


class Cursed(Prepared):
    """Does something in the worker process that loads the cursed sample."""

    def __init__(self, dataset: Prepared, deed: Callable[[], object]) -> None:
        super().__init__(dataset.manifest, dataset.tensors)
        self.deed = deed

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        if CURSED in indices and multiprocessing.parent_process():
            self.deed()
        return super().batch(indices)


def plan() -> list[Tensor]:
    """Make uneven batches; the cursed sample is in the eighth only."""
    harmless = torch.tensor([i for i in range(40) if i != CURSED])
    drawn = [harmless[torch.randperm(39, generator=torch.Generator().manual_seed(i))] for i in range(NUM_BATCHES)]
    found = [samples[: 5 + i % 3] for i, samples in enumerate(drawn)]
    found[7][2] = CURSED
    return found


def loader(**settings: object) -> Loader:
    return Loader.model_validate({"workers": 2, "start_method": "fork", **settings})


def assert_same(loaded: list[dict[str, Tensor]], dataset: Prepared, wanted: list[Tensor]) -> None:
    assert len(loaded) == len(wanted)
    for batch, samples in zip(loaded, wanted, strict=True):
        expected = dataset.batch(samples)
        assert batch.keys() == expected.keys()
        assert all(torch.equal(batch[name], expected[name]) for name in expected)


def survive(dataset: Prepared, settings: Loader) -> tuple[str, float]:
    """Load the plan, which must come whole; return how the workers failed, and the seconds it took."""
    started, failures = time.monotonic(), list[WorkersFailed]()
    loaded = list(micro_batches(dataset, plan(), settings, failures.append))
    elapsed = time.monotonic() - started
    assert_same(loaded, Prepared(dataset.manifest, dataset.tensors), plan())
    assert multiprocessing.active_children() == []
    [failure] = failures
    return str(failure), elapsed


def never(error: WorkersFailed) -> None:
    raise AssertionError(f"failed: {error}")


@pytest.mark.parametrize("settings", [{"workers": 0}, {}, {"start_method": "spawn"}, {"prefetch_factor": 5}], ids=str)
def test_batches_are_the_same_in_the_same_order_whatever_loads_them(
    digits: Prepared, settings: dict[str, object]
) -> None:
    assert_same(list(micro_batches(digits, plan(), loader(**settings), never)), digits, plan())


def test_a_worker_that_is_slow_but_within_the_deadline_is_waited_for(digits: Prepared) -> None:
    slow = Cursed(digits, lambda: time.sleep(2.5))  # longer than the loop waits between two looks at the workers
    assert_same(list(micro_batches(slow, plan(), loader(deadline_s=60.0), never)), digits, plan())


def die_while_it_looks_whether_to_end() -> None:
    frame = sys._getframe()
    while "done_event" not in frame.f_locals:
        assert frame.f_back
        frame = frame.f_back
    if condition := getattr(frame.f_locals["done_event"], "_cond", None):
        condition.acquire()  # as is_set() does for a moment
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        (lambda: time.sleep(600), r"no batch came within loader.deadline_s: 1.5"),
        # Its last batch is loaded, but it does not hand it over: the DataLoader's own timeout does not see that.
        (lambda: os.kill(os.getpid(), signal.SIGSTOP), r"no batch came within loader.deadline_s: 1.5"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"worker process \d+ ended by SIGKILL \(.* out of memory\)"),
        (die_while_it_looks_whether_to_end, r"worker process \d+ ended by SIGKILL \(.* out of memory\)"),
        (lambda: os.kill(os.getpid(), signal.SIGBUS), r"worker process \d+ ended by SIGBUS"),
        (lambda: os._exit(3), r"worker process \d+ ended with exit code 3"),
    ],
    ids=["hangs", "stops", "is killed", "is killed with a lock", "has no memory behind a page", "exits"],
)
def test_a_failed_worker_is_named_in_time_and_its_batches_come_all_the_same(
    digits: Prepared, deed: Callable[[], object], reason: str
) -> None:
    message, elapsed = survive(Cursed(digits, deed), loader(deadline_s=1.5))
    assert re.match(rf"loading batch [5-8] of 20 in worker processes failed: {reason}\. ", message), message
    assert re.search(
        r"num_workers 2 x prefetch_factor 2 batches of \d+ B wait in shared memory, which has [\d.]+ .iB, [\d.]+ .iB "
        r"free: set loader.workers .* lower, .*--shm-size.* workers: 0 none of this is needed",
        message,
    ), message
    assert elapsed < 20


def test_a_worker_that_dies_between_two_batches_never_interrupts_a_training_step(digits: Prepared) -> None:
    failures: list[WorkersFailed] = []
    batches = micro_batches(digits, plan(), loader(), failures.append)
    loaded = [next(batches)]
    for child in multiprocessing.active_children():
        child.kill()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:  # a training step: torch's own handler would raise here
        assert failures == []
    loaded += batches
    assert_same(loaded, digits, plan())
    assert len(failures) == 1 and "SIGKILL" in str(failures[0])


@pytest.mark.parametrize("error", [KeyError, RuntimeError])
def test_what_the_dataset_raises_in_a_worker_is_no_failure_of_the_workers(
    digits: Prepared, error: type[Exception]
) -> None:
    def deed() -> None:
        raise error("DataLoader worker (pid 1) is killed, no shared memory")  # whatever it says

    batches = micro_batches(Cursed(digits, deed), plan(), loader(), never)
    for _ in range(7):
        next(batches)
    with pytest.raises(error, match=r"in a worker process(.|\n)*in deed"):
        next(batches)


@contextmanager
def limited(kind: int, limit: int) -> Iterator[None]:
    """Lower one of this process's limits for as long as nothing else of it, such as pytest's output, is concerned."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@pytest.mark.slow
@needs_linux
def test_more_batches_than_open_files_are_no_trouble(digits: Prepared) -> None:
    many = plan() * 6
    with limited(resource.RLIMIT_NOFILE, len(list(Path("/proc/self/fd").iterdir())) + 60):
        batches = micro_batches(digits, many, loader(start_method="spawn"), never)
        for batch, samples in zip(batches, many, strict=True):  # each gives its files back before the next is taken
            assert torch.equal(batch["samples"], samples)


@needs_linux
def test_a_file_in_shared_memory_that_can_not_grow_is_told_at_once(digits: Prepared) -> None:
    with limited(resource.RLIMIT_FSIZE, 100):  # bytes; a batch has more
        message, elapsed = survive(digits, loader(deadline_s=60.0))
    assert re.search(r"batch 1 of 20 .* failed: RuntimeError: unable to .*: File too large", message), message
    assert elapsed < 15


SMALL = """
import sys, time
from pathlib import Path
import torch
from trainparity.data.loader import micro_batches
from trainparity.data.store import load
from trainparity.params import Loader
if __name__ == "__main__":
    dataset, started = load(Path(sys.argv[1])), time.monotonic()
    plan = [torch.arange(i, i + 16) for i in range(16)]
    settings = Loader(workers=2, start_method=sys.argv[2], deadline_s=60.0)
    batches = micro_batches(dataset, plan, settings, lambda error: print(error))
    assert all(torch.equal(b["images"], dataset.tensors["images"][p]) for b, p in zip(batches, plan, strict=True))
    print(f"all came after {time.monotonic() - started:.1f} s")
"""


@pytest.mark.slow
@needs_linux
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_shared_memory_that_is_too_small_is_told_at_once(tmp_path: Path, start_method: str) -> None:
    """A batch is 768 KiB, /dev/shm 1 MiB; `spawn` would move the whole dataset there."""
    prepare(Fake(name="fake", shape=[3, 64, 64], size=32), tmp_path / "data", tmp_path)
    script = tmp_path / "small.py"
    script.write_text(SMALL)
    mounted = 'mount -t tmpfs -o size=1m tmpfs /dev/shm || exit 77; exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted, "sh"]
    load_all = [sys.executable, str(script), str(tmp_path / "data"), start_method]
    try:
        done = subprocess.run([*command, *load_all], capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip("no unshare command")
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"this user can't mount: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"failed: \D*unable to allocate shared memory\(shm\) for file <\S+>\. .* which has 1 MiB, ", done.stdout
    )
    seconds = re.search(r"all came after ([\d.]+) s", done.stdout)
    assert seconds and float(seconds[1]) < 20


BY_FILE_NAME = """
import multiprocessing, sys
from pathlib import Path
import psutil
import torch
from trainparity.data.loader import micro_batches
from trainparity.data.prepared import Prepared
from trainparity.data.store import load
from trainparity.params import Loader

class Dataset(Prepared):
    def batch(self, indices):
        if 13 in indices and multiprocessing.parent_process():
            for process in psutil.Process().children():
                if process.name() == "torch_shm_manager":
                    process.suspend()
                    stopped.write_text(str(process.pid))
        return super().batch(indices)

torch.multiprocessing.set_sharing_strategy("file_system")
dataset, stopped = load(Path(sys.argv[1])), Path(sys.argv[2])
plan = [torch.arange(i, i + 2) for i in range(0, 40, 2)]
settings = Loader(workers=2, start_method="fork", deadline_s=60.0)
dataset = Dataset(dataset.manifest, dataset.tensors)
loaded = list(micro_batches(dataset, plan, settings, lambda error: print(error)))
psutil.Process(int(stopped.read_text())).resume()
assert all(torch.equal(batch["images"], dataset.tensors["images"][p]) for batch, p in zip(loaded, plan, strict=True))
print("all came")
"""


@pytest.mark.slow
@needs_linux
def test_the_failure_that_ended_study_a_is_survived(tmp_path: Path) -> None:
    """A4: in epoch 18 a memory manager, of which macOS has one for each worker, did not answer for a second."""
    prepare(Digits(name="digits", limit=40), tmp_path / "data", tmp_path)
    script = tmp_path / "by_file_name.py"
    script.write_text(BY_FILE_NAME)
    command = [sys.executable, str(script), str(tmp_path / "data"), str(tmp_path / "stopped")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"failed: \D*Shared memory manager connection has timed out\. num_workers", done.stdout)
    assert "all came" in done.stdout


def test_killed_workers_leave_no_temporary_files_of_their_own(digits: Prepared) -> None:
    config, before = multiprocessing.current_process()._config, tempfile.tempdir  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(config, "tempdir", f"{folder}/ours")
        patch.setattr(tempfile, "tempdir", f"{folder}/theirs")
        for name in ("ours", "theirs"):
            (Path(folder) / name).mkdir()
        survive(Cursed(digits, lambda: os.kill(os.getpid(), signal.SIGKILL)), loader())
        assert list((Path(folder) / "ours").iterdir())  # sockets, which go with this process
        assert not list((Path(folder) / "theirs").iterdir())
    assert tempfile.tempdir == before


def test_a_temporary_folder_too_deep_for_sockets_is_told_at_once(digits: Prepared) -> None:
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        deep = Path(folder) / ("d" * 90)
        deep.mkdir()
        patch.setitem(config, "tempdir", str(deep))
        message, _ = survive(digits, loader())
    assert f"too long for sockets: {deep}; set TMPDIR" in message
