"""Worker processes on this machine: one directly, several through torchrun's own launcher."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from types import FrameType

from trainparity.stage import StoppedBySignal
from trainparity.training.spec import EXIT_INTERRUPTED, RunSpec

_WORKER = "trainparity.training.worker"
_GRACE_S = 60.0
"""How long a stopped worker may take to write its checkpoint."""


def run_workers(spec: RunSpec, spec_path: Path) -> dict[int, int]:
    """Run all ranks of a run to their end.

    Returns:
        Exit codes of the ranks that did not end well, negative for a signal's number; empty if all did.

    Raises:
        StoppedBySignal: this process got SIGINT or SIGTERM; the ranks have ended.
    """
    os.environ.update(_environment(spec.placement.num_threads))
    if spec.configuration.distributed:
        codes = _run_ranks(spec.configuration.num_processes, spec_path)
    else:
        codes = _run_one(spec_path)
    if EXIT_INTERRUPTED in codes.values():  # the signal went to the worker alone
        raise StoppedBySignal(signal.SIGTERM)
    return codes


def _environment(num_threads: int) -> dict[str, str]:
    """Return what must be set before torch is imported."""
    return {
        "OMP_NUM_THREADS": str(num_threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS is deterministic only with it
    }


def _run_one(spec_path: Path) -> dict[int, int]:
    worker = subprocess.Popen([sys.executable, "-m", _WORKER, str(spec_path)])
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        worker.terminate()

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = worker.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise StoppedBySignal(received[0])
    return {0: code} if code else {}


def _run_ranks(num_processes: int, spec_path: Path) -> dict[int, int]:
    # Imported here: torch costs 1.5 s, which a run of one process spends in its worker only.
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.1,
        shutdown_timeout=int(_GRACE_S),
    )
    try:
        elastic_launch(config, sys.executable)("-m", _WORKER, str(spec_path))
    except SignalException as error:
        raise StoppedBySignal(error.sigval) from None
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    return {}
