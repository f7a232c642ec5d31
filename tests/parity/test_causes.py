"""Every rule on two synthetic traces: a pair that must be given its cause, and a near miss that must not."""

import itertools
from functools import cache, partial
from typing import Any

import pytest
import torch

from tests.support import synthetic
from tests.support.synthetic import (
    ACTIVATIONS,
    MODULES,
    SAMPLES,
    SHAPES,
    SKETCH,
    all_but,
    difference,
    drawn,
    judge,
    scaled,
    trace,
)
from trainparity.parity.causes import IDENTIFIERS, RULES
from trainparity.parity.causes.loss import scaled as scaled_loss
from trainparity.parity.causes.passes import own_gradients_agree
from trainparity.parity.causes.start import weights_not_loaded
from trainparity.parity.placement import place
from trainparity.records.verdict import Verdict

Pair = tuple[dict[str, Any], dict[str, Any]]
"""What `trace` is given for the reference, and for the other run."""

T, P = 4, len(SHAPES)
IDS = torch.arange(SAMPLES * T).view(T, -1) + 1


def ones(*shape: int, value: float = 1.0) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.float64)


def whole(*shape: int, value: int = 1) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.int64)


def ranks_part(**arrays: Any) -> dict[str, Any]:
    return {"ranks": 2, "rank__weight": torch.tensor([[5, 5], [5, 7], [5, 7], [5, 7]]), **arrays}


def on_its_outputs(times: int) -> dict[str, Any]:
    """A model that is called so often on what it has returned, for one loss."""
    return {"layout": {"calls": {"(output)": times}}}


def seen(ids: torch.Tensor) -> dict[str, Any]:
    return {"sample_ids": ids, "samples": (ids**2).sum(1), "num_samples": (ids != 0).sum(1)}


def evaluating(name: str) -> torch.Tensor:
    return torch.tensor([[module == name for module in MODULES]] * T)


def only_update(factor: float) -> dict[str, Any]:
    """An update that is off though the gradient is right."""
    return {"lr": lambda step: 0.1 * factor, "setting__lr": ones(T, P, value=0.1)}


def warming_up(step: int) -> float:
    return 0.1 * step


def held_by(name: str) -> dict[str, dict[str, str]]:
    """The bias's optimizer, and that of all else."""
    return {"optimizers": {key: name if key == "a.bias" else "SGD" for key in SHAPES}}


