"""`torch.jit.script` of a model that is recorded: it would compile our hooks, and what stands for `forward`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch import nn

from trainparity.parity.recording import direct
from trainparity.parity.recording.hooks import Hook


def unseen(script: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that makes a script of a module, which finds nothing of ours on the module or its parts."""

    @wraps(script)
    def without_ours(module: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        with _taken_off(module), direct.as_written():
            return script(module, *arguments, **keywords)

    return without_ours


@contextmanager
def _taken_off(model: nn.Module) -> Iterator[None]:
    """Take our hooks off, and put them back in their places."""
    kinds = (kind for part in model.modules() for kind in (part._forward_hooks, part._forward_pre_hooks))
    taken = [(hooks, dict(hooks)) for hooks in kinds if any(isinstance(hook, Hook) for hook in hooks.values())]
    for hooks, every in taken:
        for number in [number for number, hook in every.items() if isinstance(hook, Hook)]:
            del hooks[number]
    try:
        yield
    finally:
        for hooks, every in taken:
            hooks.clear()
            hooks.update(every)
