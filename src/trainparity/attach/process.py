"""Attaches a Recorder in a training process, just before its first training forward pass, and stops it in time."""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from trainparity.attach.first_pass import FirstPass
from trainparity.attach.leaving import call_before_exit, leave, leave_now
from trainparity.attach.optimizers import Optimizers
from trainparity.attach.recordings import Recordings
from trainparity.attach.role import loads_data, name_of_training
from trainparity.attach.session import OPERATORS, Session
from trainparity.hiding import remedy_of

if TYPE_CHECKING:  # while this module is imported, torch is being imported too
    from torch import nn
    from torch.optim import Optimizer

    from trainparity.attach.first_backward import FirstBackward
    from trainparity.parity.recorder import Recorder


class Process:
    """One Python process that has imported torch: it may train, or be a loader's worker, a compiler's, a launcher."""

    def __init__(self, folder: Path) -> None:
        self._session = Session(folder)
        self._optimizers = Optimizers()
        self._recorded = Recordings(self._session, self._optimizers)
        self._pid = 0
        """The process that trains; a child that it forks inherits this object and must not write."""
        self._stopped = False
        self._waits = False
        """Whether the script stops where the next iteration begins: others may make steps that belong to this one."""
        self._first_pass = FirstPass(self._called)
        self._first_backward: FirstBackward
        self._made_steps: Callable[[int], None] = lambda count: None
        """Told how many steps the first recorded optimizer has made."""

    def wait_for(self, module: ModuleType) -> None:
        """See the optimizers that the script makes; `module` is `torch.optim.optimizer`."""
        original = module.Optimizer.__init__

        @wraps(original)
        def made(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
            original(optimizer, *arguments, **keywords)
            self._made(optimizer)

        module.Optimizer.__init__ = made
        self._leave_at_end()
        # Scripts compile functions that call `step`, and Dynamo would trace these hooks with it.
        not_traced = sys.modules["torch._compile"]._disable_dynamo
        module.register_optimizer_step_pre_hook(not_traced(lambda *given: self._stepping(*given)))
        module.register_optimizer_step_post_hook(not_traced(lambda *given: self._stepped(*given)))

    def _leave_at_end(self) -> None:
        """Tell the other ranks when this process ends or destroys its process group, whether it has recorded or not."""
        from trainparity.parity.recording.destruction import call_before_destruction

        started = os.getpid()

        def tell() -> None:
            group = sys.modules.get("torch.distributed")
            if os.getpid() == started and group is not None and group.is_available() and group.is_initialized():
                from trainparity.parity.recording.presence import leave

                leave(records=bool(self._pid))

        atexit.register(tell)
        call_before_destruction(tell)

    def _made(self, optimizer: "Optimizer") -> None:
        if self._session.over:
            return
        self._session.mark("optimizer")
        if not self._pid:
            if not self._optimizers:
                self._first_pass.begin()
                self._see_first_backward()
            self._first_pass.see_modules_of(optimizer)
        self._optimizers.add(optimizer)

    def _see_first_backward(self) -> None:
        from trainparity.attach.first_backward import FirstBackward

        def begins(optimizer: "Optimizer") -> None:
            if self._may_train():
                self._attach(optimizer, None)

        self._first_backward = FirstBackward(self._optimizers.alive, begins)

    def _called(self, module: "nn.Module") -> None:
        from torch.nn.parameter import is_lazy

        from trainparity.attach.owners import optimizer_of
        from trainparity.parity.recording.unwrap import reshard

        if not self._may_train() or any(is_lazy(parameter) for parameter in module.parameters()):
            return  # if lazy, this pass gives them a shape
        reshard(module)
        if (optimizer := optimizer_of(module, self._optimizers.alive())) is not None:
            self._attach(optimizer, module)

    def _may_train(self) -> bool:
        return not self._pid and not self._session.over and not loads_data()

    def _stepping(self, optimizer: "Optimizer", arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Attach late where no forward pass of a module came before the step: closures, models used by functions."""
        if self._stopped:  # the script has caught SystemExit and trains on
            leave_now()
        if self._waits and os.getpid() == self._pid and self._recorded.made(self._session.plan.steps, optimizer):
            self._stop()  # no module was called
        if not self._pid:
            if self._session.over:
                return
            has_closure = len(arguments) > 1 or bool(keywords)  # the first is the optimizer
            if has_closure or self._first_backward.seen or _has_gradient(optimizer):
                self._attach(optimizer, None)
        elif self._recorded and self._recorded.as_recorded(optimizer) not in self._recorded:
            if self._recorded.first_is_replaced_by(optimizer):
                self._begin_anew(optimizer)
            else:
                self._try(lambda: self._recorded.see_another(optimizer))
        elif self._recorded.outgrown:
            self._begin_anew(optimizer)

    def _begin_anew(self, optimizer: "Optimizer") -> None:
        """Record what steps now, in place of what was attached to and has made no step."""
        self._recorded.close()
        self._attach(optimizer, None)

    def _attach(self, optimizer: "Optimizer", called: "nn.Module | None") -> None:
        """Record this optimizer and those beside it from now on; `called` is the module whose forward pass begins."""
        self._pid = os.getpid()
        self._first_pass.end()
        self._first_backward.end()
        if self._session.over:
            return
        os.register_at_fork(after_in_child=self._forget)
        self._try(lambda: self._record_all(optimizer, called))

    def _try(self, record: Callable[[], None]) -> None:
        try:
            record()
        except Exception as error:
            remedy = f"; {remedy_of(error)}" if isinstance(error, ImportError) else ""
            self._fail(f"{type(error).__name__}: {error}{remedy}", error)

    def _fail(self, why: str, error: Exception | None = None) -> NoReturn:
        self._session.fail(why)
        raise SystemExit(2) from error

    def _record_all(self, optimizer: "Optimizer", called: "nn.Module | None") -> None:
        from trainparity.parity.recording import ranks

        first = self._recorded.join(optimizer, called)
        self._optimizers.forget_steps_of(first)
        if not self._session.claim(name_of_training(), ranks.rank()):
            self._session.mark("second-training")
            return
        atexit.register(self._at_exit)  # exit functions run last first: this one after the Recorders'
        self._recorded.record_all(first, called)
        if self._recorded.joint is not None:
            self._recorded.joint.on_ended = self._stepped  # after the Recorder's
        call_before_exit(self._at_exit)
        if (step := self._session.plan.operators) is not None and ranks.rank() == 0:
            from trainparity.attach.operators import OperatorWindow

            self._made_steps = OperatorWindow(step, self._session.folder / OPERATORS).at
            self._made_steps(0)

    def _stepped(self, optimizer: "Optimizer", *_: Any) -> None:
        """Count a step that has been made, and stop the script after the last one that is asked for."""
        if self._recorded.as_recorded(optimizer) is not optimizer:
            return  # a member's step: the one that it belongs to tells of its own
        limit = self._session.plan.steps
        if os.getpid() != self._pid or self._stopped:
            return
        if (first := self._recorded.first) is not None and optimizer is first[0]:
            self._after_step(*first)
            return
        if self._recorded.wraps(optimizer):
            return
        made = self._optimizers.count_step(optimizer)
        if limit and made >= limit:
            self._stop()  # the first recorded optimizer makes no more steps, or nothing is recorded here

    def _after_step(self, optimizer: "Optimizer", recorder: "Recorder") -> None:
        """Go on, or stop, after a step of the first recorded optimizer."""
        limit = self._session.plan.steps
        if recorder.parted:  # the training goes on: other ranks may wait for this one
            if not self._recorded.made_steps:
                self._fail(recorder.ended)
            if limit and recorder.step + self._optimizers.count_step(optimizer) >= limit:
                self._stop()
            return
        self._optimizers.count_anew()
        self._made_steps(recorder.step)
        if recorder.step == 1:
            self._session.mark("step")
        if limit and (recorder.step >= limit or recorder.ended):
            if self._recorded.several and not recorder.ended:
                self._wait_for_others()
            else:
                self._stop()

    def _wait_for_others(self) -> None:
        """Stop the script where the next module is called, unless another optimizer's step is due behind that.

        Where something is compiled, Dynamo would trace that hook: there it is where an optimizer makes its next step.
        """
        from torch.nn.modules.module import register_module_forward_pre_hook

        def called(*_: Any) -> None:
            records = os.getpid() == self._pid and not self._stopped
            if records and not self._recorded.others_follow(self._session.plan.steps):
                self._stop()

        self._waits = True
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None or not dynamo.counters["stats"]:
            register_module_forward_pre_hook(sys.modules["torch._compile"]._disable_dynamo(called))

    def _stop(self) -> None:
        """End the script: all ranks stand after the same step, and wait for each other and the trace."""
        if self._session.over:
            self._ended()
            return
        self._stopped = True
        if self._recorded:
            from trainparity.parity.recording import presence

            parted = self._recorded.parted
            self._ended()
            if parted:
                leave()
            with suppress(presence.RanksPart):  # one has left before
                presence.Presence("trainparity/stop").come(presence.for_at_most(presence.ABSENCE_S))
        leave()

    def _at_exit(self) -> None:
        """Write the traces of a script that ends: what goes wrong is noted, and there is nothing left to be ended."""
        with suppress(SystemExit):  # of which Python would print a traceback here
            self._ended()

    def _ended(self) -> None:
        """Write the traces and say what was recorded; once."""
        atexit.unregister(self._at_exit)
        recorded, self._recorded = self._recorded, Recordings(self._session, self._optimizers)
        if not recorded or os.getpid() != self._pid:
            return
        if self._session.over:
            recorded.abandon()
            return
        self._try(lambda: recorded.write(stopped=self._stopped))

    def _forget(self) -> None:
        """Let a forked child leave the trace to its parent."""
        self._recorded.leave_to_parent()
        atexit.unregister(self._at_exit)


def _has_gradient(optimizer: "Optimizer") -> bool:
    """Tell whether a step moves anything; one before training does not, as of a loop that only draws a schedule."""
    return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])
