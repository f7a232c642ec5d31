"""`reports/detail/<pair>.json`: two runs tensor by tensor and step by step, as fine as a page can show."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from trainparity.records.base import Record
from trainparity.records.files import replacing
from trainparity.records.verdict import Worst

Numbers = list[float | None]
"""Null stands for a number that was not recorded or is not finite."""

DETAILS = "detail"
"""Folder of a pipeline's details, beside `parity.json`."""

ROWS, COLUMNS = 64, 120
"""What a strip on disk has at most: more rows and columns than these can't be told apart on a screen."""


class Strip(Record):
    """One kind of tensor: a row for each tensor or layer, a column for each step or few steps.

    A cell that stands for several tensors or steps shows the one that is the most times its noise floor away, so that
    nothing beyond the margin is hidden.
    """

    kind: Literal["activation", "gradient", "update", "weight", "buffer"]
    """What is compared."""
    judged: bool
    """Whether the verdict is about it; activations only explain a difference."""
    tensors: list[str]
    """Names of the rows: `(all)` together first, then tensors, or layers where there are more than `ROWS`."""
    steps: list[int]
    """First optimizer step of each column."""
    distance: list[Numbers]
    """Relative L2 distance by row and column; infinity is written as 1e300."""
    floor: list[Numbers]
    """Noise floor by row and column."""
    left_norm: list[Numbers]
    """L2 norm by row and column, of the run that the other is compared with; infinity is written as 1e300."""
    right_norm: list[Numbers]
    """The same of the other run."""

    def condensed(self, rows: int, columns: int) -> "Strip":
        """Return the strip with at most so many rows (2 or more) and columns (1 or more)."""
        numbers = {name: np.array(getattr(self, name), dtype=np.float64) for name in _NUMBERS}
        layers = _layers(self.tensors, rows)
        parts = [list(part) for part in np.array_split(range(len(self.steps)), min(columns, len(self.steps)))]
        if len(layers) == len(self.tensors) and len(parts) == len(self.steps):
            return self
        ratio = _ratio(numbers["distance"], numbers["floor"])
        chosen = [_worst(ratio, members, parts) for members in layers.values()]
        return self.model_copy(
            update={
                "tensors": list(layers),
                "steps": [self.steps[part[0]] for part in parts],
                **{
                    name: [[_number(cells[place]) for place in row] for row in chosen]
                    for name, cells in numbers.items()
                },
            }
        )


_NUMBERS = ("distance", "floor", "left_norm", "right_norm")
"""What a strip holds by row and column."""


class Fact(Record):
    """A number that both runs recorded at each step."""

    name: str
    """`loss`, `learning rate`, `gradient norm`, `clipping limit`, `loss scale` or `samples`. A loss that was not handed
    to the recorder is that which backward began from: over micro-batches its sum, over ranks its mean."""
    left: Numbers
    """By step, of the run that the other is compared with."""
    right: Numbers
    """By step, of the other."""
    difference: Numbers
    """Right - left, of the unrounded numbers; of `samples`, how many of right's are none of left's."""
    band: Numbers
    """Largest difference between left and its twins; empty without twins."""


class Detail(Record):
    """What a page shows of one comparison beside its verdict."""

    left: str
    """SHA-256 of the trace of the run that the other is compared with."""
    right: str
    """SHA-256 of the other's trace."""
    strips: list[Strip]
    """By kind of tensor, in the order in which a step makes them."""
    worst: list[Worst]
    """The ten judged tensors that are the most times their floor away, each at its worst step."""
    steps: list[int]
    """Optimizer steps of `facts`."""
    facts: list[Fact]
    """What both runs recorded as a number."""
    samples: str | None
    """Whether both runs saw the same samples; null if they were not recorded."""
    environment: dict[str, tuple[str, str]]
    """What both runs computed with; `-` is what one of them did not record."""


def write_details(folder: Path, details: Mapping[str, Detail]) -> None:
    """Write the details of all pairs, by name, whole or not at all; those of an earlier call go."""
    with replacing(folder) as unfinished:
        unfinished.mkdir()
        for name, detail in details.items():
            detail.write(unfinished / f"{name}.json")


def _layers(names: list[str], most: int) -> dict[str, list[int]]:
    """Group rows by the path of their module, or join neighbouring modules, to at most `most` groups.

    The longest path that leaves few enough groups is taken, unless it leaves less than half of them.
    """
    paths = [name.split(".") for name in names]
    finer: dict[str, list[int]] = {}
    for depth in range(max(map(len, paths)), 0, -1):
        groups: dict[str, list[int]] = {}
        for row, path in enumerate(paths):
            groups.setdefault(".".join(path[:depth]), []).append(row)
        if len(groups) <= most and (not finer or 2 * len(groups) >= most):
            return groups
        if len(groups) <= most:
            break
        finer = groups
    return _joined(finer, most)


def _joined(groups: dict[str, list[int]], most: int) -> dict[str, list[int]]:
    """Join neighbouring groups, all but the first, which is everything together."""
    first, *rest = groups
    found = {first: groups[first]}
    for part in np.array_split(rest, most - 1):
        name = str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}"
        found[name] = [row for group in part for row in groups[group]]
    return found


def _ratio(distance: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Return distance / floor by row and column; infinite where one is not known, which is to hide behind nothing."""
    beyond = np.where(distance == 0, 0.0, np.inf)
    ratio = np.divide(distance, floor, out=beyond, where=floor > 0)
    return np.where(np.isnan(distance), np.inf, ratio)


def _worst(ratio: np.ndarray, rows: list[int], parts: list[list[int]]) -> list[tuple[int, int]]:
    """Return for each part of the columns the place of the largest ratio in some rows."""
    members = ratio[rows]
    furthest, largest = members.argmax(0), members.max(0)
    columns = [part[int(largest[part].argmax())] for part in parts]
    return [(rows[furthest[column]], column) for column in columns]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
