"""The tables of runs: references and configurations, in the order of params.yaml, which is no ranking."""

from typing import NamedTuple

from trainparity.records.numbers import NOTHING, number
from trainparity.records.timing import StepParts
from trainparity.report import words
from trainparity.report.columns.column import Column, at
from trainparity.report.format import moment, percent, rate, span
from trainparity.report.schema import RunSummary, Summary
from trainparity.report.styles import key


class RunRow(NamedTuple):
    """One run of the tables."""

    name: str
    run: RunSummary
    is_reference: bool
    fingerprint: str
    """Of the environment that the report was made in."""

    @property
    def absent(self) -> bool:
        """Whether the run did not train."""
        return self.run.status.status != "trained"


def rows(summary: Summary) -> list[RunRow]:
    """Return references, then configurations, by the names of their runs."""
    references = [RunRow(run.reference, run, True, summary.fingerprint) for run in summary.references.values()]
    configurations = [RunRow(name, run, False, summary.fingerprint) for name, run in summary.configurations.items()]
    return references + configurations


def _setup(row: RunRow) -> str:
    """Say how a run is executed, less what is as in the plain reference."""
    status = row.run.status
    parts = [status.strategy]
    if status.world_size > 1:
        parts.append(f"{status.world_size} {'replicas' if status.strategy == 'data_parallel' else 'ranks'}")
    if status.accumulation_steps > 1:
        parts.append(f"{status.accumulation_steps} micro-batches")
    if status.compile != "none":
        parts.append("compiled" if status.compile == "default" else f"compiled ({status.compile})")
    if status.offload != "none":
        parts.append(f"offload {status.offload}")
    if status.precision != "fp32":
        parts.append(status.precision)
    return ", ".join(parts)


def _word(row: RunRow) -> str:
    """Return the verdict; of a run that did not train its status, so that it is never called anything better."""
    return "reference" if row.is_reference and not row.absent else words.outcome(row.run)


def _speedup(row: RunRow) -> str:
    if row.is_reference:
        return "1×" if row.run.timing else NOTHING
    return words.speedup_cell(row.run)


def _devices(row: RunRow) -> str:
    device, other = row.run.status.device, row.run.reference_device
    return f"{device}, its reference on {other}" if row.run.speedup and device != other else ""


def _gpu(row: RunRow) -> str:
    seen = row.run.timing and row.run.timing.utilisation
    if not seen:
        return NOTHING
    return f"{number(seen.gpu_percent)} %, {number(seen.temperature_c)} °C, {number(seen.energy_j)} J"


def _parts(row: RunRow) -> str:
    parts: StepParts | None = at("run.timing.parts")(row)
    return " / ".join(map(number, parts.model_dump().values())) if parts else NOTHING


def _pair(first: str, second: str) -> str:
    return f"{first} / {second}"


def _measured_on(row: RunRow) -> str:
    timing = row.run.timing
    return f"{timing.device_name}, {timing.num_threads} threads a rank" if timing else NOTHING


def _measured_at(row: RunRow) -> str:
    timing = row.run.timing
    if timing is None:
        return ""
    elsewhere = f", in another environment: {timing.fingerprint}" if timing.fingerprint != row.fingerprint else ""
    return f"{moment(timing.date)} UTC{elsewhere}"


