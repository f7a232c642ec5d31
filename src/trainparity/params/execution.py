"""One way to execute the training: an entry of `configs` or of `references`."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from trainparity.validation import Section, mistake

Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16"]
DeviceKind = Literal["cpu", "mps", "cuda"]
StartMethod = Literal["fork", "spawn", "forkserver"]

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
"""A configuration's or pair's name: lower-case words joined by hyphens, as it names folders and DVC stages."""


class Loader(Section):
    """How batches reach the training loop."""

    workers: int = Field(default=0, ge=0)
    """DataLoader worker processes per rank; 0 slices the data in memory."""
    start_method: StartMethod | None = None
    """How workers start; null is the platform's default."""
    prefetch_factor: int = Field(default=2, ge=1)
    """Batches that each worker holds ready."""
    pin_memory: bool = False
    """Batches wait in page-locked memory, which a GPU copies from faster; without CUDA it does nothing."""
    deadline_s: float = Field(default=120.0, gt=0)
    """Workers that bring no batch for so many seconds have failed; the training continues without them."""


class Reference(Section):
    """What configurations are compared with: one process, eager, the full global batch."""

    precision: Precision = "fp32"
    """In params.yaml the default is the reference's name, where that is a precision."""
    workload: dict[str, Any] = Field(default_factory=dict)
    """Laid over the section `workload`, for this reference and the configurations compared with it."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Laid over the section `train`, likewise."""


class Configuration(Section):
    """One way to execute the same training."""

    strategy: Literal["single", "data_parallel", "ddp", "fsdp"] = "single"
    device: Literal["auto", "cpu", "mps", "cuda"] = "auto"
    """`auto` follows `accelerator`; the others pin their device."""
    precision: Precision = "fp32"
    reference: Name | None = None
    """The entry of `references` that it is compared with; null: the one named as its precision."""
    world_size: int = Field(default=1, ge=1)
    """Ranks (`ddp`, `fsdp`) or replicas (`data_parallel`)."""
    accumulation_steps: int = Field(default=1, ge=1)
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = "none"
    """torch.compile's mode; `none` runs eagerly."""
    offload: Literal["none", "parameters", "activations", "both"] = "none"
    """What waits in host memory: parameters by FSDP's policy, activations saved for backward, or both."""
    activation_checkpointing: bool = False
    """Keep only the inputs of the workload's blocks for backward, and compute the rest again there."""
    backend: Literal["auto", "gloo", "nccl"] = "auto"
    """`auto`: NCCL with a GPU per rank, else gloo."""
    loader: Loader = Loader()

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if self.strategy == "single" and self.world_size > 1:
            raise mistake(
                f"{self.world_size} with strategy single; 1, or strategy ddp, fsdp or data_parallel",
                "world_size",
            )
        if self.strategy == "data_parallel" and self.world_size < 2:
            raise mistake("1 with strategy data_parallel; it splits a batch over at least 2 replicas", "world_size")
        if self.offload in ("parameters", "both") and self.strategy != "fsdp":
            raise mistake(f"{self.offload} with strategy {self.strategy}; only fsdp offloads parameters", "offload")
        return self

    @property
    def compared_with(self) -> str:
        """The entry of `references` that it is compared with."""
        return self.reference or self.precision

    @property
    def num_shards(self) -> int:
        """Micro-batches that one global batch is cut into, over all ranks."""
        return self.world_size * self.accumulation_steps

    @property
    def distributed(self) -> bool:
        """Whether ranks are processes that talk to each other."""
        return self.strategy in ("ddp", "fsdp")

    @property
    def num_processes(self) -> int:
        """Processes that the run starts; `data_parallel` replicates inside one."""
        return self.world_size if self.distributed else 1
