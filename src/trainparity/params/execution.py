"""One way to execute the training: an entry of `configs` or of `references`."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from trainparity import strategies
from trainparity.validation import Section, mistake, not_one_of

Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16"]
DeviceKind = Literal["cpu", "mps", "cuda"]
StartMethod = Literal["fork", "spawn", "forkserver"]

_WORDS = r"^[a-z0-9]+(-[a-z0-9]+)*$"
_LONGEST_NAME = 100


def is_name(text: str) -> bool:
    """Tell whether a text may name a configuration, a reference or a pair."""
    return len(text) <= _LONGEST_NAME and re.fullmatch(_WORDS, text) is not None


def _named(text: str) -> str:
    if not is_name(text):
        allowed = f"words of lower-case letters and digits, joined by hyphens, of {_LONGEST_NAME} characters at most"
        raise mistake(f"{text!r} is no name; allowed: {allowed}")
    return text


Name = Annotated[str, AfterValidator(_named), Field(json_schema_extra={"maxLength": _LONGEST_NAME, "pattern": _WORDS})]
"""A configuration's or pair's name: lower-case words joined by hyphens, as it names folders and DVC stages."""


def _known(strategy: str) -> str:
    if strategy not in (names := strategies.names()):
        raise mistake(not_one_of(strategy, names))
    return strategy


Strategy = Annotated[str, AfterValidator(_known)]
"""The name of a strategy."""


Seconds = Annotated[float, Field(gt=0, le=10_000_000)]
"""A time that is waited for; the system's timers overflow beyond some hundreds of years."""


class Loader(Section):
    """How batches reach the training loop."""

    workers: int = Field(default=0, ge=0, le=1024)
    """DataLoader worker processes per rank; 0 slices the data in memory."""
    start_method: StartMethod | None = None
    """How workers start; null is the platform's default."""
    prefetch_factor: int = Field(default=2, ge=1, le=1024)
    """Batches that each worker holds ready."""
    pin_memory: bool = False
    """Batches wait in page-locked memory, which a GPU copies from faster; without CUDA it does nothing."""
    deadline_s: Seconds = 120.0
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

    strategy: Strategy = "single"
    device: Literal["auto", "cpu", "mps", "cuda"] = "auto"
    """`auto` follows `accelerator`; the others pin their device."""
    precision: Precision = "fp32"
    reference: Name | None = None
    """The entry of `references` that it is compared with; null: the one named as its precision."""
    world_size: int = Field(default=1, ge=1, le=65_536)
    """Ranks, each a process; of `data_parallel` replicas inside one process."""
    tensor_parallel_size: int = Field(default=1, ge=1, le=65_536)
    """Ranks that compute each matrix product together, for a strategy that has several such groups."""
    accumulation_steps: int = Field(default=1, ge=1, le=65_536)
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = "none"
    """torch.compile's mode; `none` runs eagerly."""
    compile_blocks: bool = False
    """Compile the workload's blocks apart: blocks of one kind and shape are compiled once."""
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"
    """How 4-D tensors, the images and the weights of convolutions, lie in memory: as NCHW or as NHWC."""
    offload: Literal["none", "parameters", "activations", "both"] = "none"
    """What waits in host memory: parameters by FSDP's policy, activations saved for backward, or both."""
    activation_checkpointing: bool = False
    """Keep only the inputs of the workload's blocks for backward, and compute the rest again there."""
    activation_budget_mib: int | None = Field(default=None, ge=0, le=100_000_000)
    """Device memory for what the workload's blocks save for backward: what is more is moved to host memory beside the
    computation, or computed again, whichever was measured to take less time; null: no limit."""
    backend: Literal["auto", "gloo", "nccl"] = "auto"
    """`auto`: NCCL with a GPU per rank, else gloo."""
    loader: Loader = Loader()

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        strategy = strategies.load(self.strategy)
        if misfit := strategy.misfit(self.world_size, self.tensor_parallel_size):
            key, allowed = misfit
            raise mistake(f"{getattr(self, key)} with strategy {self.strategy}; allowed: {allowed}", key)
        if self.offload in ("parameters", "both") and not strategy.offloads_parameters:
            able = ", ".join(name for name in strategies.names() if strategies.load(name).offloads_parameters)
            raise mistake(
                f"{self.offload} with strategy {self.strategy}; parameters are offloaded by {able}", "offload"
            )
        if self.memory_format != "contiguous" and not strategy.keeps_strides:
            raise mistake(f"{self.memory_format} with strategy {self.strategy}; allowed: contiguous", "memory_format")
        if self.compile_blocks and self.compile == "none":
            raise mistake("true with compile none; allowed: false", "compile_blocks")
        if self.activation_budget_mib is not None:
            self._decides_alone()
        if self.backend != "auto" and not strategy.distributed:
            raise mistake(f"{self.backend} with strategy {self.strategy}, whose ranks are not processes", "backend")
        return self

    def _decides_alone(self) -> None:
        """Refuse what also decides where activations are while a budget does."""
        for key, other in (("offload", "activations"), ("offload", "both"), ("activation_checkpointing", True)):
            if getattr(self, key) == other:
                raise mistake(f"{str(other).lower()} with activation_budget_mib, which decides it for each block", key)
        if self.compile != "none":
            raise mistake(f"{self.compile} with activation_budget_mib; allowed: none", "compile")
        if not strategies.load(self.strategy).distributed and self.world_size > 1:  # replicas call the first's blocks
            raise mistake(f"{self.strategy} with activation_budget_mib, which counts one device's memory", "strategy")

    @property
    def compared_with(self) -> str:
        """The entry of `references` that it is compared with."""
        return self.reference or self.precision

    @property
    def group_size(self) -> int:
        """Ranks that train one replica of the model together, on the same samples."""
        return strategies.load(self.strategy).group_size(self.world_size, self.tensor_parallel_size)

    @property
    def num_shards(self) -> int:
        """Micro-batches that one global batch is cut into, over all ranks or replicas."""
        return self.world_size // self.group_size * self.accumulation_steps

    @property
    def distributed(self) -> bool:
        """Whether ranks are processes that talk to each other."""
        return strategies.load(self.strategy).distributed

    @property
    def replicas(self) -> str:
        """What copies the model to several GPUs from one process; empty: nothing."""
        return strategies.load(self.strategy).replicas

    @property
    def num_processes(self) -> int:
        """Processes that the run starts."""
        return self.world_size if self.distributed else 1
