"""`<run>/report/timing.json`: time, memory and utilisation of a run's timed phase."""

import statistics
from typing import Annotated

from pydantic import Field

from trainparity.records.base import Record

UNSTEADY = 3.0
"""Times of which the 90th percentile is beyond so many times the 10th mean nothing: something else ran beside them."""


class Memory(Record):
    """Peaks of the timed phase in MiB, the largest of the ranks."""

    host_mib: float
    """Resident memory of one process."""
    device_allocated_mib: float | None = None
    """Allocated by tensors on the device; null on the CPU."""
    device_reserved_mib: float | None = None
    """Held by torch's allocator on the device; null on the CPU."""

    @property
    def peak_mib(self) -> float:
        """The one figure to compare runs by: allocated on the device, else resident on the host."""
        return self.host_mib if self.device_allocated_mib is None else self.device_allocated_mib


class Utilisation(Record):
    """What NVML saw during the timed phase."""

    gpu_percent: float
    """Share of time that the GPU was busy."""
    temperature_c: float
    """Highest temperature."""
    energy_j: float | None
    """Energy of the whole device; null where it does not count it."""


class MachineLoad(Record):
    """What else used the machine of rank 0 during the timed steps."""

    others: float
    """Share of all processor time that other processes used, from 0 to 1."""
    stolen: float
    """Share that the hypervisor gave to other virtual machines, from 0 to 1."""
    slowest_mhz: float | None
    """The lower of the processor's clock rates before and after; null where the system does not tell."""
    fastest_mhz: float | None
    """The higher one."""
    throttled: int | None
    """How often cores were slowed down for their heat; null where the kernel does not say."""


class StepParts(Record):
    """Where an optimizer step's time goes, in ms: of a few steps after the timed ones, the device waited for between
    the parts. FSDP's communication is within forward and backward pass."""

    data_ms: float
    """Waiting for data."""
    forward_ms: float
    """Copying the batch to the device, the forward pass and the loss."""
    backward_ms: float
    """The backward pass, of all micro-batches."""
    reduction_ms: float | None = None
    """What the backward pass takes longer for averaging gradients over ranks, which it does beside computing them
    (DDP): measured against steps without; null where that is not measured."""
    optimizer_ms: float
    """Unscaling, clipping and the optimizer's step."""


class Timing(Record):
    """The timed phase of one run, apart from its parity phase."""

    run: str
    """As in its `Status`."""
    date: str
    """When it was measured (ISO 8601, UTC, to the second): cached figures keep their date."""
    fingerprint: str
    """Of the environment that it was measured in."""
    device_name: str
    """For example `NVIDIA H100` or the processor's model."""
    world_size: int
    """As in its `Status`."""
    num_threads: int
    """Intra-op threads of each rank."""
    global_batch_size: int
    """Samples of one optimizer step."""
    step_ms: Annotated[list[float], Field(min_length=2)]
    """Wall time of each timed optimizer step in ms, synchronised; the slowest rank's."""
    wait_ms: list[float]
    """The part of each step spent waiting for data, in ms."""
    parts: StepParts | None = None
    """Where a step's time goes; null where it was not measured."""
    reference_ms: list[float] = Field(default_factory=list)
    """Wall time of the reference's steps in ms: number i was made just before or after number i of `step_ms`."""
    unpaired: str | None = None
    """Why the reference was not timed in turns with this run; null where it was, and for a reference."""
    machine: MachineLoad | None = None
    """What else used the machine; null without psutil."""
    loader_failures: int = 0
    """Ranks whose loading in worker processes failed on the way; their later batches were sliced in memory."""
    warmup_s: float
    """All untimed steps together in seconds, compilation included."""
    compile_s: float | None = None
    """Compilation in seconds by Dynamo's own account; null if not compiled, or if this torch keeps no such account."""
    graphs: int | None = None
    """Graphs that Dynamo compiled."""
    graph_breaks: int | None = None
    """Places where it fell back to Python."""
    break_places: list[str] = Field(default_factory=list)
    """Why and where each graph broke, as Dynamo words it."""
    memory: Memory
    """Peaks of the timed phase."""
    flops_per_step: float | None = None
    """Floating-point operations of one global batch, forward and backward; null where they cannot be counted."""
    peak_flops_per_s: float | None = None
    """Measured: the fastest square matrix product in the run's precision on its device, times ranks."""
    utilisation: Utilisation | None = None
    """Null without an NVIDIA GPU."""

    @property
    def step_percentiles_ms(self) -> tuple[float, float, float]:
        """The 10th, 50th and 90th percentile of the timed steps."""
        return _percentiles(self.step_ms)

    @property
    def steady(self) -> bool:
        """Whether the machine was the run's alone: the 90th percentile of steps is within `UNSTEADY` times the 10th.

        Those of the reference beside it count too.
        """
        of_each = [_percentiles(times) for times in (self.step_ms, self.reference_ms) if len(times) > 1]
        return all(high <= UNSTEADY * low for low, _, high in of_each)


def _percentiles(times: list[float]) -> tuple[float, float, float]:
    deciles = statistics.quantiles(times, n=10, method="inclusive")
    return deciles[0], deciles[4], deciles[8]
