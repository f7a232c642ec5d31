"""The step of what holds optimizers and has no hooks of its own, seen by its class: the object itself stays as it is.

It may be frozen, hand on what is set to what it holds, or be copied and pickled, and the copy steps for itself.
"""

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
        What ends that; None where no step is a method of the wrapper's class, or the class can't be changed.
    """
    kind = type(wrapper)
    step = getattr_static(kind, "step", None)
    if not isinstance(step, FunctionType) or "step" in getattr(wrapper, "__dict__", ()):
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
