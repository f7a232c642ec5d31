"""A number that the loop puts into its loss and takes out of the gradients again is no other loss."""

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import compared, train_in_parts
from tests.support.on_ranks import on_ranks
from trainparity.parity.compare import compare_folders


def train(scale: float, taken_out: float, parts: int, coarse: bool, folder: Path, twin: int) -> None:
    def divide(model: nn.Module) -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.div_(taken_out)

    train_in_parts(parts, coarse, folder, twin, optimizer=adam, scale=scale, before_update=divide)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("scale", "parts"), [(1.0, 4), (1000.0, 1), (1000.0, 2)])
def test_gradients_may_be_divided_in_place_of_the_loss(scale: float, parts: int, coarse: bool, tmp_path: Path) -> None:
    other = partial(train, scale, scale * parts, parts, coarse)
    verdict = compared(partial(train, 1.0, 1.0, 1, coarse), other, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_hooks_may_divide_them(coarse: bool, tmp_path: Path) -> None:
    def hooked(folder: Path, twin: int) -> None:
        def optimizer(model: nn.Module) -> torch.optim.Optimizer:
            for parameter in model.parameters():
                parameter.register_hook(lambda gradient: gradient / 1000)
            return adam(model)

        train_in_parts(2, coarse, folder, twin, optimizer=optimizer, scale=500.0, before_update=lambda model: None)

    verdict = compared(partial(train, 1.0, 1.0, 1, coarse), hooked, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("scale", "taken_out", "parts"), [(1.0, 1.0, 4), (4.0, 2.0, 1), (1.02, 1.0, 1)])
def test_what_is_left_of_it_is_seen(scale: float, taken_out: float, parts: int, coarse: bool, tmp_path: Path) -> None:
    other = partial(train, scale, taken_out, parts, coarse)
    verdict = compared(partial(train, 1.0, 1.0, 1, coarse), other, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-normalisation"), verdict.explanation


def test_another_function_is_seen_beside_it(tmp_path: Path) -> None:
    def rectified(slope: float, scale: float, folder: Path, twin: int) -> None:
        def optimizer(model: nn.Module) -> torch.optim.Optimizer:
            assert isinstance(model, nn.Sequential)
            model[1] = nn.LeakyReLU(slope)
            for parameter in model.parameters():
                parameter.register_hook(lambda gradient: gradient / scale)
            return adam(model)

        train_in_parts(1, True, folder, twin, optimizer=optimizer, scale=scale, before_update=lambda model: None)

    verdict = compared(partial(rectified, 0.0, 1.0), partial(rectified, 0.03, 128.0), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation


@pytest.mark.parametrize("counts", [(9, 7, 8, 11), (1, 1, 1, 1)], ids=["counted", "forgotten"])
def test_a_division_by_tokens_that_clipping_hides_is_one_of_the_loss(counts: tuple[int, ...], tmp_path: Path) -> None:
    def divided(counts: tuple[int, ...], folder: Path, twin: int) -> None:
        left = list(counts)

        def divide(model: nn.Module) -> None:
            count = left.pop(0)
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.div_(count)
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

        train_in_parts(1, False, folder, twin, optimizer=adam, scale=1.0, before_update=divide)

    verdict = compared(partial(divided, (9, 7, 8, 11)), partial(divided, counts), tmp_path)
    forgotten = counts[0] == 1
    expected = ("different", "loss-normalisation") if forgotten else ("bitwise", None)
    assert (verdict.verdict, verdict.cause) == expected, verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_another_count_that_gradients_are_divided_by_is_no_clipping(coarse: bool, tmp_path: Path) -> None:
    def by_tokens(times: float, folder: Path, twin: int) -> None:
        counts = iter((88.0, 79.0, 93.0, 85.0))

        def divide(model: nn.Module) -> None:
            count = times * next(counts)
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.div_(count)

        train_in_parts(1, coarse, folder, twin, optimizer=adam, scale=80.0, before_update=divide)

    verdict = compared(partial(by_tokens, 1.0), partial(by_tokens, 2.0), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-normalisation"), verdict.explanation


def test_gradients_that_ranks_add_up_belong_to_no_other_loss(tmp_path: Path) -> None:
    """Under bf16, where after some steps rounding is a tenth of the gradient."""
    reference = partial(train_far, 1, 0)
    verdict = compared(reference, partial(train_far, 1, 0, parts=2), tmp_path / "parts")
    assert verdict.verdict == "equivalent", verdict.explanation
    (tmp_path / "ranks").mkdir()
    on_ranks(2, tmp_path / "ranks", train_on_rank, str(tmp_path / "added"))
    verdict = compare_folders(tmp_path / "parts/reference", tmp_path / "added")
    assert verdict.verdict == "equivalent", verdict.explanation


def train_on_rank(rank: int, folder: str) -> Tensor:
    train_far(2, rank, Path(folder), 0)
    return torch.zeros(1)


def train_far(world_size: int, rank: int, folder: Path, twin: int, *, parts: int = 1) -> None:
    """Train with a learning rate at which weights part soon; each rank's gradients are added to the others'."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for batch in torch.randn(8, 32, 8):
            optimizer.zero_grad()
            for part in batch.chunk(world_size)[rank].chunk(parts):
                with torch.autocast("cpu", torch.bfloat16):
                    scores = model(part)
                labels = (part.sum(1) * 3).long() % 10
                (cross_entropy(scores.float(), labels, reduction="sum") / len(batch)).backward()
            if world_size > 1:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
            optimizer.step()
