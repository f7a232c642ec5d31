"""What torch.compile costs: cold, warm in a fresh process, and block by block; when it has paid.

Every measurement is a process of its own. `cold` begins without a kernel, `warm` with those of the cold one before.
What the compiler does once on a machine, whatever the model, lies in its usual cache by then.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from our_loop import our_loop, stepping
from pairs import Target, take_turns
from results_file import save
from torch import Tensor, nn

from trainparity.environment_variables import in_environment
from trainparity.measure import compilation
from trainparity.params import Configuration
from trainparity.report.speedup import Ratio, speedup
from trainparity.workloads import Batch, Section, Workload

FEATURES = 256


class Blocks(Workload):
    """A transformer's encoder: layers of one kind and shape after a projection, which stands for an embedding.

    Without it the first layer is given what needs no gradient, and is compiled once more than the others.
    """

    def __init__(self, layers: int) -> None:
        super().__init__(Section())
        self.layers = layers

    def build_model(self, sample: Batch) -> nn.Module:
        """Build it without dropout."""
        layer = nn.TransformerEncoderLayer(FEATURES, 4, 4 * FEATURES, 0.0, batch_first=True, norm_first=True)
        encoder = nn.TransformerEncoder(layer, self.layers, enable_nested_tensor=False)
        return nn.Sequential(nn.Linear(FEATURES, FEATURES), encoder)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum over samples of the mean square."""
        return model(batch["inputs"]).square().mean((1, 2)).sum()

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """Return the layers."""
        return list(model[1].layers)  # type: ignore[index, union-attr, arg-type]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each is compiled cold and warm.")] = 3,
    layers: Annotated[int, typer.Option(min=2, help="12: as GPT-2, BERT and ViT-B have.")] = 12,
    steps: Annotated[int, typer.Option(min=6, help="Timed after compilation.")] = 20,
    child: Annotated[str, typer.Option(hidden=True)] = "",
    cache: Annotated[Path, typer.Option(hidden=True)] = Path(),
) -> None:
    """Measure, print and write benchmarks/results/compile-cost-<device>.json."""
    if child:
        compilation.prepare()
        with in_environment({"TORCHINDUCTOR_CACHE_DIR": str(cache)}):
            print(json.dumps(_measure(layers, steps, blocks=child == "blocks")))
        return
    with tempfile.TemporaryDirectory() as empty:
        _in_a_process("blocks", layers, steps, Path(empty))  # makes what is made once
    found: dict[str, list[dict[str, Any]]] = {"whole cold": [], "whole warm": [], "blocks cold": [], "blocks warm": []}
    for _ in range(rounds):
        for kind in ("whole", "blocks"):
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    found[f"{kind} {state}"].append(_in_a_process(kind, layers, steps, Path(cache)))
    result = {"rounds": rounds, "layers": layers, "steps": steps, **_summary(found)}
    print(json.dumps(result, indent=1))
    print(save("compile-cost", result, _targets(found, layers)))


def _in_a_process(kind: str, layers: int, steps: int, cache: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", kind, "--layers", str(layers), "--steps", str(steps)]
    command += ["--cache", str(cache)]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(layers: int, steps: int, *, blocks: bool) -> dict[str, Any]:
    """Compile by a first step; then time steps in turns with an eager training."""
    torch.set_num_threads(1)
    kinds = (Configuration(), Configuration(compile="default", compile_blocks=blocks))
    tensors = {"inputs": torch.randn(256, 32, FEATURES)}
    lanes = [stepping(our_loop(Blocks(layers), tensors, 8, one)) for one in kinds]
    lanes[0]()
    started = time.perf_counter()
    lanes[1]()
    first = time.perf_counter() - started
    plain, compiled = take_turns(lanes, steps)
    step, without = statistics.median(compiled), statistics.median(plain)
    ratio = speedup(plain, compiled)
    gains = without - step
    breaks_even = round((first - without) / gains) if ratio.low > 1 else "never"
    return {
        "compile_s": first - step,
        "step_ms": 1e3 * step,
        "eager_ms": 1e3 * without,
        "speedup": list(ratio),
        "breaks_even_at_step": breaks_even,
    }


def _summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    keys = ("compile_s", "step_ms", "eager_ms", "speedup", "breaks_even_at_step")
    return {name: {key: [each[key] for each in runs] for key in keys} for name, runs in found.items()}


def _range(ratios: list[float]) -> Ratio:
    """Return the median with smallest and largest: too few to say more."""
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def _targets(found: dict[str, list[dict[str, Any]]], layers: int) -> list[Target]:
    def over(one: str, other: str, key: str) -> Ratio:
        return _range([a[key] / b[key] for a, b in zip(found[one], found[other], strict=True)])

    return [
        Target(
            name="compilation, warm",
            what="compiling in a fresh process with the kept cache over cold; smallest and largest in brackets",
            found=over("whole warm", "whole cold", "compile_s"),
            at_most=0.15,
            limited_by="tracing, which no cache keeps, and loading the compiler",
        ),
        Target(
            name="compilation, by blocks",
            what=f"compiling {layers} blocks of one kind once (`compile_blocks`) over the whole model, cold",
            found=over("blocks cold", "whole cold", "compile_s"),
            at_most=0.6,
            limited_by="what one block costs, and importing the compiler",
        ),
        Target(
            name="a step compiled by blocks",
            what="its time over that of a step of the model compiled whole, each over eager's beside it",
            found=_range([
                (a["step_ms"] / a["eager_ms"]) / (b["step_ms"] / b["eager_ms"])
                for a, b in zip(found["blocks warm"], found["whole warm"], strict=True)
            ]),
            at_most=1.05,
            limited_by="guards and calls, which each block has of its own",
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
