"""The optimizers of one training that are recorded, each with its Recorder."""

import atexit
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainparity.attach.optimizers import Optimizers
from trainparity.attach.session import Session
from trainparity.attach.writing import write

if TYPE_CHECKING:  # while this module is imported, torch is being imported too
    from torch import nn
    from torch.optim import Optimizer

    from trainparity.parity.recorder import Recorder
    from trainparity.parity.recording.joint import Joint


class Recordings:
    """What is recorded in a process; the first is of the optimizer that was made first, the others train beside it."""

    def __init__(self, session: Session, optimizers: Optimizers) -> None:
        self._session, self._optimizers = session, optimizers
        self._recorders: dict[Optimizer, Recorder] = {}
        self._facts: dict[Optimizer, dict[str, Any]] = {}
        self._script: Path | None = None
        """The file that Python runs, which it forgets when that ends."""
        self.joint: Joint | None = None
        """What is recorded in place of several optimizers that make a step together."""

    def __bool__(self) -> bool:
        return bool(self._recorders)

    def __contains__(self, optimizer: "Optimizer") -> bool:
        return optimizer in self._recorders

    @property
    def first(self) -> "tuple[Optimizer, Recorder] | None":
        """The first recorded optimizer and its Recorder; None: nothing is recorded."""
        return next(iter(self._recorders.items()), None)

    def made(self, steps: int, optimizer: "Optimizer") -> bool:
        """Tell whether a recorded optimizer, or that of which one is a member, has made so many steps."""
        recorder = self._recorders.get(self.as_recorded(optimizer))
        return recorder is not None and recorder.step >= steps

    @property
    def several(self) -> bool:
        """Whether others are recorded beside the first."""
        return len(self._recorders) > 1

    def others_follow(self, steps: int) -> bool:
        """Tell whether another recorded optimizer is one step short, as a generator's behind its critic's last."""
        others = [*self._recorders.values()][1:]
        return any(recorder.step == steps - 1 and not recorder.ended for recorder in others)

    @property
    def made_steps(self) -> bool:
        """Whether any has made a step."""
        return any(recorder.step for recorder in self._recorders.values())

    @property
    def parted(self) -> bool:
        """Whether a recording has ended as another rank has left."""
        return any(recorder.parted for recorder in self._recorders.values())

    @property
    def outgrown(self) -> bool:
        """Whether an optimizer that has made no step updates other tensors than when it was attached to."""
        return any(not recorder.step and recorder.outgrown for recorder in self._recorders.values())

    def as_recorded(self, optimizer: "Optimizer") -> "Optimizer":
        """Return an optimizer, or what it is recorded as a member of."""
        joint = self.joint
        return joint if joint is not None and any(optimizer is member for member in joint.members) else optimizer

    def join(self, optimizer: "Optimizer", called: "nn.Module | None") -> "Optimizer":
        """Return what makes a step as one with an optimizer, beside others of the model that is called; else itself."""
        from trainparity.attach.owners import of_one_step
        from trainparity.parity.recording.joint import joined
        from trainparity.parity.recording.unwrap import unwrap_optimizer

        plain = unwrap_optimizer(optimizer)
        members = of_one_step(plain, self._optimizers.alive(), called)
        if len(members) == 1:
            return plain
        self.joint = joined(members)
        return self.joint

    def record_all(self, first: "Optimizer", called: "nn.Module | None") -> None:
        """Record an optimizer and those beside it; `called` is the module whose forward pass begins."""
        from trainparity.attach.owners import beside

        script = getattr(sys.modules["__main__"], "__file__", None)
        self._script = script and Path(script).absolute()
        several = sorted([first, *beside(first, self._optimizers.alive())], key=self._optimizers.number)
        for one in several:  # whichever is called first: no generator is that is called without gradients
            self._record(one, called, None if one is several[0] else self._folder_name(one))

    def _record(self, optimizer: "Optimizer", called: "nn.Module | None", name: str | None) -> None:
        from trainparity.attach.owners import beside, model_of
        from trainparity.parity.record import record
        from trainparity.parity.recording.unwrap import unwrap_model

        others = beside(optimizer, self._optimizers.alive())
        model, plan = model_of(optimizer, called, others), self._session.plan
        plain = unwrap_model(model)
        if not any(True for _ in plain.parameters()):
            return
        self._facts[optimizer] = {
            "model": type(plain).__name__,
            "optimizer": type(optimizer).__name__,
            "num_parameters": sum(parameter.numel() for parameter in plain.parameters()),
        }
        self._recorders[optimizer] = record(
            model, optimizer, plan.folder, interval=plan.interval, twin=plan.twin, name=name
        )

    def _folder_name(self, optimizer: "Optimizer") -> str:
        return f"optimizer-{self._optimizers.number(optimizer)}"

    def see_another(self, optimizer: "Optimizer") -> None:
        """Record an optimizer that was made later: over tensors of a recorded one, or of its own beside all of them."""
        from trainparity.attach.owners import beside, updates_for

        if (old := next((one for one in self._recorders if updates_for(optimizer, one)), None)) is not None:
            self._go_on_with(optimizer, old)
        elif not self._optimizers.steps_of(optimizer) and len(beside(optimizer, [*self._recorders])) == len(
            self._recorders
        ):
            self._record(optimizer, None, self._folder_name(optimizer))

    def _go_on_with(self, optimizer: "Optimizer", old: "Optimizer") -> None:
        """Record the steps that an optimizer makes over tensors of a recorded one: the script has made it anew."""
        if not self._recorders[old].ended:
            self._recorders[old].go_on_with(optimizer)
        self._recorders = {optimizer if key is old else key: recorder for key, recorder in self._recorders.items()}
        self._facts[optimizer] = {**self._facts.pop(old), "optimizer": type(optimizer).__name__}

    def first_is_replaced_by(self, optimizer: "Optimizer") -> bool:
        """Tell whether an optimizer steps in place of the first recorded one, which has made no step.

        It updates the same tensors, or makes its second step: the recorded one's module is called, but not trained.
        """
        from trainparity.attach.owners import updates_for

        assert self.first is not None
        first, recorder = self.first
        if recorder.step:
            return False
        return updates_for(optimizer, first) or self._optimizers.steps_of(optimizer) is not None

    def wraps(self, optimizer: "Optimizer") -> bool:
        """Tell whether an optimizer holds a recorded one, or is held by one: their step is one."""
        from trainparity.attach.owners import wraps

        return any(wraps(optimizer, recorded) for recorded in self._recorders)

    def close(self) -> None:
        """Forget what was attached to and has made no step."""
        for recorder in self._recorders.values():
            recorder.close()
        self._recorders, self._facts = {}, {}

    def abandon(self) -> None:
        """Write nothing."""
        for recorder in self._recorders.values():
            recorder.abandon()

    def leave_to_parent(self) -> None:
        """Write nothing in this process, which was forked."""
        for recorder in self._recorders.values():
            atexit.unregister(recorder.close)

    def write(self, *, stopped: bool) -> None:
        """Write the traces and, on the main rank, what was recorded; raises what their writing does."""
        facts = self._recorders, self._facts
        write(self._session, *facts, self._optimizers, script=self._script, stopped=stopped)
