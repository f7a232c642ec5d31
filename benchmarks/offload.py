"""Article E's network beyond a GPU's memory: its way, ours and none at all, step by step in turns.

Each way is a process of its own, so that the limit holds for it alone: torch refuses what goes beyond. The article's
way keeps parameters in host memory by FSDP and copies every saved tensor there and back; ours keeps parameters on the
GPU and what the blocks save within a budget. Without a GPU the processes run and their times mean nothing.
"""

import json
import statistics
import subprocess
import sys
from functools import partial
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from our_loop import images, our_loop
from pairs import Target, figures, in_turns, ratio, seconds
from results_file import measured_before, save

from trainparity import workloads
from trainparity.measure.clocks import synchronise
from trainparity.measure.memory import peaks, reset_peaks
from trainparity.params import Configuration, Optimizer
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer
from trainparity.training.precision import tensor_cores

LIMIT_MIB = 12 * 1024
"""The article's GPU."""
WAYS: dict[str, dict[str, Any]] = {
    "none": {},
    "ours": {"activation_budget_mib": 4096},
    "article": {"strategy": "fsdp", "offload": "both"},
}
RADAM = Optimizer(name="radam", lr=1e-4, weight_decay=1e-5)
WARM_UP = {"none": 3, "ours": 8, "article": 2}
"""Steps: ours measures its blocks first, and all that move tensors lock pages in the first."""


def main(
    steps: Annotated[int, typer.Option(min=6)] = 6,
    precisions: Annotated[str, typer.Option(help="Of fp32, tf32, bf16; separated by commas.")] = "fp32,tf32",
    batch: Annotated[int, typer.Option(min=1)] = 16,
    scale: Annotated[str, typer.Option(help="smoke, laptop or article.")] = "article",
    way: Annotated[str, typer.Option(help="For the processes that this one starts.")] = "",
    keep: Annotated[bool, typer.Option(help="Write benchmarks/results/offload-<device>.json.")] = True,
) -> None:
    """Measure, print and write; precisions left out keep their figures."""
    if way:
        _step_when_asked(_trainer(way, Configuration(precision=precisions, **WAYS[way]), batch, scale), way)  # type: ignore[arg-type]
        return
    found = measured_before("offload", "found", "facts") if keep else {}
    for precision in precisions.split(","):
        found[precision] = _measured(precision, batch, scale, steps)
        print(json.dumps({precision: found[precision]}, indent=1))
        result = {"steps": steps, "batch": batch, "scale": scale, "limit_mib": LIMIT_MIB, "ways": WAYS, "found": found}
        targets = [target for format_, each in found.items() for target in _targets(format_, each)]
        if keep:
            print(save("offload", result, targets))


def _measured(precision: str, batch: int, scale: str, steps: int) -> dict[str, Any]:
    processes = {way: _start(way, precision, batch, scale) for way in WAYS}
    try:
        for process in processes.values():
            _answer(process)  # it has its model
        for process in processes.values():
            print(_ask(process, "warm-up"), file=sys.stderr)  # alone: ours is measuring
        times = in_turns([partial(_ask, process, "step") for process in processes.values()], steps)
        facts = {way: _ask(process, "facts") for way, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    none, ours, article = times
    return {
        "step_ms": {way: 1e3 * statistics.median(own) for way, own in zip(WAYS, times, strict=True)},
        "ours_over_none": figures(ours, none),
        "article_over_ours": figures(article, ours),
        "facts": facts,
    }


def _start(way: str, precision: str, batch: int, scale: str) -> "subprocess.Popen[str]":
    options = ("--way", way, "--precisions", precision, "--batch", str(batch), "--scale", scale)
    command = [sys.executable, __file__, *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(process: "subprocess.Popen[str]", what: str) -> Any:
    assert process.stdin
    process.stdin.write(what + "\n")
    process.stdin.flush()
    return _answer(process)


def _answer(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args}: ended with {process.wait()}")
    return json.loads(line)


def _trainer(way: str, configuration: Configuration, batch: int, scale: str) -> Trainer:
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        if way != "none":
            whole = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(LIMIT_MIB * 2**20 / whole)
    if configuration.distributed:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    execution = Execution(device=device, offload_parameters=configuration.offload == "both")
    workload = workloads.load("superres", {"scale": scale, "crop": 128})
    return our_loop(workload, images(2 * batch, (3, 128, 128)), batch, configuration, execution, RADAM)


def _step_when_asked(trainer: Trainer, way: str) -> None:
    """Make a step, or those of the warm-up, when a line of standard input says so; to `facts` tell the memory."""
    device = trainer.execution.device
    batches = list(trainer.batches(0, 2, trainer.configuration.loader))

    def step() -> None:
        trainer.step(0, batches[0])
        synchronise(device)

    with tensor_cores(trainer.precision):
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            answer: Any
            match line.strip():
                case "step":
                    answer = seconds(step)
                case "facts":
                    answer = _facts(trainer)
                case _:
                    answer = [seconds(step) for _ in range(WARM_UP[way])]
                    reset_peaks(device)
            print(json.dumps(answer), flush=True)


def _facts(trainer: Trainer) -> dict[str, Any]:
    memory, budget = peaks(trainer.execution.device), trainer.activations
    return memory.model_dump() | (budget.chosen if budget else {})


def _targets(precision: str, found: dict[str, Any]) -> list[Target]:
    cut = f"super-resolution network of 365 million parameters in {LIMIT_MIB // 1024} GiB, {precision}"
    return [
        Target(
            name=f"offload over the article's way, {precision}",
            what=f"a step of the article's way over ours: {cut}",
            found=ratio(found["article_over_ours"]),
            at_least=3.0,
            limited_by="the computation itself, which the article's way also makes",
        ),
        Target(
            name=f"offload over none, {precision}",
            what=f"a step of ours over one without a limit: {cut}",
            found=ratio(found["ours_over_none"]),
            at_most=1.10,
            limited_by="the forward pass, which is too short to hide the copies, so that blocks are computed again",
        ),
    ]


if __name__ == "__main__":
    typer.run(main)
