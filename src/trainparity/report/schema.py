"""reports/summary.json as typed records; docs/summary-schema.md documents every field."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from trainparity.records.base import Record
from trainparity.records.claims import ClaimReport
from trainparity.records.controls import ControlReport
from trainparity.records.curves import CurveResult
from trainparity.records.known_answer import KnownAnswer
from trainparity.records.timing import Memory, Utilisation
from trainparity.records.verdict import Outcome, Verdict


class Part(Record):
    """A part of the summary, whose field docstrings become the descriptions of its JSON Schema."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class StepTime(Part):
    """Wall time of one optimizer step in milliseconds."""

    median: float
    p10: float
    p90: float


class SpeedupSummary(Part):
    """Median step time of the reference / of the configuration; above 1 is faster."""

    ratio: float
    low: float
    """Lower bound of the 95 % bootstrap interval: noise within the two runs, no drift between them."""
    high: float


class RunSummary(Part):
    """One configuration or reference."""

    status: Literal["trained", "skipped", "failed"]
    reason: str | None
    """Why it was skipped or failed."""
    remedy: str | None
    """What to do about it."""
    device: str | None
    """cpu, mps or cuda; null if it could not be resolved."""
    device_name: str | None = None
    """For example the processor's model; null unless trained."""
    emulated: bool
    """Whether this machine only imitates a part of it: its times are then never ranked."""
    emulated_what: str | None
    """The part that is imitated."""
    strategy: str
    world_size: int
    accumulation: int
    """Micro-batches that one rank accumulates per optimizer step."""
    precision: str
    compile: str
    """torch.compile's mode, or `none`."""
    offload: str
    steps: int
    """Optimizer steps of the parity phase."""
    loss: float | None
    """Mean loss of the parity phase's last ten steps; null unless trained and finite."""
    reference: str
    """The run that this one is held against; its own name for a reference."""
    reference_device: str | None
    """Device of that run; where it differs from `device`, the speed-up is one between devices."""
    verdict: Outcome | None
    """Of the pair reference/this; null if there is no such pair."""
    distance_over_floor: float | None
    """Of the same pair, largest over tensors and steps; infinity is 1e300."""
    speedup: SpeedupSummary | None
    speedup_withheld: str | None
    """Why there is no speed-up; null if there is one."""
    step_ms: StepTime | None = None
    samples_per_s: float | None = None
    """Global batch / median step time."""
    wait_ms: float | None = None
    """Median time of a step spent waiting for data."""
    peak_memory_mib: float | None = None
    """Allocated on the device on cuda and mps, else resident in host memory; of one process, the largest."""
    memory: Memory | None = None
    warmup_s: float | None = None
    """All untimed steps, compilation included."""
    compile_s: float | None = None
    graphs: int | None = None
    graph_breaks: int | None = None
    break_places: list[str] = Field(default_factory=list)
    """Why and where each graph broke, as Dynamo words it."""
    loader_failures: int = 0
    """Ranks whose worker processes failed while it was timed; their later batches were sliced in memory."""
    flops_per_s: float | None = None
    """Floating-point operations of a step / median step time."""
    peak_flops_fraction: float | None = None
    """The same as a fraction of the peak measured on this machine."""
    utilisation: Utilisation | None = None
    num_threads: int | None = None
    """Intra-op threads of each rank."""
    measured_at: str | None = None
    """When its times were measured (ISO 8601, UTC): cached figures keep their date."""
    fingerprint: str | None = None
    """Of the environment that its times were measured in."""


class AcceleratorSummary(Part):
    """One accelerator of the machine."""

    kind: str
    name: str
    memory_mib: int
    capability: str | None


class EnvironmentSummary(Part):
    """Where the report was made; each run's own `fingerprint` says where it was measured."""

    fingerprint: str
    """Stable over reboots; results of one environment are never served as another's."""
    system: str
    machine: str
    python: str
    torch: str
    torchvision: str
    cuda: str | None
    processor: str
    cores: int
    accelerators: list[AcceleratorSummary]
    compiler: str | None
    nodes: int
    image: str | None


class WorkloadSummary(Part):
    """Section `workload` of params.yaml."""

    name: str
    options: dict[str, Any]
    """The workload's own settings."""


class DatasetSummary(Part):
    """Section `dataset` of params.yaml."""

    name: str
    options: dict[str, Any]
    """The data set's own settings."""


class Summary(Part):
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
    environment: EnvironmentSummary
    parallel: str | None
    """The configuration that `experiment` reports."""
    workload: WorkloadSummary
    dataset: DatasetSummary
    global_batch_size: int
