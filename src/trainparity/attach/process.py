"""Attaches a Recorder in a training process, just before its first training forward pass, and stops it in time."""

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainparity.attach.session import Recorded, Session

if TYPE_CHECKING:  # while this module is imported, torch is being imported too
    from torch import nn
    from torch.optim import Optimizer

    from trainparity.parity.recorder import Recorder

_GRACE_S = 30.0
"""How long a stopped script may take to end by itself: its `finally` blocks and exit functions."""


class Process:
    """One Python process that has imported torch: it may train, or be a loader's worker, a compiler's, a launcher."""

    def __init__(self, folder: Path) -> None:
        self._session = Session(folder)
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._recorder: Recorder | None = None
        self._recorded: Optimizer | None = None
        self._facts: dict[str, Any] = {}
        self._pid = 0
        """The process that trains; a child that it forks inherits this object and must not write."""
        self._steps_of_others: dict[str, int] = {}
        self._stopped = False
        self._unwatch: Callable[[], None] = lambda: None

    def wait_for(self, module: ModuleType) -> None:
        """See the optimizers that the script makes; `module` is `torch.optim.optimizer`."""
        original = module.Optimizer.__init__

        @wraps(original)
        def made(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
            original(optimizer, *arguments, **keywords)
            self._made(optimizer)

        module.Optimizer.__init__ = made
        module.register_optimizer_step_pre_hook(self._stepping)
        module.register_optimizer_step_post_hook(self._stepped)

    def _made(self, optimizer: "Optimizer") -> None:
        self._session.mark("optimizer")
        if not self._optimizers and not self._pid:
            self._watch_calls()
        self._optimizers.append(weakref.ref(optimizer))

    def _watch_calls(self) -> None:
        """See the first training forward pass before any hook of its modules runs.

        A hook for all modules is no way: one that is added inside a module's call misses that call, and it sees no
        keyword arguments.
        """
        import torch
        from torch._dynamo.eval_frame import skip_code
        from torch.nn import Module

        original = Module.__call__

        def call(module: Any, *arguments: Any, **keywords: Any) -> Any:
            if not torch.compiler.is_compiling() and not self._pid and torch.is_grad_enabled():
                self._called(module)
            return original(module, *arguments, **keywords)

        # torch.compile binds what stands here: this frame is not to be compiled, those that it calls are.
        skip_code(call.__code__)
        Module.__call__ = call  # type: ignore[method-assign]

        def unwatch() -> None:
            Module.__call__ = original  # type: ignore[method-assign]

        self._unwatch = unwatch

    def _called(self, module: "nn.Module") -> None:
        from trainparity.attach.owners import optimizer_of

        if _loads_data():
            return
        alive = [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]
        if (optimizer := optimizer_of(module, alive)) is not None:
            self._attach(optimizer, module)

    def _stepping(self, optimizer: "Optimizer", *_: Any) -> None:
        """Attach late where no forward pass of a module came before the step: closures, models used by functions."""
        if self._stopped:  # the script has caught SystemExit and trains on
            _leave_now()
        if not self._pid:
            self._attach(optimizer, None)
        elif self._recorder is not None and not self._recorder.step and self._replaces_recorded(optimizer):
            self._recorder.close()
            self._attach(optimizer, None)

    def _replaces_recorded(self, optimizer: "Optimizer") -> bool:
        """Tell whether an optimizer steps in place of the recorded one, which has made no step.

        It updates the same tensors, or makes its second step: the recorded one's module is called, but not trained.
        """
        from trainparity.attach.owners import updates_for

        if self._recorded is None or optimizer is self._recorded:
            return False
        return updates_for(optimizer, self._recorded) or self._name(optimizer) in self._steps_of_others

    def _attach(self, optimizer: "Optimizer", called: "nn.Module | None") -> None:
        """Record this optimizer from now on; `called` is the module whose forward pass begins."""
        self._pid = os.getpid()
        self._unwatch()
        os.register_at_fork(after_in_child=self._forget)
        try:
            self._record(optimizer, called)
        except Exception as error:
            self._session.fail(f"{type(error).__name__}: {error}")
            raise SystemExit(2) from error

    def _record(self, optimizer: "Optimizer", called: "nn.Module | None") -> None:
        from trainparity.attach.owners import model_of
        from trainparity.parity.recorder import record
        from trainparity.parity.recording import ranks
        from trainparity.parity.recording.unwrap import unwrap_model, unwrap_optimizer

        self._recorded = unwrap_optimizer(optimizer)
        self._steps_of_others.pop(self._name(self._recorded), None)
        if not self._session.claim(_name_of_training(), ranks.rank()):
            self._session.mark("second-training")
            return
        model, plan = model_of(self._recorded, called), self._session.plan
        plain = unwrap_model(model)
        self._facts = {
            "model": type(plain).__name__,
            "optimizer": type(self._recorded).__name__,
            "num_parameters": sum(parameter.numel() for parameter in plain.parameters()),
        }
        atexit.register(self._ended)  # exit functions run last first: this one after the Recorder's
        self._recorder = record(model, optimizer, plan.folder, interval=plan.interval, twin=plan.twin)
        self._close_before_exit()

    def _stepped(self, optimizer: "Optimizer", *_: Any) -> None:
        """Count a step that has been made, and stop the script after the last one that is asked for."""
        limit = self._session.plan.steps
        if os.getpid() != self._pid or self._stopped:
            return
        if optimizer is self._recorded and self._recorder is not None:
            self._steps_of_others = dict.fromkeys(self._steps_of_others, 0)
            if limit and self._recorder.step >= limit:
                self._stop()
            return
        name = self._name(optimizer)
        self._steps_of_others[name] = self._steps_of_others.get(name, 0) + 1
        if limit and max(self._steps_of_others.values()) >= limit:
            self._stop()  # the recorded optimizer makes no more steps, or nothing is recorded here

    def _name(self, optimizer: "Optimizer") -> str:
        from trainparity.attach.owners import parameters_of

        number = next((n for n, made in enumerate(self._optimizers, 1) if made() is optimizer), 0)
        elements = sum(tensor.numel() for tensor in parameters_of(optimizer).values())
        return f"optimizer {number}, {type(optimizer).__name__} over {elements:,} numbers"

    def _stop(self) -> None:
        """End the script: all ranks stand after the same step, and wait for each other and the trace."""
        self._stopped = True
        if self._recorder is not None:
            import torch

            from trainparity.parity.recording import ranks

            self._recorder.close()
            self._ended()
            ranks.gather(torch.zeros(1))
        if threading.current_thread() is not threading.main_thread():
            _leave_now()
        threading.Thread(target=_leave_later, daemon=True).start()
        raise SystemExit(0)

    def _ended(self) -> None:
        """Say what was recorded; once."""
        atexit.unregister(self._ended)
        recorder, self._recorder = self._recorder, None
        if recorder is None or os.getpid() != self._pid:
            return
        recorder.close()
        if (self._session.folder / "rank-0").read_text(encoding="utf-8") == str(self._pid):
            Recorded(
                **self._facts,
                steps=recorder.step,
                stopped=self._stopped,
                not_recorded=sorted(self._steps_of_others),
                outside=_imported_from(self._session.plan.outside),
            ).write(self._session.folder / "recorded.json")

    def _close_before_exit(self) -> None:
        """Write the trace also where a script ends with `os._exit`, which runs no exit function."""
        original = os._exit

        def leave(status: int) -> None:
            self._ended()
            original(status)

        os._exit = leave  # type: ignore[assignment]

    def _forget(self) -> None:
        """Let a forked child leave the trace to its parent."""
        if self._recorder is not None:
            atexit.unregister(self._recorder.close)
        atexit.unregister(self._ended)


def _name_of_training() -> str:
    """Return a name that all ranks of one process group share, and no other training has.

    They agree through the group's store, not in a collective: ranks may come here at different times.
    """
    import torch.distributed as dist

    own = str(os.getpid())
    if not (dist.is_available() and dist.is_initialized()):
        return own
    store = dist.distributed_c10d._get_default_store()
    return bytes(store.compare_set("trainparity", "", own)).decode()


def _loads_data() -> bool:
    """Tell whether this process is a worker of a DataLoader."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _imported_from(folder: Path | None) -> list[str]:
    """Return the files of imported modules below a folder, except what is installed there."""
    if folder is None:
        return []
    files = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    below = (file for file in files if folder in file.parents and "site-packages" not in file.parts)
    return sorted(str(file.relative_to(folder)) for file in below)


def _leave_now() -> None:
    """End this process, whatever its script catches."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _leave_later() -> None:
    time.sleep(_GRACE_S)
    _leave_now()
