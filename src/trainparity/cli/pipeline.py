"""The pipeline, as the commands run it: by DVC, or stage after stage without."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trainparity import extras
from trainparity.exits import shell_code
from trainparity.pipeline.repair import repair


def reproduce(*arguments: str) -> int:
    """Run `dvc repro` and return its exit code; on SIGINT it is waited for, as it waits for its stage's checkpoint."""
    extras.require("dvc")
    if mended := repair(Path.cwd()):
        print(mended, flush=True)
    # The stages call `python`: the environment's own must come first, also where it is not activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # unlike SIG_IGN not inherited by DVC
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dvc", "repro", *arguments], env=os.environ | {"PATH": path}, check=False
        )
        return 2 if done.returncode == 1 else shell_code(done.returncode)  # 1 is a verdict's
    finally:
        signal.signal(signal.SIGINT, before)


def run_stages(configurations: Sequence[str]) -> int:
    """Run every stage of the pipeline without DVC; return the exit code of the first that failed, else 0.

    Nothing is cached but references that would be trained again from the same.
    """
    for stage in order(configurations):
        done = subprocess.run([sys.executable, "-m", "trainparity.stages", *stage], check=False)
        if done.returncode:
            return shell_code(done.returncode)
    return 0


def order(configurations: Sequence[str]) -> list[list[str]]:
    """Return the stages of a pipeline without a DVC file, each with its arguments, in an order that works."""
    train = [["train", name] for name in configurations]
    return [["validate"], ["probe"], ["prepare"], ["reference"], *train, ["compare"], ["report"]]
