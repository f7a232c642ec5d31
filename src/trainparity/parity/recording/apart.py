"""Keeps what the Recorder computes apart from the loop's own: its modes don't see it, and graphs don't hold it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack, is_legacy_batchedtensor
from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import _disable_current_modes

P = ParamSpec("P")
R = TypeVar("R")


def in_backward() -> bool:
    """Tell whether a backward pass is under way on this thread."""
    return torch._C._current_graph_task_id() != -1


def is_captured(parameter: Tensor) -> bool:
    """Tell, where a parameter's gradient has just come, whether `torch.autograd.grad` asked for it: none is added."""
    node = torch.autograd.graph.get_gradient_edge(parameter).node
    try:
        torch._C._will_engine_execute_node(node)
    except RuntimeError:  # so it says of a leaf that `torch.autograd.grad` was given
        return True
    return False


def has_numbers(gradient: Tensor | None = None) -> bool:
    """Tell whether tensors that pass now hold a training's numbers; this gradient, where one is handed over.

    Not while a graph is compiled, traced or exported: what a hook does would break it, or be built into it. Not inside
    of `vmap`, where a tensor is one row of itself, nor of `jvp`.
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return False
    if torch._C._len_torch_dispatch_stack() and any(map(torch._C._get_dispatch_mode, _TRACING)):
        return False
    if gradient is not None and is_legacy_batchedtensor(gradient):  # as of `torch.autograd.grad(is_grads_batched=True)`
        return False
    levels = get_interpreter_stack()
    return not levels or all(level.key() == TransformType.Grad for level in levels)


def unseen(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate what the Recorder computes, so that none of the loop's modes changes or counts it.

    Such are `torch.set_default_device`, `FlopCounterMode`, what a selective checkpoint keeps of each operation. Nor is
    it compiled where the loop compiles what calls it, as `optimizer.step`.
    """

    @_disable_dynamo  # the public `torch.compiler.disable` imports Dynamo at once, this one when it is called
    @wraps(call)
    def apart(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _without_modes():
                return call(*args, **kwargs)
        except Exception as error:
            if _WHILE not in getattr(error, "__notes__", ()):
                error.add_note(_WHILE)
            raise

    return apart


def _without_modes() -> AbstractContextManager[object]:
    """Leave the modes that are switched on, of functions and of operations."""
    functions, operations = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    if not functions and not operations:
        return _NOTHING
    stack = ExitStack()
    if functions:
        stack.enter_context(torch._C.DisableTorchFunction())
    if operations:
        stack.enter_context(_disable_current_modes())
    return stack


_NOTHING = nullcontext()

_WHILE = "(raised while trainparity recorded this training)"
"""What an error says besides its own message, so that nobody looks for it in the training."""

_TRACING = tuple(getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL"))
"""Modes of PyTorch's own that make a graph, or compute shapes alone."""
