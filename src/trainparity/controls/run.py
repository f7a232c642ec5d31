"""Run the catalogue over seeds and count: caught, named, false alarms."""

import logging
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from trainparity.controls.catalogue import RIGHT, WRONG, Control
from trainparity.controls.loop import Loop
from trainparity.controls.processes import each
from trainparity.parity.compare import compare_folders
from trainparity.records.base import RecordError
from trainparity.records.controls import ControlResult
from trainparity.records.files import write_text
from trainparity.records.verdict import JUDGED, Verdict

TWINS = 3
Trial = tuple[Control, str, int]
"""A control on a model with a seed."""


def run_controls(
    folder: Path,
    seeds: Sequence[int],
    controls: Sequence[Control] = (*RIGHT, *WRONG),
    *,
    progress: Callable[[str], None] = lambda text: None,
) -> list[ControlResult]:
    """Train every control on its models with every seed, and judge it as `trainparity compare` would.

    Args:
        folder: Where the runs are recorded; it can be thrown away.
        seeds: An even seed trains with SGD, an odd one with AdamW.
        controls: Which ones.
        progress: Called with what has been done.

    Raises:
        RecordError: the processes of the controls on several ranks failed.
    """
    trials = [(control, model, seed) for control in controls for model in control.models for seed in seeds]
    alone = [_alone(trials, seed) for seed in seeds]
    for number, _ in enumerate(each(partial(_train_alone, folder), alone), 1):
        progress(f"{number} of {len(alone)} seeds trained on one process")
    _train_on_ranks(folder, [trial for trial in trials if trial[0].num_ranks > 1], progress)
    verdicts: list[Verdict] = []
    for verdict in each(partial(_judge, folder), trials):
        verdicts.append(verdict)
        if not len(verdicts) % 500:
            progress(f"{len(verdicts)} of {len(trials)} runs judged")
    judged = list(zip(trials, verdicts, strict=True))
    return [_count(control, [verdict for trial, verdict in judged if trial[0] is control]) for control in controls]


def _run(folder: Path, loop: type[Loop], model: str, seed: int) -> Path:
    return folder / f"{model}-{seed}" / loop.__name__


Training = tuple[type[Loop], str, int, int]
"""A loop on a model with a seed, and the twin's number."""


def _alone(trials: Iterable[Trial], seed: int) -> list[Training]:
    """Return what one process trains with a seed: references, their twins, and the controls without ranks."""
    own = [trial for trial in trials if trial[2] == seed]
    references = dict.fromkeys((control.against, model) for control, model, _ in own)
    trainings: list[Training] = [(loop, model, seed, twin) for loop, model in references for twin in range(TWINS + 1)]
    return trainings + [(control.loop, model, seed, 0) for control, model, _ in own if control.num_ranks == 1]


def _train_alone(folder: Path, trainings: Sequence[Training]) -> None:
    # Some loops skip the optimizer's step, which is what they are for.
    warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")  # which nobody changes
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # torch.compile looks for CUDA
    for loop, model, seed, twin in trainings:
        loop(model, seed).run(_run(folder, loop, model, seed), twin)


def _train_on_ranks(folder: Path, trials: Sequence[Trial], progress: Callable[[str], None]) -> None:
    if not trials:
        return
    lines = [f"{control.loop.__name__} {model} {seed}" for control, model, seed in trials]
    write_text(folder / "trials.txt", "\n".join(lines) + "\n")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command, errors = [*torchrun, "-m", "trainparity.controls.ranks", str(folder)], folder / "ranks.log"
    with errors.open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as ranks:
        for line in ranks.stdout or ():
            progress(line.rstrip())
    if ranks.returncode:
        raise RecordError(f"the controls on two ranks failed:\n{errors.read_text(errors='replace')[-4000:]}")


def _judge(folder: Path, trial: Trial) -> Verdict:
    control, model, seed = trial
    return compare_folders(_run(folder, control.against, model, seed), _run(folder, control.loop, model, seed))


def _count(control: Control, answers: Sequence[Verdict]) -> ControlResult:
    different = [answer for answer in answers if answer.verdict == "different"]
    causes = Counter(answer.cause or "unknown" for answer in different)
    finite = [a.distance_over_floor for a in answers if a.distance_over_floor is not None]
    return ControlResult(
        name=control.name,
        what=control.what,
        expected=control.cause,
        models=list(control.models),
        ranks=control.num_ranks,
        coarse=control.coarse,
        trials=len(answers),
        different=len(different),
        not_judged=sum(answer.verdict not in JUDGED for answer in answers),
        causes=dict(causes.most_common()),
        smallest=min(finite, default=None),
        largest=max(finite, default=None),
    )
