"""Where a pipeline writes, and that nothing of its user's lies there when it first runs."""

from pathlib import Path

from trainparity.errors import UserError

VALID = Path("runs/params-valid.txt")
"""What the stage `validate` writes, the first of every pipeline."""

PLACES = (
    *("data/prepared", "runs/environment.json", "runs/engine.json", "runs/plan"),
    *("runs/reference", "runs/state", "runs/report"),
    *("reports/parity.json", "reports/distance.csv", "reports/detail"),
    *("reports/summary.json", "reports/parity.csv", "reports/timing.csv", "reports/index.html", "reports/report.md"),
    *("reports/figures", "reports/plots"),
)
"""What the other stages of a project's pipeline replace, or clear."""

METRICS = "metrics.json"
"""What the stage `experiment` replaces, which only DVC runs."""

_PIPELINE, _LOCK = Path("dvc.yaml"), Path("dvc.lock")
KEPT = Path(".trainparity/kept")
"""Trained references, the last of each entry; it can be removed at any time."""


def check_first() -> None:
    """Refuse to begin a pipeline in a folder that has something in its places, if it has never run there.

    The names are plain ones, and a project may have had such folders before it had a pipeline. DVC, too, removes what
    lies where a stage will write, so this is asked before any other stage runs.

    Raises:
        UserError: names what is there.
    """
    if VALID.exists() or KEPT.exists() or (_LOCK.is_file() and str(VALID) in _LOCK.read_text(encoding="utf-8")):
        return
    names = (*PLACES, METRICS) if _PIPELINE.exists() else PLACES
    if there := [name for name in names if _holds_something(Path(name))]:
        raise UserError(
            f"{', '.join(there)}: there before the pipeline has ever run here, and it would replace or remove this: "
            "move it away"
        )


def _holds_something(path: Path) -> bool:
    """Tell whether there is a file, or a folder with more than DVC's own list of what Git ignores."""
    return any(inside.name != ".gitignore" for inside in path.iterdir()) if path.is_dir() else path.exists()
