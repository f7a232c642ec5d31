"""params.yaml as typed, frozen objects."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from trainparity.validation import ParamsError, Section, mistake, not_one_of, read_yaml, validate

Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16"]
DeviceKind = Literal["cpu", "mps", "cuda"]

REFERENCE = "reference"
"""The name by which `pairs` calls the reference of a configuration's precision."""

COUNTERPART = "counterpart"
"""The name by which `pairs` calls the reference's training in the other runtime: in a container, or on the host."""


def reference_name(precision: str) -> str:
    """Return the name of the run that configurations of a precision are held against."""
    return f"{REFERENCE}-{precision}"


Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
"""A configuration's or pair's name: lower-case words joined by hyphens, as it names folders and DVC stages."""


class Workload(Section):
    """The model and its loss."""

    name: str
    """An entry of `trainparity.workloads.WORKLOADS`, or `package.module:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The workload's own settings; it validates them itself."""


class Digits(Section):
    """scikit-learn's bundled 8x8 scans of handwritten digits: 1797 samples, ten classes, no network."""

    name: Literal["digits"]
    image_size: int = Field(default=8, ge=8, le=256)
    """Edge in pixels that the 8x8 scans are resized to."""
    limit: int | None = Field(default=None, ge=1)
    """Keep the first so many samples; null keeps all."""


class Downloaded(Section):
    """MNIST or CIFAR-10, fetched once with checksums."""

    name: Literal["mnist", "cifar10"]
    mirrors: list[str] = Field(default_factory=list)
    """Base URLs to try before the built-in ones."""
    limit: int | None = Field(default=None, ge=1)
    """Keep the first so many samples; null keeps all."""


class ImageFolder(Section):
    """One's own images: path/<class>/<image>."""

    name: Literal["imagefolder"]
    path: str
    """Folder with one sub-folder per class, relative to the project."""
    image_size: int = Field(default=32, ge=1)
    """Edge in pixels of the square that each image is resized and centre-cropped to."""
    channels: Literal[1, 3] = 3
    limit: int | None = Field(default=None, ge=1)
    """Keep the first so many samples; null keeps all."""


class Fake(Section):
    """Uniform random samples in [0, 1): `torch.rand(size, *shape)` from the seed; made, not real, data."""

    name: Literal["fake"]
    shape: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Shape of one sample."""
    size: int = Field(ge=1)
    """Number of samples."""
    classes: int = Field(default=10, ge=1)
    seed: int = Field(default=0, ge=0)


class Own(Section):
    """What the workload's own `data` returns."""

    name: Literal["own"]


Dataset = Annotated[Digits | Downloaded | ImageFolder | Fake | Own, Field(discriminator="name")]


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

    seed: int = Field(default=0, ge=0)
    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after so many optimizer steps; null runs all epochs to their end."""
    global_batch_size: int = Field(ge=1)
    """Samples of one optimizer step, over all ranks and micro-batches."""
    shuffle: bool = True
    optimizer: Optimizer
    clip_norm: float | None = Field(default=None, gt=0)
    """Largest L2 norm of the whole gradient; null does not clip."""
    dropout: bool = True
    """False sets the probability of every dropout layer to zero: masks depend on how the batch is cut."""
    checkpoint_every: int = Field(default=100, ge=1)
    """Optimizer steps between checkpoints, from which an interrupted run goes on."""


class Parity(Section):
    """How two runs are judged to be the same training."""

    twins: int = Field(default=3, ge=1)
    """Perturbed copies of the reference that measure the noise floor."""
    window: int = Field(default=20, ge=1)
    """Optimizer steps judged from one shared start; a longer run starts each window from the reference's state."""
    margin: float = Field(default=16.0, ge=1)
    """`equivalent` means: within this multiple of the noise floor, for every tensor at every step."""
    sketch_size: int = Field(default=64, ge=16)
    """Numbers that one tensor is projected to in the trace."""


class Timing(Section):
    """The timed phase, apart from the parity phase."""

    warmup_steps: int = Field(default=3, ge=1)
    """Untimed steps first: allocation, autotuning, compilation."""
    steps: int = Field(default=20, ge=2)


