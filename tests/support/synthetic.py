"""Synthetic traces: what the Recorder would have written of a small training, without training anything.

The model is `a` (Linear), `norm` (BatchNorm1d), `drop` (Dropout) and `b` (Linear), trained with SGD; all tensors are
smaller than a sketch, so that every distance is exact.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.recording.backward_passes import SIZE
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.sketch import Sketcher, digest, levels
from trainparity.parity.recording.trace import Layout, Trace
from trainparity.parity.steps.difference import Difference
from trainparity.parity.verdict import judge_traces
from trainparity.records.verdict import Verdict

SHAPES = {"a.weight": [4, 3], "a.bias": [4], "b.weight": [2, 4]}
BUFFERS = {"norm.running_mean": [4]}
MODULES = {"(model)": "Model", "a": "Linear", "norm": "BatchNorm1d", "drop": "Dropout", "b": "Linear"}
ACTIVATIONS = ["(input)", "a", "norm", "drop", "b", "(output)"]
SKETCH, UNIT, SAMPLES = 32, 2.0**-24, 8

Change = Callable[[int, dict[str, Tensor]], dict[str, Tensor]]
"""From a step and the gradients by name to other gradients."""


def drawn(*seed: int, shape: Any = ()) -> Tensor:
    return _drawn(seed, tuple(shape))


@cache
def _drawn(seed: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(derived_seed(*seed)), dtype=torch.float64)


def trace(
    *,
    twin: int = 0,
    steps: int = 4,
    ranks: int = 1,
    parts: int = 1,
    weights: tuple[float, ...] = (),
    lr: Callable[[int], float] = lambda step: 0.1,
    limit: float | None = None,
    gradients: Change = lambda step, found: found,
    start: float = 0.0,
    buffer: float = 0.0,
    activations: dict[str, float] | None = None,
    given_back: dict[str, float] | None = None,
    held: Tensor | None = None,
    layout: dict[str, Any] | None = None,
    **arrays: Any,
) -> Trace:
    """Return the trace of a run.

    Args:
        twin: The twin's number: weights, gradients and activations differ by rounding.
        steps: Optimizer steps, all of them traced.
        ranks: Ranks; all hold the same.
        parts: Micro-batches of a step.
        weights: What the loss of each micro-batch is multiplied by; default 1.
        lr: The learning rate of a step.
        limit: Norm that gradients are clipped to.
        gradients: Changes a step's gradients.
        start: Added to the weights that the run starts from.
        buffer: Added to the buffer of each step.
        activations: Added to a module's output, by name.
        given_back: Added to the gradient of a module's output, by name.
        held: What the optimizer holds, and so updates, see `all_but`; default all.
        layout: Other facts of the run.
        arrays: Other values of whole arrays; `__` in a name stands for `/`.
    """
    sketch, micro_sketch = _sketcher(SKETCH), _sketcher(SIZE)
    noise = UNIT if twin else 0.0
    weight = {n: drawn(1, i, shape=s) + start for i, (n, s) in enumerate(SHAPES.items())}
    weight = {n: w * (1 + noise * drawn(2, twin, i, shape=w.shape).sign()) for i, (n, w) in enumerate(weight.items())}
    rows: list[dict[str, Tensor]] = []
    for step in range(steps):
        weighed = zip(weights or (1.0,) * parts, _micro_batches(step, parts, twin, noise), strict=True)
        pieces = [{n: factor * g for n, g in piece.items()} for factor, piece in weighed]
        whole = {n: sum((p[n] for p in pieces), torch.zeros(s, dtype=torch.float64)) for n, s in SHAPES.items()}
        whole = gradients(step, whole)
        total = torch.linalg.vector_norm(torch.cat([g.flatten() for g in whole.values()]))
        kept = min(1.0, limit / float(total)) if limit else 1.0
        holds = torch.ones(len(SHAPES), dtype=torch.bool) if held is None else held[step]
        rates = dict(zip(SHAPES, (lr(step) * holds).tolist(), strict=True))
        before, weight = weight, {n: w - rates[n] * kept * whole[n] for n, w in weight.items()}
        running = {"norm.running_mean": drawn(3, step, shape=[4]) * (1 + noise * drawn(4, twin)) + buffer}
        ids = (torch.arange(SAMPLES) + SAMPLES * step).view(ranks * parts, -1)
        seen = {n: drawn(5, step, i, shape=[6]) * (1 + noise * drawn(6, twin, step, i)) + (activations or {}).get(n, 0)
                for i, n in enumerate(ACTIVATIONS)}  # fmt: skip
        scale = sum(weights) / parts if weights else 1.0
        back = {n: scale * drawn(9, step, i, shape=[6]) * (1 + noise * drawn(10, twin, step, i))
                + (given_back or {}).get(n, 0) for i, n in enumerate(ACTIVATIONS)}  # fmt: skip
        back |= {"(input)": torch.zeros(6, dtype=torch.float64)}
        flat = torch.cat([g.flatten() for g in whole.values()])
        micro = torch.stack([micro_sketch(torch.cat([g.flatten() for g in p.values()])) for p in pieces])
        row = {
            **_of("gradient", whole, sketch), **_of("weight", weight, sketch), **_of("buffer", running, sketch),
            "start/sketch": torch.stack([sketch(w) for w in before.values()]),
            "activation/sketch": torch.stack([sketch(a) for a in seen.values()]),
            "activation_gradient/sketch": torch.stack([sketch(b) for b in back.values()]),
            "activation/numbers": torch.full((len(seen),), 6 * SAMPLES),
            "gradient/levels": torch.stack([levels(g) for g in whole.values()]),
            "applied/norm": torch.stack([kept * g.norm() for g in whole.values()]),
            "state/norm": torch.ones(len(SHAPES)) * step, "state/tensors": torch.ones(len(SHAPES)),
            "state/zeros": torch.zeros(len(SHAPES)),
            "optimizer_step": torch.tensor(float(step)),
            "state/steps": torch.ones(len(SHAPES)) * step,
            "loss": torch.tensor(1.0), "sequence": torch.tensor(step), "made_elsewhere": torch.tensor(0),
            "judged_elsewhere": torch.tensor(0),
            "aside": torch.tensor(0),
            "gradient_norm": total,
            "samples": ((ids + 1) ** 2).sum(), "num_samples": torch.tensor(SAMPLES), "sample_ids": ids.flatten() + 1,
            "rank/samples": (ids + 1).view(ranks, -1),
            "rank/rows": torch.full((ranks, parts), SAMPLES // (ranks * parts)),
            "rank/weight": torch.full((ranks,), 5), "rank/gradient": torch.full((ranks,), 6),
            "rank/missing": torch.zeros(ranks, len(SHAPES), dtype=torch.bool),
            "rank/random_state": torch.full((ranks,), step), "rank/drew": torch.zeros(ranks, dtype=torch.int64),
            "rank/backwards": torch.full((ranks,), parts), "rank/reached": torch.full((ranks,), parts),
            "rank/loss": torch.full((ranks,), scale, dtype=torch.float64),
            "rank/held": torch.tensor([[0.0] + [1.0] * (parts - 1)] * ranks, dtype=torch.float64),
            "rank/micro": micro.expand(ranks, -1, -1).clone(),
            "rank/given": torch.zeros(ranks, parts, SKETCH, dtype=torch.float64),
            "rank/total": micro_sketch(flat).expand(ranks, -1).clone(),
            "rank/after": torch.zeros(ranks, SIZE, dtype=torch.float64),
            "rank/left": torch.zeros(ranks, 0, dtype=torch.float64),
            "rank/clip_norm": torch.full((ranks,), float(total) if limit else -1.0),
            "evaluating": torch.zeros(len(MODULES), dtype=torch.bool),
            "clip/calls": torch.tensor(int(limit is not None)),
            "clip/max_norm": torch.tensor(-1.0 if limit is None else limit),
            "clip/cuts": torch.tensor(int(kept < 1)),
            "clip/backwards": torch.tensor(parts if kept < 1 else 0),
            "closure/held": torch.tensor(0.0), "closure/again": torch.tensor(False),
            "closure/evaluations": torch.tensor(0),
            "scale/value": torch.tensor(0.0), "scale/clipped": torch.tensor(False), "scale/left": torch.tensor(False),
            "held": holds, "frozen": torch.zeros(len(SHAPES), dtype=torch.bool),
            "setting/lr": lr(step) * holds.double(), "setting/weight_decay": 0.01 * holds.double(),
        }  # fmt: skip
        rows.append(row)
    stacked = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    facts = Layout(
        parameters=SHAPES, buffers=BUFFERS, steps=list(range(steps)), window=0, precision="fp32", unit_roundoff=UNIT,
        stored_roundoff=UNIT, modal=["norm", "drop"],
        sketch_size=SKETCH, world_size=ranks, twin=twin, activations=ACTIVATIONS, modules=MODULES, optimizer="SGD",
        outputs=["(output)"],
        settings={"samples": "identity"},
    ).model_copy(update=layout or {})  # fmt: skip
    return Trace(facts, stacked | {name.replace("__", "/"): value for name, value in arrays.items()})


def _micro_batches(step: int, parts: int, twin: int, noise: float) -> list[dict[str, Tensor]]:
    """Return the gradients of a step's micro-batches; they add up to the same, however many there are."""
    quarters = [
        {n: drawn(7, step, k, i, shape=s) * (1 + noise * drawn(8, twin, step, k, i, shape=s))
         for i, (n, s) in enumerate(SHAPES.items())}
        for k in range(4)
    ]  # fmt: skip
    size = 4 // parts
    return [
        {n: sum((q[n] for q in quarters[k * size : (k + 1) * size]), torch.zeros(s, dtype=torch.float64))
         for n, s in SHAPES.items()}
        for k in range(parts)
    ]  # fmt: skip


