"""Calls of a model by the loop, and of the modules inside of it: each is told where it begins and where it ends."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from torch import nn

from trainparity.parity.recording import direct
from trainparity.parity.recording.apart import in_backward
from trainparity.parity.recording.hooks import AroundCompiled, Hook, Switched
from trainparity.parity.recording.kinds import is_fsdp


class Told(Protocol):
    """What is told of calls; of those inside of one that it looks at, and of others as well."""

    def begins(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Note that a module is called."""

    def ends(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
        """Note what it returns; None, or what it is to return in place of that."""


class Calls:
    """Hooks on a plain model, or around what stands in its place."""

    def __init__(
        self, model: nn.Module, modules: Sequence[nn.Module], told: Told, *, whole: nn.Module | None, inside: bool
    ) -> None:
        """Attach to all modules of a model (`inside`), or to `whole`, which is called in its place."""
        self._model, self._told, self._inside = model, told, inside
        self._own = {id(module) for module in modules}
        self._called: list[nn.Module] = []
        """Modules that are being called, from the outside in."""
        self._compiled: AroundCompiled | None = None
        self.hooks = Switched()
        self.on_pass: Callable[[], None] | None = None
        """Called where the loop begins a call, of which something is looked at in a traced step."""
        if inside:
            self._attach_to(modules)
            direct.watch(model, self._call_forward)
        elif whole is not None:
            self._own.add(id(whole))
            self._attach_to([whole])
        else:
            self._compiled = AroundCompiled(model, self._look_around)

    def _attach_to(self, modules: Sequence[nn.Module]) -> None:
        for module in modules:
            begins = Hook(self._begins)
            # Before FSDP2, which may cast what the loop gives.
            self.hooks.add(module.register_forward_pre_hook(begins, with_kwargs=True, prepend=is_fsdp(module)))
            self.hooks.add(module.register_forward_hook(Hook(self._ends), with_kwargs=True, always_call=True))

    def close(self) -> None:
        """Remove the hooks."""
        self.hooks.remove()
        if self._compiled:
            self._compiled.remove()
        direct.forget(self._model)

    def join(self) -> None:
        """Be told of the call of the model's `forward` that we are inside of, if there is one."""
        if self._inside and (frame := direct.in_progress(self._model)) is not None:
            inputs = direct.arguments(frame)
            self._begins(self._model, inputs, {})
            direct.on_return(frame, lambda output: self._ends(self._model, inputs, {}, output))

    def _call_forward(
        self, module: nn.Module, forward: Callable[..., Any], inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Call the model's `forward`, as hooks see it where the loop calls it past them."""
        if self._called and self._called[-1] is module:
            return forward(module, *inputs, **keywords)
        return self._look_around(module, partial(forward, module), inputs, keywords)

    def _look_around(
        self, module: nn.Module, call: Callable[..., Any], inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Call a model, as one that was compiled in place, and look at it from outside as hooks do."""
        self._begins(module, inputs, keywords)
        output = None
        try:
            output = call(*inputs, **keywords)
        finally:
            changed = self._ends(module, inputs, keywords, output)
        return output if changed is None else changed

    def _is_own(self, module: nn.Module) -> bool:
        """Tell a module from its copies, as of a target network, which have its hooks."""
        return id(module) in self._own

    def _begins(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not self._is_own(module):
            return
        if self.on_pass and not self._called and not in_backward():
            self.on_pass()
        self._called.append(module)
        self._told.begins(module, inputs, keywords)

    def _ends(self, module: nn.Module, inputs: Any, keywords: Any, output: Any) -> Any:
        if not self._is_own(module):
            return None
        if self._called:
            self._called.pop()
        return self._told.ends(module, inputs, keywords, output)
