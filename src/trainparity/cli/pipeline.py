"""DVC, as the commands call it."""

import os
import signal
import subprocess
import sys
from pathlib import Path


def reproduce(*arguments: str) -> int:
    """Run `dvc repro` and return its exit code; on SIGINT it is waited for, as it waits for its stage's checkpoint."""
    # The stages call `python`: the environment's own must come first, also where it is not activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # unlike SIG_IGN not inherited by DVC
    try:
        return subprocess.run(
            [sys.executable, "-m", "dvc", "repro", *arguments], env=os.environ | {"PATH": path}, check=False
        ).returncode
    finally:
        signal.signal(signal.SIGINT, before)
