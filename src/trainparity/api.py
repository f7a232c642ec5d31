"""What a program calls: the commands `compare`, `check` and `run` as functions, with typed answers.

Errors that the caller can mend are `trainparity.errors.UserError`: the message says where, what is wrong, what to do.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainparity.integers import integer
from trainparity.ownership import owned
from trainparity.records.check import CheckReport
from trainparity.records.verdict import Verdict
from trainparity.scratch import scratch
from trainparity.validation import ParamsError
from trainparity.workloads.base import Workload

__all__ = ["CheckReport", "Verdict", "check", "compare", "run"]


def compare(
    left: str | Path, right: str | Path, *, twins: str | Path | Sequence[str | Path] = (), margin: float = 16.0
) -> Verdict:
    """Say whether two recorded runs are the same training.

    Args:
        left: The reference's folder, as `record` or `run` wrote it.
        right: The other run's folder.
        twins: Folders of twins that measure the noise floor, besides those in `left/twins`.
        margin: `equivalent` means: within so many times the noise floor; from 1 to 10,000.

    Returns:
        The verdict, which is true where it is the same training: `assert compare(a, b)`. A folder that cannot be read
        gives `cannot judge` with the reason; nothing is raised for it.

    Raises:
        ValueError: the margin is out of range.
    """
    from trainparity.parity.compare import compare_folders

    several = [twins] if isinstance(twins, str | Path) else twins
    return compare_folders(Path(left), Path(right), [Path(twin) for twin in several], margin=margin)


def check(
    workload: str | type[Workload],
    against: str | Sequence[str],
    *,
    options: Mapping[str, Any] | str = "{}",
    dataset: Mapping[str, Any] | str | None = None,
    optimizer: Mapping[str, Any] | str = "{name: adamw, lr: 1.0e-3}",
    batch: int = 32,
    steps: int = 20,
    window: int = 20,
    clip_norm: float | None = None,
    accelerator: str = "auto",
    seeds: int = 5,
    float64: bool = True,
    bisect: bool = False,
    margin: float = 16.0,
    keep: str | Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> CheckReport:
    """Train a workload under several accelerations and judge each against its reference.

    Args:
        workload: A class that other processes can import; or `package.module:Class`; or the name of one of ours.
        against: Candidates, such as `ddp:2`, `gradaccum:4`, `compiled`, `amp-bf16`, `ddp:2+gradaccum:2`.
        options: The workload's options: a mapping, or YAML, as are the next two.
        dataset: As in params.yaml; by default the workload's own data, or digits.
        optimizer: As in params.yaml; a workload may make its own.
        batch: Samples of each optimizer step, over all ranks.
        steps: Optimizer steps.
        window: Optimizer steps that are judged from one shared start.
        clip_norm: Largest norm of the gradient; None: no clipping.
        accelerator: auto, cpu, mps or cuda.
        seeds: Seeds of the learning curves by which a change of precision is judged: at least 4; 0: none.
        float64: Judge a difference, and what rounding may hide, in float64 too.
        bisect: Of a candidate of several settings that is different, find those that are another training.
        margin: `equivalent` means: within so many times the noise floor; from 1 to 10,000.
        keep: A folder for the runs, and for their dataset as `data`; by default they are removed.
        progress: Called with a line of text before each training.

    Returns:
        The verdicts; true where every candidate is the same training.

    Raises:
        ParamsError: an argument is wrong, or the workload cannot be imported.
        UserError: `keep` holds something of yours where the check would write.
    """
    from trainparity.checking.run import Checker
    from trainparity.checking.run import check as judge
    from trainparity.checking.settings import as_typed, assemble, candidates
    from trainparity.environment import detect

    against = [against] if isinstance(against, str) else list(against)
    chosen = candidates(against)
    with as_typed(against), scratch() as place:
        params = assemble(
            _named(workload),
            chosen,
            options=options,
            dataset=dataset,
            train={
                "max_steps": steps,
                "global_batch_size": batch,
                "optimizer": optimizer,
                "clip_norm": clip_norm,
            },
            parity={"window": window, "margin": margin},
            accelerator=accelerator,
            seeds=seeds,
        )
        checker = Checker(params, Path(keep) if keep else place, detect(), progress)
        with owned(checker.runs, progress):  # two checks in one folder would replace each other's references
            return judge(checker, against, float64=float64, bisected=bisect)


def run(
    command: str | Sequence[str | Path], folder: str | Path, *, twins: int = 3, steps: int = 40, interval: int = 1
) -> int:
    """Record a training script as it is, and its twins, for `compare`.

    Args:
        command: The command, as a list of words and paths or as one would write it in a shell; no shell runs it.
        folder: Where the run is kept; of an earlier one our files are replaced, and others there stay.
        twins: Further runs, with weights moved by half an ulp, that measure the noise floor.
        steps: Optimizer steps after which the script is stopped; 0: never.
        interval: Trace every so many optimizer steps, besides the first 8.

    Returns:
        The command's exit code; 0 if it was stopped after `steps`.

    Raises:
        TypeError: a number is no integer, or the folder no path.
        ValueError: it is out of range.
        RunError: no optimizer step was recorded, or a twin failed.
        StoppedBySignal: this process got a signal; nothing is kept.
    """
    from trainparity.running.command import Command, Runner
    from trainparity.running.record import Settings, record_command

    for name, value, least in (("twins", twins, 0), ("steps", steps, 0), ("interval", interval, 1)):
        integer(name, value, least)
    if not isinstance(folder, str | Path):
        raise TypeError(f"folder: {folder!r}; it is a path, and comes behind the command")
    parsed = Command.parse(command) if isinstance(command, str) else Command.of(command)
    with Runner(several=twins > 0) as runner:
        return record_command(runner, parsed, Path(folder), Settings(steps, interval, twins)).exit_code


def _named(workload: str | type[Workload]) -> str:
    if isinstance(workload, str):
        return workload
    if not isinstance(workload, type):
        raise ParamsError(
            f"the workload is {workload!r}; give a class, package.module:Class or the name of one of ours"
        )
    module, name = workload.__module__, workload.__qualname__
    if module == "__main__" or "." in name:
        where = "inside of a function or class" if "." in name else "in a notebook, or in the script itself"
        raise ParamsError(
            f"{name} is defined {where}: other processes train it, so put it into a file that is imported"
        )
    return f"{module}:{name}"
