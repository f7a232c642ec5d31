"""Sees the first training forward pass, just before it runs: of a module that is called, or whose `forward` is."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # while this module is imported, torch is being imported too
    from torch import nn
    from torch.optim import Optimizer

_MOST = 8
"""Optimizers whose modules' `forward` is watched: to find these takes a look at all objects."""


class FirstPass:
    """From `begin` until `end` it tells of each module that is about to pass something forward."""

    def __init__(self, then: "Callable[[nn.Module], None]") -> None:
        self._then = then
        self._undo: list[Callable[[], None]] = []
        self._seen = 0

    def begin(self) -> None:
        """See the calls of all modules.

        A hook for all modules is no way: one that is added inside a module's call misses that call, and it sees no
        keyword arguments.
        """
        import torch
        from torch._dynamo.eval_frame import skip_code
        from torch.nn import Module

        original = Module.__call__

        def call(module: Any, *arguments: Any, **keywords: Any) -> Any:
            self._pass(module)
            return original(module, *arguments, **keywords)

        def unwatch() -> None:
            Module.__call__ = original  # type: ignore[method-assign]

        # torch.compile binds what stands here: this frame is not to be compiled, those that it calls are.
        skip_code(call.__code__)
        Module.__call__ = call  # type: ignore[method-assign]
        self._undo.append(unwatch)
        self._compiling, self._with_gradients = torch.compiler.is_compiling, torch.is_grad_enabled
        self._transforming = torch._C._functorch.peek_interpreter_stack

    def see_modules_of(self, optimizer: "Optimizer") -> None:
        """See calls of `forward` past `Module.__call__`, of the modules that own what an optimizer updates."""
        from trainparity.attach.owners import owners_of
        from trainparity.parity.recording import direct

        self._seen += 1
        if self._seen > _MOST:
            return
        for module in owners_of(optimizer):
            direct.watch(module, self._around)
            self._undo.append(partial(direct.forget, module))

    def end(self) -> None:
        """See nothing any more."""
        undo, self._undo = self._undo, []
        for one in undo:
            one()

    def _pass(self, module: Any) -> None:
        if self._compiling() or not self._undo or not self._with_gradients():
            return
        if self._transforming() is None:  # inside of `vmap` or `grad` no hook can be added
            self._then(module)

    def _around(
        self, module: "nn.Module", forward: Callable[..., Any], inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        self._pass(module)
        if self._undo:
            return forward(module, *inputs, **keywords)
        return type(module).forward(module, *inputs, **keywords)  # by now it may be recorded
