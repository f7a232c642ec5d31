"""DVC, as the commands call it."""

import signal
import subprocess
import sys


def reproduce(*arguments: str) -> int:
    """Run `dvc repro` and return its exit code; on SIGINT it is waited for, as it waits for its stage's checkpoint."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # unlike SIG_IGN not inherited by DVC
    try:
        return subprocess.run([sys.executable, "-m", "dvc", "repro", *arguments], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
