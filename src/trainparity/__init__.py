"""Is it still the same training, and what did it gain?"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainparity.api import check as check
    from trainparity.api import compare as compare
    from trainparity.api import run as run
    from trainparity.parity.record import record as record
    from trainparity.parity.recorder import Recorder as Recorder
    from trainparity.records.check import CheckReport as CheckReport
    from trainparity.records.verdict import Verdict as Verdict
    from trainparity.training.global_batches import GlobalBatchSampler as GlobalBatchSampler
    from trainparity.workloads.base import Workload as Workload

__version__ = "0.1.0"

_MODULES = {
    "CheckReport": "trainparity.records.check",
    "GlobalBatchSampler": "trainparity.training.global_batches",
    "Recorder": "trainparity.parity.recorder",
    "Verdict": "trainparity.records.verdict",
    "Workload": "trainparity.workloads.base",
    "check": "trainparity.api",
    "compare": "trainparity.api",
    "record": "trainparity.parity.record",
    "run": "trainparity.api",
}
__all__ = [
    "CheckReport",
    "GlobalBatchSampler",
    "Recorder",
    "Verdict",
    "Workload",
    "check",
    "compare",
    "record",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: most need torch, which takes a second and a half."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
