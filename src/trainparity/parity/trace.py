"""The trace: what a run records at each step so that two runs can be compared without their tensors."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainparity.parity.sketch import Sketcher, digest, full, norm
from trainparity.records import Record, RecordError

Kind = Literal["gradient", "weight", "buffer"]
Named = Iterable[tuple[str, Tensor | None]]


class Layout(Record):
    """What a trace is about; two traces can be compared tensor by tensor if this is equal but for `world_size`."""

    version: Literal[1] = 1
    parameters: dict[str, list[int]]
    """Shapes by name, in the module's order, as in an unwrapped model."""
    buffers: dict[str, list[int]]
    steps: int
    """T, the number of optimizer steps."""
    window: int
    """Steps between restarts from the reference's state."""
    precision: str
    unit_roundoff: float
    """Half the relative spacing of numbers in the precision computed in."""
    sketch_size: int
    world_size: int
    """R, the number of ranks."""

    @property
    def starts(self) -> list[int]:
        """First steps of the windows."""
        return list(range(0, self.steps, self.window))


class Trace:
    """Recorded numbers by name, see `arrays`.

    For each kind (P tensors; `gradient` after reduction and unscaling, before clipping; `weight` and
    `buffer` after the update): `<kind>/sketch` float64 [T, P, sketch_size], `<kind>/norm` float64 [T, P],
    `<kind>/digest` int64 [T, P]. `start/sketch` float64 [windows, P, sketch_size]: the weights that each
    window starts from. `loss`, `lr`, `gradient_norm` float64 [T]; `samples` int64 [T]: an order-independent
    hash of the samples that all ranks visited; `rank_digest` int64 [T, R]: each rank's parameters.
    """

    def __init__(self, layout: Layout, arrays: dict[str, Tensor]) -> None:
        self.layout = layout
        self.arrays = arrays

    @classmethod
    def empty(cls, layout: Layout) -> "Trace":
        """Make a trace of zeros, to be recorded into."""
        steps, size = layout.steps, layout.sketch_size
        arrays = {
            "start/sketch": torch.zeros(len(layout.starts), len(layout.parameters), size, dtype=torch.float64),
            "samples": torch.zeros(steps, dtype=torch.int64),
            "rank_digest": torch.zeros(steps, layout.world_size, dtype=torch.int64),
        }
        for name in ("loss", "lr", "gradient_norm"):
            arrays[name] = torch.zeros(steps, dtype=torch.float64)
        for kind in ("gradient", "weight", "buffer"):
            count = len(layout.buffers if kind == "buffer" else layout.parameters)
            arrays[f"{kind}/sketch"] = torch.zeros(steps, count, size, dtype=torch.float64)
            arrays[f"{kind}/norm"] = torch.zeros(steps, count, dtype=torch.float64)
            arrays[f"{kind}/digest"] = torch.zeros(steps, count, dtype=torch.int64)
        return cls(layout, arrays)

    def save(self, folder: Path) -> None:
        """Write trace.json and trace.safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.arrays, folder / "trace.safetensors")
        self.layout.write(folder / "trace.json")

    @classmethod
    def load(cls, folder: Path) -> "Trace":
        """Read a trace.

        Raises:
            RecordError: a file is missing or damaged.
        """
        layout = Layout.read(folder / "trace.json")
        path = folder / "trace.safetensors"
        try:
            return cls(layout, load_file(path))
        except (OSError, ValueError, RuntimeError) as error:
            raise RecordError(f"{path}: can't be read: {error}") from None
        except Exception as error:  # safetensors' own error has no public base class
            raise RecordError(f"{path}: damaged: {error}") from None


class Recorder:
    """Fills a trace while a run goes on. Every rank makes one and calls it; only rank 0 sketches."""

    def __init__(self, trace: Trace, *, main: bool) -> None:
        """Record into `trace`; `main` is true on rank 0."""
        self.trace = trace
        self._main = main
        self._sketch = Sketcher(trace.layout.sketch_size)

    def start(self, window: int, parameters: Named) -> None:
        """Record the weights that a window starts from."""
        for index, (_, tensor) in enumerate(parameters):
            if tensor is not None:
                whole = full(tensor)
                if self._main:
                    self.trace.arrays["start/sketch"][window, index] = self._sketch(whole)

    def record(self, kind: Kind, step: int, tensors: Named) -> int:
        """Record tensors of a kind after a step; a missing one (no gradient) counts as zero.

        Returns:
            A hash over all of them, on every rank.
        """
        arrays, combined = self.trace.arrays, 0
        for index, (_, tensor) in enumerate(tensors):
            if tensor is None:
                continue
            whole = full(tensor)
            hashed = digest(whole)
            combined = hash((combined, hashed))
            if self._main:
                arrays[f"{kind}/digest"][step, index] = hashed
                arrays[f"{kind}/norm"][step, index] = norm(whole)
                arrays[f"{kind}/sketch"][step, index] = self._sketch(whole)
        return combined

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Record `loss`, `lr`, `gradient_norm` or `samples` of a step."""
        for name, value in values.items():
            self.trace.arrays[name][step] = value


def comparable(left: Layout, right: Layout) -> str | None:
    """Say why two traces can't be compared tensor by tensor; None if they can."""
    for name in ("parameters", "buffers"):
        ours, theirs = getattr(left, name), getattr(right, name)
        if odd := sorted(set(ours) ^ set(theirs)):
            return f"{name} of one run only: {', '.join(odd[:5])}"
        if odd := sorted(key for key in ours if ours[key] != theirs[key]):
            return f"{name} of other shapes: {', '.join(f'{k} {ours[k]} and {theirs[k]}' for k in odd[:5])}"
    for name in ("steps", "window", "precision", "sketch_size"):
        ours, theirs = getattr(left, name), getattr(right, name)
        if ours != theirs:
            return f"{name}: {json.dumps(ours)} and {json.dumps(theirs)}"
    return None
