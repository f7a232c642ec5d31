"""Several optimizers whose steps make one: one for each parameter, as where backward itself makes the updates."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from trainparity.parity.recording.apart import in_backward, unseen
from trainparity.parity.recording.unwrap import optimizers_inside, own_part, plain_optimizers, unwrap_optimizer
from trainparity.parity.recording.wrappers import watch_step


class Joint(torch.optim.Optimizer):
    """What is recorded as one optimizer: its step begins with a member's, and ends when all have made one.

    Or when the backward pass ends inside of which they are made, or when a member begins its next one. Inside of the
    step of a wrapper that holds them, when that returns: it may go on, as Lookahead does.
    """

    def __init__(self, members: Sequence[torch.optim.Optimizer], wrapper: Any = None) -> None:
        """`wrapper` is what the members were found in; its step, if it has one, makes theirs."""
        # PyTorch's own `__init__` is not called: this is none that the loop has made.
        self.members = list(members)
        self._used = set[int]()  # members that have made a step
        self.inside = False
        """Whether a wrapper's step is being made: until it returns, options are those that its members step with."""
        self._wrapper = wrapper
        self.keep = False
        """Whether gradients are kept until the step ends; the members' loop may drop each after its update."""
        self._before: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._after: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self.on_ended: Callable[[Joint], None] | None = None
        """Called when a step has ended, after all hooks: some come last anew in each step."""
        self.stepped: list[torch.optim.Optimizer] = []
        """The members that have made the step that ends, or the last one."""
        self._made: set[int] = set()
        self._skipped: set[int] = set()
        self._last: torch.optim.Optimizer | None = None
        self._gradients: dict[Tensor, Tensor] = {}
        self.handles = [member.register_step_pre_hook(self._begins) for member in self.members]
        """Of the hooks that see each member's step begin."""
        self.handles_after = [member.register_step_post_hook(self._ends) for member in self.members]
        """Of those that see it end."""
        self._unwatch = watch_step(wrapper, self._stepping)

    @property
    def in_use(self) -> list[torch.optim.Optimizer]:
        """The members but for spare ones, as to change to later: others hold their parameters, and they never step."""
        if len(self._used) == len(self.members) or (not self._used and self._wrapper is None):
            return self.members
        return [one for place, one in enumerate(self.members) if id(one) in self._used or not self._is_spare(place)]

    def _is_spare(self, place: int) -> bool:
        """Tell whether others hold all that a member does: before any has stepped, those that come before it."""
        others = self.members[:place] + (self.members[place + 1 :] if self._used else [])
        held = {id(parameter) for other in others for parameter in _held(other)}
        return held.issuperset(map(id, _held(self.members[place])))

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Those of the members in use."""
        return [group for member in self.in_use for group in member.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:  # type: ignore[override]
        """That of the members in use."""
        return {key: value for member in self.in_use for key, value in member.state.items()}

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """Those of the members in use."""
        return {key: value for member in self.in_use for key, value in member.defaults.items()}

    def __repr__(self) -> str:
        """Name the class and count the members."""
        return f"{type(self).__name__} ({len(self.members)} optimizers)"

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook before the first member's step."""
        return _registered(self._before, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook after the last member's step."""
        return _registered(self._after, hook)

    @unseen
    def _begins(self, member: torch.optim.Optimizer, *_: Any) -> None:
        if id(member) in self._made and not self.inside:
            self.end()
        if not self._made:
            if in_backward():  # after what is queued for the end of the pass already
                engine = torch.autograd.Variable._execution_engine
                engine.queue_callback(lambda: engine.queue_callback(self.end))
            for hook in [*self._before.values()]:
                hook(self, (), {})
            if self.keep and not in_backward():  # a member that makes no step may lose its gradients before the end
                self._hold(self.members)
        self._made.add(id(member))
        if self.keep:
            self._hold([member])

    def _hold(self, members: Sequence[torch.optim.Optimizer]) -> None:
        """Keep the gradients of members as they are now."""
        self._gradients |= {p: p.grad.detach().clone() for one in members for p in _held(one) if p.grad is not None}

    @unseen
    def _ends(self, member: torch.optim.Optimizer, *_: Any) -> None:
        self._last = member
        if len(self._made | self._skipped) == len(self.members) and not in_backward() and not self.inside:
            self.end()

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        """End a step with that of the wrapper, whichever of the members it calls."""
        self.inside = True
        try:
            yield
            if not in_backward():
                self.end()
        finally:
            self.inside = False

    def release(self) -> None:
        """Leave the members, and their wrapper, as they were."""
        for handle in (*self.handles, *self.handles_after):
            handle.remove()
        if self._unwatch:
            self._unwatch()

    def skips(self, asked: Sequence[torch.optim.Optimizer]) -> bool:
        """Note that a loss scaler has asked a member, or all of a wrapper, for a step; tell whether none was made."""
        if len(asked) > 1:
            self.end()
            last, self._last = self._last, None
            return last is None
        member = asked[0]
        if self._last is member:
            self._last = None
            return False
        self._skipped.add(id(member))
        if len(self._made | self._skipped) < len(self.members):
            return False
        none = not self._made
        self.end()
        self._skipped.clear()
        return none

    @unseen
    def end(self) -> None:
        """End a step that members have begun, if any, with the gradients as each of them used it."""
        if not self._made:
            return
        self.stepped = [member for member in self.members if id(member) in self._made]
        self._used |= self._made
        self._made.clear()
        self._skipped.clear()
        gradients, self._gradients = self._gradients, {}
        left = {parameter: parameter.grad for parameter in gradients}
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        for hook in [*self._after.values()]:
            hook(self, (), {})
        for parameter, had in left.items():
            parameter.grad = had
        if self.on_ended:
            self.on_ended(self)


def joined(optimizers: Any) -> Any:
    """Return several optimizers, in a list or the values of a dict, as one; one alone, as it is.

    So are those that a wrapper without hooks of its own holds, as one of Muon and of Adam for the rest.
    """
    if not isinstance(optimizers, list | tuple | Mapping):
        several = len(optimizers_inside(optimizers)) > 1
        return _joint(plain_optimizers(optimizers), optimizers) if several else optimizers
    given = optimizers.values() if isinstance(optimizers, Mapping) else optimizers
    members = [member for one in given for member in plain_optimizers(one)]
    if not members:
        kind = type(optimizers).__name__
        raise TypeError(f"the optimizer is a {kind} that holds none; give one, or a list of those that step together")
    if len({*map(id, members)}) < len(members):
        raise ValueError("one optimizer is given twice; give each of those that step together once")
    return _joint(members) if len(members) > 1 else members[0]


def _joint(members: Sequence[torch.optim.Optimizer], wrapper: Any = None) -> Joint:
    # Called what its members are: an optimizer for each parameter is no other kind than one for all.
    made: Joint = type(class_of(members), (Joint,), {})(members, wrapper)
    return made


def class_of(members: Sequence[torch.optim.Optimizer]) -> str:
    """Name the classes of optimizers that step together, each once."""
    return "+".join(dict.fromkeys(type(member).__name__ for member in members))


def members_in_use(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return what makes the steps of a recorded optimizer: those in use of several, else this rank's part of it."""
    return optimizer.in_use if isinstance(optimizer, Joint) else [own_part(optimizer)]


def _held(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def belongs(optimizer: Any, recorded: Any) -> bool:
    """Tell whether a loop's optimizer is the recorded one, or one of its members."""
    plain = unwrap_optimizer(optimizer)
    return plain is recorded or any(plain is member for member in getattr(recorded, "members", ()))


def _registered(hooks: OrderedDict[int, Callable[..., Any]], hook: Callable[..., Any]) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
