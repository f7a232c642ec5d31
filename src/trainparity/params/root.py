"""The whole of a params file, and the checks across its sections."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from trainparity.params.dataset import Dataset
from trainparity.params.defaults import COUNTERPART, REFERENCE, complete
from trainparity.params.execution import Configuration, Name, Precision, Reference, Seconds
from trainparity.params.overlay import laid_over
from trainparity.params.study import Curves, Loading, Picture
from trainparity.params.training import Parity, Timing, Train, Workload
from trainparity.validation import ParamsError, Section, mistake, not_one_of


def reference_name(reference: str) -> str:
    """Return the name of the run of an entry of `references`."""
    return f"{REFERENCE}-{reference}"


class Pair(Section):
    """Two runs that are compared."""

    left: str
    right: str


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
    deadline_s: Seconds | None = None
    """A training stage in a container is stopped after so many seconds, its checkpoint kept; null never stops it."""
    step_deadline_s: Seconds | None = None
    """A run fails when no step has ended for so many seconds; null: 30 times its slowest step, at least 300 s."""
    memory_limit_mib: float | None = Field(default=None, gt=0)
    """Device memory that a study's fastest run must keep within; null: no limit. It limits nothing itself."""
    workload: Workload
    dataset: Dataset
    train: Train
    parity: Parity = Parity()
    timing: Timing = Timing()
    loading: Loading | None = None
    """What the stage `loading` measures; no other stage reads it."""
    references: dict[Name, Reference] = Field(default_factory=dict)
    """Trainings that configurations are compared with; the one of a precision in use need not be listed."""
    configs: dict[Name, Configuration] = Field(min_length=1)
    pairs: dict[Name, Pair] = Field(default_factory=dict)
    """Every configuration and its reference, in a pair of the configuration's name, and the pairs that are listed."""
    curves: Curves | None = None
    """Learning curves over seeds; null: none."""
    picture: Picture | None = None
    """What a person can look at; null: nothing."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, content: Any) -> Any:
        return complete(content)

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
                raise mistake(f"{pair.right!r} is compared with itself; name another run", "pairs", name, "right")
            if pair.right == REFERENCE:
                raise mistake("'reference' stands on the left; name a configuration here", "pairs", name, "right")
            if name in self.configs and (pair.left, pair.right) != (REFERENCE, name):
                text = f"is the pair of the configuration {name} and its reference; choose another name"
                raise mistake(text, "pairs", name)
        return self

    @model_validator(mode="after")
    def _references_fit(self) -> Self:
        for name in self.references:
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
            if (key := configuration.compared_with) not in self.references:
                raise mistake(not_one_of(key, list(self.references)), "configs", name, "reference")
            if configuration.precision != (precision := self.precision_of(name)):
                text = f"{configuration.precision!r}, but its reference {key} is in {precision}"
                raise mistake(f"{text}; a run and its reference have one precision", "configs", name, "precision")
        return self

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        for name, configuration in self.configs.items():
            batch = self.train_of(self.reference_of(name)).global_batch_size
            if batch % configuration.num_shards:
                ranks = f"world_size {configuration.world_size}"
                if configuration.group_size > 1:
                    ranks += f" / {configuration.group_size} ranks of a group"
                raise mistake(
                    f"{batch} can't be divided into {ranks} x accumulation_steps {configuration.accumulation_steps} = "
                    f"{configuration.num_shards} equal micro-batches (configs.{name}); "
                    f"allowed: a multiple of {configuration.num_shards}",
                    "train",
                    "global_batch_size",
                )
        return self

    def reference_of(self, run: str) -> str:
        """Return the entry of `references` that a configuration is compared with; the counterpart's is the first."""
        return self.configs[run].compared_with if run in self.configs else next(iter(self.references))

    def precision_of(self, run: str) -> Precision:
        """Return the precision of the reference of a configuration, or of the counterpart."""
        return self.reference_configuration(self.reference_of(run)).precision

    def check_samples(self, num_samples: int, path: Path) -> None:
        """Refuse a dataset that is too small for these settings; `path` names the params file.

        Raises:
            ParamsError: a reference and what is compared with it would have too few samples to train on.
        """
        for name, reference in self.references.items():
            if misfit := self.train_of(name).misfit(num_samples):
                key, text = misfit
                section = f"references.{name}.train" if key in reference.train else "train"
                raise ParamsError(f"{path}: {section}.{key}: {text}")

    def with_reference(self, name: str, *, workload: dict[str, Any] | None = None, train: dict[str, Any]) -> Self:
        """Return these settings with some of a reference's own changed."""
        before = self.references[name]
        changed = before.model_copy(
            update={"workload": laid_over(before.workload, workload or {}), "train": laid_over(before.train, train)}
        )
        return self.model_copy(update={"references": self.references | {name: changed}})

    def reference_configuration(self, reference: str) -> Configuration:
        """Return how a reference is executed: one process, eager, the full global batch, on the accelerator."""
        return Configuration(precision=self.references[reference].precision, reference=reference)

    def workload_of(self, reference: str) -> Workload:
        """Return what a reference, and every configuration compared with it, trains."""
        return Workload.model_validate(self._laid_over(reference, "workload"))

    def train_of(self, reference: str) -> Train:
        """Return how a reference, and every configuration compared with it, is trained."""
        return Train.model_validate(self._laid_over(reference, "train"))

    def _laid_over(self, reference: str, section: str) -> dict[str, Any]:
        return laid_over(getattr(self, section).model_dump(), getattr(self.references[reference], section))
