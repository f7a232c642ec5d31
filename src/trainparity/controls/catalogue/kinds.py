"""Loops of other kinds, right and wrong: a GAN, an optimizer with a closure, a tensor-parallel model."""

from pathlib import Path

import torch
from torch import Tensor, nn

from trainparity.controls.catalogue.right import Unclipped
from trainparity.controls.loop import STEPS, Loop
from trainparity.parity.record import record

_NOISE = 4
"""Numbers that the generator makes an image of."""


class Gan(Loop):
    """A GAN: two models with an optimizer each; the discriminator's output is the mean of the model's."""

    faster = 1.0

    def __init__(self, model: str, seed: int) -> None:
        super().__init__(model, seed)
        self.generator = nn.Sequential(nn.Linear(_NOISE, 32), nn.Tanh(), nn.Linear(32, 64), nn.Unflatten(1, (1, 8, 8)))
        self.its_optimizer = torch.optim.Adam(self.generator.parameters(), lr=1e-3 * self.faster)

    def run(self, folder: Path, twin: int = 0) -> None:
        with record(self.generator, self.its_optimizer, folder, first=STEPS, twin=twin, name="generator"):
            super().run(folder, twin)

    def step(self, step: int) -> None:
        batch = self.global_batch(step)
        noise = torch.randn(len(self.images), _NOISE, generator=torch.Generator().manual_seed(step))
        self.zero_grad(step)
        for part in batch.chunk(self.accumulation_steps):
            real, made = self.score(self.images[part]), self.score(self.generator(noise[part]).detach())
            losses = nn.functional.softplus(-real) + nn.functional.softplus(made)
            (losses.sum() / len(batch)).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.its_optimizer.zero_grad()
        for part in batch.chunk(self.accumulation_steps):
            loss = nn.functional.softplus(-self.score(self.generator(noise[part]))).sum() / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
        self.its_optimizer.step()

    def score(self, images: Tensor) -> Tensor:
        """Return what the discriminator gives each image: [B]."""
        scores: Tensor = self.model(images).mean(1)
        return scores


class GanAccumulated(Gan):
    """A GAN with two micro-batches."""

    accumulation_steps = 2


class FasterGenerator(Gan):
    """A GAN whose generator has twice the learning rate."""

    faster = 2.0


class DiscriminatorNotZeroed(Gan):
    """A GAN whose discriminator keeps the gradients that the generator's loss has left in it."""

    def zero_grad(self, step: int) -> None:
        """Forget it."""


class InClosure(Unclipped):
    """L-BFGS, which evaluates the loss twice a step in a closure."""

    rate = 0.1

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(self.plain.parameters(), lr=self.rate, max_iter=2)

    def step(self, step: int) -> None:
        batch = self.global_batch(step)

        def closure() -> Tensor:
            self.zero_grad(step)
            losses = [self.loss(part, len(batch), 1) for part in self.micro_batches(batch)]
            for loss in losses:
                self.backward(loss)
            return torch.stack(losses).sum().detach()

        self.optimizer.step(closure)  # type: ignore[arg-type]


class AccumulatedInClosure(InClosure):
    """L-BFGS with two micro-batches in its closure."""

    accumulation_steps = 2


class ClosureNotZeroed(InClosure):
    """A closure that forgets zero_grad."""

    def zero_grad(self, step: int) -> None:
        """Forget it."""


class FasterInClosure(InClosure):
    """L-BFGS with twice the learning rate."""

    rate = 0.2


class TensorParallel(Loop):
    """Tensor parallel over all ranks, which see the same samples."""

    def wrap(self, model: nn.Module) -> nn.Module:
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        plan = {"1": ColwiseParallel(), "3": RowwiseParallel(), "5": ColwiseParallel(output_layouts=Replicate())}
        return parallelize_module(model, mesh, plan)

    def shard(self, batch: Tensor) -> Tensor:
        return batch

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        return self.losses(part).sum() / global_count


class TensorParallelAccumulated(TensorParallel):
    """Tensor parallel with two micro-batches."""

    accumulation_steps = 2


class ShardedOverTensorParallel(TensorParallel):
    """Samples shared out to ranks that train one replica together."""

    shard = Loop.shard
