"""Batches from a DataLoader's worker processes; every failure of these raises one error before a deadline."""

import multiprocessing
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir

import numpy as np
import torch
from torch import Tensor
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset

from trainparity.data import shared_memory
from trainparity.data.errors import DataError
from trainparity.data.lockless import lockless
from trainparity.data.prepared import Batch, Prepared
from trainparity.params import Loader

_POLL_S = 1.0
"""Seconds between two checks that the workers are alive."""


_LONGEST_SOCKET = 103
"""Bytes of a socket's path on macOS; Linux allows four more."""


class WorkersFailed(DataError):
    """Worker processes died, got stuck, or had too little shared memory; this process can load the data itself."""


def load_in_workers(dataset: Prepared, plan: Sequence[Tensor], loader: Loader) -> Iterator[Batch]:
    """Yield the batch of each int64 index tensor of `plan`, in order, loaded by `loader.workers` processes.

    Raises:
        WorkersFailed: a worker ended, no batch came before the deadline, or shared memory was too small. What the
            dataset itself raises in a worker is raised here unchanged.
    """
    with closing(_Workers(dataset, plan, loader)) as workers:
        for number in range(1, len(plan) + 1):
            try:
                batch = workers.next()
            except _Failure as failure:
                message = f"loading batch {number} of {len(plan)} in worker processes failed: {failure}. "
                raise WorkersFailed(message + shared_memory.advice(dataset, plan, loader)) from None
            if isinstance(batch, _Raised):
                batch.error.reraise()  # type: ignore[no-untyped-call]
            else:
                yield _unshared(batch) if _by_file_name() else batch


def _by_file_name() -> bool:
    return bool(torch.multiprocessing.get_sharing_strategy() == "file_system")  # type: ignore[no-untyped-call]


def _unshared(batch: Batch) -> Batch:
    """Copy a batch of a worker that shares memory by file name, as on macOS.

    Freeing a shared tensor sends a message to the worker's memory manager. If that has died with the worker, the
    failing send ends this process (torch/lib/libshm, `THManagedMapAllocator::close`).
    """
    return {name: tensor.clone() for name, tensor in batch.items()}


class _Failure(Exception):
    """Why there is no next batch, in a few words."""


@dataclass(frozen=True)
class _Raised:
    """An exception of the dataset in a worker, returned as a value to tell it from the DataLoader's own errors."""

    error: ExceptionWrapper


class _Batches(Dataset[Batch | _Raised]):
    """A dataset of which each item is a whole batch; the index is the samples' indices."""

    def __init__(self, dataset: Prepared) -> None:
        self._dataset = dataset

    def __getitem__(self, samples: np.ndarray) -> Batch | _Raised:
        try:
            batch = self._dataset.batch(torch.from_numpy(samples))
        except Exception:
            return _Raised(ExceptionWrapper(where="in a worker process"))  # type: ignore[no-untyped-call]
        # Otherwise the queue's thread does this: without enough shared memory it prints the error and drops the batch,
        # and the training waits for ever.
        for tensor in batch.values():
            tensor.share_memory_()  # type: ignore[no-untyped-call]
        return batch


class _Workers:
    """The worker processes of one DataLoader, and a thread that kills them when a batch takes too long.

    The DataLoader's own timeout is not enough: it does not apply while a worker transfers its batch.
    """

    def __init__(self, dataset: Prepared, plan: Sequence[Tensor], loader: Loader) -> None:
        self._data_loader = DataLoader(
            _Batches(dataset),
            batch_size=None,
            sampler=[samples.numpy() for samples in plan],  # pickled by value: a tensor costs a file descriptor
            num_workers=loader.workers,
            multiprocessing_context=lockless(loader.start_method),
            prefetch_factor=loader.prefetch_factor,
            pin_memory=pins(loader),
            timeout=_POLL_S,
        )
        self._deadline_s = loader.deadline_s
        self._iterator: Iterator[Batch | _Raised] | None = None
        self._processes: list[BaseProcess] = []
        self._asked: float | None = None
        self._overran = False
        self._closed = threading.Event()

    def next(self) -> Batch | _Raised:
        """Return the next batch, or raise a `_Failure`; the first call starts the processes."""
        try:
            with self._under_deadline():
                return self._wait(self._iterator or self._start())
        except (RuntimeError, OSError, EOFError) as error:
            reason = self._reason(error)
            traceback.clear_frames(error.__traceback__)  # else they keep the DataLoader's iterator alive
        raise _Failure(reason)

    def _wait(self, iterator: Iterator[Batch | _Raised]) -> Batch | _Raised:
        while True:
            try:
                return next(iterator)
            except RuntimeError as error:
                if not str(error).startswith("DataLoader timed out"):  # it has checked that all workers are alive
                    raise

    @contextmanager
    def _under_deadline(self) -> Iterator[None]:
        self._asked = time.monotonic()
        try:
            yield
        finally:
            self._asked = None

    def _start(self) -> Iterator[Batch | _Raised]:
        # Made here, the workers use it too, and it goes with this process also where they are killed.
        folder = get_temp_dir()
        if len(os.fsencode(folder)) + len("/listener-12345678") > _LONGEST_SOCKET:  # they would print that, and wait
            raise OSError(f"the name of the folder for temporary files is too long for sockets: {folder}; set TMPDIR")
        before = multiprocessing.active_children()
        try:
            with _uninterrupted():
                self._iterator = iter(self._data_loader)
        finally:
            self._processes = [child for child in multiprocessing.active_children() if child not in before]
        threading.Thread(target=self._watch, daemon=True).start()
        return self._iterator

    def _watch(self) -> None:
        while not self._closed.wait(min(_POLL_S, self._deadline_s / 4)):
            asked = self._asked
            if asked is not None and time.monotonic() - asked > self._deadline_s:
                self._overran = True
                self._kill()
                return

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()

    def _reason(self, error: Exception) -> str:
        if self._overran:
            return f"no batch came within loader.deadline_s: {self._deadline_s:g}"
        ended = wait([process.sentinel for process in self._processes], timeout=0.5)  # one may be ending now
        for process in self._processes:
            if process.sentinel in ended and (code := _exit_code(process)):
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
                hint = " (the system may have run out of memory)" if code == -signal.SIGKILL else ""
                return f"worker process {process.pid} ended {how}{hint}"
        return _last_line(str(error))  # a worker's traceback ends with the error itself

    def close(self) -> None:
        """End the processes: the DataLoader asks them to end, and those that have not ended then are killed."""
        with self._under_deadline():
            self._iterator = None
        self._closed.set()
        self._kill()
        for process in self._processes:
            process.join()


def _last_line(message: str) -> str:
    """Return what an error of torch says in its last line, without the C++ frames that it may list below.

    The errno of a failed allocation of shared memory is removed: in torch 2.11 it is stale, for example `Success (0)`.
    """
    message = message.partition("\nException raised from ")[0].strip().splitlines()[-1]
    return re.sub(r"(unable to allocate shared memory\(shm\) for file <[^>]*>): .*", r"\1", message)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Remove the SIGCHLD handler that a DataLoader sets: it raises anywhere in the program, even inside a step."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        yield  # the DataLoader sets none either
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def _exit_code(process: BaseProcess) -> int | None:
    process.join(timeout=1)  # its pipe is closed a moment before its exit code is known
    return process.exitcode


def pins(loader: Loader) -> bool:
    """Tell whether batches go to page-locked memory, which only CUDA uses."""
    return loader.pin_memory and torch.cuda.is_available()
