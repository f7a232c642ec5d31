"""The code of a run: its worker process, and the one workload and strategy that it uses."""

from trainparity import strategies, workloads
from trainparity.closure import Closure, Part, closure_of
from trainparity.training.spec import WORKER


def code_of_run(workload: str, strategy: str, known: "dict[str, Part] | None" = None) -> Closure:
    """Return the code that a run's worker processes can come to run.

    Args:
        workload: As in params.yaml: one of ours, or `package.module:Class`.
        strategy: A name in params.yaml.
        known: As `closure_of` has it.
    """
    return closure_of([WORKER, workloads.module_of(workload), strategies.module_of(strategy)], known=known)
