"""A plain training loop as people write it, with the Recorder in it; the controls override one method each."""

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainparity.controls.models import MODELS, digits
from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder
from trainparity.parity.recording import ranks

GLOBAL_BATCH = 16
STEPS = 6
LIMIT = 0.05
"""Norm that gradients are clipped to: so low that every step is clipped."""


class Loop:
    """One process, the full global batch: the reference. Right strategies and faults are subclasses."""

    accumulation_steps = 1
    coarse = False
    """Whether it is trained in bf16 or fp16."""
    clip_norm: float | None = LIMIT

    def __init__(self, model: str, seed: int) -> None:
        self.name, self.seed = model, seed
        self.images, self.labels = digits()
        self.plain = self.build()
        self.model = self.wrap(self.plain)
        self.optimizer = self.make_optimizer()
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)

    def run(self, folder: Path, twin: int = 0) -> None:
        """Train and record into a folder."""
        with self.record(folder, twin):
            for step in range(STEPS):
                self.seed_step(step)
                self.step(step)

    def record(self, folder: Path, twin: int) -> Recorder:
        """Return the recorder, which knows a sample by its contents."""
        return record(self.model, self.optimizer, folder, first=STEPS, twin=twin)

    def build(self) -> nn.Module:
        """Build the model with initial weights from the seed."""
        torch.manual_seed(self.seed)
        return MODELS[self.name]()

    def wrap(self, model: nn.Module) -> nn.Module:
        """Distribute the model."""
        return model

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Alternate between the two families of optimizers over the seeds."""
        if self.seed % 2:
            return torch.optim.AdamW(self.plain.parameters(), lr=1e-3, weight_decay=0.01)
        return torch.optim.SGD(self.plain.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)

    def seed_step(self, step: int) -> None:
        """Seed what the model draws, apart on every rank."""
        torch.manual_seed(1000 * self.seed + 10 * step + ranks.rank())

    def global_batch(self, step: int) -> Tensor:
        """Return the samples of a step, all ranks' together."""
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(self.images), generator=generator)
        return order[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH]

    def shard(self, batch: Tensor) -> Tensor:
        """Return this rank's samples."""
        return batch[ranks.rank() :: ranks.world_size()]

    def micro_batches(self, shard: Tensor) -> Sequence[Tensor]:
        """Cut a rank's samples."""
        return shard.chunk(self.accumulation_steps)

    def step(self, step: int) -> None:
        """Make one optimizer step."""
        batch = self.global_batch(step)
        parts = self.micro_batches(self.shard(batch))
        self.zero_grad(step)
        for number, part in enumerate(parts):
            with self.synchronising(number, len(parts)):
                self.backward(self.loss(part, len(batch), len(parts)))
            self.after_backward(number, len(parts))
        self.reduce()
        self.clip()
        self.update()
        self.scheduler.step()

    def zero_grad(self, step: int) -> None:
        """Drop the last step's gradients."""
        self.optimizer.zero_grad()

    def synchronising(self, number: int, count: int) -> AbstractContextManager[object]:
        """Hold the reduction back in all micro-batches but the last."""
        return contextlib.nullcontext()

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        """Return a micro-batch's share of the mean loss; ranks average gradients, hence their number."""
        return self.losses(part).sum() / global_count * ranks.world_size()

    def losses(self, part: Tensor) -> Tensor:
        """Return each sample's loss."""
        return nn.functional.cross_entropy(self.logits(part), self.labels[part], reduction="none")

    def logits(self, part: Tensor) -> Tensor:
        """Return what the model makes of samples."""
        found: Tensor = self.model(self.inputs(part))
        return found

    def inputs(self, part: Tensor) -> Tensor:
        """Return what the model is given."""
        return self.images[part]

    def backward(self, loss: Tensor) -> None:
        """Add a micro-batch's gradient."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def after_backward(self, number: int, count: int) -> None:
        """Do nothing between micro-batches."""

    def reduce(self) -> None:
        """Average over ranks; DDP and FSDP have done it by now."""

    def clip(self) -> None:
        """Clip the whole gradient."""
        if self.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.plain.parameters(), self.clip_norm)

    def update(self) -> None:
        """Update the weights."""
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Ddp(Loop):
    """A process per rank."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Average gradients in backward."""
        return nn.parallel.DistributedDataParallel(model)

    def synchronising(self, number: int, count: int) -> AbstractContextManager[object]:
        """Reduce in the last micro-batch's backward."""
        assert isinstance(self.model, nn.parallel.DistributedDataParallel)
        return contextlib.nullcontext() if number == count - 1 else self.model.no_sync()


class Fsdp(Loop):
    """Sharded parameters."""

    computed_in: torch.dtype | None = None
    """The format of FSDP2's mixed precision; None: that of the weights."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Shard over all ranks."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=self.computed_in, reduce_dtype=torch.float32)
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=policy)
        return model
