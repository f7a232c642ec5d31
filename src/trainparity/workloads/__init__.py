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
from trainparity.errors import StoppedBySignal, UserError, said
from trainparity.validation import ParamsError, Section, not_one_of, validate

if TYPE_CHECKING:
    from trainparity.workloads.base import Batch as Batch
    from trainparity.workloads.base import Workload as Workload
    from trainparity.workloads.randomness import SampleRandomness as SampleRandomness

__all__ = ["Batch", "SampleRandomness", "Section", "Workload", "check", "load", "module_of", "names", "own_data"]

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


def check(name: str, options: Mapping[str, Any], path: Path = Path("params.yaml")) -> None:
    """Raise what `load` would raise about params.yaml; a workload of ours, and torch, is not imported for it."""
    if place := importlib.import_module(_REGISTRY).OPTIONS.get(name):
        module, _, its = place.partition(":")
        validate(getattr(importlib.import_module(module), its), dict(options), path, ("workload", "options"))
    else:
        load(name, options, path)


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
    with _users_code(f"{path}: workload.options of {name}: checking them"):
        checked = validate(workload.Options, dict(options), path, ("workload", "options"))
    with _users_code(f"{path}: workload.name: making {name}"):
        return workload(checked)


def own_data(workload: "Workload", path: Path = Path("params.yaml")) -> "Batch | None":
    """Return the dataset that a workload brings, tensors [N, ...] by name; None if it brings none.

    Raises:
        ParamsError: its `data` raised, or returned anything but tensors of one length.
    """
    from torch import Tensor, complex32, strided

    where = f"{path}: dataset.name: own: `data` of {type(workload).__name__}"
    with _users_code(where):
        tensors = workload.data()
    if tensors is None:
        return None
    if not isinstance(tensors, Mapping):
        raise ParamsError(f"{where} returned {type(tensors).__name__}, not tensors by name")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name in _TAKEN:
            raise ParamsError(f"{where}: a tensor is named {name!r}; allowed: any text but {' and '.join(_TAKEN)}")
        if not isinstance(tensor, Tensor) or not tensor.ndim or not len(tensor):
            raise ParamsError(f"{where}: {name!r} is no tensor [N, ...] of at least one sample")
        if tensor.device.type != "cpu" or tensor.layout != strided or tensor.is_quantized or tensor.dtype == complex32:
            what = f"{tensor.dtype} on {tensor.device}, {tensor.layout}".replace("torch.", "")
            raise ParamsError(
                f"{where}: {name!r} is {what}; allowed: a dense tensor on the CPU, of a plain number format"
            )
    lengths = {name: len(tensor) for name, tensor in tensors.items()}
    if len(set(lengths.values())) > 1:
        raise ParamsError(f"{where}: tensors of unequal length: {lengths}")
    return tensors


_TAKEN = ("samples", "__metadata__")
"""The indices of a batch's samples, which the loop adds; what the file's format keeps for itself."""


def module_of(name: str) -> str:
    """Return the module that holds a workload, ours or a user's; nothing is imported."""
    return _registry().get(name, name).partition(":")[0]


def _import(name: str, path: Path) -> "type[Workload]":
    """Import a workload class, ours or a user's."""
    from trainparity.workloads.base import Workload

    module_name, _, class_name = name.partition(":")
    if not (class_name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise ParamsError(
            f"{path}: workload.name: {name!r} names no module and class; allowed: package.module:Class, which of a "
            "file train.py here is train:Class"
        )
    try:
        ours = (ImportError, ValueError)  # said below, without a traceback
        with _users_code(f"{path}: workload.name: importing {module_name}", but=ours):
            module = importlib.import_module(module_name)
        found = getattr(module, class_name)
    except (ImportError, AttributeError, ValueError) as error:
        why = (extras.explain(error) if isinstance(error, ImportError) else None) or error
        raise ParamsError(f"{path}: workload.name: {name!r} can't be imported: {why}") from None
    where = f"{path}: workload.name: {name!r}"
    if not (isinstance(found, type) and issubclass(found, Workload)):
        raise ParamsError(f"{where} is no subclass of trainparity.workloads.Workload")
    if missing := sorted(found.__abstractmethods__):
        raise ParamsError(f"{where} has no {' and no '.join(f'`{method}`' for method in missing)}")
    if not (isinstance(found.Options, type) and issubclass(found.Options, Section)):
        raise ParamsError(f"{where}: its `Options` is no subclass of trainparity.workloads.Section")
    return found


@contextmanager
def _users_code(doing: str, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn what a user's code raises into a `ParamsError` under its traceback, `but` these and our own errors."""
    try:
        with _own_process_kept():
            yield
        if any(stream and stream.closed for stream in (sys.stdout, sys.stderr)):
            raise ParamsError(f"{doing} has closed `sys.stdout` or `sys.stderr`, which this process answers on")
    except (UserError, MemoryError):
        raise
    except but:
        raise
    except (KeyboardInterrupt, StoppedBySignal):
        raise
    except BaseException as error:  # as pytest's Skipped and asyncio's CancelledError, which are no Exceptions
        traceback.print_exc()
        raise ParamsError(f"{doing} ended with {type(error).__name__}: {said(error)}") from None


@contextmanager
def _own_process_kept() -> Iterator[None]:
    """Restore the working directory and the streams afterwards, and have `os._exit` raise `SystemExit` meanwhile.

    Code that calls it would end a command with its exit code, which reads as a verdict.
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
