"""The pipeline, as the commands run it: by DVC, or stage after stage without."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from trainparity import extras, hiding, starter
from trainparity.errors import UserError
from trainparity.exits import DEFECT, say, shell_code
from trainparity.launch.supervision import GRACE_S
from trainparity.launch.warm import warm_workers
from trainparity.ownership import owned
from trainparity.params import REFERENCE, Params, reference_name
from trainparity.parentage import FOLLOWS
from trainparity.pipeline.repair import repair
from trainparity.pipeline.schedule import WHOLE
from trainparity.records import layout
from trainparity.records.run import Status
from trainparity.running.command import Command, Runner
from trainparity.stopping import stops_handled
from trainparity.validation import read_yaml

_FIRST = [["validate"], ["probe"], ["prepare"], ["reference"]]
"""Stages that every run needs."""

_BEFORE_REFERENCES = {"validate", "probe", "prepare"}
"""Stages that nothing is judged by."""

_PIPELINE = Path(".trainparity/pipeline")
"""Owned by the command that runs the stages of this folder; others wait."""

_INTERRUPTED = 252
"""DVC's exit code after SIGINT."""

_POLL_S = 0.1
_TIDYING_S = 30.0
"""How long a stage may take to end once its workers have; what the user's code has left running takes no longer."""


def reproduce(*arguments: str) -> int:
    """Run `dvc repro` and return its exit code; after a signal its stage, which writes a checkpoint, is waited for.

    On SIGINT DVC does so itself. SIGTERM ends it at once, maybe before we hear of it, and its stage goes on.

    Raises:
        UserError: DVC or the pipeline's stages are missing, or params.yaml can't be read.
    """
    extras.require("dvc")
    require_stages()
    if (settings := Path(starter.PARAMS)).exists():
        read_yaml(settings)  # DVC reads it too, and says less of what is wrong
    with owned(_PIPELINE):  # a second DVC would end with an error, and advise to remove the first one's record
        if mended := repair(Path.cwd()):
            print(mended, flush=True)
        with warm_workers():
            return _follow(arguments)


def _follow(arguments: Sequence[str]) -> int:
    """Run DVC to its end, and hand on the signals that come meanwhile."""
    # The stages call `python`: the environment's own must come first, also where it is not activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    whole = {} if arguments else {WHOLE: "1"}
    dvc = subprocess.Popen(
        [sys.executable, "-m", "trainparity.pipeline.dvc", "repro", *arguments],
        env=os.environ | whole | {"PATH": path, FOLLOWS: str(os.getpid())},
        start_new_session=True,  # a signal reaches it once: from here, whoever else got it
    )
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        with suppress(ProcessLookupError):
            os.killpg(dvc.pid, number)

    with stops_handled(forward):
        code = dvc.wait()
        if code < 0 or received:
            _wait_for_session(dvc.pid)
    return 128 + received[0] if code and received else _exit_code(code)  # to DVC its stage has failed then


def _wait_for_session(number: int) -> None:
    """Wait for what a process that led a session has left in it; its number is no other's until all have ended."""
    import psutil  # which DVC brings

    def is_left(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            return os.getsid(process.pid) == number and bool(process.status() != psutil.STATUS_ZOMBIE)
        return False

    deadline = time.monotonic() + GRACE_S + _TIDYING_S
    while any(is_left(process) for process in psutil.process_iter()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def require_stages() -> None:
    """Refuse a dvc.yaml without stages, to which all is up to date; without the file the stages run one by one.

    Raises:
        UserError: names the file.
    """
    path = Path(starter.PIPELINE)
    if not path.exists():
        return
    content = read_yaml(path)
    if not isinstance(content, dict) or not content.get("stages"):
        raise UserError(f"{path}: has no `stages`; without this file the stages run one after the other")


def _exit_code(of_dvc: int) -> int:
    """Return ours for DVC's, which has one of its own for each kind of failure, and 1 is a verdict's."""
    if of_dvc == _INTERRUPTED:
        return 128 + signal.SIGINT
    return 2 if of_dvc > 0 else shell_code(of_dvc)


def unjudged(params: Params, stages: Sequence[str]) -> int:
    """Say which references failed, so that nothing could be judged by them; return the exit code, 2 where one did.

    Args:
        params: The settings that were run.
        stages: Those that were asked for; none: all.
    """
    if stages and _BEFORE_REFERENCES.issuperset(stages):
        return 0
    paths = [layout.status(Path("runs"), reference_name(name)) for name in params.references]
    failed = [found for path in paths if path.exists() and (found := Status.read(path)).status == "failed"]
    for found in failed:
        say(f"{found.ending}; nothing could be judged by it: mend that, then `trainparity train {found.run}`")
    return 2 if failed else 0


def train_one(run: str, *, again: bool) -> int:
    """Make a run by its name, through DVC where there is a dvc.yaml; `again` also where its result is there."""
    reference = run.startswith(reference_name(""))
    if Path(starter.PIPELINE).exists():
        stage = REFERENCE if reference else f"train@{run}"
        return reproduce(*(("probe", stage, "--force", "--single-item") if again else (stage,)))
    return run_stages([*_FIRST, *([] if reference else [["train", run]])])


def run_stages(stages: Sequence[Sequence[str]], *, whole: bool = False) -> int:
    """Run stages of the pipeline without DVC; return the exit code of the first that failed, else 0.

    Nothing is cached but references that would be trained again from the same. `whole`: these are all stages.

    Raises:
        StoppedBySignal: this process got a signal; the stage has ended.
        UserError: a stage could not start, as files of this folder hide modules that it imports.
    """
    environment = {FOLLOWS: str(os.getpid())} | ({WHOLE: "1"} if whole else {})
    # The runner gives a stage that is stopped the time for its checkpoint.
    with owned(_PIPELINE), warm_workers(), Runner(several=False) as runner:
        for stage in stages:
            code = runner.run(Command.of([sys.executable, "-m", "trainparity.stages", *stage]), environment)
            if code:
                return _of_a_stage(stage[0], code)
    return 0


def _of_a_stage(stage: str, code: int) -> int:
    began = code not in (1, DEFECT) or stage == "train"  # whose 1 is a configuration that failed
    if not began and (files := hiding.files()):
        raise UserError(f"{', '.join(files)}: `import` finds this in place of the module it is named as: rename it")
    return code if began or code == DEFECT else 2


def order(configurations: Sequence[str]) -> list[list[str]]:
    """Return the stages of a pipeline without a DVC file, each with its arguments, in an order that works."""
    train = [["train", name] for name in configurations]
    return [*_FIRST, *train, ["compare"], ["report"]]
