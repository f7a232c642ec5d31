"""Faults of single parameters: loaded, tied, frozen, held by the optimizer."""

import torch
from torch import nn

from trainparity.controls.loop import Fsdp, Loop
from trainparity.controls.models import MODELS, Transformer


class OtherSeed(Loop):
    """Initial weights from another seed."""

    def build(self) -> nn.Module:
        torch.manual_seed(self.seed + 1)
        return MODELS[self.name]()


class HeadNotLoaded(Loop):
    """A checkpoint whose last layer was not loaded: strict=False."""

    def build(self) -> nn.Module:
        model = super().build()
        with torch.no_grad():
            list(model.parameters())[-1].add_(torch.randn(10) if self.name != "transformer" else torch.randn(10, 16))
        return model


class NotTied(Loop):
    """A readout that shared its weights no more after loading."""

    def build(self) -> nn.Module:
        model = super().build()
        assert isinstance(model, Transformer)
        model.readout.weight = nn.Parameter(model.classes.weight.detach().clone())
        return model


class Frozen(Loop):
    """requires_grad left off on one layer."""

    def build(self) -> nn.Module:
        model = super().build()
        next(model.parameters()).requires_grad_(False)
        return model


class Detached(Loop):
    """A parameter whose gradient is dropped."""

    def reduce(self) -> None:
        next(self.plain.parameters()).grad = None


class HeadNotInOptimizer(Loop):
    """A layer added after the optimizer was made."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        optimizer.param_groups[0]["params"].pop()
        return optimizer


class StaleOptimizer(Fsdp):
    """The optimizer made before fully_shard, over parameters that are no more."""

    def wrap(self, model: nn.Module) -> nn.Module:
        self.stale = super().make_optimizer()
        return super().wrap(model)

    def make_optimizer(self) -> torch.optim.Optimizer:
        return self.stale
