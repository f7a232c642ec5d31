"""claims.yaml as typed objects: each published claim as data."""

from pathlib import Path
from typing import Any

from pydantic import Field

from trainparity.claims.quantities import Measure
from trainparity.params import DeviceKind
from trainparity.validation import ParamsError, Section, read_yaml, validate


class Range(Section):
    """What a figure must be for the claim to be confirmed; both bounds belong to it."""

    low: float | None = None
    high: float | None = None


class Needs(Section):
    """What a claim is about; without it there is nothing to measure, or only something else."""

    device: DeviceKind | None = None
    """The runs must have trained on such a device."""
    devices: int = Field(default=1, ge=1)
    """So many devices of that kind."""
    scale: str | None = None
    """The article's scale: at another one the verdict says so beside it."""


class Claim(Section):
    """What an article says, and how we measure it."""

    statement: str
    published: str
    """The published figure with its hardware, in the article's units."""
    figure: float | None = Field(default=None, gt=0)
    """The published figure as a number in the unit that the measure has; null where there is none."""
    measure: Measure
    expect: Range | None = None
    """For measures that are a figure; the others judge themselves."""
    needs: Needs = Needs()
    remark: str | None = None
    """What must be known beside the verdict."""


def load(path: Path) -> dict[str, Claim]:
    """Read the claims of a study, by name.

    Raises:
        ParamsError: the file is missing, is not YAML or has mistakes.
    """
    return parse(read_yaml(path), path)


def parse(content: Any, path: Path) -> dict[str, Claim]:
    """Validate parsed claims; `path` only names the file in errors."""
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: must be a mapping from a claim's name to the claim")
    return {str(name): validate(Claim, claim, path, (str(name),)) for name, claim in content.items()}
