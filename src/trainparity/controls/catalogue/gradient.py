"""Faults between backward and the update: accumulation, clipping, the loss scale."""

from typing import Any

import torch
from torch import Tensor, nn

from trainparity.controls.catalogue.right import Accumulated, AccumulatedByFour, FsdpAccumulated, Scaled, Unclipped
from trainparity.controls.loop import LIMIT, Fsdp, Loop


class NeverZeroed(Loop):
    """zero_grad forgotten."""

    def zero_grad(self, step: int) -> None:
        """Forget it."""


class ZeroedTooEarly(Accumulated):
    """zero_grad before every micro-batch."""

    def after_backward(self, number: int, count: int) -> None:
        if number < count - 1:
            self.optimizer.zero_grad()


class ShardsZeroedTooEarly(FsdpAccumulated):
    """The same where FSDP2 reduces each micro-batch: no micro-batch's own gradient is seen there."""

    after_backward = ZeroedTooEarly.after_backward


class ClippedEachMicroBatch(Accumulated):
    """Clipping inside the accumulation loop."""

    def after_backward(self, number: int, count: int) -> None:
        self.clip()

    def reduce(self) -> None:
        self.clip_norm = None

    def zero_grad(self, step: int) -> None:
        super().zero_grad(step)
        self.clip_norm = LIMIT


class NotClipped(Loop):
    """Clipping forgotten."""

    clip_norm = None


class OtherLimit(Loop):
    """Clipping at another norm."""

    clip_norm = LIMIT / 2


class ClippedByHand(Unclipped):
    """Clipping without PyTorch's function."""

    def reduce(self) -> None:
        gradients = [p.grad for p in self.plain.parameters() if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in gradients]))
        for gradient in gradients:
            gradient.mul_(LIMIT / norm)


class CutByHand(Unclipped):
    """Each number of the gradient cut at a limit, without PyTorch's function."""

    def reduce(self) -> None:
        for parameter in self.plain.parameters():
            assert parameter.grad is not None
            parameter.grad.clamp_(-LIMIT / 50, LIMIT / 50)


class ThinnedAfterClipping(Loop):
    """The smaller half of each gradient's numbers dropped after clipping."""

    def clip(self) -> None:
        super().clip()
        for parameter in self.plain.parameters():
            assert parameter.grad is not None
            size = parameter.grad.abs()
            parameter.grad[size < size.median()] = 0


class LocalNorms(Fsdp):
    """Each rank clips its shards by their own norm."""

    def clip(self) -> None:
        local = [parameter.grad.to_local() for parameter in self.plain.parameters() if parameter.grad is not None]  # type: ignore[attr-defined]
        norm = torch.linalg.vector_norm(torch.stack([part.norm() for part in local]))
        for part in local:
            part.mul_((LIMIT / (norm + 1e-6)).clamp(max=1.0))


class ClippedWhileScaled(Scaled):
    """Clipping before unscale_."""

    def clip(self) -> None:
        nn.utils.clip_grad_norm_(self.plain.parameters(), LIMIT)


class NotUnscaled(Scaled):
    """optimizer.step() instead of scaler.step(optimizer)."""

    def clip(self) -> None:
        """Leave the scale in."""

    def update(self) -> None:
        self.optimizer.step()


class BackwardSkipped(AccumulatedByFour):
    """backward() of the first micro-batch left out."""

    def zero_grad(self, step: int) -> None:
        super().zero_grad(step)
        self.first = True

    def backward(self, loss: Tensor) -> None:
        if not self.first:
            super().backward(loss)
        self.first = False


class Halved(torch.autograd.Function):
    """Returns what it is given, and half of the gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient / 2


class HalvedOnItsWay(Accumulated):
    """A custom autograd function with a wrong backward, after the first layer."""

    def build(self) -> nn.Module:
        model = super().build()
        first = next(m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d))
        first.register_forward_hook(lambda module, inputs, output: Halved.apply(output))
        return model
