"""The one training loop: every strategy, precision and number of micro-batches goes through it."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from trainparity import strategies
from trainparity.data.loader import micro_batches
from trainparity.data.prepared import Prepared
from trainparity.data.workers import WorkersFailed
from trainparity.params import Configuration, Loader, Optimizer, Precision, Train
from trainparity.strategies import Execution, Strategy
from trainparity.training.activation_budget import ActivationBudget
from trainparity.training.activation_checkpointing import recompute_in_backward
from trainparity.training.clipping import clip_gradients
from trainparity.training.memory_format import channels_last
from trainparity.training.micro_batches import MicroBatch, MicroBatchPlan
from trainparity.training.precision import autocast, grad_scaler, to_float64, without_dropout
from trainparity.training.randomness import seed_step
from trainparity.training.sampler import Sampler
from trainparity.validation import ParamsError
from trainparity.workloads import Batch, SampleRandomness, Workload
from trainparity.workloads.checked import Checked, WorkloadError

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}
_FUSED = ("sgd", "adam", "adamw")


class Trainer:
    """A workload under a configuration, as one rank executes it."""

    def __init__(
        self,
        workload: Workload,
        dataset: Prepared,
        train: Train,
        configuration: Configuration,
        execution: Execution,
        *,
        order: int = 0,
    ) -> None:
        """Make the model and its optimizer; `order` other than 0 visits each global batch in another order."""
        self.workload, self.dataset, self.train = Checked(workload), dataset, train
        self.configuration, self.execution = configuration, execution
        self.precision: Precision = configuration.precision
        if misfit := train.misfit(len(dataset)):  # here of what is laid over the settings, as for a curve
            raise ParamsError("train.{}: {}".format(*misfit))
        self.loader_failures: list[str] = []
        """Why worker processes failed; after that this process slices the batches."""
        self.sampler = Sampler(
            num_samples=len(dataset) - train.holdout,
            global_batch_size=train.global_batch_size,
            seed=train.seed,
            shuffle=train.shuffle,
            order=order,
        )
        self.strategy: Strategy = strategies.load(configuration.strategy)(execution)
        # Initial weights come from the seed on the CPU, whatever device they move to.
        torch.manual_seed(train.seed)
        self.plain = self.workload.build_model(dataset.batch(torch.zeros(1, dtype=torch.int64)))
        self.plain.train()
        if not train.dropout:
            without_dropout(self.plain)
        if self.precision == "fp64":
            to_float64(self.plain)
        self.wrap()
        self.scaler = grad_scaler(self.precision, execution.device)

    def wrap(self) -> None:
        """Set up memory format, recomputation, compilation, distribution, optimizer: each changes the next."""
        if self.configuration.memory_format == "channels_last":
            channels_last(self.plain)
        if self.configuration.activation_checkpointing:
            recompute_in_backward(self._blocks())
        self.activations = self._activation_budget()
        self._compile()
        self.model = self.strategy.setup(self.plain, self.workload)
        self.optimizer = self.workload.optimizer(self.plain) or make_optimizer(self.train.optimizer, self.plain)

    def _blocks(self) -> Sequence[nn.Module]:
        return self.workload.blocks(self.plain) or (self.plain,)

    def _activation_budget(self) -> ActivationBudget | None:
        if (mib := self.configuration.activation_budget_mib) is None:
            return None
        return ActivationBudget(self._blocks(), mib << 20, self.execution.device, f"rank {self.execution.rank}")

    def _compile(self) -> None:
        """Compile the model, or its blocks, in place, which keeps the parameters' names."""
        if self.configuration.compile == "none":
            return
        by_blocks = self.configuration.compile_blocks or self.strategy.compiles_blocks
        for part in (self.workload.blocks(self.plain) if by_blocks else ()) or (self.plain,):
            compile_in_place(part, self.configuration.compile)

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        steps = self.train.epochs * self.sampler.steps_per_epoch
        return min(steps, self.train.max_steps or steps)

    def batches(self, start: int, stop: int, loader: Loader) -> Iterator[list[MicroBatch]]:
        """Yield the micro-batches of each step, on the CPU, with their randomness drawn."""
        plan = MicroBatchPlan(self.sampler, self.strategy, self.configuration.accumulation_steps, start, stop)
        loaded = micro_batches(self.dataset, plan, loader, self.workers_failed)
        for step in range(start, stop):
            yield [MicroBatch(self.with_randomness(next(loaded), step), counted) for counted in plan.counted(step)]

    def workers_failed(self, error: WorkersFailed) -> None:
        """Continue without worker processes: the batches are the same, and so is the training."""
        self.loader_failures.append(str(error))
        print(
            f"rank {self.execution.rank}: {error}. This process loads the remaining batches, which are the same",
            file=sys.stderr,
        )

    def with_randomness(self, batch: Batch, step: int) -> Batch:
        """Add the randomness of a step's samples to a batch."""
        if not self.workload.draws:
            return batch
        randomness = SampleRandomness(self.train.seed, self.sampler.epoch(step), batch["samples"])
        return batch | self.workload.draw(batch, randomness)

    def step(self, step: int, micro_batches: list[MicroBatch]) -> Tensor:
        """Make one optimizer step.

        Returns:
            This rank's part of the mean loss over the global batch: a scalar on the device.
        """
        seed_step(self.train.seed, step, self.execution)
        count = self._global_count(step, micro_batches)
        self.optimizer.zero_grad(set_to_none=True)
        *others, last = micro_batches
        parts = []
        for micro_batch in others:
            with self.strategy.accumulating(self.model):  # gradients are reduced once a step, in the last backward
                parts.append(self._backward(micro_batch, count))
        parts.append(self._backward(last, count))
        self.scaler.unscale_(self.optimizer)
        if self.train.clip_norm is not None:
            clip_gradients(list(self.plain.parameters()), self.train.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def _backward(self, micro_batch: MicroBatch, count: int) -> Tensor:
        """Add a micro-batch's gradient; return its part of the mean loss over the global batch: a scalar."""
        device, batch = self.execution.device, micro_batch.batch
        if device.type == "cuda":  # only from page-locked memory does a copy not wait for the step before
            batch = {name: tensor.pin_memory() for name, tensor in batch.items()}
        if device.type != "cpu":
            batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        with autocast(self.precision, device), self._saved_for_backward():
            loss = self.workload.loss(self.model, batch)
        if not micro_batch.counted:
            loss = loss * 0.0
        part = loss / count
        # Gradients are averaged over the groups of ranks: times the number of groups this is their sum.
        groups = self.execution.num_groups
        self.scaler.scale(part * groups if groups > 1 else part).backward()  # type: ignore[no-untyped-call]
        return part.detach()

    def _global_count(self, step: int, micro_batches: list[MicroBatch]) -> int:
        """Return what the summed loss of the whole global batch is divided by."""
        if self.workload.counts_samples:  # the sampler knows their number
            return self.sampler.batch_size(step)
        local = sum(self.workload.count(m.batch) for m in micro_batches if m.counted)
        if (count := int(self.strategy.sum(torch.tensor(local)))) < 1:
            raise WorkloadError(
                f"`count` of {self.workload.name} returned 0 for all of a global batch: nothing to divide by"
            )
        return count

    def _saved_for_backward(self) -> AbstractContextManager[object]:
        if self.activations is not None:
            return self.activations.forward_pass()
        if self.configuration.offload not in ("activations", "both"):
            return nullcontext()
        pinned = self.execution.device.type == "cuda"
        return torch.autograd.graph.save_on_cpu(pin_memory=pinned)


def compile_in_place(module: nn.Module, mode: str) -> None:
    """Compile a module as a whole, which keeps the parameters' names."""
    if not isinstance(module, nn.Sequential):
        module.compile(mode=mode)
        return

    def whole(inputs: Any) -> Any:  # through `compile` torch 2.11 compiles each layer apart, for sizes that vary
        return module._call_impl(inputs)  # type: ignore[no-untyped-call]

    module._compiled_call_impl = torch.compile(whole, mode=mode)


def make_optimizer(settings: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer of a model after it is distributed."""
    options = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.name == "sgd":
        options["momentum"] = settings.momentum
    parameters = list(model.parameters())
    if settings.name in _FUSED and all(p.is_cuda and type(p.data) is Tensor for p in parameters):
        options["fused"] = True  # one kernel in place of one for each operation
    return _OPTIMIZERS[settings.name](parameters, **options)  # type: ignore[arg-type]
