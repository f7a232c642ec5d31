"""What the Recorder costs: time of a step with and without it, and the size of a large model's trace.

A loop without and one with the Recorder make their steps in turns, so that drift of the machine falls on both.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pairs import Target, in_turns
from results_file import save
from torch import Tensor, nn
from torchvision.models import mobilenet_v3_small, resnet18

import trainparity
from trainparity.parity.recording.schedule import INTERVAL
from trainparity.report.speedup import Ratio


class LanguageModel(nn.Module):
    """A causal transformer over bytes; `layers` and `width` set its size."""

    def __init__(self, layers: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [B, T] to logits [B, T, V]."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        logits: Tensor = self.head(self.blocks(self.embed(tokens), mask=mask, is_causal=True))
        return logits


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    steps: Annotated[int, typer.Option(help="Timed steps of a round; from the default interval on.", min=50)] = 100,
    large: Annotated[bool, typer.Option(help="Trace 50 steps of a model of 365 million parameters.")] = True,
) -> None:
    """Measure, print and write benchmarks/results/recorder-<device>.json."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result: dict[str, Any] = {
        "interval": INTERVAL,
        "cost": {label: _cost(make, device, rounds, steps) for label, make in WORKLOADS.items()},
    }
    if large:
        result["large"] = _large(device)
    print(json.dumps(result, indent=1))
    targets = [_target(label, cost["overhead_of_rounds"]) for label, cost in result["cost"].items()]
    print(save("recorder", result, targets))


def _target(label: str, shares: list[float]) -> Target:
    return Target(
        name=f"Recorder, {label.partition(',')[0].partition(' of')[0]}",
        what=f"what the Recorder adds to a step of the first 2,000 at its default interval, as a share of it: {label}",
        found=Ratio(statistics.median(shares), shares[0], shares[-1]),
        at_most=0.05,
        limited_by=f"the traced step, one in {INTERVAL} of the first 2,000, which projects every gradient and weight",
    )


def _resnet() -> tuple[nn.Module, Tensor]:
    return resnet18(num_classes=10), torch.randn(32, 3, 64, 64)


def _transformer() -> tuple[nn.Module, Tensor]:
    return LanguageModel(6, 256, 1024), torch.randint(0, 1024, (16, 128))


def _mobilenet() -> tuple[nn.Module, Tensor]:
    return mobilenet_v3_small(num_classes=10), torch.randn(4, 3, 32, 32)


WORKLOADS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "resnet18, 32 images of 64 x 64": _resnet,
    "transformer of 5 million parameters, 16 lines of 128 tokens": _transformer,
    # Of operations so small that starting each is what takes the time, as on a GPU.
    "mobilenet_v3_small, 4 images of 32 x 32": _mobilenet,
}


def _cost(
    make: Callable[[], tuple[nn.Module, Tensor]], device: torch.device, rounds: int, steps: int
) -> dict[str, Any]:
    """Return medians over rounds in milliseconds, and what the Recorder adds to one of the first 2,000 steps."""
    torch.manual_seed(0)
    model, inputs = make()
    models = [model.to(device), deepcopy(model).to(device)]
    optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-4) for each in models]
    alone, watched = (partial(_step, *each, inputs.to(device)) for each in zip(models, optimizers, strict=True))
    in_turns([alone, watched], 5)
    figures = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        with (
            tempfile.TemporaryDirectory() as folder,
            trainparity.record(models[1], optimizers[1], folder, first=0) as recorder,
        ):
            figures.append(_of_round(*in_turns([alone, watched], steps + 1)))
            assert recorder.step == steps + 1
    shares = sorted(each["overhead"] for each in figures)
    medians = {name: statistics.median(each[name] for each in figures) for name in figures[0]}
    return medians | {"overhead_of_rounds": shares}


def _of_round(alone: list[float], watched: list[float]) -> dict[str, float]:
    """Return a round's medians; an untraced step is compared with the one beside it."""
    untraced = [number for number in range(len(watched)) if number % INTERVAL]
    plain, traced = statistics.median(alone), statistics.median(watched[::INTERVAL])
    share = statistics.median(watched[number] / alone[number] for number in untraced) - 1
    return {
        "plain_step_ms": plain,
        "untraced_step_ms": statistics.median(watched[number] for number in untraced),
        "traced_step_ms": traced,
        "overhead_untraced": share,
        "overhead": share + (traced - plain) / plain / INTERVAL,
    }


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor) -> float:
    """Train a step and return its milliseconds."""
    start = time.perf_counter()
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    if inputs.is_cuda:
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def _large(device: torch.device) -> dict[str, Any]:
    """Trace 50 steps of a model of 365 million parameters and return the size of what is written."""
    torch.manual_seed(0)
    model = LanguageModel(28, 1024, 12000).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 12000, (1, 8), device=device)
    with tempfile.TemporaryDirectory() as folder:
        with trainparity.record(model, optimizer, folder, first=50):
            times = [_step(model, optimizer, tokens) for _ in range(50)]
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tensors": len(list(model.parameters())),
        "traced_steps": 50,
        "mib": size / 2**20,
        "traced_step_s": statistics.median(times) / 1000,
    }


if __name__ == "__main__":
    typer.run(main)
