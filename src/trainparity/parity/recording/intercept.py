"""Sees calls that PyTorch has no hooks for: backward, clipping, the loss scaler's, and those of a rank without data."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _DDPJoinHook
from torch.nn.utils import clip_grad

from trainparity.parity.recording import scripting


class Listener:
    """What is told of the calls, before they take effect; it overrides what it wants to know."""

    def backward(self, roots: Sequence[Tensor], *, given: bool) -> None:
        """A backward pass begins, from these tensors; `given`: with gradients of them that the loop hands over."""

    def clipping(self, clipped: Sequence[Tensor], max_norm: float, total_norm: Tensor) -> None:
        """The gradients of these tensors are about to be scaled down to a norm."""

    def clipped(self, clipped: Sequence[Tensor]) -> None:
        """The gradients of these tensors were scaled down, or needed not be."""

    def scaling(self, scaler: torch.amp.GradScaler) -> None:
        """The loss is multiplied by the loss scale."""

    def unscaling(self, optimizer: torch.optim.Optimizer) -> None:
        """Gradients are about to be divided by the loss scale."""

    def scaler_stepping(self, optimizer: torch.optim.Optimizer) -> None:
        """The scaler is about to make a step: it takes the scale away, or lets a fused optimizer do so."""

    def scaler_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """The scaler has made a step, or has skipped it for an overflow."""

    def exhausted(self, model: DistributedDataParallel) -> None:
        """This rank has no more data in a `join()`: it is about to answer the collectives of another one's step."""


_listeners: list[Listener] = []
_originals: list[tuple[Any, str, Any]] = []


def listen(listener: Listener) -> None:
    """Tell `listener` of the calls from now on.

    The functions are replaced while anyone listens, in the modules that define them, because PyTorch has no
    hooks there. `clip_grad_norm_` is caught however it was imported: it looks its second half up by name.
    """
    if not _listeners:
        _replace(clip_grad, "_clip_grads_with_norm_", _clip_norm)
        _replace(torch.nn.utils, "clip_grads_with_norm_", _clip_norm)  # the same, under its public name
        for module in (clip_grad, torch.nn.utils):
            _replace(module, "clip_grad_value_", _clip_value)
        _replace(torch.autograd, "backward", _backward)
        _replace(torch.amp.GradScaler, "scale", _scale)
        _replace(torch.amp.GradScaler, "unscale_", _unscale)
        _replace(torch.amp.GradScaler, "step", _step)
        _replace(_DDPJoinHook, "main_hook", _answer)
        _replace(torch.jit._recursive, "create_script_module", scripting.unseen)
    _listeners.append(listener)


def forget(listener: Listener) -> None:
    """Tell `listener` no more; the last one restores PyTorch's own functions."""
    _listeners.remove(listener)
    if not _listeners:
        while _originals:
            owner, name, original = _originals.pop()
            setattr(owner, name, original)


def _replace(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    _originals.append((owner, name, original))
    setattr(owner, name, wrap(original))


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Tensor | Sequence[Tensor], grad_tensors: Any = None, *rest: Any, **keywords: Any) -> Any:
        roots = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        for listener in _listeners:
            seen = [root for root in roots if isinstance(root, Tensor)]
            listener.backward(seen, given=grad_tensors is not None)
        return original(roots, grad_tensors, *rest, **keywords)

    return backward


def _clip_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(
        parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, *rest: Any, **keywords: Any
    ) -> Any:
        clipped = _listed(parameters)
        for listener in _listeners:
            listener.clipping(clipped, float(max_norm), total_norm)
        result = original(clipped, max_norm, total_norm, *rest, **keywords)
        for listener in _listeners:
            listener.clipped(clipped)
        return result

    return clip


def _clip_value(original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(parameters: Tensor | Iterable[Tensor], clip_value: float, *rest: Any, **keywords: Any) -> Any:
        clipped = _listed(parameters)
        for listener in _listeners:
            listener.clipping(clipped, float(clip_value), torch.tensor(torch.nan))
        result = original(clipped, clip_value, *rest, **keywords)
        for listener in _listeners:
            listener.clipped(clipped)
        return result

    return clip


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """Return what is clipped as a list: a generator can be read once."""
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: torch.amp.GradScaler, outputs: Any) -> Any:
        result = original(self, outputs)
        if self.is_enabled():
            for listener in _listeners:
                listener.scaling(self)
        return result

    return scale


def _unscale(original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> Any:
        if self.is_enabled():
            for listener in _listeners:
                listener.unscaling(optimizer)
        return original(self, optimizer)

    return unscale


def _step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, *rest: Any, **keywords: Any) -> Any:
        for listener in _listeners:
            listener.scaler_stepping(optimizer)
        result = original(self, optimizer, *rest, **keywords)
        for listener in _listeners:
            listener.scaler_stepped(optimizer)
        return result

    return step


def _answer(original: Callable[..., Any]) -> Callable[..., Any]:
    def answer(self: _DDPJoinHook) -> None:
        for listener in [*_listeners]:  # those that are told may listen no more
            listener.exhausted(self.ddp)
        original(self)

    return answer
