"""reports/summary.json as typed records; docs/summary-schema.md is generated from them."""

from typing import Any, Literal

from trainparity.environment import Environment
from trainparity.records.base import Record
from trainparity.records.claims import ClaimReport
from trainparity.records.controls import ControlReport
from trainparity.records.curves import CurveResult
from trainparity.records.known_answer import KnownAnswer
from trainparity.records.run import Status
from trainparity.records.timing import Timing
from trainparity.records.verdict import Verdict
from trainparity.report.figures import Figures


class Speedup(Record):
    """Step time of the reference / of the configuration, timed in turns; above 1 is faster."""

    ratio: float
    """The median over pairs of neighbouring steps."""
    low: float
    """Lower bound of its 95 % interval, by the sign test: drift that lasts longer than a pair of steps cancels."""
    high: float
    """Upper bound of the same interval."""


class RunSummary(Record):
    """One configuration or reference: what it wrote, how it was judged, and what follows from both."""

    status: Status
    """What ran, or why it did not."""
    timing: Timing | None
    """Null unless it trained."""
    verdict: Verdict | None
    """Of the pair reference/this; null if there is no such pair, as for a reference."""
    reference: str
    """The run that this one is compared with; its own name for a reference."""
    reference_device: str | None
    """Device of that run; where it differs from this run's, the speed-up is one between devices."""
    figures: Figures | None
    """Null unless it trained."""
    speedup: Speedup | None
    """Null where it is withheld."""
    speedup_withheld: str | None
    """Why there is no speed-up; null if there is one."""


class Chosen(Record):
    """A section of params.yaml: what was chosen by name, and its own settings."""

    name: str
    """The entry."""
    options: dict[str, Any]
    """Its own settings."""


class Summary(Record):
    """The whole of reports/summary.json."""

    schema_version: Literal[2] = 2
    """Raised when a field changes its meaning or goes; new fields do not raise it."""
    configurations: dict[str, RunSummary]
    """By name, in the order of params.yaml."""
    references: dict[str, RunSummary]
    """By entry of `references` in params.yaml."""
    pairs: dict[str, Verdict]
    """By name, in the order of params.yaml."""
    margin: float
    """`equivalent` means: within this multiple of the noise floor."""
    known_answer: KnownAnswer | None
    """A published result computed again; null in a pipeline that computes none."""
    controls: ControlReport | None
    """What the checker made of right and wrong loops, when and where; null if that was not recorded."""
    claims: ClaimReport | None
    """A study's published figures beside ours; null in a pipeline that is no study."""
    curves: dict[str, CurveResult]
    """Verdicts on learning curves over seeds, by their entry of `curves` in params.yaml."""
    environment: Environment
    """Where the report was made; each run's `timing.fingerprint` says where it was measured."""
    fingerprint: str
    """Of that environment: stable over reboots; results of one environment are never served as another's."""
    parallel: str | None
    """The configuration that `experiment` reports."""
    workload: Chosen
    """What was trained."""
    dataset: Chosen
    """What it was trained on."""
    global_batch_size: int
    """Samples of one optimizer step."""
