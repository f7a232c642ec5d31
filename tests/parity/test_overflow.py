"""A step that a loss scaler skips in one run only is named, with the loss scale at which gradients overflowed."""

from pathlib import Path

import torch
from torch import nn

import trainparity
from trainparity.parity.compare import compare_folders


def _train(folder: Path, overflow_at: int, scale: float = 1024.0, enabled: bool = True) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=enabled)
    with trainparity.record(model, optimizer, folder):
        for step, batch in enumerate(torch.randn(4, 16, 6)):
            optimizer.zero_grad()
            loss = model(batch).square().mean() * (torch.inf if step == overflow_at else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def test_a_step_that_one_run_skips_is_named_with_its_loss_scale(tmp_path: Path) -> None:
    _train(tmp_path / "a", overflow_at=-1, scale=512.0)
    _train(tmp_path / "b", overflow_at=2)
    found = compare_folders(tmp_path / "a", tmp_path / "b", names=("A", "B"))
    assert (found.verdict, found.cause, found.step) == ("different", "precision", 2)
    assert found.explanation == (
        "gradients overflowed at step 2 in B only, and the loss scaler skipped the step: B makes no update there (its "
        "loss scale is 1024, that of A is 512)"
    )


def test_steps_that_both_skip_are_the_same_training(tmp_path: Path) -> None:
    _train(tmp_path / "a", overflow_at=2)
    _train(tmp_path / "b", overflow_at=2)
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict == "bitwise"


def test_a_loss_that_is_not_finite_in_single_precision_is_the_loss(tmp_path: Path) -> None:
    _train(tmp_path / "a", overflow_at=-1, enabled=False)
    _train(tmp_path / "b", overflow_at=2, enabled=False)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.step) == ("different", "loss-or-targets", 2)


def _train_with_overflows(folder: Path, parts: tuple[int, ...]) -> None:
    """Let the gradients of some of a model's four parameters overflow in a step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with trainparity.record(model, optimizer, folder):
        for step, batch in enumerate(torch.randn(4, 16, 6)):
            optimizer.zero_grad()
            scaler.scale(model(batch).square().mean()).backward()
            for part in parts if step == 2 else ():
                [*model.parameters()][part].grad.fill_(torch.inf)  # type: ignore[union-attr]
            scaler.step(optimizer)
            scaler.update()


def test_which_tensors_overflow_in_a_step_that_both_skip_decides_nothing(tmp_path: Path) -> None:
    for name, parts in (("a", (0, 2)), ("b", (2, 3))):
        _train_with_overflows(tmp_path / name, parts)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "equivalent", found.explanation
