"""In a coarse format a noise floor grows wide after some steps: what no rounding makes is seen there all the same."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import AdamW

import trainparity
from tests.support.against_twins import LABELS, classifier, compared, train_in_parts
from trainparity.parity.compare import compare_folders
from trainparity.parity.noise.assumed import OF_TWINS

Fault = Callable[[nn.Module, AdamW], object]
"""What a wrong loop does before each step from some step on."""


def train(
    steps: int, interval: int, rate: float, folder: Path, twin: int, *,
    parts: int = 1, since: int = -1, fault: Fault = lambda model, optimizer: None,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    first, last = (nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32)), (nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    model = nn.Sequential(*first, *last)
    optimizer = AdamW(model.parameters(), lr=rate)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=interval):
        for step in range(steps):
            samples = torch.randn(16, 16, generator=draws)
            labels = (samples[:, :3].sum(1) * 2).long().abs() % 10
            optimizer.zero_grad()
            for part in torch.arange(16).chunk(parts):
                with torch.autocast("cpu", torch.bfloat16):
                    scores = model(samples[part])
                nn.functional.cross_entropy(scores.float(), labels[part], reduction="sum").div(16).backward()
            if -1 < since <= step:
                fault(model, optimizer)
            optimizer.step()


def zeroes(model: nn.Module, optimizer: AdamW) -> None:
    next(model.parameters()).grad.zero_()  # type: ignore[union-attr]


def leaves_out(model: nn.Module, optimizer: AdamW) -> None:
    next(model.parameters()).grad = None


def turns(model: nn.Module, optimizer: AdamW) -> None:
    for parameter in model.parameters():
        parameter.grad.neg_()  # type: ignore[union-attr]


def slows(model: nn.Module, optimizer: AdamW) -> None:
    optimizer.param_groups[0]["lr"] = 0.0


def moves_by_half(model: nn.Module, optimizer: AdamW) -> None:
    """Take back half of each step of the optimizer's."""
    before = [parameter.detach().clone() for parameter in model.parameters()]

    def halve(optimizer: torch.optim.Optimizer, args: object, keywords: object) -> None:
        with torch.no_grad():
            for parameter, start in zip(model.parameters(), before, strict=True):
                parameter.lerp_(start, 0.5)

    optimizer.register_step_post_hook(halve)


@pytest.mark.parametrize("fault", [zeroes, leaves_out])
def test_a_gradient_that_is_gone_for_good_is_no_rounding(fault: Fault, tmp_path: Path) -> None:
    """Of its length as far from the reference's as twins are by then from one another."""
    reference = partial(train, 20, 1, 1e-2)
    verdict = compared(reference, partial(reference, since=12, fault=fault), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "frozen-parameter", 12), verdict.reason


@pytest.mark.parametrize(
    ("steps", "since", "fault", "reason"),
    [
        (8, 7, turns, "without twins, right runs may be so too"),
        (8, 6, zeroes, "gradient 0.weight is 1 of its length apart at step 6"),
        (40, 20, slows, "of the way that training came apart: no twin made as many steps"),
    ],
)
def test_without_twins_nothing_is_excused_that_may_be_a_fault(
    steps: int, since: int, fault: Fault, reason: str, tmp_path: Path
) -> None:
    reference = partial(train, steps, 50, 1e-3)
    reference(tmp_path / "a", 0)
    reference(tmp_path / "right", 0, parts=2)
    reference(tmp_path / "wrong", 0, since=since, fault=fault)
    assert compare_folders(tmp_path / "a", tmp_path / "right").verdict == "equivalent"
    verdict = compare_folders(tmp_path / "a", tmp_path / "wrong")
    assert verdict.verdict == "cannot judge" and reason in (verdict.reason or ""), verdict
    assert "TRAINPARITY_TWIN" in (verdict.advice or "")


def test_without_twins_another_update_of_gradients_in_another_cut_is_not_excused(tmp_path: Path) -> None:
    train(8, 50, 1e-3, tmp_path / "a", 0)
    train(8, 50, 1e-3, tmp_path / "wrong", 0, parts=4, since=7, fault=moves_by_half)
    verdict = compare_folders(tmp_path / "a", tmp_path / "wrong")
    assert verdict.verdict == "cannot judge" and "update (all) is 0.5" in (verdict.reason or ""), verdict


def one_row_off(part: float) -> nn.Module:
    model = classifier()
    with torch.no_grad():
        next(model.parameters())[3].mul_(1 + part)
    return model


def filled_row_by_row(part: float) -> nn.Module:
    """Return a model of which another weight is off, as a table of vectors is read in."""
    model = one_row_off(part)
    with torch.no_grad():
        for row in model[2].weight.repeat(2, 1):  # type: ignore[union-attr, operator]
            model[2].weight[0].copy_(row)  # type: ignore[union-attr, index]
    return model


