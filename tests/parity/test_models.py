"""Runs of several optimizers: made in another order, or as many as the other run does not make."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from trainparity.attach.owners import Together
from trainparity.parity.compare import compare_folders, compare_in_detail
from trainparity.records.verdict import Verdict


def train(folder: Path, made: Sequence[Sequence[int]], faster: int | None = None) -> None:
    """Train two models for a few steps; each optimizer is given the models of these numbers, `faster` a higher rate."""
    torch.manual_seed(0)
    pair = nn.Linear(4, 8), nn.Linear(8, 3)
    draws = torch.Generator().manual_seed(1)
    with ExitStack() as recorded:
        optimizers = []
        for place, numbers in enumerate(made, 1):
            several = [pair[number] for number in numbers]
            model = Together(several, []) if len(numbers) > 1 else several[0]
            rate = 0.02 if faster in numbers else 0.01
            optimizer = torch.optim.Adam(model.parameters(), lr=rate)
            name = f"optimizer-{place}" if place > 1 else None
            recorded.enter_context(trainparity.record(model, optimizer, folder, interval=1, name=name))
            optimizers.append(optimizer)
        for _ in range(4):
            for optimizer in optimizers:
                optimizer.zero_grad()
            made_of_both = pair[1](torch.tanh(pair[0](torch.randn(16, 4, generator=draws))))
            made_of_both.square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()


def compared(folder: Path, left: Sequence[Sequence[int]], right: Sequence[Sequence[int]], **of_right: int) -> Verdict:
    train(folder / "left", left)
    train(folder / "right", right, **of_right)
    return compare_folders(folder / "left", folder / "right")


APART, SWAPPED, ONE = [[0], [1]], [[1], [0]], [[0, 1]]


def test_optimizers_that_are_made_in_another_order_are_of_the_same_models(tmp_path: Path) -> None:
    assert compared(tmp_path, APART, SWAPPED).verdict == "bitwise"


def test_a_fault_of_one_of_them_is_said_of_its_model(tmp_path: Path) -> None:
    found = compared(tmp_path, APART, SWAPPED, faster=1)
    assert (found.verdict, found.cause, found.model) == ("different", "learning-rate", "optimizer-2")


@pytest.mark.parametrize(("left", "right"), [(APART, ONE), (ONE, APART), (ONE, SWAPPED)])
def test_as_many_optimizers_as_the_other_run_does_not_make_are_no_fault(
    left: list[list[int]], right: list[list[int]], tmp_path: Path
) -> None:
    found = compared(tmp_path, left, right)
    assert found.verdict == "cannot judge"
    assert "the same parameters are recorded as" in str(found.reason) and "2 models in" in str(found.reason)
    detailed, details = compare_in_detail(tmp_path / "left", tmp_path / "right")
    assert detailed == found and not details


@pytest.mark.parametrize("forgotten", [0, 1])
def test_a_model_that_no_optimizer_holds_is_a_fault(forgotten: int, tmp_path: Path) -> None:
    found = compared(tmp_path, ONE, [[1 - forgotten]])
    assert (found.verdict, found.cause) == ("different", "parameters-not-updated")


def train_matrices_apart(folder: Path, *, other_order: bool = False, moved: bool = False, again: bool = False) -> None:
    """Train one model by an optimizer of its matrices and one of another class for the rest, as Muon beside AdamW."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    head = model[2].weight
    matrices, rest = [model[0].weight], [model[0].bias, model[2].bias]
    (matrices if moved else rest).append(head)
    optimizers = [torch.optim.SGD(matrices, lr=0.1), torch.optim.AdamW(rest, lr=0.01)]
    names = [None, "optimizer-3" if again else "optimizer-2"]
    draws = torch.Generator().manual_seed(1)
    with ExitStack() as recorded:
        for optimizer, name in zip(optimizers, names[:: -1 if other_order else 1], strict=True):
            recorded.enter_context(trainparity.record(model, optimizer, folder, interval=1, name=name))
        for _ in range(4):
            model.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()


@pytest.mark.parametrize("right", [{"other_order": True}, {"again": True}], ids=str)
def test_optimizers_of_one_model_are_known_by_what_they_update(right: dict[str, bool], tmp_path: Path) -> None:
    """One is made in another order, or made anew before it trains, which numbers it otherwise."""
    train_matrices_apart(tmp_path / "left")
    train_matrices_apart(tmp_path / "right", **right)
    assert compare_folders(tmp_path / "left", tmp_path / "right").verdict == "bitwise"


def test_a_weight_that_another_optimizer_updates_is_no_weight_that_none_does(tmp_path: Path) -> None:
    train_matrices_apart(tmp_path / "left")
    train_matrices_apart(tmp_path / "right", moved=True)
    found = compare_folders(tmp_path / "left", tmp_path / "right")
    assert (found.verdict, found.cause) == ("different", "optimizer-state")
    assert "2.weight: updated by AdamW (optimizer-2) in" in str(found.explanation)
    assert str(found.explanation).count("by SGD in") == 1


