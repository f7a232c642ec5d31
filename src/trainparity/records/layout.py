"""Where runs leave their outputs; `<name>` is a configuration's name or `reference-<entry of references>`.

Every path below `runs/` that more than one module uses is made here and nowhere else.
"""

from pathlib import Path


def state(runs: Path, name: str) -> Path:
    """Return the folder of a run's deterministic outputs: status, trace, weights, losses, evaluation."""
    return runs / name / "state"


def report(runs: Path, name: str) -> Path:
    """Return the folder of what a run measured: time, memory, utilisation."""
    return runs / name / "report"


def status(runs: Path, name: str) -> Path:
    """Return the file of a run's `Status`."""
    return state(runs, name) / "status.json"


def timing(runs: Path, name: str) -> Path:
    """Return the file of a run's `Timing`; absent unless the run trained and was timed."""
    return report(runs, name) / "timing.json"


def losses(runs: Path, name: str) -> Path:
    """Return the CSV file of a run's loss after each step."""
    return state(runs, name) / "loss.csv"


def evaluation(runs: Path, name: str) -> Path:
    """Return the file of a run's `Evaluation`; absent unless it was evaluated."""
    return state(runs, name) / "evaluation.json"


def weights(runs: Path, name: str) -> Path:
    """Return the safetensors file of a run's final weights."""
    return state(runs, name) / "weights.safetensors"


def curves(runs: Path) -> Path:
    """Return the folder that the stage `curves` uses as its `runs`: runs are named `<entry of references>-<seed>`."""
    return runs / "curves"


def environment(runs: Path) -> Path:
    """Return the file of the `Environment` that `probe` found."""
    return runs / "environment.json"


def known_answer(runs: Path) -> Path:
    """Return the folder of the stage `known-answer`, which is also the `runs` of what it trains."""
    return runs / "known-answer"


def loading(runs: Path) -> Path:
    """Return the file of the `LoadingReport`."""
    return runs / "loading.json"
