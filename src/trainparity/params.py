"""params.yaml as typed, frozen objects."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator

from trainparity.validation import ParamsError, Section, mistake, not_one_of, read_yaml, validate

Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16"]
DeviceKind = Literal["cpu", "mps", "cuda"]
StartMethod = Literal["fork", "spawn", "forkserver"]

REFERENCE = "reference"
"""The name by which `pairs` calls the reference that a configuration is held against."""

COUNTERPART = "counterpart"
"""The name by which `pairs` calls the reference's training in the other runtime: in a container, or on the host."""


def reference_name(reference: str) -> str:
    """Return the name of the run of an entry of `references`."""
    return f"{REFERENCE}-{reference}"


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


class Photographs(Section):
    """scikit-learn's two bundled photographs, 427 x 640 in colour, cut into square tiles; no network."""

    name: Literal["photographs"]
    image_size: int = Field(default=64, ge=8, le=427)
    """Edge of a tile in pixels."""
    stride: int | None = Field(default=None, ge=1)
    """Pixels from one tile to the next; null: `image_size`, so that tiles touch. Less overlaps and gives more tiles."""
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


Dataset = Annotated[Digits | Photographs | Downloaded | ImageFolder | Fake | Own, Field(discriminator="name")]


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
    holdout: int = Field(default=0, ge=0)
    """The last so many samples of the dataset are not trained on; workloads that classify are evaluated on them."""
    checkpoint_every: int = Field(default=100, ge=1)
    """Optimizer steps between checkpoints, from which an interrupted run goes on."""

    def steps_per_epoch(self, num_samples: int) -> int:
        """Return the optimizer steps that visit every sample of a dataset that is not held out."""
        return -(-(num_samples - self.holdout) // self.global_batch_size)


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
    start_method: StartMethod | None = None
    """How workers start; null is the platform's default."""
    prefetch_factor: int = Field(default=2, ge=1)
    """Batches that each worker holds ready."""
    pin_memory: bool = False
    """Batches wait in page-locked memory, which a GPU copies from faster; without CUDA it does nothing."""
    deadline_s: float = Field(default=120.0, gt=0)
    """Workers that bring no batch for so many seconds have failed; the training goes on without them."""


class Loading(Section):
    """Loader settings that `stages/loading.py` measures: every combination that makes a difference."""

    workers: list[Annotated[int, Field(ge=0)]] = Field(default=[0, 1, 2], min_length=1)
    start_methods: list[StartMethod] = Field(default=["fork", "spawn"], min_length=1)
    prefetch_factors: list[Annotated[int, Field(ge=1)]] = Field(default=[2], min_length=1)
    pin_memory: list[bool] = Field(default=[False], min_length=1)
    modes: list[Literal["training", "loading"]] = Field(default=["training"], min_length=1)
    """`training` makes the real steps; `loading` neither trains nor draws noise, so that loading alone is timed."""
    epochs: int = Field(default=1, ge=1)
    """Epochs that are timed, after `timing.warmup_steps` batches."""
    max_batches: int | None = Field(default=None, ge=1)
    """Time so many batches only; null times all epochs to their end."""
    deadline_s: float = Field(default=120.0, gt=0)
    """The loader's deadline for each batch."""


class Reference(Section):
    """What configurations are held against: one process, eager, the full global batch."""

    precision: Precision | None = None
    """Null: the reference's name is its precision."""
    workload: dict[str, Any] = Field(default_factory=dict)
    """Laid over the section `workload`, for this reference and the configurations held against it."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Laid over the section `train`, likewise."""


class Configuration(Section):
    """One way to execute the same training."""

    strategy: Literal["single", "data_parallel", "ddp", "fsdp"]
    device: Literal["auto", "cpu", "mps", "cuda"]
    """`auto` follows `accelerator`; the others pin their device."""
    precision: Precision
    reference: Name | None = None
    """The entry of `references` that it is held against; null: the one named as its precision."""
    world_size: int = Field(default=1, ge=1)
    """Ranks (`ddp`, `fsdp`) or replicas (`data_parallel`)."""
    accumulation_steps: int = Field(default=1, ge=1)
    compile: Literal["none", "default", "reduce-overhead", "max-autotune"] = "none"
    """torch.compile's mode; `none` runs eagerly."""
    offload: Literal["none", "parameters", "activations", "both"] = "none"
    """What waits in host memory: parameters by FSDP's policy, activations saved for backward, or both."""
    checkpointing: bool = False
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
    def held_against(self) -> str:
        """The entry of `references` that it is held against."""
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


class Pair(Section):
    """Two runs to hold against each other."""

    left: str
    right: str


class Recipes(Section):
    """Two references whose learning curves are held against each other."""

    left: str
    right: str


class Curves(Section):
    """Recipes of which no step can be equal (other batch sizes, learning rates, precisions): do they learn alike?"""

    seeds: int = Field(default=5, ge=4)
    """Trainings of each recipe; four of each are the fewest that can show a difference."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Laid over the references' own settings: learning takes longer than a proof of parity."""
    pairs: dict[Name, Recipes] = Field(min_length=1)

    @property
    def references(self) -> list[str]:
        """The references in use, each once."""
        return list(dict.fromkeys(side for pair in self.pairs.values() for side in (pair.left, pair.right)))


class Picture(Section):
    """A training long enough to see something, and a picture of what its model makes."""

    reference: str
    """The entry of `references` that is trained."""
    workload: dict[str, Any] = Field(default_factory=dict)
    """Laid over the reference's own settings."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Likewise."""


class Params(Section):
    """The whole of params.yaml."""

    scale: str | None = None
    """The entry of `scales` that is in force."""
    scales: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    """Sizes of one study, for example `smoke`, `laptop` and `article`: what each changes in the rest of this file."""
    parallel: str | None = None
    """The configuration that `experiment` reports."""
    accelerator: Literal["auto", "cpu", "mps", "cuda"] = "auto"
    runtime: Literal["host", "docker"] = "host"
    """Where the training stages run: as processes of this machine, or each in a container of its image."""
    deadline_s: float | None = Field(default=None, gt=0)
    """A training stage in a container is stopped after so many seconds, its checkpoint kept; null never stops it."""
    memory_limit_mib: float | None = Field(default=None, gt=0)
    """Device memory that a study's fastest run must keep within; null: no limit. It limits nothing itself."""
    workload: Workload
    dataset: Dataset
    train: Train
    parity: Parity = Parity()
    timing: Timing = Timing()
    loading: Loading | None = None
    """What `stages/loading.py` measures; no other stage reads it."""
    references: dict[Name, Reference] = Field(min_length=1)
    configs: dict[Name, Configuration] = Field(min_length=1)
    pairs: dict[Name, Pair]
    curves: Curves | None = None
    """Learning curves over seeds; null: none."""
    picture: Picture | None = None
    """What a person can look at; null: nothing."""

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        names = list(self.configs)
        for name in names:
            if name in (REFERENCE, COUNTERPART) or name.startswith(f"{REFERENCE}-"):
                raise mistake("the pipeline's own runs are named so; choose another name", "configs", name)
        if self.parallel is not None and self.parallel not in names:
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

    @model_validator(mode="after")
    def _references_fit(self) -> Self:
        for name, reference in self.references.items():
            if reference.precision is None and name not in get_args(Precision):
                choices = not_one_of(name, get_args(Precision))
                raise mistake(f"{choices}; a reference of another name needs its `precision`", "references", name)
            for section, model in (("workload", Workload), ("train", Train)):
                try:
                    model.model_validate(self._laid_over(name, section))
                except ValidationError as error:
                    first = error.errors()[0]
                    where = (str(key) for key in first["loc"])
                    raise mistake(f"{first['input']!r}: {first['msg']}", "references", name, section, *where) from None
        named = [("curves", name) for name in (self.curves.references if self.curves else [])]
        named += [("picture", self.picture.reference)] if self.picture else []
        for section, name in named:
            if name not in self.references:
                raise mistake(not_one_of(name, list(self.references)), section)
        for name, configuration in self.configs.items():
            key = configuration.held_against
            if key not in self.references:
                raise mistake(
                    f"{key!r} has no reference to be held against; add `{key}: {{}}` to `references` "
                    f"(there: {', '.join(self.references)})",
                    "configs",
                    name,
                    "reference" if configuration.reference else "precision",
                )
            if configuration.precision != (precision := self.precision_of(name)):
                raise mistake(
                    f"{configuration.precision!r}, but its reference {key} is in {precision}; runs are held against a "
                    f"reference of their own precision",
                    "configs",
                    name,
                    "precision",
                )
        return self

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        for name, configuration in self.configs.items():
            batch = self.train_of(self.reference_of(name)).global_batch_size
            if batch % configuration.num_shards:
                raise mistake(
                    f"{batch} can't be divided into world_size {configuration.world_size} x accumulation_steps "
                    f"{configuration.accumulation_steps} = {configuration.num_shards} equal micro-batches "
                    f"(configs.{name}); allowed: a multiple of {configuration.num_shards}",
                    "train",
                    "global_batch_size",
                )
        return self

    def reference_of(self, run: str) -> str:
        """Return the entry of `references` that a configuration is held against; the counterpart's is the first."""
        return self.configs[run].held_against if run in self.configs else next(iter(self.references))

    def precision_of(self, run: str) -> Precision:
        """Return the precision of the reference of a configuration, or of the counterpart."""
        return self.reference_configuration(self.reference_of(run)).precision

    def with_reference(self, name: str, *, workload: dict[str, Any] | None = None, train: dict[str, Any]) -> Self:
        """Return these settings with some of a reference's own changed."""
        before = self.references[name]
        changed = before.model_copy(
            update={"workload": laid_over(before.workload, workload or {}), "train": laid_over(before.train, train)}
        )
        return self.model_copy(update={"references": self.references | {name: changed}})

    def reference_configuration(self, reference: str) -> Configuration:
        """Return how a reference is executed: one process, eager, the full global batch, on the accelerator."""
        precision: Precision = self.references[reference].precision or reference  # type: ignore[assignment]
        return Configuration(strategy="single", device="auto", precision=precision, reference=reference)

    def workload_of(self, reference: str) -> Workload:
        """Return what a reference, and all that is held against it, trains."""
        return Workload.model_validate(self._laid_over(reference, "workload"))

    def train_of(self, reference: str) -> Train:
        """Return how a reference, and all that is held against it, is trained."""
        return Train.model_validate(self._laid_over(reference, "train"))

    def _laid_over(self, reference: str, section: str) -> dict[str, Any]:
        return laid_over(getattr(self, section).model_dump(), getattr(self.references[reference], section))


def load(path: Path, scale: str | None = None) -> Params:
    """Read and validate a params file, at another scale than its own if one is given.

    Raises:
        ParamsError: the file is missing, is not YAML, or has mistakes: one line each, as
            `file: key.path: value: what is wrong and what is allowed`.
    """
    content = read_yaml(path)
    return parse(content | {"scale": scale} if scale and isinstance(content, dict) else content, path)


def parse(content: Any, path: Path) -> Params:
    """Validate an already parsed params file, its scale laid over it; `path` only names it in errors."""
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: must be a mapping with the keys {', '.join(Params.model_fields)}")
    scale, scales = content.get("scale"), content.get("scales")
    if scale is not None and isinstance(scales, dict):
        if scale not in scales:
            raise ParamsError(f"{path}: scale: {not_one_of(scale, list(scales))}")
        content = laid_over(content, scales[scale] or {})
    return validate(Params, content, path)


def laid_over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return settings with some of them changed; a section that gets another `name` is replaced as a whole."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("name", old.get("name")) == old.get("name"):
            value = laid_over(old, value)
        result[key] = value
    return result
