"""params.yaml as typed, frozen objects; every mistake is named by file, key, value and what is allowed."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
DeviceKind = Literal["cpu", "mps", "cuda"]

REFERENCE = "reference"
"""The name by which `pairs` calls the reference of a configuration's precision."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
"""A configuration's or pair's name: lower-case words joined by hyphens, as it names folders and DVC stages."""


class ParamsError(ValueError):
    """A params file that can't be used; the message has one line per mistake."""


class Section(BaseModel):
    """A part of params.yaml: immutable, keys that it does not know are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


SectionT = TypeVar("SectionT", bound=Section)


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


Dataset = Annotated[Digits | Downloaded | ImageFolder | Fake, Field(discriminator="name")]


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
            raise _mistake(f"momentum {self.momentum} with {self.name}; only sgd takes a momentum", "momentum")
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
            raise _mistake(
                f"{self.world_size} with strategy single; 1, or strategy ddp, fsdp or data_parallel",
                "world_size",
            )
        if self.strategy == "data_parallel" and self.world_size < 2:
            raise _mistake("1 with strategy data_parallel; it splits a batch over at least 2 replicas", "world_size")
        if self.offload in ("parameters", "both") and self.strategy != "fsdp":
            raise _mistake(f"{self.offload} with strategy {self.strategy}; only fsdp offloads parameters", "offload")
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
    runtime: Literal["host"] = "host"
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
            if name == REFERENCE or name.startswith(f"{REFERENCE}-"):
                raise _mistake("names of references start so; choose another name", "configs", name)
        if self.parallel not in names:
            raise _mistake(not_one_of(self.parallel, names), "parallel")
        for name, pair in self.pairs.items():
            for side in ("left", "right"):
                value = getattr(pair, side)
                if value not in (REFERENCE, *names):
                    raise _mistake(not_one_of(value, [REFERENCE, *names]), "pairs", name, side)
            if pair.left == pair.right:
                raise _mistake(f"{pair.right!r} is held against itself; name another run", "pairs", name, "right")
            if pair.right == REFERENCE:
                raise _mistake("'reference' stands on the left; name a configuration here", "pairs", name, "right")
        return self

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        batch = self.train.global_batch_size
        for name, configuration in self.configs.items():
            if batch % configuration.num_shards:
                raise _mistake(
                    f"{batch} can't be divided into world_size {configuration.world_size} x accumulation_steps "
                    f"{configuration.accumulation_steps} = {configuration.num_shards} equal micro-batches "
                    f"(configs.{name}); allowed: a multiple of {configuration.num_shards}",
                    "train",
                    "global_batch_size",
                )
            if configuration.precision not in self.references:
                raise _mistake(
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


class _Yaml(yaml.SafeLoader):
    """Safe YAML as DVC reads it: `5e-5` is a number (YAML 1.2), and a key given twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.value != "<<"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(path: Path) -> Any:
    """Return the parsed content of a YAML file; a `ParamsError` names the file and the place of a mistake."""
    try:
        # _Yaml is a SafeLoader: it makes plain values only.
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Yaml)
    except FileNotFoundError:
        raise ParamsError(f"{path}: no such file") from None
    except (yaml.YAMLError, ValueError) as error:  # a date like 2001-99-99, or no UTF-8, is a ValueError
        raise ParamsError(f"{path}: not YAML: {error}") from None


def parse(content: Any, path: Path) -> Params:
    """Validate an already parsed params file; `path` only names it in errors."""
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: must be a mapping with the keys {', '.join(Params.model_fields)}")
    return validate(Params, content, path)


def validate(model: type[SectionT], content: Any, path: Path, prefix: Sequence[str] = ()) -> SectionT:
    """Validate `content` as `model`.

    Raises:
        ParamsError: one line per mistake; key paths start with `prefix`.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ParamsError("\n".join(_line(model, mistake, path, prefix) for mistake in error.errors())) from None


def not_one_of(value: object, allowed: Sequence[str]) -> str:
    """Say that a value is not allowed, which ones are, and which one was probably meant."""
    hint = f"; did you mean {close[0]}?" if (close := _by_likeness(str(value), allowed)) else ""
    return f"{value!r} is not one of {', '.join(allowed)}{hint}"


def _by_likeness(value: str, allowed: Sequence[str]) -> list[str]:
    """Return the allowed values that `value` may be a slip of the keyboard for, the likeliest first."""

    def likeness(name: str) -> float:
        # A wrong letter is likelier than a letter too many: `dpp` is `ddp` rather than `dp`.
        return difflib.SequenceMatcher(None, value, name).ratio() + 0.2 * (len(name) == len(value))

    return sorted((name for name in allowed if likeness(name) > 0.7), key=likeness, reverse=True)


def _mistake(text: str, *keys: str) -> PydanticCustomError:
    """Make an error of a check across keys; `keys` leads from the checked section to the value at fault."""
    return PydanticCustomError("mistake", "{text}", {"text": text, "keys": keys})


def _line(model: type[BaseModel], mistake: ErrorDetails, path: Path, prefix: Sequence[str]) -> str:
    """Write one mistake as `file: key.path: what is wrong and what is allowed`."""
    context = mistake.get("ctx", {})
    keys = [str(key) for key in mistake["loc"] if key != "[key]"]
    if "dataset" in keys[:1] and len(keys) > 1:
        del keys[1]  # pydantic puts the dataset's name there, which is no key of the file
    keys = [*prefix, *keys, *context.get("keys", ())]
    value = mistake["input"]
    match mistake["type"]:
        case "extra_forbidden":
            text = "unknown key: " + not_one_of(keys[-1], _fields_beside(model, mistake["loc"]))
        case "missing":
            text = "missing; it has no default"
        case "literal_error":
            text = not_one_of(value, re.findall(r"'([^']*)'", context["expected"]))
        case "union_tag_invalid":
            keys.append("name")
            text = not_one_of(context["tag"], re.findall(r"'([^']*)'", context["expected_tags"]))
        case "union_tag_not_found":
            keys.append("name")
            text = "missing; it has no default"
        case "mistake":
            text = context["text"]
        case _:
            text = f"{value!r}: {mistake['msg'][0].lower()}{mistake['msg'][1:]}"
    return f"{path}: {'.'.join(keys)}: {text}"


def _fields_beside(model: Any, location: Sequence[int | str]) -> list[str]:
    """List the keys that the section holding `location` knows."""
    for key in location[:-1]:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[str(key)].annotation
        elif (choices := [m for m in get_args(model) if key in _tags(m)]) or (choices := _unions(model, key)):
            model = choices[0]
        else:  # dict[name, section]: the key is a name
            model = get_args(model)[1]
    if get_origin(model) is Annotated:
        model = get_args(model)[0]
    return list(model.model_fields)


def _tags(model: Any) -> tuple[Any, ...]:
    """Return the names that a member of a union goes by."""
    if isinstance(model, type) and issubclass(model, BaseModel) and "name" in model.model_fields:
        return get_args(model.model_fields["name"].annotation)
    return ()


def _unions(model: Any, key: int | str) -> list[Any]:
    """Return the members of an annotated union that go by `key`."""
    return [m for union in get_args(model) for m in get_args(union) if key in _tags(m)]
