"""A realistic set of run artifacts, written by the real records: two cores, no GPU."""

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainparity.environment import Environment
from trainparity.records import layout
from trainparity.records.detail import DETAILS, Detail, Fact, Strip, write_details
from trainparity.records.known_answer import KnownAnswer
from trainparity.records.run import Status
from trainparity.records.timing import MachineLoad, Memory, StepParts, Timing
from trainparity.records.verdict import ParityReport, Verdict, Worst

PARAMS = """\
parallel: ddp
workload: {name: ddpm, options: {scale: tiny}}
dataset: {name: digits, image_size: 8}
train:
  max_steps: 40
  global_batch_size: 64
  optimizer: {name: adam, lr: 5.0e-5}
references:
  fp32: {}
configs:
  cpu: {strategy: single, device: cpu, precision: fp32}
  mps: {strategy: single, device: mps, precision: fp32}
  dp: {strategy: data_parallel, device: auto, precision: fp32, world_size: 2}
  ddp: {strategy: ddp, device: auto, precision: fp32, world_size: 2}
  gradaccum: {strategy: single, device: auto, precision: fp32, accumulation_steps: 2}
  compiled: {strategy: single, device: auto, precision: fp32, compile: default}
  lr-doubled: {strategy: single, device: auto, precision: fp32}
  broken: {strategy: single, device: auto, precision: fp32}
pairs:
  cpu: {left: reference, right: cpu}
  mps: {left: reference, right: mps}
  dp: {left: reference, right: dp}
  ddp: {left: reference, right: ddp}
  gradaccum: {left: reference, right: gradaccum}
  compiled: {left: reference, right: compiled}
  lr-doubled: {left: reference, right: lr-doubled}
  broken: {left: reference, right: broken}
  ddp-gradaccum: {left: ddp, right: gradaccum}
"""

PUBLISHED = [0.9472, 0.9440, 0.9527, 0.9687, 0.9570, 0.9343, 0.9411, 0.9186]
STEPS = 40
MARGIN = 16.0


def environment(**changes: Any) -> Environment:
    """Return a machine without accelerator."""
    fields: dict[str, Any] = {
        "system": "Linux",
        "machine": "x86_64",
        "python": "3.11.2",
        "torch": "2.14.1",
        "torchvision": "0.29.1",
        "cuda": None,
        "processor": "Example CPU @ 2.50GHz",
        "cores": 2,
        "accelerators": [],
        "compiler": "g++ 12.2.0",
        "nodes": 1,
        "image": None,
    }
    return Environment(**fields | changes)


def status(run: str, **changes: Any) -> Status:
    """Return a trained run on the CPU."""
    fields: dict[str, Any] = {
        "run": run,
        "status": "trained",
        "device": "cpu",
        "strategy": "single",
        "world_size": 1,
        "accumulation_steps": 1,
        "precision": "fp32",
        "compile": "none",
        "offload": "none",
        "steps": STEPS,
        "loss": 0.9312,
    }
    return Status(**fields | changes)


def timing(run: str, median: float, **changes: Any) -> Timing:
    """Return twenty steps around a median in milliseconds."""
    fields: dict[str, Any] = {
        "run": run,
        "date": "2026-03-01T12:30:05Z",
        "fingerprint": environment().fingerprint,
        "device_name": "Example CPU @ 2.50GHz",
        "world_size": 1,
        "num_threads": 2,
        "global_batch_size": 64,
        "step_ms": [median * (1 + 0.06 * math.sin(7 * step)) for step in range(20)],
        "machine": MachineLoad(others=0.02, stolen=0.0, slowest_mhz=2500.0, fastest_mhz=2500.0, throttled=0),
        "wait_ms": [0.2] * 20,
        "parts": StepParts(
            data_ms=0.2,
            forward_ms=0.3 * median,
            backward_ms=0.6 * median,
            optimizer_ms=0.1 * median - 0.2,
            reduction_ms=0.05 * median if "ddp" in run else None,
        ),
        "warmup_s": 0.4,
        "memory": Memory(host_mib=612.5),
        "flops_per_step": 3.1e9,
        "peak_flops_per_s": 9.8e10,
    }
    return Timing(**fields | changes)


def pair(right: str, verdict: str = "equivalent", left: str = "reference", **changes: Any) -> Verdict:
    """Return a verdict with its worst distances."""
    fields: dict[str, Any] = {"left": left, "right": right, "verdict": verdict, "margin": MARGIN}
    if verdict in ("bitwise", "equivalent", "different"):
        distance = {"bitwise": 0.0, "equivalent": 1.8e-7, "different": 0.04}[verdict]
        fields["distance_over_floor"] = distance / 2e-7
        fields["worst"] = [
            Worst(
                kind=kind,
                distance_over_floor=distance / 2e-7,
                distance=distance,
                floor=2e-7,
                step=17,
                tensor="head.weight",
            )
            for kind in ("gradient", "update", "weight")
        ]
    return Verdict(**fields | changes)


