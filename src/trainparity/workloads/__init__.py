"""What is trained, apart from how it is executed."""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainparity import extras
from trainparity.validation import ParamsError, Section, not_one_of, validate

if TYPE_CHECKING:
    from trainparity.workloads.base import Batch as Batch
    from trainparity.workloads.base import Workload as Workload
    from trainparity.workloads.randomness import SampleRandomness as SampleRandomness

__all__ = ["Batch", "SampleRandomness", "Section", "Workload", "load", "module_of", "names"]

_REGISTRY = "trainparity.workloads.registry"
"""Imported by this name, so that it is part of no run's code: the workload that it leads to is, a new entry is not."""


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: these need torch, and who only launches a run does not."""
    if name in ("Batch", "Workload", "SampleRandomness"):
        from trainparity.workloads import base

        return getattr(base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def names() -> list[str]:
    """Return the names of our workloads."""
    return list(_registry())


def _registry() -> dict[str, str]:
    found: dict[str, str] = importlib.import_module(_REGISTRY).WORKLOADS
    return found


def load(name: str, options: Mapping[str, Any], path: Path = Path("params.yaml")) -> "Workload":
    """Make a workload from params.yaml's `workload` section; `path` only names that file in errors.

    `name` is an entry of the registry or `package.module:Class`, importable from the working directory.

    Raises:
        ParamsError: there is no such workload, or it doesn't take these options.
    """
    if name in (ours := _registry()):
        workload = _import(ours[name], path)
    elif ":" in name:
        if str(Path.cwd()) not in sys.path:  # a script's own folder is there, its working directory is not
            sys.path.insert(0, str(Path.cwd()))
        workload = _import(name, path)
    else:
        choices = not_one_of(name, list(ours))
        raise ParamsError(f"{path}: workload.name: {choices}; or give your own as package.module:Class")
    return workload(validate(workload.Options, dict(options), path, ("workload", "options")))


def module_of(name: str) -> str:
    """Return the module that holds a workload, ours or a user's; nothing is imported."""
    return _registry().get(name, name).partition(":")[0]


def _import(name: str, path: Path) -> "type[Workload]":
    """Import a workload class, ours or a user's."""
    from trainparity.workloads.base import Workload

    module_name, _, class_name = name.partition(":")
    try:
        with _own_process_kept():
            module = importlib.import_module(module_name)
        found = getattr(module, class_name)
    except (ImportError, AttributeError, ValueError) as error:
        why = (extras.explain(error) if isinstance(error, ImportError) else None) or error
        raise ParamsError(f"{path}: workload.name: {name!r} can't be imported: {why}") from None
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is imported
        traceback.print_exc()
        raise ParamsError(
            f"{path}: workload.name: importing {module_name} ended with {type(error).__name__}: {error}"
        ) from None
    if not (isinstance(found, type) and issubclass(found, Workload)):
        raise ParamsError(f"{path}: workload.name: {name!r} is no subclass of trainparity.workloads.Workload")
    return found


@contextmanager
def _own_process_kept() -> Iterator[None]:
    """Restore the working directory and the streams afterwards, and have `os._exit` raise `SystemExit` meanwhile.

    A module that calls it would end a command with its exit code, which reads as a verdict.
    """
    own, end = os.getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() == own:
            raise SystemExit(status)
        end(status)  # of a process that the module forked

    os._exit = refuse
    try:
        with chdir("."), redirect_stdout(sys.stdout), redirect_stderr(sys.stderr):
            yield
    finally:
        os._exit = end