def trained_before(parts: int, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of steps that nobody has recorded, under autocast in so many parts."""
    optimizer = AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(2)
    for _ in range(4):
        optimizer.zero_grad()
        for samples, labels in zip(torch.randn(16, 4, generator=draws).chunk(parts), LABELS.chunk(parts), strict=True):
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(samples)
            nn.functional.cross_entropy(scores.float(), labels).div(parts).backward()
        optimizer.step()
    return optimizer


def fresh(model: nn.Module) -> torch.optim.Optimizer:
    return AdamW(model.parameters(), lr=0.01)


@pytest.mark.parametrize("make", [one_row_off, filled_row_by_row])
@pytest.mark.parametrize("part", [0.0, 0.05])
def test_weights_that_are_stored_finely_begin_with_the_same_values(
    part: float, make: Callable[[float], nn.Module], tmp_path: Path
) -> None:
    """Twins are moved by as much as products round, and the weights of one seed are not."""
    trained = partial(train_in_parts, 1, True, optimizer=fresh, scale=1.0, before_update=nothing)
    verdict = compared(*(partial(trained, make=partial(make, p)) for p in (0.0, part)), tmp_path)
    wrong = ("different", "weights-not-loaded", 0)
    assert (verdict.verdict, verdict.cause, verdict.step) == (wrong if part else ("bitwise", None, None)), verdict


def of_another_phase(parts: int, model: nn.Module) -> torch.optim.Optimizer:
    """Return a new optimizer after steps of another one, which nobody has recorded."""
    for _ in range(2):
        trained_before(parts, model)
    return fresh(model)


@pytest.mark.parametrize("before", [trained_before, of_another_phase])
def test_after_steps_that_were_not_recorded_they_are_apart_as_rounding_makes_them(
    before: Callable[[int, nn.Module], torch.optim.Optimizer], tmp_path: Path
) -> None:
    runs = (
        partial(
            train_in_parts, parts, True, optimizer=partial(before, parts), scale=1 / parts,
            before_update=nothing,
        )
        for parts in (1, 2)
    )  # fmt: skip
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == "equivalent", verdict.reason


def plain(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def nothing(model: nn.Module) -> None:
    """Change nothing before the update."""


@pytest.mark.parametrize(("scale", "said"), [(0.5, "equivalent"), (1.0, "different")])
def test_without_twins_an_update_is_as_far_off_as_the_gradient_it_is_made_of(
    scale: float, said: str, tmp_path: Path
) -> None:
    """Weights of SGD are stored in fp32, and what bf16 has made of their gradients is in their updates."""

    for parts, of_each in ((1, 1.0), (2, scale)):
        folder = tmp_path / str(parts)
        train_in_parts(parts, True, folder, 0, optimizer=plain, scale=of_each, before_update=nothing)
    verdict = compare_folders(tmp_path / "1", tmp_path / "2")
    assert verdict.verdict == said, verdict
    assert verdict.cause == (None if said == "equivalent" else "loss-normalisation")


def test_of_updates_that_hold_little_but_rounding_twins_are_asked_for(tmp_path: Path) -> None:
    """As of SGD on weights in bf16, whose rounding is assumed, not measured, where there are none."""

    def stored_in_bf16() -> nn.Module:
        return nn.Sequential(
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10)
        ).bfloat16()

    trained = partial(train_in_parts, optimizer=plain, before_update=nothing, make=stored_in_bf16)
    for parts in (1, 2):
        trained(parts, True, tmp_path / str(parts), 0, scale=1 / parts)
    verdict = compare_folders(tmp_path / "1", tmp_path / "2")
    assert (verdict.verdict, verdict.advice) == ("cannot judge", OF_TWINS), verdict
    assert "without twins, updates may be" in (verdict.reason or "")


def test_without_twins_a_gradient_of_cancelling_terms_is_rounding(tmp_path: Path) -> None:
    """As that of a bias in front of a normalisation, which takes it away again."""

    def normalised() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 10))

    def turned_round() -> nn.Module:
        model = normalised()
        model.register_forward_pre_hook(lambda model, inputs: (inputs[0].flip(0),))
        model.register_forward_hook(lambda model, inputs, output: output.flip(0))
        return model

    for name, make in (("a", normalised), ("b", turned_round)):
        train_in_parts(1, False, tmp_path / name, 0, optimizer=plain, scale=1.0, before_update=nothing, make=make)
    verdict = compare_folders(tmp_path / "a", tmp_path / "b")
    assert verdict.verdict != "different", verdict


class Attention(nn.Module):
    """One layer of a language model with the first weights of GPT-2; queries and keys may be exchanged."""

    def __init__(self, exchanged: bool) -> None:
        super().__init__()
        self.exchanged = exchanged
        self.embed, self.norm, self.attend = nn.Embedding(32, 64), nn.LayerNorm(64), nn.Linear(64, 192)
        self.project, self.head = nn.Linear(64, 64), nn.Linear(64, 32)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        query, key, value = self.attend(self.norm(hidden)).view(*tokens.shape, 3, 4, 16).permute(2, 0, 3, 1, 4)
        if self.exchanged:
            query, key = key, query
        made = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.head(hidden + self.project(made.transpose(1, 2).flatten(2)))  # type: ignore[no-any-return]


def train_attention(exchanged: bool, parts: int, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Attention(exchanged)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for batch in torch.randint(32, (4, 16, 17), generator=torch.Generator().manual_seed(1)):
            optimizer.zero_grad()
            for tokens in batch.chunk(parts):
                with torch.autocast("cpu", torch.bfloat16):
                    scores = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize(("exchanged", "verdict"), [(False, "equivalent"), (True, "cannot judge")])
def test_another_update_of_many_numbers_is_not_the_same_however_wide_its_floor_is(
    exchanged: bool, verdict: str, tmp_path: Path
) -> None:
    found = compared(partial(train_attention, False, 1), partial(train_attention, exchanged, 4), tmp_path)
    assert found.verdict == verdict, found.explanation
    assert not exchanged or "too wide for update attend.weight" in str(found.reason), found.reason
