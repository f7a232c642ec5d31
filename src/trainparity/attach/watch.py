"""Waits until a process imports torch's optimizers, at no cost to one that does not."""

import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from trainparity.hiding import remedy_of
from trainparity.ownership import end_with_owner

SESSION = "TRAINPARITY_SESSION"
"""Environment variable: the folder through which `trainparity run` and the processes it records speak."""

FLOAT64 = "float64"
"""A file in that folder: the processes compute in float64."""

NOT_ROUNDING = "float64-takes-more"
"""A file that they leave there if float64 takes more away than the rounding of single precision."""

SEED = int.from_bytes(b"pair")
"""What a script that never seeds starts from: no number that scripts seed with, or a lost seed would not be seen."""


def watch() -> None:
    """Prepare the recording of this process; called when Python starts."""
    folder = os.environ.get(SESSION)
    if not folder or not Path(folder).is_dir():
        return
    session = Path(folder)
    end_with_owner(if_killed=True)
    (session / "python").touch()
    # A script that never seeds must repeat itself, or no run of it is another one's twin.
    random.seed(_own_seed())

    def optimizers(module: ModuleType) -> None:
        if not session.is_dir():  # the command has ended, and left this process behind
            return
        (session / "torch").touch()
        try:
            from trainparity.attach.process import Process

            process = Process(session)
        except ImportError as error:  # an interpreter without what trainparity needs
            (session / f"failed-{os.getpid()}").write_text(f"{error}; {remedy_of(error)}", encoding="utf-8")
            raise SystemExit(2) from None
        process.wait_for(module)

    if (session / FLOAT64).exists():
        _after_import("torch", lambda module: _in_float64(session))
        _after_import("torch.distributed.fsdp", lambda module: _shard_in_float64(module, session))
    _after_import("numpy.random", lambda module: module.seed(_own_seed()))
    _after_import("torch", lambda module: module.manual_seed(_own_seed()))
    _after_import("torch.optim.optimizer", optimizers)


def _own_seed() -> int:
    """Return a seed that ranks do not share, as unseeded ones draw apart; the first has that of a run without ranks."""
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK", "")
    if rank.isdigit():
        return SEED + int(rank)
    processes = sys.modules.get("multiprocessing.process")  # spawned ranks are named by the order of their start
    number = processes.current_process().name.rpartition("-")[2] if processes else ""
    return SEED + (max(int(number) - 1, 0) if number.isdigit() else 0)


def _in_float64(session: Path) -> None:
    from trainparity.attach.float64 import compute_in_float64

    compute_in_float64(_once(session / NOT_ROUNDING))


def _shard_in_float64(module: ModuleType, session: Path) -> None:
    from trainparity.attach.float64 import shard_in_float64

    shard_in_float64(module, _once(session / NOT_ROUNDING))


def _once(path: Path) -> Callable[[], None]:
    """Return what makes a file when it is first called."""
    made: list[Path] = []

    def make() -> None:
        if not made:
            made.append(path)
            with suppress(FileNotFoundError):  # the session is over
                path.touch()

    return make


def _after_import(name: str, then: Callable[[Any], None]) -> None:
    if (module := sys.modules.get(name)) is not None:  # a `.pth` file of the user's interpreter has imported it
        then(module)
    else:
        sys.meta_path.insert(0, _Once(name, then))


class _Once:
    """Finds one module as Python does, and calls a function after its first import."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute, then = spec.loader.exec_module, self._then

        def executed(module: ModuleType) -> None:
            execute(module)
            then(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
