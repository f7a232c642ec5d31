"""Faults of the optimizer and its schedule."""

import torch

from trainparity.controls.catalogue.right import Accumulated
from trainparity.controls.loop import Ddp, Loop


class LinearlyScaledRate(Loop):
    """The learning rate scaled by the number of ranks though the global batch is the same."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["lr"] *= 2
        return optimizer


class SteppedPerMicroBatch(Accumulated):
    """scheduler.step() in the accumulation loop."""

    def after_backward(self, number: int, count: int) -> None:
        if number < count - 1:
            self.scheduler.step()


class SteppedPerRank(Ddp):
    """The schedule stepped once for each rank, as Accelerate's wrapper does unless told otherwise."""

    def update(self) -> None:
        super().update()
        self.scheduler.step()


class OtherWeightDecay(Loop):
    """Another weight decay."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0
        return optimizer


class StateLost(Loop):
    """A resume that restored weights and not the optimizer."""

    def zero_grad(self, step: int) -> None:
        super().zero_grad(step)
        if step == 3:
            self.optimizer.state.clear()


class OtherOptimizer(Loop):
    """Adam where AdamW was meant, NAG where momentum was."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        if self.seed % 2:
            return torch.optim.Adam(self.plain.parameters(), lr=1e-3, weight_decay=0.01)
        return torch.optim.SGD(self.plain.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)


class DecayedByAHook(Loop):
    """A hook on the optimizer's step that shrinks the weights, besides the optimizer's own weight decay."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()

        @torch.no_grad()
        def shrink(*_: object) -> None:
            for parameter in self.plain.parameters():
                parameter.mul_(1 - 1e-3)

        optimizer.register_step_post_hook(shrink)
        return optimizer