class Loader(Section):
    """How batches reach the training loop."""

    workers: int = Field(default=0, ge=0)
    """DataLoader worker processes per rank; 0 slices the data in memory."""
    start_method: Literal["fork", "spawn", "forkserver"] | None = None
    """How workers start; null is the platform's default."""
    prefetch_factor: int = Field(default=2, ge=1)
    """Batches that each worker holds ready."""
    pin_memory: bool = False


class Reference(Section):
    """A reference has no settings of its own: its precision is its name."""


class Configuration(Section):
    """One way to execute the same training."""

    strategy: Literal["single", "data_parallel", "ddp", "fsdp"]
    device: Literal["auto", "cpu", "mps", "cuda"]
    """`auto` follows `accelerator`; the others pin their device."""
    precision: Precision
    world_size: int = Field(default=1, ge=1)
    """Ranks (`ddp`, `fsdp`) or replicas (`data_parallel`)."""
    accumulation_steps: int = Field(default=1, ge=1)
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = "none"
    """torch.compile's mode; `none` runs eagerly."""
    offload: Literal["none", "parameters", "activations", "both"] = "none"
    """What waits in host memory: parameters by FSDP's policy, activations saved for backward, or both."""
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


class Pair(Section):
    """Two runs to hold against each other."""

    left: str
    right: str


class Params(Section):
    """The whole of params.yaml."""

    parallel: str
    accelerator: Literal["auto", "cpu", "mps", "cuda"] = "auto"
    runtime: Literal["host", "docker"] = "host"
    """Where the training stages run: as processes of this machine, or each in a container of its image."""
    deadline_s: float | None = Field(default=None, gt=0)
    """A training stage in a container is stopped after so many seconds, its checkpoint kept; null never stops it."""
    workload: Workload
    dataset: Dataset
    train: Train
    parity: Parity = Parity()
    timing: Timing = Timing()
    references: dict[Precision, Reference] = Field(min_length=1)
    configs: dict[Name, Configuration] = Field(min_length=1)
    pairs: dict[Name, Pair]

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        names = list(self.configs)
        for name in names:
            if name in (REFERENCE, COUNTERPART) or name.startswith(f"{REFERENCE}-"):
                raise mistake("the pipeline's own runs are named so; choose another name", "configs", name)
        if self.parallel not in names:
            raise mistake(not_one_of(self.parallel, names), "parallel")
        for name, pair in self.pairs.items():
            for side in ("left", "right"):
                value = getattr(pair, side)
                allowed = [REFERENCE, *names] if side == "left" else [*names, COUNTERPART]
                if value not in (REFERENCE, *allowed):
                    raise mistake(not_one_of(value, allowed), "pairs", name, side)
            if pair.left == pair.right:
                raise mistake(f"{pair.right!r} is held against itself; name another run", "pairs", name, "right")
            if pair.right == REFERENCE:
                raise mistake("'reference' stands on the left; name a configuration here", "pairs", name, "right")
        return self

    def precision_of(self, run: str) -> Precision:
        """Return the precision of a configuration, or of the counterpart, which is that of the first reference."""
        return self.configs[run].precision if run in self.configs else next(iter(self.references))

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        batch = self.train.global_batch_size
        for name, configuration in self.configs.items():
            if batch % configuration.num_shards:
                raise mistake(
                    f"{batch} can't be divided into world_size {configuration.world_size} x accumulation_steps "
                    f"{configuration.accumulation_steps} = {configuration.num_shards} equal micro-batches "
                    f"(configs.{name}); allowed: a multiple of {configuration.num_shards}",
                    "train",
                    "global_batch_size",
                )
            if configuration.precision not in self.references:
                raise mistake(
                    f"{configuration.precision!r} has no reference to be held against; add "
                    f"`{configuration.precision}: {{}}` to `references` (there: {', '.join(self.references)})",
                    "configs",
                    name,
                    "precision",
                )
        return self


def load(path: Path) -> Params:
    """Read and validate a params file.

    Raises:
        ParamsError: the file is missing, is not YAML, or has mistakes: one line each, as
            `file: key.path: value: what is wrong and what is allowed`.
    """
    return parse(read_yaml(path), path)


def parse(content: Any, path: Path) -> Params:
    """Validate an already parsed params file; `path` only names it in errors."""
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: must be a mapping with the keys {', '.join(Params.model_fields)}")
    return validate(Params, content, path)
