"""The step of what holds optimizers and has no hooks of its own, seen by its class: the object itself stays as it is.

It may be frozen, hand on what is set to what it holds, or be copied and pickled, and the copy steps for itself. Only a
step that is set on the object itself is watched there.
"""

import copy
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from inspect import getattr_static
from types import FunctionType
from typing import Any, cast

_Around = Callable[[], AbstractContextManager[object]]


def watch_step(wrapper: Any, around: _Around) -> Callable[[], None] | None:
    """Have every step of a wrapper, which the caller holds, made in a context.

    Returns:
        What ends that; None where neither the wrapper nor its class has a step that can be changed.
    """
    if "step" in getattr(wrapper, "__dict__", ()):
        return _watch_own(wrapper, around)
    kind = type(wrapper)
    step = getattr_static(kind, "step", None)
    if not isinstance(step, FunctionType):
        return None
    if kind not in _WATCHED:
        try:
            _WATCHED[kind] = _Watched(kind, step)
        except (AttributeError, TypeError):  # as of a class that is built in
            return None
    _WATCHED[kind].around[id(wrapper)] = around

    def end() -> None:
        if watched := _WATCHED.get(kind):
            watched.around.pop(id(wrapper), None)
            if not watched.around:
                del _WATCHED[kind]
                watched.leave()

    return end


def _watch_own(wrapper: Any, around: _Around) -> Callable[[], None]:
    """Watch a step that is set on the object itself, as by a scheduler, a timer or `functools.partial`."""
    own: dict[str, Any] = wrapper.__dict__
    step = own["step"]
    own["step"] = ours = _Told(step, around)

    def end() -> None:
        if own.get("step") is ours:
            own["step"] = step

    return end


class _Told:
    """A step in a context: but for that it is what it was, and so are its copies."""

    def __init__(self, step: Any, around: _Around) -> None:
        self._step, self._around = step, around

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Make the step."""
        with self._around():
            return self._step(*inputs, **keywords)

    def __getattr__(self, name: str) -> Any:
        """Look it up in the step, as a scheduler does that wraps it."""
        return getattr(self._step, name)

    def __copy__(self) -> Any:
        """Return the step."""
        return self._step

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy of the step."""
        return copy.deepcopy(self._step, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        """Have the step pickled: what reads it needs no trainparity."""
        return operator.itemgetter(0), ((self._step,),)


class _Watched:
    """A class of wrappers, with a step that knows which of them are watched."""

    def __init__(self, kind: type, step: Callable[..., Any]) -> None:
        self.around = around = dict[int, _Around]()
        """In what the steps of wrappers are made, by their identities."""
        self._kind = cast(Any, kind)
        self._own = vars(kind).get("step")  # none where it is inherited

        @wraps(step)
        def call(self: Any, *inputs: Any, **keywords: Any) -> Any:
            with around.get(id(self), nullcontext)():
                return step(self, *inputs, **keywords)

        self._kind.step = self._ours = call

    def leave(self) -> None:
        """Put the class's own step back, unless something else has replaced ours since, which does nothing more."""
        if vars(self._kind).get("step") is not self._ours:
            return
        if self._own is None:
            del self._kind.step
        else:
            self._kind.step = self._own


_WATCHED: dict[type, _Watched] = {}
