"""Does dvc.yaml list what params.yaml names? DVC needs `compare` and `report` to list their inputs."""

from pathlib import Path
from typing import Any

from trainparity.params import COUNTERPART, Params, reference_name
from trainparity.validation import ParamsError


def needed(params: Params, part: str) -> list[str]:
    """Return the folders of all runs that hold a part (`state` or `report`)."""
    runs = [*(reference_name(name) for name in params.references), *params.configs]
    if part == "state" and any(pair.right == COUNTERPART for pair in params.pairs.values()):
        runs.append(COUNTERPART)
    return [f"runs/{run}/{part}" for run in runs]


def check_pipeline(params: Params, pipeline: Any, path: Path) -> None:
    """Hold the deps of `compare` and `report` against the configurations.

    Raises:
        ParamsError: a line for each dep that is missing, or is left over from a removed configuration.
    """
    mistakes = []
    for stage, parts in {"compare": ["state"], "report": ["state", "report"]}.items():
        suffixes = tuple(f"/{part}" for part in parts)
        deps = pipeline["stages"][stage]["deps"]
        listed = [dep for dep in deps if dep.startswith("runs/") and dep.endswith(suffixes)]
        wanted = [dep for part in parts for dep in needed(params, part)]
        mistakes += [f"{path}: stages.{stage}.deps: add {dep}" for dep in wanted if dep not in listed]
        mistakes += [
            f"{path}: stages.{stage}.deps: {dep} belongs to no configuration or reference of params.yaml; remove it"
            for dep in listed
            if dep not in wanted
        ]
    if mistakes:
        raise ParamsError("\n".join(mistakes))