_sketcher = cache(Sketcher)


def _of(kind: str, tensors: dict[str, Tensor], sketch: Sketcher) -> dict[str, Tensor]:
    return {
        f"{kind}/sketch": torch.stack([sketch(t) for t in tensors.values()]),
        f"{kind}/norm": torch.stack([t.norm() for t in tensors.values()]),
        f"{kind}/digest": torch.tensor([digest(t.float()) for t in tensors.values()]),
    }


def all_but(*unheld: str, since: int = 0, steps: int = 4) -> Tensor:
    """Return what an optimizer holds that is without some parameters, as those that it is given at a step: [T, P]."""
    left_out = torch.tensor([name in unheld for name in SHAPES])
    return torch.stack([~left_out if step >= since else torch.ones_like(left_out) for step in range(steps)])


def scaled(factor: float, *only: str, since: int = 0) -> Change:
    """Multiply the gradients, or some of them, from a step on."""

    def change(step: int, found: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: g * factor if step >= since and n in (only or found) else g for n, g in found.items()}

    return change


def twins(count: int = 3, **options: Any) -> list[Trace]:
    """Return twins of the run that `trace` makes of these options."""
    return [trace(twin=number, **options) for number in range(1, count + 1)]


def floor(**options: Any) -> NoiseFloor:
    """Return the noise floor of the run that `trace` makes of these options."""
    options = {"SHAPES": SHAPES, **options}  # which a test may change
    for known, found in _FLOORS:
        if known.keys() == options.keys() and all(known[name] is value for name, value in options.items()):
            return found
    made = {name: value for name, value in options.items() if name != "SHAPES"}
    _FLOORS.append((options, NoiseFloor(trace(**_own(made)), twins(**{**_own(made), **made.get("of_twins", {})}))))
    return _FLOORS[-1][1]


def _own(options: dict[str, Any]) -> dict[str, Any]:
    """Return options without those that are of the twins alone."""
    return {name: value for name, value in options.items() if name != "of_twins"}


_FLOORS: list[tuple[dict[str, Any], NoiseFloor]] = []
"""Those of the options that were asked for, which most pairs share."""


def judge(left: dict[str, Any], right: dict[str, Any], **others: Any) -> Verdict:
    """Judge the runs that `trace` makes of two sets of options; `others` are options of both and of the twins.

    Those of `of_twins` in the first set are the twins' alone.
    """
    reference = {**others, **left}
    return judge_traces(trace(**_own(reference)), trace(**others, **right), floor(**reference), 16.0)


def difference(left: dict[str, Any], right: dict[str, Any], row: int = 0) -> Difference:
    return Difference(trace(**_own(left)), trace(**right), floor(**left), 16.0, row)
