"""Hooks on modules that a script may save or copy whole."""

import inspect
import sys
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


class Hook:
    """A hook of a module: neither a pickle of that module nor a copy holds what it belongs to."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        """Call it, as PyTorch does; not while a graph is compiled, which it would break."""
        return None if torch.compiler.is_compiling() else self._call(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a function that returns None for any arguments, and is there where trainparity is not installed."""
        return partial, (sys.audit, "trainparity.hook")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Hook":
        """Return the hook itself: it tells the module that it was made for from its copies."""
        return self


class _TakenOut(NamedTuple):
    handle: RemovableHandle
    before: set[int]
    """Hooks of the same object that are called before it."""
    call: Callable[..., Any]
    options: list[tuple[dict[int, Any], Any]]
    """Where it is noted how it is called, as with keywords: a hook that gets its number must not be."""


def _has_compiled() -> bool:
    """Tell whether this process has made a graph of any function."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and utils.counters["stats"]["unique_graphs"] > 0


class Switched:
    """Hooks that are taken out between traced steps: a call of each costs as much as a small module's own."""

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []
        self._out: list[_TakenOut] = []

    def __len__(self) -> int:
        """Return how many there are, in or out."""
        return len(self._handles)

    def add(self, *handles: RemovableHandle) -> None:
        """Take hooks that have been registered."""
        self._handles += handles

    def off(self) -> None:
        """Take them out; not where something was compiled, which would be compiled again without them."""
        if self._out or _has_compiled():
            return
        for handle in self._handles:
            if (hooks := handle.hooks_dict_ref()) is not None and handle.id in hooks:
                before = set(takewhile(handle.id.__ne__, hooks))
                extra = [found for ref in handle.extra_dict_ref if (found := ref()) is not None and handle.id in found]
                options = [(found, found.pop(handle.id)) for found in extra]
                self._out.append(_TakenOut(handle, before, hooks.pop(handle.id), options))

    def on(self) -> None:
        """Put them back, each behind those that were before it; the others keep their order."""
        while self._out:
            handle, before, call, options = self._out.pop()
            if (hooks := handle.hooks_dict_ref()) is not None:
                order = list(hooks)
                place = max((at for at, other in enumerate(order, 1) if other in before), default=0)
                hooks[handle.id] = call
                for other in order[place:]:
                    hooks[other] = hooks.pop(other)
                for found, value in options:
                    found[handle.id] = value

    def remove(self) -> None:
        """Remove them for good."""
        self._out.clear()
        for handle in self._handles:
            handle.remove()


def is_inside_own_step(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether a step hook is called for `super().step()` of a step: torch calls hooks there again.

    It does where the parent class has instances of its own, as its `step` is wrapped then.
    """
    steps = [vars(of).get("step") for of in type(optimizer).__mro__]
    if sum(getattr(step, "hooked", False) for step in steps) < 2:  # as torch marks those that it has wrapped
        return False
    frame, wrappers = sys._getframe(1), 0
    while frame is not None and wrappers < 2:
        if frame.f_code.co_name == "wrapper" and frame.f_code.co_filename == _OPTIMIZER:
            wrappers += frame.f_locals.get("self") is optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return wrappers > 1


_OPTIMIZER = str(inspect.getsourcefile(torch.optim.Optimizer))


def come_last(handle: RemovableHandle) -> None:
    """Let a hook be called after the others of its object, of which some may have been registered later."""
    hooks = handle.hooks_dict_ref()
    if hooks and handle.id in hooks and next(reversed(hooks)) != handle.id:
        hooks[handle.id] = hooks.pop(handle.id)


class AroundCompiled:
    """Calls something around a module that `module.compile()` has compiled, where hooks would break its graph."""

    def __init__(self, module: nn.Module, around: Callable[..., Any]) -> None:
        """`around` gets the module, its compiled call and the arguments of each call."""
        compiled = module._compiled_call_impl
        self._module, self._compiled = module, compiled

        def call(*inputs: Any, **keywords: Any) -> Any:
            return around(module, compiled, inputs, keywords)

        self._ours = module._compiled_call_impl = call

    def remove(self) -> None:
        """Call the compiled module itself again."""
        if self._module._compiled_call_impl is self._ours:
            self._module._compiled_call_impl = self._compiled
