"""What a recorded process leaves behind: its traces, and what it says of them."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainparity.attach.optimizers import Optimizers
from trainparity.attach.session import Recorded, Session

if TYPE_CHECKING:  # while this module is imported, torch is being imported too
    from torch.optim import Optimizer

    from trainparity.parity.recorder import Recorder


def write(
    session: Session,
    recorded: "dict[Optimizer, Recorder]",
    facts: "dict[Optimizer, dict[str, Any]]",
    optimizers: Optimizers,
    *,
    script: Path | None,
    stopped: bool,
) -> None:
    """Write the traces and, on the main rank, what was recorded.

    Raises:
        Exception: a trace could not be written, as on a full disk, now or when the Recorder itself wrote it.
    """
    made = {optimizer: recorder for optimizer, recorder in recorded.items() if recorder.step}
    first = next(iter(recorded.values()))
    if made and not first.left_out:  # the first one's model may have been called without being trained
        next(iter(made.values())).folder = first.folder
    for recorder in recorded.values():
        recorder.close()
        if recorder.failure:
            raise recorder.failure
    names = {optimizers.name(optimizer) for optimizer in recorded}
    main = next(iter(made or recorded))
    if (session.folder / "rank-0").read_text(encoding="utf-8") == str(os.getpid()):
        Recorded(
            **facts[main],
            steps=recorded[main].step,
            beside=[
                f"{recorder.step} of {facts[one]['model']} with {facts[one]['optimizer']}"
                for one, recorder in made.items()
                if one is not main
            ],
            stopped=stopped,
            not_recorded=sorted(optimizers.names_of_counted() - names),
            ended=recorded[main].ended,
            outside=_run_from(session.plan.outside, script),
        ).write(session.folder / "recorded.json")


def _run_from(folder: Path | None, script: Path | None) -> list[str]:
    """Return the script and the files of imported modules that lie below a folder, except what is installed there.

    Installed is also a command of an environment that lies there, as `.venv/bin/torchrun`.
    """
    if folder is None:
        return []
    named = [script, *(getattr(module, "__file__", None) for module in list(sys.modules.values()))]
    files = {Path(file) for file in named if file}
    installed = Path(sys.prefix)
    below = (file for file in files if folder in file.parents and installed not in file.parents
             and "site-packages" not in file.parts)  # fmt: skip
    return sorted(str(file.relative_to(folder)) for file in below)
