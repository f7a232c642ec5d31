"""A function of a test module on the ranks of a process group, each a process of its own.

They are not forked from the test's process: its threads may hold locks at that moment, which nobody gives back there.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.support import warm

ROOT = Path(__file__).parents[2]


def on_ranks(count: int, folder: Path, work: Callable[..., Tensor], *arguments: Any) -> list[Tensor]:
    """Return what a function of a module makes on each rank; it is given the rank, then the arguments, as JSON."""
    asked = [work.__module__, work.__name__, str(folder), str(count), json.dumps(arguments)]
    command = [warm.python(), "-m", "tests.support.on_ranks", *asked]
    ranks = [subprocess.Popen([*command, str(rank)], cwd=ROOT) for rank in range(count)]
    codes = [rank.wait(timeout=120) for rank in ranks]
    assert not any(codes), codes
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(count)]


def _as_rank(module: str, name: str, folder: str, count: str, arguments: str, rank: str) -> None:
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=int(rank), world_size=int(count))
    made = getattr(import_module(module), name)(int(rank), *json.loads(arguments))
    torch.save(made, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    _as_rank(*sys.argv[1:])
