"""Where runs leave their outputs; a run is named as its configuration, or `reference-<entry of references>`.

    runs/state/<configuration>        runs/report/<configuration>
    runs/reference/state/<entry>      runs/reference/report/<entry>

Every path below `runs/` that more than one module uses is made here and nowhere else.
"""

from pathlib import Path

REFERENCE = "reference"
"""The folder of references, and the first word of their runs' names."""


def state(runs: Path, name: str) -> Path:
    """Return the folder of a run's deterministic outputs: status, trace, weights, losses, evaluation."""
    return _part(runs, "state", name)


def report(runs: Path, name: str) -> Path:
    """Return the folder of what a run measured: time, memory, utilisation."""
    return _part(runs, "report", name)


def _part(runs: Path, part: str, name: str) -> Path:
    entry = name.removeprefix(f"{REFERENCE}-")
    return runs / part / name if entry == name else runs / REFERENCE / part / entry


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


def picture(runs: Path) -> Path:
    """Return the folder that the stage `picture` uses as its `runs`."""
    return runs / "picture"


def needed(runs: Path, name: str) -> Path:
    """Return the file that says which reference a configuration is compared with, and hashes it."""
    return runs / REFERENCE / "needed" / f"{name}.json"


def environment(runs: Path) -> Path:
    """Return the file of the `Environment` that `probe` found."""
    return runs / "environment.json"


def engine(runs: Path) -> Path:
    """Return the file of the `Engine` that `probe` found."""
    return runs / "engine.json"


def known_answer(runs: Path) -> Path:
    """Return the folder of the stage `known-answer`, which is also the `runs` of what it trains."""
    return runs / "known-answer"


def loading(runs: Path) -> Path:
    """Return the file of the `LoadingReport`."""
    return runs / "loading.json"
