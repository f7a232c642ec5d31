"""`reports/parity.json`: the verdicts on pairs of runs; `compare` and `check` answer with the same record."""

from html import escape
from typing import Any, Literal

from pydantic import Field

from trainparity.records.base import Record
from trainparity.records.curves import CurveResult
from trainparity.records.later_steps import LaterSteps, sentences
from trainparity.records.numbers import NOTHING, counted, number
from trainparity.records.operators import FirstOperator

Outcome = Literal["bitwise", "equivalent", "different", "cannot judge", "skipped", "failed"]
"""`failed`: a run crashed; `skipped`: one was not tried; `cannot judge`: the evidence of two runs proves nothing."""

SAME_TRAINING: tuple[Outcome, ...] = ("bitwise", "equivalent")
UNKNOWN = "unknown"
"""The cause where no test proves one."""

_FURTHEST, _PART_OF_MARGIN = 5.0, 0.7
"""Multiple of the noise floor beyond which right runs seldom lie, in fp32 and in coarse formats.

Of the controls the furthest lay at 4.5 in fp32, and at 3.4 in bf16, whose margin is 5; of other people's trainings two
were seen beyond, at 5.8 and 8.6 (a ResNet in channels_last).
"""

JUDGED: tuple[Outcome, ...] = (*SAME_TRAINING, "different")

Link = Literal[
    "start", "inputs", "forward", "loss", "backward", "accumulation", "reduction", "clipping", "update", "buffers"
]
"""A link of the chain that makes an optimizer step, in its order; `start`: the weights that the step begins with."""


class Worst(Record):
    """The largest distance over floor of one kind of tensor in one pair."""

    kind: Literal["gradient", "update", "weight", "buffer"]
    """What was compared."""
    distance_over_floor: float
    """`distance` / `floor`; infinity is written as 1e300."""
    distance: float
    """Relative L2 distance of the two runs."""
    floor: float
    """Relative L2 distance that correct twins of the reference reach from rounding alone."""
    step: int
    """Optimizer step, from 0."""
    tensor: str
    """A parameter's or buffer's name, or `(all)` for all of them together."""


class Resolution(Record):
    """What a verdict of `equivalent` could have seen of one kind of tensor, where a window of steps begins."""

    kind: Literal["gradient", "update", "weight", "buffer"]
    """What was compared."""
    whole: float
    """A relative L2 error of all tensors together beyond this would have been `different`."""
    weakest: float
    """The same of the tensor whose noise floor is the widest."""
    tensor: str
    """That tensor's name."""


class Bisection(Record):
    """Which of several settings, switched at once, are another training."""

    smallest: list[list[str]]
    """The settings that are another training each by itself; else one set of which none can be left out."""
    tried: dict[str, Outcome]
    """The verdict on each set that was tried, by its settings joined by ` + `."""

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        if len(self.smallest[0]) > 1:
            found = f"only together: {' + '.join(self.smallest[0])}, of which none can be left out"
        else:
            alone = [settings[0] for settings in self.smallest]
            found = f"{', '.join(alone)}: {'each' if len(alone) > 1 else 'this alone'} is another training"
        return f"{found} ({counted(len(self.tried), 'set')} of settings tried)"