def test_another_model_whose_parameters_have_the_same_names_updates_none_of_its_own(tmp_path: Path) -> None:
    """As a generator of as many layers as its critic, whose optimizer forgets one."""

    def train_gan(folder: Path, forgets: bool) -> None:
        torch.manual_seed(0)
        made, judging = (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(2))
        optimizers = [
            torch.optim.Adam(made.parameters(), lr=1e-3),
            torch.optim.SGD((judging[0] if forgets else judging).parameters(), lr=1e-2),
        ]
        draws = torch.Generator().manual_seed(1)
        with ExitStack() as recorded:
            for model, optimizer, name in zip((made, judging), optimizers, (None, "D"), strict=True):
                recorded.enter_context(trainparity.record(model, optimizer, folder, interval=1, name=name))
            for _ in range(4):
                noise, real = torch.randn(2, 16, 4, generator=draws)
                optimizers[1].zero_grad()
                (judging(made(noise).detach()) - judging(real)).square().mean().backward()
                optimizers[1].step()
                optimizers[0].zero_grad()
                judging(made(noise)).square().mean().backward()
                optimizers[0].step()

    train_gan(tmp_path / "left", False)
    train_gan(tmp_path / "right", True)
    found = compare_folders(tmp_path / "left", tmp_path / "right")
    assert (found.cause, found.model) == ("parameters-not-updated", "D"), found.explanation


def train_critics(folder: Path, made: Sequence[int], faster: int | None = None) -> None:
    """Train two critics of one form, whose optimizers are made in an order."""
    torch.manual_seed(0)
    critics, targets = [nn.Linear(4, 2) for _ in range(2)], torch.randn(16, 2)
    draws = torch.Generator().manual_seed(1)
    with ExitStack() as recorded:
        optimizers = {}
        for place, number in enumerate(made):
            rate = 0.02 if number == faster else 0.01
            optimizer = optimizers[number] = torch.optim.Adam(critics[number].parameters(), lr=rate)
            name = "optimizer-2" if place else None
            recorded.enter_context(trainparity.record(critics[number], optimizer, folder, interval=1, name=name))
        for _ in range(4):
            given = torch.randn(16, 4, generator=draws)
            for number in (0, 1):
                optimizers[number].zero_grad()
                (critics[number](given) - targets).square().mean().backward()
                optimizers[number].step()


def test_models_of_one_form_are_known_by_what_they_begin_with(tmp_path: Path) -> None:
    train_critics(tmp_path / "left", [0, 1])
    train_critics(tmp_path / "right", [1, 0])
    assert compare_folders(tmp_path / "left", tmp_path / "right").verdict == "bitwise"
    train_critics(tmp_path / "wrong", [1, 0], faster=1)
    found = compare_folders(tmp_path / "left", tmp_path / "wrong")
    assert (found.cause, found.model) == ("learning-rate", "optimizer-2")


def test_a_model_that_is_left_out_of_one_of_two_optimizers_is_named(tmp_path: Path) -> None:
    """As one of both generators of a CycleGAN, beside the critics' optimizer."""

    def train_three(folder: Path, of_first: int) -> None:
        torch.manual_seed(0)
        first, second, third = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(3, 2)
        made = [first, second][:of_first]
        held = Together(made, []) if of_first > 1 else first
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (held, third)]
        draws = torch.Generator().manual_seed(1)
        with ExitStack() as recorded:
            for model, optimizer, name in zip((held, third), optimizers, (None, "optimizer-2"), strict=True):
                recorded.enter_context(trainparity.record(model, optimizer, folder, interval=1, name=name))
            for _ in range(4):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                third(second(torch.tanh(first(torch.randn(16, 4, generator=draws))))).square().mean().backward()
                for optimizer in optimizers:
                    optimizer.step()

    train_three(tmp_path / "left", 2)
    train_three(tmp_path / "right", 1)
    found = compare_folders(tmp_path / "left", tmp_path / "right")
    assert (found.verdict, found.cause) == ("different", "parameters-not-updated"), found.explanation
    assert "updates Linear_0, Linear_1, and that of" in str(found.explanation)


def test_one_model_under_another_name_is_the_same(tmp_path: Path) -> None:
    """As where an optimizer was made before that trains nothing, as one of parameters that were sharded after it."""
    train(tmp_path / "left", [[0]])
    train(tmp_path / "right", [[0]])
    (tmp_path / "named/models").mkdir(parents=True)
    (tmp_path / "right").rename(tmp_path / "named/models/optimizer-2")
    assert compare_folders(tmp_path / "left", tmp_path / "named").verdict == "bitwise"
    assert compare_folders(tmp_path / "named", tmp_path / "left").verdict == "bitwise"