def averaged(by: float, factor: float = 1.0) -> dict[str, Any]:
    """A frozen parameter that the loop writes after each step, and that the next gradient depends on."""

    def changed(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return scaled(factor, "a.bias", since=1)(step, scaled(0, "a.weight")(step, found))

    made = trace(gradients=scaled(0, "a.weight")).arrays
    written = 1 + by * torch.arange(T)[:, None, None] * ~all_but("a.weight")[:, :, None]
    return {
        "gradients": changed, "held": all_but("a.weight"), "frozen": ~all_but("a.weight"),
        **{f"{kind}__sketch": made[f"{kind}/sketch"] * written for kind in ("start", "weight")},
    }  # fmt: skip


def follows(part: float) -> dict[str, Any]:
    """A parameter that the loop moves, after each step, a part of the way to another of its shape."""
    made = trace(held=all_but("a.weight"), gradients=scaled(0, "a.weight")).arrays
    start, weight = (made[f"{kind}/sketch"].clone() for kind in ("start", "weight"))
    for row in range(1, T):
        start[row, 0] = weight[row - 1, 0] + part * (weight[row - 1, 2] - weight[row - 1, 0])
        weight[row, 0] = start[row, 0]
    return {
        **COARSE, "gradients": scaled(0, "a.weight"), "held": all_but("a.weight"), "start__sketch": start,
        "weight__sketch": weight, "weight__digest": made["weight/digest"] + int(part * 1e6),
        "layout": {**COARSE["layout"], "parameters": {**SHAPES, "a.weight": [8, 4], "b.weight": [8, 4]}},
    }  # fmt: skip


CENTRE = {"layout": {"buffers": {"a.centre": [4]}}}
SPECTRAL = {"layout": {"buffers": {"norm._u": [4]}, "modules": MODULES | {"norm": "_SpectralNorm"}}}
FREEZES = scaled(0, "a.bias")
OFF, OFF_SINCE = scaled(1.5, "a.bias"), scaled(3, "a.bias", since=2)
OTHER_BITS = trace().arrays["weight/digest"] + 1
BIAS_DECAYS = trace(gradients=FREEZES).arrays["weight/sketch"] * torch.tensor([1.0, 0.999, 1.0])[:, None]
NO_BIAS = ~all_but("a.bias")[:, None]
LEFT_OUT = {"gradients": scaled(0, "a.weight"), "held": all_but("a.weight")}
NONE_WRITTEN = torch.zeros(T, P, dtype=torch.bool)
PASSES = "rank__backwards", "rank__reached"
NONE_HELD = torch.zeros(T, 1, 1, dtype=torch.float64)
CHAINED = {"layout": {"calls": {"(output)": 2}, "outputs": []}}
CONTENT = {"layout": {"settings": {"samples": "content"}}}
IN_PARTS = {"layout": {"outputs": ["a"], "given_outputs": ["a", "(output)"]}}
OTHER_INPUT = dict.fromkeys(("(input)", "a", "(output)"), 0.1)
NOTHING_SEEN = {
    "activation__numbers": torch.zeros(T, 0, dtype=torch.int64),
    **dict.fromkeys(("activation__sketch", "activation_gradient__sketch"), trace().arrays["activation/sketch"][:, :0]),
}
MADE = {"made_elsewhere": whole(T)}
MADE_BACK = drawn(20, shape=[T, 1, 1, 256])
FEW = torch.where(IDS % 8 == 1, IDS, IDS + 1000)
ONE_MORE = torch.cat([drawn(21, shape=[T, 1, 1, 256]), trace().arrays["rank/micro"]], 2)
TWICE = whole(T, 1, value=2)
MORE_HELD = torch.tensor([[[0.0, 1.0]]] * T, dtype=torch.float64)
AGAIN = torch.ones(T, dtype=torch.bool)
NO_MICRO = torch.zeros(T, 2, 1, 256, dtype=torch.float64)
PARTS_KEPT = trace(limit=1.0).arrays["applied/norm"] * torch.tensor([1.0, 1.5, 1.0])
APPLIED_AGAIN = {
    "gradient__sketch": trace().arrays["gradient/sketch"][[0, 0, 2, 3]],
    "rank__backwards": torch.tensor([[1], [0], [1], [1]]), "num_samples": torch.tensor([SAMPLES, 0, SAMPLES, SAMPLES]),
}  # fmt: skip
NOT_YET = {
    name.replace("/", "__"): torch.cat([torch.zeros_like(trace().arrays[name][:1]), trace().arrays[name][1:]])
    for name in ("rank/rows", "rank/backwards", "num_samples", "gradient/norm", "gradient/sketch", "applied/norm")
}
NEVER_REDUCED = {
    "gradients": scaled(0), "rank__micro": NO_MICRO, "rank__missing": torch.ones(T, 2, P, dtype=torch.bool),
}  # fmt: skip
DREW_ON_TWO = {"ranks": 2, "rank__drew": whole(T, 2), "rank__random_state": whole(T, 2, value=0)}
DREW = {"rank__drew": whole(T, 1)}
BACK = ["a", "norm", "drop", "b", "(output)"]
GELU = {**MODULES, "b": "GELU"}
OTHER = ones(T, P, value=0.5)
HEAD_TWICE = 0.1 * torch.arange(T, dtype=torch.float64)[:, None] * torch.tensor([1.0, 1.0, 2.0])
MORE_AT_ZERO = torch.cat([torch.where(IDS <= SAMPLES, IDS, IDS + 1000), IDS + 2000], 1)

COARSE: dict[str, Any] = {"layout": {"precision": "bf16", "unit_roundoff": 2.0**-8}}
COARSE_CONTENT: dict[str, Any] = {"layout": {**COARSE["layout"], **CONTENT["layout"]}}
BOOK = {**COARSE, "layout": COARSE["layout"] | CENTRE["layout"]}
COARSE_NORM: dict[str, Any] = {"layout": {**COARSE["layout"], "modules": {**MODULES, "a": "BatchNorm1d"}}}
TAKEN: dict[str, Any] = {"layout": {"loss_reads": [*SHAPES]}}
COUPLED: dict[str, Any] = {"layout": {"loss_coupled_by": "MmBackward0"}}
GIVEN_BACK = trace().arrays["activation_gradient/sketch"]
GIVEN_THE_SAME = {"activation_gradient__sketch": GIVEN_BACK, "rank__loss": torch.ones(T, 1, dtype=torch.float64)}
GIVEN = drawn(21, shape=[T, 1, 2, SKETCH])
SHARDED: dict[str, Any] = {"parts": 2, "rank__micro": torch.zeros(T, 1, 2, 256, dtype=torch.float64)}
WEIGHED: dict[str, Any] = {**SHARDED, "rank__given": GIVEN * torch.tensor([1.5, 0.5])[:, None]}
DECAYED = trace().arrays["start/sketch"] * torch.tensor([1.0, 1.0, 0.9999, 1.0])[:, None, None]
BY_RANK = trace(ranks=2).arrays["rank/micro"] + drawn(11, shape=[T, 1, 1, 256]) * torch.tensor([[[1.0]], [[-1.0]]])
TABLE = drawn(31, shape=[SKETCH]).expand(T, 1, SKETCH)


def constant(by: float) -> dict[str, Any]:
    """Return what is recorded of a table that no step changes, moved by a part of itself."""
    digest = torch.full((T, 1), round(1e6 * by))
    norm = ones(T, 1, value=float(TABLE[0].norm()) * (1 + by))
    return {**BOOK, "buffer__sketch": TABLE * (1 + by), "buffer__norm": norm, "buffer__digest": digest}


COMPILED: dict[str, Any] = {
    "layout": {**COARSE["layout"], "activations": [ACTIVATIONS[0], ACTIVATIONS[-1]]},
    **{f"activation__{key}": trace().arrays[f"activation/{key}"][:, [0, -1]] for key in ("sketch", "numbers")},
    "activation_gradient__sketch": 0 * trace().arrays["activation/sketch"][:, [0, -1]],
}
"""Shows nothing inside, and its loss is made there."""
HALF: dict[str, Any] = {"layout": {"precision": "fp16"}}
BOTH_MADE = {"rank__micro": trace(parts=2).arrays["rank/micro"]}
"""What two backward passes made, whatever is left of it."""
WHOLE_NORM = torch.linalg.vector_norm(trace(gradients=OFF, ranks=2, parts=2).arrays["gradient/norm"], dim=1)
TO_THE_END = torch.stack([0 * WHOLE_NORM, WHOLE_NORM / 2**0.5], 1)[:, None].expand(T, 2, 2)
"""What each of two ranks holds before two backward passes, of which the last adds nothing to it."""


def silent(array: str, column: int) -> torch.Tensor:
    """Return an array of a trace with zeros in one column."""
    values = trace().arrays[array].clone()
    values[:, column] = 0
    return values


ZEROS = {"start__sketch": silent("start/sketch", 2), "activation__sketch": silent("activation/sketch", 4)}
"""Weights of zero, of `b`, which returns zeros."""


NEW_HEAD = {"activation__sketch": silent("activation/sketch", 5)}
"""A model that returns zeros."""


SILENT = {"activation__sketch": silent("activation/sketch", 3)}
"""A module inside that returns zeros."""

LARGE: dict[str, Any] = {"layout": {**COARSE["layout"], "parameters": {name: [16, 4] for name in SHAPES}}}
NOTHING: dict[str, Any] = {
    **LARGE, **{name.replace("/", "__"): 0 * trace().arrays[name] for name in ("start/sketch", "activation/sketch")}
}  # fmt: skip
"""All weights are zero, and all that is made of them."""
STORED: dict[str, Any] = {"layout": {**COARSE["layout"], "stored_roundoff": 2.0**-6}}
OFF_SINCE_TWO = trace().arrays["activation/sketch"] + 0.0125 * (torch.arange(T) >= 2)[:, None, None]
"""What modules return, which other updates move beyond the floor in the third step."""


A_OFF_SINCE_TWO = trace().arrays["activation/sketch"] + 0.04 * (
    (torch.arange(T) >= 2)[:, None, None] & torch.tensor([name == "a" for name in ACTIVATIONS])[:, None]
)


def shrinking(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Clip by hand: another part is kept in each step."""
    return {name: g * 0.5 / (1 + step) for name, g in found.items()}


def each_shorter(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: g * 0.5 / (1 + place) for place, (name, g) in enumerate(found.items())}


def each_row_shorter(step: int, found: dict[str, torch.Tensor], by: int = 1) -> dict[str, torch.Tensor]:
    return {name: g / (1 + by * torch.arange(len(g)).view(-1, *[1] * (g.ndim - 1))) for name, g in found.items()}


def cut(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: g.clamp(-0.5, 0.5) for name, g in found.items()}


def decayed(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Add a tenth of the weights that the run starts from."""
    return {name: g + 0.1 * drawn(1, i, shape=g.shape) for i, (name, g) in enumerate(found.items())}


KEEPS: dict[str, Any] = {"state__norm": torch.ones(T, P), "layout": {"without_limit": True}}
"""What an optimizer of PyTorch's keeps is as long in all steps."""


def called(times: int) -> dict[str, Any]:
    """Return a run whose loop calls the model so often for a loss, as a solver does."""
    return {"layout": {"calls": dict.fromkeys(ACTIVATIONS[1:], times)}}


EXPERTS = ranks_part(rank__weight_apart=torch.tensor([name == "b.weight" for name in SHAPES]).expand(T, P))
"""Ranks of which each holds another parameter of one name."""

PROVED: dict[str, list[Pair]] = {
    "clipping": [
        ({"ranks": 2, "limit": 9.0}, ranks_part(limit=9.0, rank__clip_norm=torch.tensor([[9.0, 8.0]] * T))),
        ({"limit": 1.0}, {"limit": 0.5}),
        ({"limit": 1.0}, {"limit": 1.0, "twin": 9, "applied__norm": PARTS_KEPT, "clip__calls": whole(T, value=3)}),
        ({"limit": 1.0}, {}),
        ({"parts": 2, "limit": 1.0}, {"parts": 2, "gradients": OFF, "limit": 1.0, "clip__backwards": whole(T)}),
        (
            {"ranks": 2},
            {"ranks": 2, "gradients": OFF, "rank__after": ones(T, 2, 256) * torch.tensor([2.0, 4.0])[:, None],
             "rank__total": ones(T, 2, 256), "rank__left": ones(T, 2, 1) * torch.tensor([2.0, 4.0])[:, None]},
        ),
        ({}, {"gradients": shrinking}), ({"gradients": cut}, {}), ({"gradients": each_shorter}, {}),
        ({"gradients": partial(each_row_shorter, by=2)}, {"gradients": each_row_shorter}),
        (
            {"limit": 1.0},
            {"gradients": scaled(1024.0), "limit": 1024.0, "clip__max_norm": ones(T),
             "applied__norm": trace(limit=1.0).arrays["applied/norm"] / 1024},
        ),
        ({"limit": 1e3}, {"limit": 1e3, **only_update(1.1), "applied__norm": ones(T, P, value=9.0)}),
    ],
    "ranks-disagree": [
        ({"ranks": 2}, ranks_part()), ({"ranks": 2}, {"ranks": 2, **NEVER_REDUCED}),
        ({"ranks": 2}, {"ranks": 2, "gradients": decayed, "rank__total": BY_RANK[:, :, 0], "rank__micro": BY_RANK}),
        ({"ranks": 2}, {"ranks": 2, "parts": 2, "gradients": OFF, "rank__micro": NO_MICRO, "rank__held": TO_THE_END}),
        ({"ranks": 2}, ranks_part(gradients=OFF, rank__gradient=torch.tensor([[5, 7]] * T))),
    ],
    "weights-not-loaded": [
        ({}, {"start": 0.01}), ({}, {"gradients": OFF, "layout": {"tied": {"c.weight": "b.weight"}}}),
        (COARSE, {**COARSE, "start__sketch": DECAYED, "weight__digest": OTHER_BITS}),
        ({"closure__again": AGAIN}, {"closure__again": AGAIN, "start": 0.01}), (averaged(0.01), averaged(0.02, 1.5)),
        (follows(1e-4), follows(2e-4)),
        ({**follows(1e-4), "written": NONE_WRITTEN}, {**follows(1e-4), "written": ~NONE_WRITTEN}),
    ],
    "eval-mode": [
        ({}, {"gradients": OFF, "evaluating": evaluating("drop")}),
        ({**DREW}, {"gradients": OFF, "activations": {"a": 0.1}, "evaluating": evaluating("a")}),
    ],
    "samples": [
        (ranks_part(), {"ranks": 2, **seen(IDS + 1)}),
        ({}, {"gradients": OFF, **seen(IDS + 1)}),
        ({}, {"gradients": OFF, **seen(torch.cat([IDS[:, :-1], torch.zeros(T, 1, dtype=torch.int64)], 1))}),
        ({}, {"gradients": OFF, **seen(torch.cat([IDS[:, :-1], IDS[:, :1]], 1))}),
        ({"ranks": 2}, {"ranks": 2, "gradients": OFF, "layout": {"groups": [0, 0]}}),
        (CONTENT, {**CONTENT, "gradients": OFF, **seen(torch.where(IDS == 9, IDS, IDS + 1000))}),
        (CONTENT, {**CONTENT, "gradients": OFF, **seen(MORE_AT_ZERO)}),
        ({**CONTENT, **MADE}, {**CONTENT, **MADE, "gradients": OFF, "activations": OTHER_INPUT}),
        (MADE, {"gradients": OFF, "layout": {"activations": []}, **NOTHING_SEEN}),
    ],
    "gradients-not-zeroed": [
        ({}, {"gradients": scaled(2, since=1), "rank__held": torch.tensor([[[0.0]], [[2.0]], [[2.0]], [[2.0]]])}),
        (
            {"rank__held": torch.tensor([[[1.0, 0.0, 1.0]]] * T), "rank__backwards": whole(T, 1, value=3)},
            {"gradients": OFF, "rank__held": ones(T, 1, 3), "rank__backwards": whole(T, 1, value=3)},
        ),
        ({"parts": 2}, {"parts": 2, "weights": (0.0, 1.0), "rank__held": ones(T, 1, 2, value=0.0), **BOTH_MADE}),
        (
            {},
            {"gradients": OFF, "rank__held": MORE_HELD, "rank__micro": ONE_MORE, "rank__backwards": TWICE,
             "rank__total": ONE_MORE.sum(2)},
        ),
        (
            {"parts": 4},
            {"parts": 4, "weights": (0.0, 0.0, 1.0, 1.0), "rank__held": torch.tensor([[[0.0, 1.0, 0.0, 1.0]]] * T),
             "rank__micro": trace(parts=4).arrays["rank/micro"]},
        ),
        ({}, {"gradients": scaled(0)}),
        ({"limit": 9.0}, {"limit": 9.0, **only_update(0), "applied__norm": ones(T, P, value=0.0)}),
    ],
    "grad-scaler": [
        ({}, {"gradients": scaled(1024), "scale__left": whole(T).bool(), "scale__value": ones(T, value=1024)}),
        (
            {},
            {"gradients": scaled(1024), "scale__clipped": whole(T).bool(), "clip__cuts": whole(T),
             "scale__value": ones(T, value=1024)},
        ),
        (
            {"scale__value": ones(T, value=1024)},
            {"scale__value": ones(T, value=1024), "gradients": scaled(1 / 1024),
             "rank__micro": trace().arrays["rank/micro"]},
        ),
    ],
    "missing-backward": [
        (
            {"parts": 2},
            {"parts": 2, "weights": (0.0, 1.0), "rank__held": NONE_HELD} | dict.fromkeys(PASSES, whole(T, 1)),
        ),
        ({}, APPLIED_AGAIN),
        ({}, NOT_YET),
    ],
    "inputs": [
        (CONTENT, {**CONTENT, "gradients": OFF, **seen(IDS + 1000)}),
        (CONTENT, {**CONTENT, "gradients": OFF, **seen(FEW), "rank__samples": FEW[:, None]}),
        (CONTENT, {**CONTENT, "gradients": OFF, "activations": OTHER_INPUT}),
        (
            {**CONTENT, "of_twins": seen(torch.where(IDS % 4 == 0, IDS, IDS + 1000))},
            {**CONTENT, "gradients": OFF, **seen(torch.where(IDS % 4 == 0, IDS, IDS + 2000))},
        ),
        (
            {**COARSE_CONTENT, "applied__norm": ones(T, P)},
            {**COARSE_CONTENT, "applied__norm": ones(T, P), **seen(IDS + 1000), **only_update(1.1)},
        ),
    ],
    "precision": [
        (HALF, {**HALF, "gradients": scaled(float("inf"), since=2)}),
        ({}, {"gradients": scaled(1.001, "a.bias"), "layout": {"precision": "bf16", "unit_roundoff": 2.0**-8}}),
        ({}, {**only_update(0), "layout": {"stored_roundoff": 2.0**-8}}),
    ],
    "frozen-parameter": [
        ({}, {"gradients": FREEZES, "frozen": ~all_but("a.bias")}), ({}, {"gradients": FREEZES}),
        ({"gradients": FREEZES, "weight__sketch": BIAS_DECAYS}, {"gradients": FREEZES, "rank__missing": NO_BIAS}),
    ],
    "loss-normalisation": [
        ({"ranks": 2}, {"ranks": 2, "gradients": scaled(2.0, "b.weight"), "rank__micro": NO_MICRO}),
        (EXPERTS, {**EXPERTS, "gradients": scaled(2.0, "b.weight")}),
        ({}, {"weights": (2.0,)}),
        ({}, {"parts": 2, "weights": (2.0, 2.0)}),
        ({"parts": 2}, {"parts": 2, "weights": (0.75, 1.25)}),
        ({}, {"gradients": scaled(0.6)}),
        (SHARDED, {**SHARDED, "gradients": scaled(0.6)}),
        (
            {"ranks": 2},
            {"ranks": 2, "gradients": OFF, "rank__after": ones(T, 2, 256),
             "rank__total": ones(T, 2, 256) * torch.tensor([0.04, 0.0217])[:, None]},
        ),
        (
            NEW_HEAD,
            {
                **NEW_HEAD, "gradients": scaled(1.7), "activation_gradient__sketch": 1.7 * GIVEN_BACK,
                "rank__loss": ones(T, 1, value=1.7),
            },
        ),
        (
            COARSE,
            {**COARSE, "twin": 9, "weights": (1.5,), "rank__loss": ones(T, 1, value=1.5)},
        ),
        ({**SHARDED, "rank__given": GIVEN}, {**WEIGHED, "gradients": OFF}),
        ({**COARSE, **SHARDED, "rank__given": GIVEN}, {**COARSE, **WEIGHED, "gradients": scaled(1.02)}),
    ],
    "batch-coupled-loss": [
        (COUPLED, {**COUPLED, "gradients": OFF, "given_back": dict.fromkeys(BACK, 0.1), "parts": 2}),
    ],
    "batchnorm-statistics": [
        ({}, {"parts": 2, "gradients": OFF, "activations": {"norm": 0.1, "drop": 0.1, "b": 0.1, "(output)": 0.1}}),
        (COARSE_NORM, {**COARSE_NORM, "parts": 2, "gradients": OFF}), (COARSE, {**COARSE, "parts": 2, "buffer": 0.1}),
    ],
    "randomness": [
        (DREW, {"gradients": OFF, "activations": {"drop": 0.1}, **DREW, "rank__random_state": whole(T, 1, value=9)}),
        ({}, {"gradients": OFF, "activations": OTHER_INPUT}),
        (DREW_ON_TWO, {**DREW_ON_TWO, "gradients": OFF, "activations": {"b": 0.1},
                       "rank__random_state": torch.tensor([[0, 9]] * T)}),
        (DREW, {"gradients": OFF, "activations": {"drop": 0.1}, **DREW}),
    ],
    "forward": [
        ({}, {"gradients": OFF, "activations": {"(output)": 0.1}}),
        (called(4), {**called(9), "gradients": OFF, "activations": {"b": 0.1, "(output)": 0.1}}),
        (SPECTRAL, {**SPECTRAL, "parts": 2, "buffer": 0.1, "gradients": OFF}),
        (COARSE, {**COARSE, "twin": 9, "activations": {"b": 0.1, "(output)": 0.03}}),
        (constant(0.0), {**constant(0.02), "activations": {"a": 1e-3}}),
        ({}, {"gradients": OFF, "activations": {"b": 0.1, "(output)": 0.1}, "layout": {"modules": GELU}}),
        ({}, {"gradients": OFF, "activations": {"b": 0.1, "(output)": 2e-7}}),
        ({}, {"gradients": OFF, "activations": {"b": 1e-5, "(output)": 2e-7}, "given_back": {"a": 1e-4}}),
        (ZEROS, {**ZEROS, "gradients": scaled(1.5, "b.weight"), "rank__micro": ones(T, 1, 1, 256)}),
        (SILENT, {**SILENT, "gradients": scaled(1.5, "b.weight"), "given_back": {"drop": 0.1}}),
        ({}, {"gradients": FREEZES, "activations": {"b": 0.1, "(output)": 0.1}}),
        (IN_PARTS, {**IN_PARTS, "gradients": OFF, "activations": {"(output)": 0.1}, "given_back": {"a": 0.1}}),
        (NOTHING, {**NOTHING, "weights": (0.98,), **GIVEN_THE_SAME}),
        (
            {**DREW, "layout": {"dropped": {"drop": 0.1}}},
            {**DREW, "gradients": OFF, "activations": {"drop": 0.1}, "layout": {"dropped": {"drop": 0.2}}},
        ),
    ],
    "loss-or-targets": [
        ({}, {"gradients": OFF, "given_back": dict.fromkeys(BACK, 0.1)}),
        ({}, {"gradients": OFF, "given_back": dict.fromkeys(BACK, 0.1), "parts": 2}),
        ({}, {"gradients": decayed, "rank__micro": ones(T, 1, 1, 256)}),
        (COARSE, {**COARSE, "twin": 9, "given_back": dict.fromkeys(BACK, 0.1)}),
        (COARSE, {**COARSE, "twin": 9, "weights": (0.9,), "rank__loss": ones(T, 1)}),
        ({}, {"gradients": OFF, "rank__micro": ones(T, 1, 1, 256), "layout": {"differentiable": True}}),
        (
            TAKEN,
            {**TAKEN, "gradients": OFF, "rank__micro": ones(T, 1, 1, 256), "rank__loss": ones(T, 1, value=1.7)},
        ),
        ({}, {"gradients": scaled(0.6), "given_back": dict.fromkeys(BACK, 0.1)}),
        ({}, {"weights": (-1.0,)}),
        ({}, {"gradients": OFF, "given_back": {"a": 0.1}, "rank__loss": ones(T, 1, value=1.01)}),
        (COARSE, {**COMPILED, "gradients": scaled(1.001), "rank__loss": ones(T, 1, value=1.01)}),
    ],
    "backward": [
        ({}, {"gradients": OFF, "given_back": {"a": 0.1}}), ({}, {"weights": (0.94,), **GIVEN_THE_SAME}),
        ({}, {"gradients": OFF, "rank__micro": ones(T, 1, 1, 256)}),
        ({"rank__micro": MADE_BACK, "rank__total": MADE_BACK[:, :, 0]}, {"gradients": OFF, "rank__micro": MADE_BACK}),
        (CONTENT, {**CONTENT, "gradients": OFF, "rank__reached": whole(T, 1, value=2)}),
        (LARGE, {**LARGE, "weights": (0.98,), **GIVEN_THE_SAME}),
        ({}, {"gradients": OFF, **seen(IDS[:, :-2]), "layout": {"activations": ["(input) (whole)", *ACTIVATIONS[1:]]}}),
        (on_its_outputs(1), {"gradients": OFF, **seen(IDS.repeat(1, 2)), "rank__rows": whole(T, 1, 2, value=SAMPLES)}),
        (CHAINED, {**CHAINED, "gradients": OFF, "given_back": {"(output)": 0.1}}),
        (on_its_outputs(1), {"gradients": OFF, "aside": whole(T, value=5)}),
    ],
    "parameters-not-updated": [
        ({}, {"held": all_but(*SHAPES), **only_update(0)}), ({}, only_update(0)),
        ({}, {"held": all_but("a.bias"), "gradients": OFF}),
        ({}, {"held": all_but(*SHAPES), "start": 0.01}),
        ({}, {"gradients": scaled(1.5, "a.bias", since=1), "sequence": torch.tensor([0, 2, 3, 4])}),
        ({}, {"gradients": scaled(0), "rank__micro": NO_MICRO[:, :1], "rank__backwards": 0 * whole(T, 1)}),
    ],
    "learning-rate": [
        ({}, {"lr": lambda step: 0.2}),
        ({"lr": warming_up}, {"lr": lambda step: 0.15 * step}),
        ({"lr": warming_up}, {"lr": lambda step: 0.2 * step, "setting__lr": HEAD_TWICE}),
    ],
    "schedule": [
        ({}, {"lr": lambda step: 0.1 * 0.9**step}), ({}, {"lr": lambda step: 0.1 if step < 2 else 0.05}),
        ({"lr": warming_up}, {"lr": lambda step: warming_up(2 * step)}),
    ],
    "optimizer-state": [
        ({}, {**only_update(1.1), "layout": {"optimizer": "Adam"}}),
        ({"layout": held_by("SGD")}, {**only_update(1.1), "setting__lr": HEAD_TWICE, "layout": held_by("Muon")}),
        ({}, {**only_update(1.1), "setting__weight_decay": OTHER}),
        ({}, {**only_update(1.1), "state__norm": OTHER.float(), "optimizer_step": ones(T)}),
        ({}, {**only_update(1.1), "state__zeros": torch.ones_like(OTHER)}),
        ({**KEEPS}, {**KEEPS, "lr": lambda step: 0.1 if step < 2 else 0.11, "setting__lr": ones(T, P, value=0.1)}),
    ],
    "update": [
        ({}, only_update(1.1)), ({}, {"gradients": OFF, "closure__again": AGAIN}),
        ({"closure__again": AGAIN}, {"closure__again": AGAIN, "gradients": OFF}),
        (STORED, {**STORED, **only_update(1.08), "activation__sketch": OFF_SINCE_TWO}),
    ],
    "buffers-only": [
        ({}, {"buffer": 0.1}), ({}, {"parts": 2, "buffer": 0.1}), (COARSE, {**COARSE, "buffer": 0.1}),
        (constant(0.0), {**constant(0.02), "parts": 2}),
        (CENTRE, {**CENTRE, "buffer": 0.1, "gradients": scaled(1.5, "a.bias", since=1)}),
        (BOOK, {**BOOK, "buffer": 0.007, "activation__sketch": A_OFF_SINCE_TWO, "gradients": OFF_SINCE}),
    ],
}  # fmt: skip

MISSED: dict[str, Pair] = {
    "clipping": ({"limit": 1e6}, {"limit": 1e6, "parts": 2}),
    "ranks-disagree": ({}, {"ranks": 2, "gradients": OFF}),
    "weights-not-loaded": ({}, {"start": 1e-9, "gradients": OFF}),
    "eval-mode": ({}, {"gradients": OFF}),
    "samples": ({}, {"gradients": OFF, **seen(IDS.flip(1))}),
    "gradients-not-zeroed": ({"parts": 2}, {"parts": 2, "weights": (2.0, 2.0)}),
    "grad-scaler": (
        {}, {"gradients": OFF, "scale__left": whole(T).bool(), "scale__value": ones(T, value=1024)},
    ),
    "missing-backward": ({"parts": 2}, {"parts": 2, "gradients": OFF, "rank__backwards": whole(T, 1)}),
    "inputs": (CONTENT, {**CONTENT, "gradients": OFF, **seen(IDS + 1)}),
    "precision": ({}, {"gradients": scaled(4), "layout": {"precision": "bf16", "unit_roundoff": 2.0**-8}}),
    "frozen-parameter": ({}, {"gradients": scaled(0.5, "a.bias")}),
    "loss-normalisation": ({}, {"gradients": OFF}),
    "batch-coupled-loss": (
        {**COUPLED, "parts": 2}, {**COUPLED, "ranks": 2, "gradients": OFF, "given_back": dict.fromkeys(BACK, 0.1)},
    ),
    "batchnorm-statistics": ({}, {"parts": 2, "gradients": OFF, "activations": {"a": 0.1, "norm": 0.1}}),
    "randomness": (
        DREW, {"gradients": OFF, "activations": {"b": 0.1}, **DREW},
    ),
    "forward": ({}, {"gradients": OFF, "activations": {"b": 0.1}}),
    "loss-or-targets": ({}, {"gradients": OFF, "given_back": {"a": 0.1}}),
    "backward": ({}, {"gradients": OFF, "given_back": dict.fromkeys(BACK, 0.1)}),
    "parameters-not-updated": ({}, {"lr": lambda step: 0.0}),
    "learning-rate": ({}, {"lr": lambda step: 0.1 if step < 2 else 0.2}),
    "schedule": ({}, {"lr": lambda step: 0.2}),
    "optimizer-state": ({}, only_update(1.1)),
    "update": ({}, {**only_update(1.1), "applied__norm": ones(T, P)}),
    "buffers-only": ({}, {"buffer": 0.1, "gradients": OFF}),
}  # fmt: skip


@cache
def proved(cause: str, number: int) -> Verdict:
    return judge(*PROVED[cause][number])


@pytest.mark.parametrize(
    ("cause", "number"), [(cause, number) for cause, pairs in PROVED.items() for number in range(len(pairs))]
)
def test_a_fault_is_given_its_cause(cause: str, number: int) -> None:
    found = proved(cause, number)
    assert (found.verdict, found.cause) == ("different", cause), found
    assert found.explanation and found.advice and found.evidence


@pytest.mark.parametrize("cause", MISSED)
def test_a_near_miss_is_not_given_it(cause: str) -> None:
    found = judge(*MISSED[cause])
    assert found.cause != cause, found


def test_every_cause_has_a_pair_and_a_near_miss() -> None:
    assert set(PROVED) == set(MISSED) == set(IDENTIFIERS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.test.__name__)
def test_every_rule_proves_some_pair(rule: Any) -> None:
    def proves(number: int, pair: Pair) -> bool:
        step = proved(rule.cause, number).step
        return step is not None and rule.test(difference(*pair, row=step)) is not None

    assert any(itertools.starmap(proves, enumerate(PROVED[rule.cause])))


@pytest.mark.parametrize(
    "right", [{}, {"parts": 2}, {"parts": 4}, {"ranks": 2}, {"twin": 9}, {"parts": 2, "ranks": 2}], ids=str
)
@pytest.mark.parametrize(
    "others",
    [{}, {"limit": 1.0}, {"limit": 1e6}, {"lr": lambda step: 0.01 * step}],
    ids=["plain", "clipped", "limit-not-reached", "scheduled"],  # the repr of a function differs between processes
)
def test_a_right_run_is_not_different(right: dict[str, Any], others: dict[str, Any]) -> None:
    assert judge({}, right, **others).verdict in ("bitwise", "equivalent")


@pytest.mark.parametrize(
    ("link", "right"),
    [
        ("inputs", {"gradients": OFF, **seen(IDS + 1)}),
        ("forward", {"gradients": OFF, "activations": {"b": 0.1, "(output)": 0.1}}),
        ("loss", {"gradients": OFF, "given_back": dict.fromkeys(BACK, 0.1)}),
        ("backward", {"gradients": OFF, "given_back": {"a": 0.1}}),
        ("accumulation", {"gradients": OFF}),
        ("update", only_update(1.1)),
        ("buffers", {"buffer": 0.1}),
    ],
)
def test_a_difference_is_placed_whatever_its_cause(link: str, right: dict[str, Any]) -> None:
    assert place(difference({}, right))[0] == link


def test_an_unknown_cause_is_placed_and_says_what_is_equal() -> None:
    found = judge({}, {"gradients": OFF, "rank__backwards": whole(T, 1, value=99)})  # more than are kept one by one
    assert (found.cause, found.link) == ("unknown", "accumulation")
    assert "within the floor before it: the weights before the step, the samples, what the model returns" in str(
        found.explanation
    )
    none = torch.zeros(T, 0, SKETCH, dtype=torch.float64)
    blind = {"layout": {"outputs": [], "activations": []}, "activation__sketch": none}
    blind |= {"activation_gradient__sketch": none, "activation__numbers": torch.zeros(T, 0, dtype=torch.int64)}
    assert judge(blind, {**blind, "gradients": OFF}).link is None


@pytest.mark.parametrize(
    ("rows", "advice"), [(1, "its passes were made before its recording began"), (T, "tell them by `samples=`")]
)
def test_of_what_was_never_seen_it_is_said_how_to_see_it(rows: int, advice: str) -> None:
    """In the first step of a model that is recorded late, or in none."""
    unseen: dict[str, Any] = {"num_samples": (torch.arange(T) >= rows) * SAMPLES, "samples": torch.arange(T)}
    none = torch.zeros(T, 0, SKETCH, dtype=torch.float64)
    unseen |= {"layout": {"outputs": [], "activations": []}, "activation__sketch": none}
    unseen |= {"activation_gradient__sketch": none, "activation__numbers": torch.zeros(T, 0, dtype=torch.int64)}
    found = judge(unseen, {**unseen, "gradients": OFF})
    assert found.cause == "unknown" and advice in str(found.advice), (found.cause, found.advice)


def test_outputs_gradients_that_differ_by_one_factor_are_no_other_loss() -> None:
    """A loop that sums over ranks by hand divides the loss itself."""
    doubled = difference({}, {"gradients": OFF})
    doubled.right.arrays["activation_gradient/sketch"] *= 2
    assert doubled.chain.factor == pytest.approx(2) and doubled.chain.backward == []


@pytest.mark.parametrize(("factor", "proved"), [(0.6, False), (2.0, True)])
def test_of_a_model_of_one_number_a_factor_proves_only_a_count(
    factor: float, proved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "SHAPES", {"temperature": [1]})
    found = difference({"steps": 3}, {"steps": 3, "gradients": scaled(factor), "parts": 2})
    assert (scaled_loss.test(found) is not None) == proved


def test_more_samples_are_said_to_be_more() -> None:
    more = torch.cat([IDS, IDS + 1000], 1)
    assert "8 samples more are seen" in str(judge({}, {"gradients": OFF, **seen(more)}).explanation)


def test_of_one_sample_its_sentence_is_no_plural() -> None:
    def said(*, left: dict[str, Any], right: dict[str, Any]) -> str:
        return str(judge(left, {"gradients": OFF, **right}).explanation)

    one = torch.cat([IDS, IDS[:, :1] + 1000], 1)
    replaced, twice = IDS.clone(), IDS.clone()
    replaced[:, 0] += 1000
    twice[:, 0] = twice[:, 1]
    assert "1 sample more is seen" in said(left={}, right=seen(one))
    assert "1 sample is left out" in said(left=seen(one), right={})
    assert "1 sample is replaced by another" in said(left={}, right=seen(replaced))
    assert "1 sample comes twice" in said(left={}, right=seen(twice))


def test_an_option_is_told_where_it_differs() -> None:
    only_a = OTHER.clone()
    only_a[:, 1:] = 0.01
    found = judge({}, {**only_update(1.1), "setting__weight_decay": only_a})
    assert str(found.explanation) == "other options: weight_decay of a.weight: 0.01 against 0.5"


def test_ranks_are_those_of_the_run_that_is_named() -> None:
    assert "the ranks of right hold different parameters" in str(judge({"ranks": 2}, ranks_part()).explanation)


def test_what_lengthens_a_gradient_after_clipping_is_said_to_be_no_clipping() -> None:
    longer = {"limit": 1e3, **only_update(1.1), "applied__norm": ones(T, P, value=9.0)}
    assert "is changed between clipping and the update" in str(judge({"limit": 1e3}, longer).explanation)
    after_all = {"clip__backwards": whole(T), "clip__cuts": whole(T)}
    in_one = judge({"limit": 1e3, **after_all}, {**longer, **after_all, "clip__cuts": whole(T, value=0)})
    assert "is clipped in left alone" in str(in_one.explanation) and in_one.advice == "clip in both runs, or in neither"


def test_an_update_that_follows_its_gradient_within_the_floor_is_no_other_optimizer() -> None:
    """Where Adam's signs change, a gradient within bf16's floor makes quite another update."""
    found = judge(COARSE, {**COARSE, "gradients": scaled(1.015)})
    assert (found.verdict, found.cause, found.link) == ("different", "unknown", "update")


@pytest.mark.parametrize("right", [{}, {"parts": 2, "activations": {"b": 0.1, "(output)": 0.1}}])
def test_sums_that_depend_on_the_cut_do_not_decide_in_a_coarse_format(right: dict[str, Any]) -> None:
    assert judge(COARSE, {**COARSE, "twin": 9, **right}).verdict == "equivalent"


def test_a_coarse_format_does_not_make_one_factor_of_another_gradient() -> None:
    """A tenth that is left over is no rounding where the twins are a hundredth apart."""
    coarse = {"layout": {"precision": "bf16", "unit_roundoff": 2.0**-8}}

    def doubled(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: 2 * g * (1 + 0.2 * drawn(31, step, shape=g.shape)) for name, g in found.items()}

    found = judge(coarse, {**coarse, "gradients": doubled})
    assert found.cause != "loss-normalisation", found.explanation


def test_a_step_for_every_micro_batch_is_said() -> None:
    halves = torch.cat([IDS[:2].view(4, -1), torch.zeros(T, SAMPLES // 2, dtype=torch.int64)], 1)
    found = judge({}, {"gradients": OFF, **seen(halves)})
    assert found.cause == "samples" and "2 steps are made of one" in str(found.explanation), found.explanation


def test_weights_that_are_apart_since_the_step_before_were_loaded() -> None:
    """What that step's floor excused is no other start."""
    assert weights_not_loaded.test(difference({}, {"gradients": scaled(2)}, row=1)) is None
    assert weights_not_loaded.test(difference({}, {"start": 0.1}, row=0)) is not None


def test_a_point_that_each_micro_batch_takes_is_no_other_sample_where_the_gradient_is_a_multiple() -> None:
    once, twice = (torch.cat([IDS, extra], 1) for extra in (torch.zeros_like(IDS[:, :1]), IDS[:, :1]))
    for gradients, cause in ((scaled(2.0), "loss-normalisation"), (OFF, "samples")):
        found = judge({**CONTENT, **seen(once)}, {**CONTENT, **seen(twice), "gradients": gradients})
        assert found.cause == cause


def test_a_schedule_is_called_faster_only_where_the_rate_moves() -> None:
    late = judge({}, {"lr": lambda step: 0.1 if step < 2 else 0.05})
    assert "times as fast" not in str(late.explanation)
    twice = judge({"lr": lambda step: 0.1 * 0.9**step}, {"lr": lambda step: 0.1 * 0.9 ** (2 * step)})
    assert "2 times as fast" in str(twice.explanation)


def test_the_learning_rate_that_is_named_is_the_one_that_differs() -> None:
    rates = torch.full((T, P), 0.1, dtype=torch.float64)
    other = rates * torch.tensor([1.0, 0.5, 1.0])
    found = judge({}, {"twin": 9, "setting__lr": other})
    assert (found.cause, "0.5 times" in str(found.explanation)) == ("learning-rate", True), found.explanation
    falling = other.clone()
    falling[:, 1] = torch.tensor([0.05, 0.04, 0.03, 0.02])
    assert judge({}, {"twin": 9, "setting__lr": falling}).cause == "schedule"


@pytest.mark.parametrize("given", [drawn(22, shape=[T, 1, 2, SKETCH]), GIVEN, GIVEN * torch.tensor([[1.0], [0.0]])])
def test_other_gradients_of_passes_are_no_other_weights(given: torch.Tensor) -> None:
    other = {**SHARDED, "gradients": OFF, "rank__given": given, "given_back": dict.fromkeys(BACK, 0.1)}
    assert judge({**SHARDED, "rank__given": GIVEN}, other).cause == "loss-or-targets"


def test_weights_that_the_loop_makes_up_for_are_the_same_training() -> None:
    made_up = {**COARSE, "parts": 2, "rank__given": WEIGHED["rank__given"], "twin": 9}
    assert judge({**COARSE, "parts": 2, "rank__given": GIVEN}, made_up).verdict == "equivalent"


@pytest.mark.parametrize("factor", [1.0, 1 - 2.0**-23])
def test_weights_that_round_between_steps_or_change_in_both_runs_are_no_fault(factor: float) -> None:
    both = {**COARSE, "start__sketch": DECAYED if factor == 1 else trace().arrays["start/sketch"] * factor}
    assert judge(both if factor == 1 else COARSE, both | {"twin": 9}).verdict in ("equivalent", "bitwise")


def test_the_run_in_which_weights_change_is_named_where_others_change_in_both() -> None:
    """As an embedding with `max_norm`, which each forward pass writes into."""
    changes = torch.tensor([1.0, 1.0, 0.9, 1.0])[:, None, None]
    first = trace().arrays["start/sketch"].clone()
    first[:, 0] *= changes[:, 0]
    second = first.clone()
    second[:, 1] *= changes[:, 0]
    found = judge({**COARSE, "start__sketch": first}, {**COARSE, "start__sketch": second, "weight__digest": OTHER_BITS})
    assert found.cause == "weights-not-loaded" and (found.explanation or "").startswith("in right 1 of 3 parameters")


@pytest.mark.parametrize(("unheld", "by"), [(["a.weight"], "another optimizer"), ([], "the loop")])
def test_weights_that_another_optimizer_moves_in_both_runs_are_loaded(unheld: list[str], by: str) -> None:
    parts = difference(*({"held": all_but(*unheld)} for _ in range(2)), row=2)
    for trace_, factor in ((parts.left, 1.01), (parts.right, 1.02)):
        trace_.arrays["start/sketch"][2:, 0] *= factor
    assert (weights_not_loaded.test(parts) is None) == (by == "another optimizer")


def test_a_factor_that_one_small_gradient_does_not_take_is_none_of_the_loss() -> None:
    """A temperature's gradient is little beside the others', and another one tells that the loss is not scaled."""

    def small(factor: float, step: int, found: dict[str, Any]) -> dict[str, Any]:
        return {name: g * (1e-9 * factor if name == "b.weight" else 1.0) for name, g in found.items()}

    for factor, is_scaled in ((1.0, True), (2.0, False)):
        halved = {"weights": (0.5,), "gradients": partial(small, factor)}
        found = scaled_loss.test(difference({"gradients": partial(small, 1.0)}, halved, row=0))
        assert (found is not None) == is_scaled


def test_a_loss_of_samples_that_all_ranks_gather_couples_as_many_as_that_of_one() -> None:
    off = {**COUPLED, "ranks": 2, "gradients": OFF, "given_back": dict.fromkeys(BACK, 0.1)}
    gathered = {**off, "layout": {**COUPLED["layout"], "loss_gathered": True}}
    assert [judge(COUPLED, right).cause for right in (off, gathered)] == ["batch-coupled-loss", "loss-or-targets"]


def test_what_backward_made_is_no_multiple_where_it_was_not_recorded() -> None:
    """As of shards that arrive reduced."""
    nothing = difference({}, {"ranks": 2, "rank__micro": NO_MICRO})
    assert (nothing.own_scale, nothing.own_factor, own_gradients_agree(nothing)) == (None, 1.0, None)
    twice = difference({}, {"weights": (2.0,)})
    assert twice.own_factor == pytest.approx(2.0) and own_gradients_agree(twice)


def test_a_buffer_that_feeds_the_next_loss_is_told_from_running_statistics() -> None:
    """Those of BatchNorm, which each rank may keep for itself, have no part in what differs later."""
    late = {"buffer": 0.1, "gradients": scaled(1.5, "a.bias", since=1)}
    fed, beside = judge(CENTRE, {**CENTRE, **late}), judge({}, late)
    assert (fed.cause, fed.step, fed.weights) == ("buffers-only", 0, "different")
    assert beside.cause != "buffers-only" and beside.step == 1


def test_micro_batches_of_equal_size_are_not_said_to_be_unequal() -> None:
    found = judge({"parts": 4}, {"parts": 4, "weights": (2.0, 1.0, 2.0, 1.0)})
    assert found.cause == "loss-normalisation" and "of unequal size" not in str(found.explanation)


def test_weights_that_fit_by_chance_what_a_batchnorm_makes_are_none() -> None:
    """In a coarse format, where twins' gradients are so wide that sums of other ones' fit: all samples weigh alike."""
    fitting = {"parts": 2, "weights": (0.97, 1.03)}
    assert judge(COARSE_NORM, {**COARSE_NORM, **fitting}).cause == "batchnorm-statistics"
    assert judge(COARSE_NORM, {**COARSE_NORM, **fitting, "weights": (0.5, 1.5)}).cause == "loss-normalisation"
    assert judge(COARSE, {**COARSE, **fitting}).cause == "loss-normalisation"  # no BatchNorm's gradient is the first
