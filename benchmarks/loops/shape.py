"""What the loops of this folder have in common: `python <loop>.py FOLDER VARIANT`, variants joined by `+`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

FOLDER, VARIANT = (Path(sys.argv[1]), set(sys.argv[2].split("+"))) if len(sys.argv) > 2 else (Path("run"), {"ref"})
STEPS, BATCH = 5, 16

torch.set_num_threads(1)
torch.manual_seed(0)


def has(name: str) -> bool:
    """Tell whether the variant has a part."""
    return name in VARIANT


def batches(count: int = STEPS, size: int = BATCH) -> Iterator[Tensor]:
    """Yield the samples of each step."""
    for step in range(count):
        yield torch.arange(step * size, (step + 1) * size)


def parts(rows: Tensor) -> list[Tensor]:
    """Cut a step's samples into micro-batches where the variant accumulates."""
    return list(rows.chunk(4 if has("accum") else 1))
