"""What is recorded exactly is judged as it is, however wide the noise floor; what need not agree is no fact."""

from typing import Any

import pytest
import torch

from tests.support.synthetic import SHAPES, Change, all_but, drawn, scaled, trace, twins
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.noise.rounding import rounding
from trainparity.parity.recording.trace import Trace
from trainparity.parity.verdict import judge_traces
from trainparity.records.verdict import Verdict

T, P = 4, len(SHAPES)


def judged(left: dict[str, Any], right: dict[str, Any]) -> Verdict:
    """Judge with twins whose gradients are 2 % apart, as bf16's are: 16 times that excuses a third of an update."""
    reference = trace(**left)
    wide = [trace(twin=number, **left, gradients=rough(number)) for number in (1, 2, 3)]
    return judge_traces(reference, trace(**right), NoiseFloor(reference, wide), 16.0)


def rough(twin: int) -> Change:
    """Round each number of a gradient by about 2 %."""

    def change(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {n: g * (1 + 0.02 * drawn(11, twin, step, i, shape=g.shape)) for i, (n, g) in enumerate(found.items())}

    return change


def option(value: float) -> torch.Tensor:
    return torch.full((T, P), value, dtype=torch.float64)


NOTHING_KEPT_AT_TWO = torch.tensor([[0.0], [1.0], [0.0], [1.0]]).expand(T, P)


STATE = trace().arrays["state/norm"]
TWICE_SINCE_TWO = torch.where(torch.arange(T)[:, None] < 2, 1.0, 2.0) * STATE
COARSE: dict[str, Any] = {"layout": {"precision": "bf16", "unit_roundoff": 2.0**-8, "stored_roundoff": 2.0**-8}}
LION: dict[str, Any] = {"layout": {**COARSE["layout"], "optimizer": "Lion"}}


def whole(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.int64)


@pytest.mark.parametrize(
    ("left", "right", "cause"),
    [
        ({}, {"lr": lambda step: 0.11}, "learning-rate"),
        ({}, {"lr": lambda step: 0.1 + 0.001 * step}, "schedule"),
        ({}, {"setting__weight_decay": option(0.0)}, "optimizer-state"),
        ({"limit": 1.0}, {"limit": 1.01}, "clipping"),
        ({"limit": 1.0}, {}, "clipping"),
        ({"limit": 1.0}, {"limit": 1.0, "applied__norm": trace(limit=1.0).arrays["applied/norm"] / 1024}, "clipping"),
        ({}, {"state__norm": NOTHING_KEPT_AT_TWO}, "optimizer-state"),
        (COARSE, {**COARSE, "state__norm": TWICE_SINCE_TWO}, "optimizer-state"),
        ({}, {"evaluating": torch.tensor([[False, False, False, True, False]] * T)}, "eval-mode"),
        (
            {},
            {"scale__left": torch.ones(T, dtype=torch.bool), "scale__value": torch.full((T,), 8.0),
             "gradients": scaled(8)},
            "grad-scaler",
        ),
        ({"layout": {"choices": {"search": "None"}}}, {"layout": {"choices": {"search": "wolfe"}}}, "optimizer-state"),
        ({}, {"frozen": ~all_but("a.bias")}, "frozen-parameter"),
        ({}, {"held": all_but("a.bias")}, "parameters-not-updated"),
        ({}, {"sample_ids": whole(T, 8), "samples": whole(T)}, "samples"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_fact_that_differs_makes_the_runs_different(left: dict[str, Any], right: dict[str, Any], cause: str) -> None:
    found = judged(left, {"parts": 2, **right})
    assert (found.verdict, found.cause, found.step) == (
        "different",
        cause,
        {"schedule": 1}.get(cause, 2 if "state__norm" in right else 0),
    )
    assert found.explanation and found.advice


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {"parts": 4}),
        ({}, {"ranks": 2}),
        ({}, {"setting__foreach": option(1.0)}),
        ({"layout": {"choices": {"foreach": "None"}}}, {"layout": {"choices": {"other": "None"}}}),
        ({"setting__fused": option(0.0)}, {"setting__fused": option(1.0)}),
        ({}, {"setting__decoupled": option(1.0)}),
        ({"limit": 1e6}, {"limit": 1e5}),
        ({}, {"rank__held": torch.zeros(T, 1, 0, dtype=torch.float64), "rank__backwards": 0 * whole(T, 1)}),
        ({"limit": 1e6}, {}),
        ({"limit": 1.0}, {"limit": 1.0, "clip__calls": torch.full((T,), 2)}),
        ({"limit": 1.0}, {"limit": 1.0, "clip__max_norm": torch.full((T,), -1.0), "clip__cuts": 0 * whole(T)}),
        ({}, {"evaluating": torch.tensor([[True, True, False, False, True]] * T)}),
        ({}, {"scale__value": torch.full((T,), 1024.0)}),
        ({}, {"layout": {"optimizer": "FusedSGD"}}),
        ({}, {"lr": lambda step: 0.1 * (1 + 1e-9)}),
        ({}, {"state__norm": torch.zeros(T, P)}),
        ({}, {"state__norm": NOTHING_KEPT_AT_TWO, "layout": {"optimizer": "FusedSGD"}}),
        ({}, {"state__norm": 2 * STATE}), (COARSE, {**COARSE, "state__norm": 1.1 * STATE}),
        (COARSE, {**LION, "state__norm": 2 * STATE}),
        (COARSE, {**COARSE, "state__norm": 2 * STATE, "closure__evaluations": torch.full((T,), 2)}),
    ],
)  # fmt: skip
def test_what_need_not_agree_is_no_fact(left: dict[str, Any], right: dict[str, Any]) -> None:
    found = judged(left, right)
    assert found.verdict in ("bitwise", "equivalent"), found


def test_a_parameter_that_no_optimizer_holds_decides_nothing() -> None:
    unheld = {"held": all_but("a.bias")}

    def still(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {n: torch.zeros_like(g) if n == "a.bias" else g for n, g in found.items()}

    left, right = trace(gradients=still, **unheld), trace(gradients=still, **unheld)
    right.arrays["gradient/sketch"][:, 1], right.arrays["gradient/norm"][:, 1] = 1.0, 32**0.5
    right.arrays["gradient/digest"][:, 1], right.arrays["applied/norm"][:, 1] = 7, 32**0.5
    floor = NoiseFloor(left, twins(gradients=still, **unheld))
    assert judge_traces(left, right, floor, 16.0).verdict == "equivalent"
    held = trace(gradients=still)
    other = Trace(held.layout, right.arrays | {"held": held.arrays["held"]})
    assert judge_traces(held, other, NoiseFloor(held, twins(gradients=still)), 16.0).verdict == "different"


def test_a_parameter_that_one_optimizer_alone_holds_and_does_not_move_is_no_fact() -> None:
    """As one that is held with a learning rate of zero, which the other run does not train at all."""
    unheld = {"held": all_but("a.bias")}
    left, right = trace(**unheld), trace(parts=2, **unheld)
    right.arrays["held"] = all_but()
    assert judge_traces(left, right, NoiseFloor(left, twins(**unheld)), 16.0).verdict == "equivalent"


def test_a_parameter_without_a_gradient_may_be_frozen_in_one_run() -> None:
    """As a layer that nothing uses."""
    unused = {"gradients": scaled(0, "a.bias")}
    left, right = trace(**unused), trace(parts=2, **unused, frozen=~all_but("a.bias"))
    assert judge_traces(left, right, NoiseFloor(left, twins(**unused)), 16.0).verdict == "equivalent"


def test_an_update_rounds_as_weights_are_stored_and_is_as_far_off_as_a_gradient_that_rounds_once() -> None:
    autocast = {"layout": {"unit_roundoff": 2.0**-8, "precision": "bf16"}}
    left = trace(**autocast)
    floor = NoiseFloor(left, twins(**autocast))
    assert float(rounding(left, "update").amax()) < 1e-4 < float(floor["gradient"].amin())
    assert bool((floor["update"] == 2.0**-8).all())


def other_contents(value: int) -> dict[str, Any]:
    """One sample of each step has other contents: longer padding, say."""
    ids = torch.arange(16 * T).view(T, -1) + 1
    ids[:, -1] += value
    return {"sample_ids": ids, "samples": (ids**2).sum(1), "num_samples": torch.full((T,), 16)}


def test_samples_of_other_contents_that_make_equal_gradients_are_the_same_samples() -> None:
    content = {"layout": {"settings": {"samples": "content"}}}
    left, right = trace(**content, **other_contents(0)), trace(parts=2, **content, **other_contents(1000))
    sharp = NoiseFloor(left, twins(2, **content, **other_contents(0)))
    assert judge_traces(left, right, sharp, 16.0).verdict == "equivalent"
    found = judged({**content, **other_contents(0)}, {"parts": 2, **content, **other_contents(1000)})
    assert (found.verdict, found.cause) == ("different", "samples")  # a floor of 2 % hides one sample of 16


def test_ranks_that_both_runs_let_apart_in_the_same_steps_are_no_fact() -> None:
    apart = {"ranks": 2, "rank__weight": torch.tensor([[5, 7], [5, 5], [5, 7], [5, 5]])}
    late = {"ranks": 2, "rank__weight": torch.tensor([[5, 7], [5, 7], [5, 7], [5, 5]])}
    found = judged(apart, apart)
    assert found.verdict == "bitwise" and not found.ranks_agree
    found = judged(apart, late)
    assert (found.verdict, found.cause, found.step) == ("different", "ranks-disagree", 1)


def test_an_update_that_weights_in_bf16_are_too_coarse_for_is_not_lost_in_a_twin() -> None:
    def swallowed(step: int, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: g * (1e-2 if name == "a.bias" else 1.0) for name, g in found.items()}

    for stored, judgement in ((2.0**-8, "equivalent"), (2.0**-24, "cannot judge")):
        layout = {"layout": {"stored_roundoff": stored, "unit_roundoff": stored}}
        left, twin = trace(**layout, gradients=swallowed), trace(twin=1, **layout, gradients=swallowed)
        twin.arrays["weight/sketch"][:, 1] = twin.arrays["start/sketch"][:, 1]
        found = judge_traces(left, trace(**layout, gradients=swallowed, parts=2), NoiseFloor(left, [twin]), 16.0)
        assert found.verdict == judgement, found


def test_samples_of_a_pass_without_backward_are_no_fact() -> None:
    """A pass that measures accuracy is made of other samples, or of the same ones again."""
    content = {"layout": {"settings": {"samples": "content"}}}
    ids = torch.arange(8 * T).view(T, 8) + 1
    reference = {**content, "sample_ids": ids, "samples": (ids**2).sum(1)}
    more = torch.cat([ids, ids + 1000], 1)
    passed = {"sample_ids": more, "samples": (more**2).sum(1), "num_samples": torch.full((T,), 16)}
    aside = {"parts": 2, **passed, "rank__rows": torch.full((T, 1, 3), 8)}
    assert judged(reference, {**content, **aside}).verdict == "equivalent"
    trained = {**aside, "rank__reached": torch.full((T, 1), 3)}
    assert judged(reference, {**content, **trained}).cause == "samples"


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (2.0**-8, ["loss: rounds to 6e-8 of itself in left, rounds to 0.0039 of itself in right"]),
        (2.0**-24, []),
        (0.0, []),  # it was not seen, as of a compiled loss
    ],
)
def test_losses_in_other_formats_are_told_though_the_floor_hides_them(unit: float, said: list[str]) -> None:
    found = judged({"layout": {"loss_roundoff": 2.0**-24}}, {"parts": 2, "layout": {"loss_roundoff": unit}})
    assert (found.verdict, found.environment) == ("equivalent", said)
