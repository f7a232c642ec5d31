"""What a study measures besides its configurations: loader settings, learning curves, a picture."""

from typing import Annotated, Any, Literal

from pydantic import Field

from trainparity.params.execution import Name, Seconds, StartMethod
from trainparity.validation import Section


class Loading(Section):
    """Loader settings that the stage `loading` measures: every combination that makes a difference."""

    workers: list[Annotated[int, Field(ge=0, le=1024)]] = Field(default=[0, 1, 2], min_length=1)
    start_methods: list[StartMethod] = Field(default=["fork", "spawn"], min_length=1)
    prefetch_factors: list[Annotated[int, Field(ge=1, le=1024)]] = Field(default=[2], min_length=1)
    pin_memory: list[bool] = Field(default=[False], min_length=1)
    modes: list[Literal["training", "loading"]] = Field(default=["training"], min_length=1)
    """`training` makes the real steps; `loading` neither trains nor draws noise, so that loading alone is timed."""
    epochs: int = Field(default=1, ge=1)
    """Epochs that are timed, after `timing.warmup_steps` batches."""
    max_batches: int | None = Field(default=None, ge=1)
    """Time so many batches only; null times all epochs to their end."""
    deadline_s: Seconds = 120.0
    """The loader's deadline for each batch."""


class Recipes(Section):
    """Two references whose learning curves are compared."""

    left: str
    right: str


class Curves(Section):
    """Recipes of which no step can be equal (other batch sizes, learning rates, precisions): do they learn alike?"""

    seeds: int = Field(default=5, ge=4, le=1000)
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