def runs() -> list[tuple[Status, Timing | None]]:
    """Return the runs of PARAMS: every kind of status once."""
    return [
        (status("reference-fp32"), timing("reference-fp32", 40.0)),
        (status("cpu"), timing("cpu", 40.2, reference_ms=[40.0] * 20)),
        (
            status(
                "mps",
                status="skipped",
                reason="no Apple GPU here",
                remedy="run it on a Mac",
                loss=None,
                steps=0,
            ),
            None,
        ),
        (
            status("dp", strategy="data_parallel", world_size=2, emulated="DataParallel over CPU replicas"),
            timing("dp", 70.0),
        ),
        (
            status("ddp", strategy="ddp", world_size=2),
            timing("ddp", 31.0, reference_ms=[40.0] * 20, world_size=2, num_threads=1, date="2026-03-02T08:00:00Z"),
        ),
        (
            status("gradaccum", accumulation_steps=2),
            timing("gradaccum", 46.0, reference_ms=[40.0] * 20, loader_failures=1),
        ),
        (
            status("compiled", compile="default"),
            timing(
                "compiled",
                25.0,
                reference_ms=[40.0] * 20,
                compile_s=21.4,
                graphs=3,
                graph_breaks=1,
                break_places=["print in model.py:12"],
            ),
        ),
        (status("lr-doubled", loss=0.8751), timing("lr-doubled", 12.5, reference_ms=[40.0] * 20)),
        (
            status("broken", status="failed", reason="RuntimeError: out of memory [rank 0]", loss=None, steps=3),
            None,
        ),
    ]


def pairs() -> dict[str, Verdict]:
    """Return the verdicts of PARAMS."""
    judged = [
        pair("cpu", "bitwise"),
        pair("mps", "skipped", reason="no Apple GPU here"),
        pair("dp"),
        pair("ddp"),
        pair("gradaccum"),
        pair("compiled"),
        pair("lr-doubled", "different", step=0, tensor="head.weight"),
        pair("broken", "failed", reason="RuntimeError: out of memory [rank 0]"),
    ]
    return {verdict.right: verdict for verdict in judged} | {"ddp-gradaccum": pair("gradaccum", left="ddp")}


def known_answer(**changes: Any) -> KnownAnswer:
    """Return article B's weights, reproduced."""
    fields: dict[str, Any] = {
        "claim": "B1",
        "published": PUBLISHED,
        "decimals": 4,
        "measured": {"ddp": PUBLISHED, "gradaccum": PUBLISHED},
        "largest_difference": 0.0,
        "reproduced": True,
    }
    return KnownAnswer(**fields | changes)


def write(root: Path, params: str = PARAMS) -> None:
    """Write params.yaml and everything that the report reads."""
    (root / "params.yaml").write_text(params, encoding="utf-8")
    environment().write(layout.environment(root / "runs"))
    known_answer().write(layout.known_answer(root / "runs") / "result.json")
    for run_status, run_timing in runs():
        write_run(root, run_status, run_timing)
    write_parity(root, pairs())


def write_run(root: Path, run_status: Status, run_timing: Timing | None) -> None:
    """Write one run's folder."""
    runs = root / "runs"
    run_status.write(layout.status(runs, run_status.run))
    if run_timing:
        run_timing.write(layout.timing(runs, run_status.run))
        rate = 0.05 if run_status.run == "lr-doubled" else 0.02
        rows = [(step, math.exp(-rate * step) + 0.05 * math.sin(3.7 * step)) for step in range(STEPS)]
        _write_csv(layout.losses(runs, run_status.run), ("step", "loss"), rows)


def write_parity(root: Path, results: dict[str, Verdict]) -> None:
    """Write the compare stage's outputs."""
    ParityReport(margin=MARGIN, pairs=results).write(root / "reports" / "parity.json")
    judged = {name: detail(result.distance_over_floor or 0.0) for name, result in results.items() if result.worst}
    write_details(root / "reports" / DETAILS, judged)
    rows = []
    for name, result in results.items():
        for index, kind in enumerate(("gradient", "update", "weight") if result.worst else ()):
            for step in range(STEPS):
                floor = 3e-9 * (1 + step) * 4**index
                scale = result.distance_over_floor or 0.0
                wave = 0.7 + 0.3 * math.sin(step + index)
                rows.append((name, step, kind, floor * scale * wave, floor))
    _write_csv(root / "reports" / "distance.csv", ("pair", "step", "kind", "distance", "floor"), rows)


def detail(scale: float, *, tensors: int = 6, steps: int = STEPS, **changes: Any) -> Detail:
    """Return a comparison whose distances reach so many times the floor."""
    names = [
        "(all)",
        *(f"blocks.{index // 2}.{('weight', 'bias')[index % 2]}" for index in range(tensors - 1)),
        "head.weight",
    ]
    floor = [[3e-9 * (1 + step) for step in range(steps)] for _ in names]
    apart = [
        [floor[row][step] * scale * (0.7 + 0.3 * math.sin(step + row)) for step in range(steps)]
        for row in range(len(names))
    ]
    wave = [1.0 + 0.1 * math.sin(step) for step in range(steps)]
    lengths = [[1.5 / (1 + row + step) for step in range(steps)] for row in range(len(names))]
    fields: dict[str, Any] = {
        "left": "0" * 64,
        "right": "1" * 64,
        "strips": [
            Strip(
                kind=kind,
                judged=kind != "activation",
                tensors=names,
                steps=list(range(steps)),
                distance=apart,
                floor=floor,
                left_norm=lengths,
                right_norm=[[2 * length for length in row] for row in lengths],
            )
            for kind in ("activation", "gradient", "update", "weight")
        ],
        "worst": [
            Worst(
                kind="gradient",
                distance_over_floor=scale,
                distance=2e-7 * scale,
                floor=2e-7,
                step=17,
                tensor="head.weight",
            )
        ],
        "steps": list(range(steps)),
        "facts": [
            Fact(name="loss", left=wave, right=wave, difference=[1e-8 * scale] * steps, band=[1e-7] * steps),
            Fact(
                name="learning rate",
                left=[0.1] * steps,
                right=[0.1] * steps,
                difference=[0.0] * steps,
                band=[0.0] * steps,
            ),
        ],
        "samples": f"the same samples at each of {steps} traced steps",
        "environment": {"torch": ("2.14.1", "2.14.1")},
    }
    return Detail(**fields | changes)


def _write_csv(path: Path, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    """Write rows with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