RUNS: tuple[Column[RunRow], ...] = (
    Column(
        heading="configuration",
        text=at("name"),
        note=_setup,
        style=lambda row: "skipped" if row.run.status.status == "skipped" else "",
        numeric=False,
        places=("console", "page", "details"),
        fields={
            "configuration": at("name"),
            "status": at("run.status.status"),
            "strategy": at("run.status.strategy"),
            "world_size": at("run.status.world_size"),
            "accumulation_steps": at("run.status.accumulation_steps"),
            "precision": at("run.status.precision"),
            "compile": at("run.status.compile"),
            "offload": at("run.status.offload"),
        },
    ),
    Column(
        heading="device",
        text=lambda row: row.run.status.device or NOTHING,
        note=lambda row: "emulated" if row.run.status.emulated else "",
        numeric=False,
        fields={
            "device": at("run.status.device"),
            "emulated": lambda row: row.run.status.emulated is not None,
        },
    ),
    Column(
        heading="verdict",
        text=_word,
        style=lambda row: key(_word(row), row.run.status.emulated is not None),
        numeric=False,
        fields={"verdict": at("run.verdict.verdict")},
    ),
    Column(heading="distance\n/ floor", fields={"distance_over_floor": at("run.verdict.distance_over_floor")}),
    Column(
        heading="step ms\nmedian",
        note=lambda row: span(row.run.figures.step_ms.p10, row.run.figures.step_ms.p90) if row.run.figures else "",
        fields={
            "step_ms_median": at("run.figures.step_ms.median"),
            "step_ms_p10": at("run.figures.step_ms.p10"),
            "step_ms_p90": at("run.figures.step_ms.p90"),
        },
    ),
    Column(heading="samples\n/ s", fields={"samples_per_s": at("run.figures.samples_per_s")}),
    Column(
        heading="speed-up\n(95 % interval)",
        text=_speedup,
        note=_devices,
        style=_speedup,
        fields={
            "speedup": at("run.speedup.ratio"),
            "speedup_low": at("run.speedup.low"),
            "speedup_high": at("run.speedup.high"),
        },
    ),
    Column(heading="peak\nMiB", fields={"peak_memory_mib": at("run.figures.peak_memory_mib")}),
    Column(heading="compile\ns", fields={"compile_s": at("run.timing.compile_s")}),
    Column(heading="warm-up\ns", places=("details",), fields={"warmup_s": at("run.timing.warmup_s")}),
    Column(heading="waiting for\ndata, ms", places=("details",), fields={"wait_ms": at("run.figures.wait_ms")}),
    Column(
        heading="data, forward, backward,\nreduction, optimizer, ms",
        places=("details",),
        text=_parts,
        fields={name: at(f"run.timing.parts.{name}") for name in StepParts.model_fields},
    ),
    Column(
        heading="graphs /\nbreaks",
        places=("details",),
        text=lambda row: _pair(number(at("run.timing.graphs")(row)), number(at("run.timing.graph_breaks")(row))),
        fields={"graphs": at("run.timing.graphs"), "graph_breaks": at("run.timing.graph_breaks")},
    ),
    Column(heading="host\nMiB", places=("details",), fields={"host_mib": at("run.timing.memory.host_mib")}),
    Column(
        heading="device MiB,\nallocated / reserved",
        places=("details",),
        text=lambda row: _pair(
            number(at("run.timing.memory.device_allocated_mib")(row)),
            number(at("run.timing.memory.device_reserved_mib")(row)),
        ),
        fields={
            "device_allocated_mib": at("run.timing.memory.device_allocated_mib"),
            "device_reserved_mib": at("run.timing.memory.device_reserved_mib"),
        },
    ),
    Column(
        heading="arithmetic",
        places=("details",),
        text=lambda row: rate(at("run.figures.flops_per_s")(row)),
        note=lambda row: f"{percent(at('run.figures.peak_flops_fraction')(row))} of the measured peak",
        fields={
            "flops_per_s": at("run.figures.flops_per_s"),
            "peak_flops_fraction": at("run.figures.peak_flops_fraction"),
        },
    ),
    Column(
        heading="GPU",
        places=("details",),
        text=_gpu,
        fields={
            "gpu_percent": at("run.timing.utilisation.gpu_percent"),
            "temperature_c": at("run.timing.utilisation.temperature_c"),
            "energy_j": at("run.timing.utilisation.energy_j"),
        },
    ),
    Column(
        heading="processors\nused by others",
        places=("details",),
        text=lambda row: percent(at("run.timing.machine.others")(row)),
        note=lambda row: words.disturbance(row.run.timing.machine) if row.run.timing else "",
        fields={
            "others_share": at("run.timing.machine.others"),
            "stolen_share": at("run.timing.machine.stolen"),
        },
    ),
    Column(
        heading="measured on",
        places=("details",),
        text=_measured_on,
        note=_measured_at,
        numeric=False,
        fields={
            "device_name": at("run.timing.device_name"),
            "measured_at": at("run.timing.date"),
            "fingerprint": at("run.timing.fingerprint"),
        },
    ),
)
"""One entry is a column of the console's table, of the page's two tables and of timing.csv."""
