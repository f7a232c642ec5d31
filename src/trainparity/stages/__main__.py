"""Run a stage of the pipeline in the working directory: `python -m trainparity.stages train ddp`, as dvc.yaml does."""

import importlib
import inspect
import os
import signal
import sys
from pathlib import Path

from trainparity.exits import exit_code, stopped_in_a_line
from trainparity.lingering import leave

_NAMES = sorted(p.stem.replace("_", "-") for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("__"))


def main() -> None:
    """Run the stage that the first argument names; the others are its own."""
    from trainparity.pipeline import reading, schedule
    from trainparity.pipeline.plans import PLANS
    from trainparity.pipeline.unedited import check_unedited
    from trainparity.validation import ParamsError, not_one_of

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in _NAMES:
        raise ParamsError(f"python -m trainparity.stages STAGE: {not_one_of(name, _NAMES)}")
    stage = importlib.import_module(f"trainparity.stages.{name.replace('-', '_')}").main
    try:
        arguments = inspect.signature(stage).bind(*sys.argv[2:])
    except TypeError as error:
        raise ParamsError(f"python -m trainparity.stages {name}: {error}") from None
    plan = "/".join(sys.argv[1:])
    check_unedited(plan, "after the stage probe had read it: run the pipeline again")
    with schedule.stage(plan):
        stage(*arguments.args)
    check_unedited(plan, "while the stage ran; its result is not kept: run the pipeline again")
    reading.complete(plan, PLANS / f"{plan}.json")


def _end_with_others() -> None:
    """End this process with the one that takes what it makes."""
    from trainparity.environment import IMAGE
    from trainparity.ownership import end_with_owner
    from trainparity.parentage import FOLLOWS, end_with_parent

    if {"DVC_STAGE", FOLLOWS} & os.environ.keys():
        end_with_parent()
    if IMAGE.exists():  # started by a stage on the host, if not by hand
        end_with_owner(by=signal.SIGTERM)


if __name__ == "__main__":
    with stopped_in_a_line():  # from the first import on
        _end_with_others()
        leave(exit_code(main))
