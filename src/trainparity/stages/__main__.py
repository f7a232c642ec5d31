"""Run a stage of the pipeline in the working directory: `python -m trainparity.stages train ddp`, as dvc.yaml does."""

import importlib
import inspect
import os
import signal
import sys
import threading
import time
from pathlib import Path

from trainparity.environment import IMAGE
from trainparity.exits import exit_code
from trainparity.lingering import leave
from trainparity.ownership import end_with_owner
from trainparity.pipeline import schedule
from trainparity.validation import ParamsError, not_one_of

_NAMES = sorted(p.stem.replace("_", "-") for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("__"))


_POLL_S = 0.5


def main() -> None:
    """Run the stage that the first argument names; the others are its own."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in _NAMES:
        raise ParamsError(f"python -m trainparity.stages STAGE: {not_one_of(name, _NAMES)}")
    stage = importlib.import_module(f"trainparity.stages.{name.replace('-', '_')}").main
    try:
        arguments = inspect.signature(stage).bind(*sys.argv[2:])
    except TypeError as error:
        raise ParamsError(f"python -m trainparity.stages {name}: {error}") from None
    with schedule.stage("/".join(sys.argv[1:])):
        stage(*arguments.args)


def _stop_without_dvc() -> None:
    """Stop this stage by SIGTERM when the DVC that started it has ended: nobody would take what it makes."""
    parent = os.getppid()
    known = _is_in_our_session(parent)  # else the parent is what takes orphans: it was killed while this one started

    def watch() -> None:
        while known and os.getppid() == parent:
            time.sleep(_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)

    if "DVC_STAGE" in os.environ:  # by hand, or by a scheduler, it may outlive the shell
        threading.Thread(target=watch, daemon=True).start()


def _is_in_our_session(process: int) -> bool:
    try:
        return os.getsid(process) == os.getsid(0)
    except ProcessLookupError:
        return False


if __name__ == "__main__":
    _stop_without_dvc()
    if IMAGE.exists():  # started by a stage on the host, if not by hand
        end_with_owner(by=signal.SIGTERM)
    leave(exit_code(main))
