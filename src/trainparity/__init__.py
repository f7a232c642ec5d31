"""Is it still the same training, and what did it gain?"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainparity.parity.recorder import Recorder as Recorder
    from trainparity.parity.recorder import record as record
    from trainparity.training.global_batches import GlobalBatchSampler as GlobalBatchSampler

__all__ = ["GlobalBatchSampler", "Recorder", "record"]
__version__ = "0.1.0"

_MODULES = {
    "GlobalBatchSampler": "trainparity.training.global_batches",
    "Recorder": "trainparity.parity.recorder",
    "record": "trainparity.parity.recorder",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: all need torch, which takes a second and a half."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
