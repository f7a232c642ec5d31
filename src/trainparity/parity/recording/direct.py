"""Calls of a model's `forward` past its hooks: `model.forward(x)` in place of `model(x)`."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any

import torch
from torch import nn

Around = Callable[[nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Called in place of a model's `forward`, with that and its arguments."""

_watched: dict[type[nn.Module], dict[int, Around]] = {}
"""By class and the identity of a model. The class's function is replaced: copies and replicas of a model share its
attributes, and an attribute would bind them to the model itself."""

_replaced: dict[type[nn.Module], tuple[Any, Callable[..., Any]]] = {}
"""A class's own `forward` as it was written, or None of one that inherits it, and what stands in its place."""


def watch(model: nn.Module, around: Around) -> None:
    """Call `around` in place of a model's `forward`; PyTorch's own classes are left as they are."""
    kind = type(model)
    if kind.__module__.startswith("torch."):
        return
    if kind not in _watched:
        _watched[kind] = {}
        _replace(kind)
    _watched[kind][id(model)] = around


def forget(model: nn.Module) -> None:
    """Call `forward` itself again."""
    kind = next((kind for kind, models in _watched.items() if id(model) in models), None)
    if kind is None:
        return
    del _watched[kind][id(model)]
    if not _watched[kind]:
        del _watched[kind]
        own, ours = _replaced.pop(kind)
        if kind.forward is ours:  # else the loop has put another in its place
            _put_back(kind, own)


def _replace(kind: type[nn.Module]) -> None:
    own, found = vars(kind).get("forward"), kind.forward

    def inherited(self: nn.Module, *inputs: Any, **keywords: Any) -> Any:
        return super(kind, self).forward(*inputs, **keywords)  # type: ignore[misc]

    @wraps(found)
    def forward(self: nn.Module, *inputs: Any, **keywords: Any) -> Any:
        # What is inherited is looked up anew: the loop may put another in its base's place.
        original = found if own is not None or not isinstance(self, kind) else inherited
        compiling = torch.compiler.is_compiling()
        around = None if compiling else _watched.get(kind, {}).get(id(self))
        if around is None:
            return original(self, *inputs, **keywords)
        return around(self, original, inputs, keywords)

    kind.forward = forward
    _replaced[kind] = own, forward


def _put_back(kind: type[nn.Module], own: Any) -> None:
    if own is not None:
        kind.forward = own
    else:
        del kind.forward


@contextmanager
def as_written() -> Iterator[None]:
    """Have classes their own `forward`, as who reads its source and names wants it."""
    held = {kind: both for kind, both in _replaced.items() if kind.forward is both[1]}
    for kind, (own, _) in held.items():
        _put_back(kind, own)
    try:
        yield
    finally:
        for kind, (_, ours) in held.items():
            kind.forward = ours


def in_progress(model: nn.Module) -> FrameType | None:
    """Return the frame of a call of the model's `forward` that we are inside of; None outside."""
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (frame.f_code is code and frame.f_locals.get(code.co_varnames[0]) is model):
        frame = frame.f_back
    return frame


def arguments(frame: FrameType) -> tuple[Any, ...]:
    """Return the positional arguments of a method's call, without its object."""
    code = frame.f_code
    return tuple(frame.f_locals.get(name) for name in code.co_varnames[1 : code.co_argcount])


def on_return(frame: FrameType, then: Callable[[Any], object]) -> None:
    """Call `then` with what a frame that is running returns."""
    before = sys.getprofile()

    def profile(current: FrameType, event: str, result: Any) -> None:
        if current is frame and event == "return":
            sys.setprofile(before)
            then(result)

    sys.setprofile(profile)
