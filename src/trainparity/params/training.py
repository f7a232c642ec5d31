"""What is trained, how long, and how it is judged and timed: the same for every configuration."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from trainparity.validation import Section, mistake


class Workload(Section):
    """The model and its loss."""

    name: str
    """An entry of `trainparity.workloads.registry.WORKLOADS`, or `package.module:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The workload's own settings; it validates them itself."""


class Optimizer(Section):
    """The optimizer recipe."""

    name: Literal["sgd", "adam", "adamw", "radam"] = "adam"
    lr: float = Field(gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """SGD's momentum; the others have none."""
    weight_decay: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _momentum_is_sgd(self) -> Self:
        if self.momentum and self.name != "sgd":
            raise mistake(f"momentum {self.momentum} with {self.name}; only sgd takes a momentum", "momentum")
        return self


class Train(Section):
    """How long and how to train; the same for every configuration."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    epochs: int = Field(default=1, ge=1, le=1_000_000)
    max_steps: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Stop after so many optimizer steps; null runs all epochs to their end."""
    global_batch_size: int = Field(ge=1)
    """Samples of one optimizer step, over all ranks and micro-batches."""
    shuffle: bool = True
    optimizer: Optimizer
    clip_norm: float | None = Field(default=None, gt=0)
    """Largest L2 norm of the whole gradient; null does not clip."""
    dropout: bool = True
    """False sets the probability of every dropout layer to zero: masks depend on how the batch is cut."""
    holdout: int = Field(default=0, ge=0)
    """The last so many samples of the dataset are not trained on; workloads that classify are evaluated on them."""
    checkpoint_every: int = Field(default=100, ge=1)
    """Optimizer steps between checkpoints, from which an interrupted run goes on."""

    def misfit(self, num_samples: int) -> tuple[str, str] | None:
        """Return the setting that a dataset of so many samples is too small for, and what is allowed; None: none is."""
        if self.holdout >= num_samples:
            return "holdout", f"{self.holdout} of {num_samples} samples leaves none to train on; allowed: less"
        if self.global_batch_size > (trained := num_samples - self.holdout):
            held = f", and {self.holdout} held out" if self.holdout else ""
            what = f"{self.global_batch_size}, but there are {trained} samples to train on{held}"
            return "global_batch_size", f"{what}; allowed: at most {trained}"
        return None

    def steps_per_epoch(self, num_samples: int) -> int:
        """Return the optimizer steps that visit every sample of a dataset that is not held out."""
        return -(-(num_samples - self.holdout) // self.global_batch_size)


LARGEST_MARGIN = 10_000
"""Faults begin at some hundred times the floor: beyond this, a margin would call anything equivalent."""


class Parity(Section):
    """How two runs are judged to be the same training."""

    twins: int = Field(default=3, ge=1, le=100)
    """Perturbed copies of the reference that measure the noise floor."""
    window: int = Field(default=20, ge=1)
    """Optimizer steps judged from one shared start; a longer run starts each window from the reference's state."""
    margin: float = Field(default=16.0, ge=1, le=LARGEST_MARGIN)
    """`equivalent` means: within this multiple of the noise floor, for every tensor at every step."""
    sketch_size: int = Field(default=64, ge=16, le=65_536)
    """Numbers that one tensor is projected to in the trace."""


class Timing(Section):
    """The timed phase, apart from the parity phase."""

    warmup_steps: int = Field(default=3, ge=1, le=1_000_000)
    """Untimed steps first: allocation, autotuning, compilation."""
    steps: int = Field(default=20, ge=2, le=1_000_000)
