"""What a claim can be about: one class a measure, with its settings in claims.yaml. Adding one is a class here, and a
function in `trainparity.claims.measures` with its line in the registry."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from trainparity.validation import Section


class Weights(Section):
    """The final weights of runs, joined in the order of their names, are the published ones."""

    name: Literal["weights"]
    runs: list[str] = Field(min_length=1)
    published: list[float] = Field(min_length=1)
    decimals: int = Field(ge=0)

    def equal(self, measured: np.ndarray) -> bool:
        """Tell whether weights, float64 [n], are the published ones to all their decimals."""
        return bool((measured.round(self.decimals) == np.array(self.published)).all())


class Shards(Section):
    """Every rank of a run visits each W-th sample of every global batch, from its own number on (W: ranks)."""

    name: Literal["shards"]
    run: str
    order: str
    """The accumulating run whose micro-batches must be the ranks' shards, in the same order."""


class SameTraining(Section):
    """Pairs of params.yaml that must have a verdict of the same training."""

    name: Literal["same-training"]
    pairs: list[str] = Field(min_length=1)


class Parameters(Section):
    """Number of a run's parameters; the model is built without memory for them, so any machine can count."""

    name: Literal["parameters"]
    run: str
    scale: str | None = None
    """The entry of `scales` at which it is built; null: the one in force."""


class Seconds(Section):
    """Time of an epoch, or of one optimizer step."""

    name: Literal["seconds"]
    run: str
    of: Literal["step", "epoch"] = "epoch"


class TimeRatio(Section):
    """How many times longer `run` takes than `over`: above 1, `over` is the faster one."""

    name: Literal["time-ratio"]
    run: str
    over: str
    of: Literal["step", "epoch", "training"] = "step"
    """`epoch`: with each run's own batch. `training`: so many `epochs`, compilation included."""
    epochs: int = Field(default=1, ge=1)


class GainRatio(Section):
    """What a small network gains by a change, over what a large one gains: below 1, the small one gains less."""

    name: Literal["gain-ratio"]
    small: list[str] = Field(min_length=2, max_length=2)
    """The run before, and the run after; their epochs' times are compared."""
    large: list[str] = Field(min_length=2, max_length=2)


class MemoryRatio(Section):
    """Peak memory of `run` as a part of that of `over`: on the device if both ran on one, else resident."""

    name: Literal["memory-ratio"]
    run: str
    over: str


class Memory(Section):
    """Peak memory of a run in MiB: on its device, else resident."""

    name: Literal["memory"]
    run: str


class FastestWithin(Section):
    """The fastest of some runs whose peak on the device is within `memory_limit_mib` of params.yaml."""

    name: Literal["fastest-within"]
    runs: list[str] = Field(min_length=2)
    expected: str
    """The run that the claim says it is."""


class Compilation(Section):
    """Seconds that a run's compilation took, by Dynamo's own account."""

    name: Literal["compilation"]
    run: str


class BreakEven(Section):
    """Epochs after which a compiled run has made up for the time that its compilation took."""

    name: Literal["break-even"]
    run: str
    over: str


class GraphBreaks(Section):
    """Graph breaks of a compiled run."""

    name: Literal["graph-breaks"]
    run: str


class Outcome(Section):
    """Whether a run trained."""

    name: Literal["outcome"]
    run: str
    status: Literal["trained", "failed"]


class Accuracy(Section):
    """Difference between two runs in accuracy, precision and recall on held-out samples: the largest of the three."""

    name: Literal["accuracy"]
    run: str
    over: str


class LearnsAlike(Section):
    """The verdict on two recipes' learning curves: an entry of `curves` in params.yaml."""

    name: Literal["learning-curves"]
    curves: str
    verdict: Literal["consistent", "drifted"]


class LossesFall(Section):
    """Every one of these runs' losses falls: the mean of the last fifth of its steps is below that of the first."""

    name: Literal["losses-fall"]
    runs: list[str] = Field(min_length=1)


class LoadingTime(Section):
    """Time of an epoch with so many workers, over that with `than` workers, each by its fastest start method."""

    name: Literal["loading-time"]
    workers: int = Field(ge=0)
    than: int = Field(ge=0)


class BatchesHeld(Section):
    """Batches that wait in memory when the workers have loaded all that they may ahead."""

    name: Literal["batches-held"]
    workers: int = Field(ge=1)
    prefetch_factor: int = Field(ge=1)


class LoaderFailures(Section):
    """How often loading in worker processes failed while a run trained."""

    name: Literal["loader-failures"]
    run: str


class Telemetry(Section):
    """GPU utilisation and temperature of a run, by NVML."""

    name: Literal["telemetry"]
    run: str


ABSOLUTE = (Seconds, Memory, Compilation)
"""Measures whose figure says nothing about a claim that was made at another scale."""

Measure = Annotated[
    Weights
    | Shards
    | SameTraining
    | Parameters
    | Seconds
    | TimeRatio
    | GainRatio
    | MemoryRatio
    | Memory
    | FastestWithin
    | Compilation
    | BreakEven
    | GraphBreaks
    | Outcome
    | Accuracy
    | LearnsAlike
    | LossesFall
    | LoadingTime
    | BatchesHeld
    | LoaderFailures
    | Telemetry,
    Field(discriminator="name"),
]
