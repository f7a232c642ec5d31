"""Is it still the same training, and what did it gain?"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainparity.parity.recorder import Recorder as Recorder
    from trainparity.parity.recorder import record as record

__all__ = ["Recorder", "record"]
__version__ = "0.1.0"

_RECORDER = "trainparity.parity.recorder"


def __getattr__(name: str) -> Any:
    """Import the Recorder when it is asked for: it needs torch, which takes a second and a half."""
    if name in __all__:
        return getattr(importlib.import_module(_RECORDER), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
