"""Worker processes on this machine: one directly; several through torchrun's launcher, or forked from a warm one."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainparity.environment_variables import in_environment
from trainparity.errors import StoppedBySignal, UserError
from trainparity.launch.nodes import Invitation, Nodes, invite
from trainparity.launch.supervision import GRACE_S, handlers_restored, watch
from trainparity.launch.variables import of_workers
from trainparity.launch.warm import WarmProcess, start_warm
from trainparity.scratch import scratch
from trainparity.training.spec import EXIT_INTERRUPTED, WORKER, RunSpec

_LONGEST_TMPDIR = 70
"""Bytes; loaders' workers make sockets below it, whose paths can't have more than 103."""


def run_workers(spec: RunSpec, spec_path: Path) -> dict[int, int]:
    """Run all ranks of a run to their end.

    Returns:
        Exit codes of the ranks that failed, a signal's number negated; empty if none failed.

    Raises:
        StoppedBySignal: this process was to end; the ranks have ended.
    """
    with in_environment(of_workers(spec.placement.num_threads)), _temporary_files():
        if spec.configuration.distributed:
            count, nodes = spec.configuration.num_processes, Nodes.from_environment()
            if nodes.count == 1 and (ranks := _fork_ranks(spec_path, count)):
                codes = watch(ranks)
            else:
                codes = run_ranks(invite(spec_path, count, nodes), nodes, first=True)
        else:
            code = run_one(WORKER, spec_path, spec.placement.num_threads)
            codes = {0: code} if code else {}
    if EXIT_INTERRUPTED in codes.values():  # the signal went to the worker alone
        raise StoppedBySignal(signal.SIGTERM)
    return codes


@contextmanager
def _temporary_files() -> Iterator[None]:
    """Have what this process starts, and torchrun in it, put temporary files into a folder that goes afterwards.

    Ranks, loaders' workers and compilers that are killed leave theirs, and torchrun its empty folders of logs.
    """
    cache = Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}"  # beside torch's own, kept between runs
    with scratch() as folder:
        if len(os.fsencode(folder)) > _LONGEST_TMPDIR:
            yield
            return
        compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache)
        with in_environment({"TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": compiled}):
            tempfile.tempdir = None  # found anew from TMPDIR
            try:
                yield
            finally:
                tempfile.tempdir = None


def run_one(module: str, spec_path: Path, num_threads: int) -> int:
    """Run one of our modules on a spec in a new process; return its exit code, a signal's number negated.

    Raises:
        StoppedBySignal: this process was to end; the new process has ended.
    """
    # Where the caller itself is a rank, as under torchrun or a cluster's job, its rank is not that of the new process.
    own = {name: value for name, value in os.environ.items() if name not in _OF_RANKS}
    environment = own | of_workers(num_threads)
    worker = start_warm(module, str(spec_path), environment) or subprocess.Popen(
        [sys.executable, "-m", module, str(spec_path)], env=environment
    )
    return watch([worker]).get(0, 0)


_OF_RANKS = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def _fork_ranks(spec_path: Path, count: int) -> list[WarmProcess]:
    """Start all ranks of a run as torchrun would, but as copies of a warm process; empty if there is none."""
    nccl = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    launched = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(_free_port()), nccl: os.environ.get(nccl, "1")}
    ranks: list[WarmProcess] = []
    for rank in range(count):
        number, size = str(rank), str(count)
        place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        worker = start_warm(WORKER, str(spec_path), os.environ | launched | place)
        if worker is None:
            for started in ranks:
                started.kill()
            return []
        ranks.append(worker)
    return ranks


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def run_ranks(invitation: Invitation, nodes: Nodes, *, first: bool) -> dict[int, int]:
    """Run this node's ranks to their end; returns and raises as `run_workers`.

    Raises:
        UserError: the other nodes did not join.
    """
    if not first:  # it loses the rendezvous when the first node ends, which is expected
        logging.getLogger("torch.distributed.elastic.rendezvous").setLevel(logging.ERROR)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # Imported here: torch costs 1.5 s, which a run of one process spends in its worker only.
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import elastic_launch

    config = nodes.launch_config(invitation, first=first, grace_s=GRACE_S)
    try:
        with handlers_restored():
            elastic_launch(config, sys.executable)("-m", WORKER, str(invitation.spec))
    except SignalException as error:
        raise StoppedBySignal(error.sigval) from None
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    except RendezvousError as error:
        raise UserError(
            f"not all {nodes.count} nodes joined at {nodes.endpoint} ({type(error).__name__}: {error}); "
            "run `trainparity join` on the other nodes"
        ) from None
    return {}
