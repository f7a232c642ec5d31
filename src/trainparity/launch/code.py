"""The code of a run: its worker process, and the one workload and strategy that it uses."""

from trainparity import strategies, workloads
from trainparity.closure import Closure, closure_of
from trainparity.training.spec import WORKER


def modules_of_run(workload: str, strategy: str) -> list[str]:
    """Return the modules from which a run's worker processes reach all that they can come to run.

    Args:
        workload: As in params.yaml: one of ours, or `package.module:Class`.
        strategy: A name in params.yaml.
    """
    return [WORKER, workloads.module_of(workload), strategies.module_of(strategy)]


def code_of_run(workload: str, strategy: str) -> Closure:
    """Return that code."""
    return closure_of(modules_of_run(workload, strategy))