class Verdict(Record):
    """Whether two runs are the same training."""

    left: str
    """The run that `right` is compared with: its name, or its folder."""
    right: str
    """The run that is judged."""
    verdict: Outcome
    """`bitwise` and `equivalent` are the same training."""
    reason: str | None = None
    """Where the runs differ, or why the pair was skipped, failed or cannot be judged."""
    hidden_by_floor: bool = False
    """Of `cannot judge`: the noise floor of the format that both runs compute in hides faults; float64 can tell."""
    cause: str | None = None
    """Of `different`: an identifier of docs/causes; `unknown` where no test proves a cause."""
    link: str | None = None
    """Of `different`: the link of the chain inputs, forward, loss, backward, accumulation, reduction, clipping, update,
    buffers on which the runs part (`start`: they began apart); null where too little was recorded to place it."""
    explanation: str | None = None
    """The cause in one sentence."""
    advice: str | None = None
    """What to change, or what can say more, in one sentence."""
    model: str | None = None
    """Of runs that train several models: the one that the cause, or the reason, is about; null for the first."""
    models: list[str] = Field(default_factory=list)
    """All of them; empty where there is one."""
    step: int | None = None
    """First optimizer step (from 0) beyond the margin; null if none is."""
    tensor: str | None = None
    """The first tensor beyond the margin in that step: an activation in forward order, else a gradient in backward
    order, else an update."""
    evidence: dict[str, Any] = Field(default_factory=dict)
    """The numbers that prove the cause, by name; of an unknown cause, what was measured."""
    confirmation: str | None = None
    """What a further run with that one factor fixed, or in float64, has shown; null if there was none."""
    operator: FirstOperator | None = None
    """Of `different`, with `--ops`: the first operator that returns something else; null where none was looked for."""
    bisection: Bisection | None = None
    """Of `different`, with `--bisect`: which of the settings it is; null where that was not asked."""
    weights: Literal["bitwise", "equivalent", "different"] | None = None
    """The verdict on gradients, updates and weights alone, without buffers; null unless judged."""
    distance_over_floor: float | None = None
    """Largest over kinds, tensors and steps; null unless judged; infinity is written as 1e300."""
    margin: float
    """`equivalent` means: within this multiple of the noise floor."""
    resolution: float | None = None
    """Of `equivalent`: a relative error of the whole gradient beyond this would have been `different`."""
    resolutions: list[Resolution] = Field(default_factory=list)
    """Of `equivalent`: the same for each kind of tensor; empty otherwise."""
    environment: list[str] = Field(default_factory=list)
    """What the runs did not compute alike with: versions, devices, threads, flags, environment variables, files of
    their own code."""
    calibrated: bool = True
    """Whether twins measured the noise floor; if not, it is an analytic bound, which is less reliable."""
    steps_compared: int = 0
    """Optimizer steps that were compared one by one: those that both runs traced."""
    steps_made: int | None = None
    """Optimizer steps that were made, in the run that made more; null where that is not known, as in recordings of
    earlier versions, or where the recording ended before the training did."""
    later_steps: list[LaterSteps] = Field(default_factory=list)
    """Those that were made after the last one that was compared; empty where there are none, or that is not known."""
    worst: list[Worst] = Field(default_factory=list)
    """The largest distance over floor of each kind of tensor; empty unless judged."""
    ranks_agree: bool = True
    """Whether all ranks of both runs held the same parameters after every step."""
    curves: CurveResult | None = None
    """Of a reduced precision: whether it learns as fp32 does, over seeds; null where that was not asked."""
    vacuous: bool = False
    """Whether the run is its own reference, in another precision than fp32: equal bits say nothing, `curves` does."""

    @property
    def outcome(self) -> str:
        """The word for tables: of equal steps that of the learning curves, if these drifted or alone say anything."""
        if self.verdict not in SAME_TRAINING:
            return self.verdict
        if self.curves and (self.vacuous or self.curves.verdict == "drifted"):
            return self.curves.verdict
        return "cannot judge" if self.vacuous else self.verdict

    @property
    def again_in_float64(self) -> bool:
        """Whether it is the same training beyond the margin: a run in float64 decided it, as `confirmation` tells."""
        return self.verdict in SAME_TRAINING and (self.distance_over_floor or 0.0) > self.margin

    @property
    def lies_far(self) -> bool:
        """Whether it is `equivalent`, and further than right runs mostly lie: float64 may tell more."""
        return self.verdict == "equivalent" and self.furthest_right < (self.distance_over_floor or 0.0) <= self.margin

    def may_hide_a_fault(self, *, coarse: bool, float64: bool) -> bool:
        """Tell whether float64 may show a fault in runs that are the same as far as their own format tells.

        Args:
            coarse: Whether that is coarser than fp32.
            float64: Whether it is float64 already.
        """
        return self.verdict == "equivalent" and (coarse or (self.lies_far and not float64))

    @property
    def furthest_right(self) -> float:
        """The multiple of the floor beyond which right runs seldom lie."""
        return min(_FURTHEST, _PART_OF_MARGIN * self.margin)

    @property
    def multiple(self) -> str:
        """Largest distance / floor as tables show it, with what decided where that alone would say something else."""
        if self.vacuous:
            return NOTHING
        return number(self.distance_over_floor) + (" (float64: rounding)" if self.again_in_float64 else "")

    @property
    def extent(self) -> str:
        """How many steps were compared, of how many that were made."""
        if self.steps_made is None:
            return counted(self.steps_compared, "traced step")
        if self.steps_made == self.steps_compared:
            return (
                "the one step that was made" if self.steps_made == 1 else f"all {self.steps_made} steps that were made"
            )
        return f"{self.steps_compared} of the {self.steps_made} steps that were made"

    @property
    def not_compared(self) -> list[str]:
        """Of the same training: its last steps that were judged less closely or not at all, and what to do about it."""
        if self.verdict not in SAME_TRAINING:
            return []
        return sentences(self.later_steps, bitwise=self.verdict == "bitwise")

    @property
    def exit_code(self) -> int:
        """0 for the same training, 1 for another, 2 for everything else."""
        learned = self.curves.exit_code if self.curves else 0
        same = self.verdict in SAME_TRAINING and not (self.vacuous and self.curves is None)
        own = 0 if same else 1 if self.verdict == "different" else 2
        return 1 if 1 in (own, learned) else max(own, learned)

    def unclear(self, reason: str, **others: Any) -> "Verdict":
        """Return `cannot judge` in its place, with what was measured, a reason and other fields."""
        return self.model_copy(update={"verdict": "cannot judge", "weights": None, "reason": reason, **others})

    def __bool__(self) -> bool:
        """Tell whether it is the same training: so that `assert compare(a, b)` holds for nothing else."""
        return self.exit_code == 0

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        over = self.distance_over_floor
        rows = {
            f"{self.left} / {self.right}": self.outcome,
            "distance / noise floor": "" if over is None else f"{number(over)} (rounding: up to {number(self.margin)})",
            "compared": self.extent if self.steps_compared else "",
            "not compared one by one": "; ".join(self.not_compared),
            "reason": self.reason,
            "cause": self.cause and f"{self.cause}: {self.explanation}",
            "to change": self.advice,
            "second opinion": self.confirmation,
        }
        cells = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items() if text)
        return f"<table>{''.join(cells)}</table>"


class ParityReport(Record):
    """The verdicts on all pairs of a pipeline."""

    margin: float
    """`equivalent` means: within this multiple of the noise floor."""
    pairs: dict[str, Verdict]
    """By name, in the order of params.yaml."""

    def against(self, run: str, *references: str) -> Verdict | None:
        """Return the verdict on the pair of a run and its reference, which has one of these names."""
        pairs = self.pairs.values()
        return next((pair for pair in pairs if pair.right == run and pair.left in references), None)
