"""Parameters that an optimizer is given, or loses, while it trains: judged by what it holds in each step."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Verdict

STEPS, UNFROZEN_AT, LOST_AT = 8, 3, 5


class Unfreezing:
    """Trains a head, and from a step on the body too, which the optimizer is given then, as Lightning's callback does.

    Attributes set otherwise make it another loop, which is right or wrong.
    """

    coarse, parts, held_from_the_start, given, frozen = False, 1, False, True, True
    steps, loses_the_body, freezes_the_body, clips_the_body, another_optimizer = STEPS, False, False, False, False
    of_the_body: dict[str, Any] = {}
    """Options of the body's group."""

    def __init__(self, **changes: Any) -> None:
        vars(self).update(changes)

    def __call__(self, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        self.head, self.body = list(model[2].parameters()), list(model[0].parameters())
        model[0].requires_grad_(not self.frozen)
        held = [*self.head, *self.body] if self.held_from_the_start else self.head
        optimizer = torch.optim.AdamW(held, lr=1e-2, weight_decay=0.1)
        data, labels = torch.randn(STEPS, 16, 8), torch.randint(0, 4, (STEPS, 16))
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1) as recorder:
            for step in range(self.steps):
                if step == UNFROZEN_AT:
                    model[0].requires_grad_(True)
                    optimizer = self.unfreeze(optimizer, recorder)
                if step == LOST_AT and self.loses_the_body:
                    optimizer.param_groups[0]["params"] = self.head
                if step == LOST_AT and self.freezes_the_body:
                    model[0].requires_grad_(False)
                for x, y in zip(data[step].chunk(self.parts), labels[step].chunk(self.parts), strict=True):
                    with torch.autocast("cpu", torch.bfloat16) if self.coarse else nullcontext():
                        loss = functional.cross_entropy(model(x), y) / self.parts
                    loss.backward()
                if self.clips_the_body and step >= UNFROZEN_AT:
                    nn.utils.clip_grad_norm_(self.body, 1e-2)
                optimizer.step()
                model.zero_grad()

    def unfreeze(self, optimizer: torch.optim.Optimizer, recorder: trainparity.Recorder) -> torch.optim.Optimizer:
        if self.another_optimizer:  # as some loops do, which lose the head's moments
            optimizer = torch.optim.AdamW([*self.head, *self.body], lr=1e-2, weight_decay=0.1)
            recorder.go_on_with(optimizer)
        elif self.given and not self.held_from_the_start:
            optimizer.add_param_group({"params": self.body, **self.of_the_body})
        return optimizer


def judged(folder: Path, reference: Unfreezing, test: Unfreezing) -> Verdict:
    return compared(reference, test, folder)


coarse_too = pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])


@coarse_too
@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"lr": 1.1e-2}, "learning-rate"),
        ({"weight_decay": 0.0}, "optimizer-state"),
        ({"betas": (0.9, 0.99)}, "optimizer-state"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_options_of_what_the_optimizer_is_given_later_are_facts(
    options: dict[str, Any], cause: str, coarse: bool, tmp_path: Path
) -> None:
    loop = partial(Unfreezing, coarse=coarse)
    found = judged(tmp_path, loop(), loop(of_the_body=options))
    assert (found.verdict, found.cause, found.step) == ("different", cause, UNFROZEN_AT), found.explanation


@coarse_too
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({}, {"held_from_the_start": True}),
        ({}, {"frozen": False}),  # its gradients are made, and nothing applies them
        ({"held_from_the_start": True}, {"frozen": False}),
    ],
    ids=["given later", "held", "gradients", "held, gradients"],
)
def test_a_body_that_is_trained_from_one_step_on_is_the_same_however_it_is_held(
    one: dict[str, Any], other: dict[str, Any], swapped: bool, coarse: bool, tmp_path: Path
) -> None:
    loops = Unfreezing(coarse=coarse, **one), Unfreezing(coarse=coarse, parts=4, **other)
    found = judged(tmp_path, *(loops[::-1] if swapped else loops))
    assert found.verdict == "equivalent", (found.cause, found.explanation, found.reason)


@coarse_too
@pytest.mark.parametrize(
    ("reference", "test", "step"),
    [({}, {"given": False}, UNFROZEN_AT), ({"held_from_the_start": True}, {"loses_the_body": True}, LOST_AT)],
    ids=["never given", "lost"],
)
def test_parameters_that_one_optimizer_alone_holds_in_a_step_are_not_updated(
    reference: dict[str, Any], test: dict[str, Any], step: int, coarse: bool, tmp_path: Path
) -> None:
    found = judged(tmp_path, Unfreezing(coarse=coarse, **reference), Unfreezing(coarse=coarse, **{**reference, **test}))
    assert (found.cause, found.step) == ("parameters-not-updated", step), found.explanation
    assert found.explanation and "the optimizer does not hold it" in found.explanation


@coarse_too
def test_parameters_that_are_frozen_again_are_named_where_they_are(coarse: bool, tmp_path: Path) -> None:
    loop = partial(Unfreezing, coarse=coarse, held_from_the_start=True)
    found = judged(tmp_path, loop(), loop(freezes_the_body=True))
    assert (found.cause, found.step) == ("frozen-parameter", LOST_AT), found.explanation


def test_a_run_that_ends_before_it_unfreezes_parameters_does_not_differ_before(tmp_path: Path) -> None:
    loop = partial(Unfreezing, held_from_the_start=True)
    found = judged(tmp_path, loop(), loop(steps=UNFROZEN_AT, parts=4))
    assert found.verdict == "cannot judge" and found.steps_compared == UNFROZEN_AT, found.explanation


@coarse_too
def test_clipping_of_what_the_optimizer_is_given_later_is_seen_as_a_call(coarse: bool, tmp_path: Path) -> None:
    loop = partial(Unfreezing, coarse=coarse)
    found = judged(tmp_path, loop(), loop(clips_the_body=True))
    assert (found.cause, found.step) == ("clipping", UNFROZEN_AT), found.explanation
    assert found.explanation and "are clipped apart" in found.explanation
    calls = Trace.load(tmp_path / "test").arrays["clip/calls"]
    assert calls.tolist() == [int(step >= UNFROZEN_AT) for step in range(STEPS)]


def test_an_optimizer_in_place_of_the_first_may_hold_more(tmp_path: Path) -> None:
    loop = partial(Unfreezing, another_optimizer=True)
    assert judged(tmp_path, loop(), loop(parts=4)).verdict == "equivalent"
    held = Trace.load(tmp_path / "test").arrays["held"]
    assert held.tolist() == [[step >= UNFROZEN_AT] * 2 + [True] * 2 for step in range(STEPS)]
