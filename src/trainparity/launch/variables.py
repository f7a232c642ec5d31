"""Environment variables that must be set before torch is imported, the same for every worker."""

import os


def of_workers(num_threads: int) -> dict[str, str]:
    """Return what a worker with so many intra-op threads is started with."""
    # Threads that wait for each other in a busy loop take the processor from those they wait for, where anything else
    # runs: on two cores a run took 11 s beside two busy processes and 58 s at a load of 7; with 1000 rounds, which are
    # microseconds, 9 s and 27 s. Alone on the machine its steps take as long either way.
    # (https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html)
    spins = {} if "OMP_WAIT_POLICY" in os.environ else {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT") or "1000"}
    return spins | {
        "OMP_NUM_THREADS": str(num_threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS is deterministic only with it
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED") or "0",  # a set's order is the same in all runs
    }
