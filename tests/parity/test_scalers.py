"""A gradient scaler takes out what it has put in: beside a run without one that is no fault."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders


def train(folder: Path, *, autocast: bool = False, unscaled: int = 1, scaled: bool = True, twin: int = 0) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled)
    data = torch.randn(6, 16, 8)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for batch in data:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = model(batch).float().square().mean()
            scaler.scale(loss).backward()
            for parameter in model.parameters() if unscaled > 1 else ():
                assert parameter.grad is not None
                parameter.grad /= 256
            scaler.step(optimizer)
            scaler.update()


@pytest.mark.parametrize("twins", [0, 2])
@pytest.mark.parametrize(
    ("variant", "cause"), [({"autocast": True}, "precision"), ({"unscaled": 2}, "grad-scaler"), ({}, None)]
)
def test_beside_a_run_without_one(tmp_path: Path, variant: dict[str, int], cause: str | None, twins: int) -> None:
    for twin in range(twins + 1):
        train(tmp_path / "a", scaled=False, twin=twin)
    train(tmp_path / "b", **variant)  # type: ignore[arg-type]
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.cause == cause
    assert (found.verdict == "different") == (cause is not None)


def clip_scaled(folder: Path, twin: int = 0, *, scale: float, limit: float = 0.5, unscales: bool = False) -> None:
    """Clip gradients that carry the loss scale, unless they are unscaled before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    data = torch.randn(6, 16, 8)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for batch in data:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = model(batch).float().square().mean()
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            scaler.step(optimizer)
            scaler.update()


@pytest.mark.parametrize(
    ("how", "cause"), [({}, "grad-scaler"), ({"unscales": True}, None), ({"limit": 1e6}, None)], ids=str
)
def test_other_scales_matter_where_both_runs_clip_what_carries_them(
    how: dict[str, float], cause: str | None, tmp_path: Path
) -> None:
    for twin in range(3):
        clip_scaled(tmp_path / "a", twin, scale=4096.0, **how)  # type: ignore[arg-type]
    clip_scaled(tmp_path / "b", scale=256.0, **how)  # type: ignore[arg-type]
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.cause == cause, found.explanation
    assert (found.verdict == "different") == (cause is not None)


def log_norm(folder: Path, twin: int = 0, *, when: str, limit: float = float("inf"), clipped_to: float = 0.0) -> None:
    """Ask for the gradient's norm with a limit, before the loss scale is taken out, or after, or not at all."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    data = torch.randn(6, 16, 8)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for batch in data:
            optimizer.zero_grad()
            scaler.scale(model(batch).square().mean()).backward()
            if when == "before":
                nn.utils.clip_grad_norm_(model.parameters(), limit)
            scaler.unscale_(optimizer)
            if when == "after":
                nn.utils.clip_grad_norm_(model.parameters(), limit)
            if clipped_to:
                nn.utils.clip_grad_norm_(model.parameters(), clipped_to)
            scaler.step(optimizer)
            scaler.update()


@pytest.mark.parametrize("limit", [float("inf"), 1e9, 1.0])
@pytest.mark.parametrize("reference", ["after", "never"])
def test_a_norm_that_is_asked_for_with_the_scale_in_it_matters_where_the_limit_cuts(
    reference: str, limit: float, tmp_path: Path
) -> None:
    for twin in range(3):
        log_norm(tmp_path / "a", twin, when=reference, limit=limit)
    log_norm(tmp_path / "b", when="before", limit=limit)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict == "different") == (limit == 1.0), found.explanation
    assert found.cause == ("grad-scaler" if limit == 1.0 else None)


@pytest.mark.parametrize(("clipped_to", "cause"), [(0.1, None), (0.05, "clipping"), (0.0, "clipping")])
def test_a_norm_that_is_logged_with_the_scale_in_it_is_no_clipping(
    clipped_to: float, cause: str | None, tmp_path: Path
) -> None:
    for twin in range(3):
        log_norm(tmp_path / "a", twin, when="never", clipped_to=0.1)
    log_norm(tmp_path / "b", when="before", clipped_to=clipped_to)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause) == ("different" if cause else "bitwise", cause), found.explanation


def scale_one_of_two(folder: Path, twin: int, *, scaled: bool, parts: int = 1) -> None:
    """Train two models with steps in turns, of which the loss of one alone is scaled."""
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    with (
        trainparity.record(models[0], optimizers[0], folder, twin=twin),
        trainparity.record(models[1], optimizers[1], folder, twin=twin, name="other"),
    ):
        for batch in torch.randn(6, 16, 8):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                for samples in batch.chunk(parts):
                    loss = (model(samples) - 1).square().mean() / parts
                    (scaler.scale(loss) if model is models[0] else loss).backward()
                if model is models[0]:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()


def test_a_model_whose_loss_is_not_scaled_carries_no_scale_of_another_one(tmp_path: Path) -> None:
    reference, other = (partial(scale_one_of_two, scaled=scaled, parts=1 + scaled) for scaled in (False, True))
    assert compared(reference, other, tmp_path).verdict == "equivalent"
