"""Runs of which earlier steps were not recorded: what rounding has parted there is no fault of theirs."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders

BEFORE, STEPS = 6, 6


class Attending(nn.Module):
    """Attention: the bias of its keys has no gradient but rounding, of which Adam makes whole steps."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        made, _ = self.attention(x, x, x, need_weights=False)
        scores: Tensor = self.head(made.mean(1))
        return scores


def train(
    folder: Path, twin: int, *, before: int = 1, parts: int = 1, smoothing: float = 0.0, restored: str = "as saved",
    warms_up: bool = False, times: float = 1.0,
) -> None:  # fmt: skip
    """Train some steps in `before` parts, and the rest, which is recorded, in `parts`."""
    torch.manual_seed(0)
    model = Attending()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batches, labels = torch.randn(BEFORE + STEPS, 16, 6, 16), torch.randint(0, 5, (BEFORE + STEPS, 16))

    def make_step(step: int, cut: int, smoothing: float) -> None:
        optimizer.zero_grad()
        for some, wanted in zip(batches[step].chunk(cut), labels[step].chunk(cut), strict=True):
            (cross_entropy(model(some), wanted, label_smoothing=smoothing) / cut).backward()
        optimizer.step()

    for step in range(BEFORE):
        make_step(step, before, 0.0)
    if restored == "nothing":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer.param_groups[0]["lr"] = times * (1e-3 if warms_up else 1e-2)
    for state in optimizer.state.values():
        if restored == "in bf16":
            state["exp_avg"] = state["exp_avg"].bfloat16().float()
            state["exp_avg_sq"] = state["exp_avg_sq"].bfloat16().float()
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(BEFORE, BEFORE + STEPS):
            make_step(step, parts, smoothing)
            optimizer.param_groups[0]["lr"] = times * 1e-2


@pytest.mark.parametrize("parts", [1, 2])
def test_another_cut_before_it_is_the_same_training(parts: int, tmp_path: Path) -> None:
    found = compared(train, partial(train, before=2, parts=parts), tmp_path)
    assert found.verdict == "equivalent", (found.reason, found.explanation)


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"smoothing": 0.1}, "loss-or-targets"),
        ({"restored": "nothing"}, "optimizer-state"),
        ({"restored": "nothing", "warms_up": True}, "optimizer-state"),
        ({"restored": "nothing", "times": 1.5}, "optimizer-state"),  # its rate was in the state
        ({"times": 1.5}, "learning-rate"),
        ({"warms_up": True}, "schedule"),
        ({"restored": "in bf16"}, "optimizer-state"),
    ],
)
def test_faults_are_named(before: int, fault: dict[str, str | float], cause: str, tmp_path: Path) -> None:
    found = compared(train, partial(train, before=before, **fault), tmp_path)  # type: ignore[arg-type]
    assert (found.verdict, found.cause) == ("different", cause), (found.explanation, found.reason)


def resumed(
    order: list[int], parts: int, folder: Path, twin: int, *, coarse: bool = False, before: int = 6, after: int = 0
) -> None:
    """Resume after some steps, some of them recorded, with the optimizer's state loaded by number for an order."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = list(zip(torch.randn(12, 16, 16), torch.randint(0, 5, (12, 16)), strict=True))

    def train(batches: list[tuple[Tensor, Tensor]], parts: int) -> None:
        for images, labels in batches:
            optimizer.zero_grad()
            for some, wanted in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    made = model(some)
                (cross_entropy(made.float(), wanted) / parts).backward()
            optimizer.step()

    def load() -> None:
        saved = optimizer.state_dict()
        saved["state"] = {number: saved["state"][other] for number, other in enumerate(order)}
        optimizer.load_state_dict(saved)

    train(batches[:before], 1)
    if not after:
        load()
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        if after:
            train(batches[before : before + after], parts)
            load()
        train(batches[before + after :], parts)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("after", [0, 2])
def test_a_state_that_is_loaded_for_other_parameters_is_named(
    after: int, parts: int, coarse: bool, tmp_path: Path
) -> None:
    """As long in all as the right one."""
    plain = partial(resumed, [0, 1, 2, 3, 4, 5], coarse=coarse, after=after)
    found = compared(partial(plain, 1), partial(plain, parts), tmp_path / "right")
    assert found.verdict in ("bitwise", "equivalent"), found.explanation
    exchanged = partial(resumed, [2, 1, 0, 3, 4, 5], parts, coarse=coarse, after=after)
    if coarse and after and parts > 1:  # lengths are rounded otherwise, and no fact then
        return
    found = compared(partial(plain, 1), exchanged, tmp_path / "wrong")
    assert (found.verdict, found.cause) == ("different", "optimizer-state"), (found.explanation, found.reason)
    assert "it was loaded for other parameters" in (found.explanation or "")
    assert found.evidence["parameters"] == ["0.weight", "2.weight"]


def restore(
    change: Callable[[dict[str, Tensor]], None], coarse: bool, parts: int, folder: Path, twin: int, *,
    kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW, stored: torch.dtype = torch.float32,
) -> None:  # fmt: skip
    """Train, and change what the optimizer keeps of each parameter where its state is loaded again in mid-run."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4)).to(stored)
    optimizer = kind(model.parameters(), lr=3e-3)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step, batch in enumerate(torch.randn(10, 16, 12, generator=torch.Generator().manual_seed(1))):
            if step == BEFORE:
                saved = copy.deepcopy(optimizer.state_dict())
                for kept in saved["state"].values():
                    change(kept)
                optimizer.load_state_dict(saved)
            optimizer.zero_grad()
            for some in batch.chunk(parts):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    scores = model(some.to(stored))
                (cross_entropy(scores.float(), some[:, :4].argmax(1)) / parts).backward()
            optimizer.step()


def not_at_all(kept: dict[str, Tensor]) -> None:
    pass


def shrink_second_moments(kept: dict[str, Tensor]) -> None:
    kept["exp_avg_sq"] *= 0.95


def round_moments(kept: dict[str, Tensor]) -> None:
    kept |= {name: kept[name].bfloat16() for name in ("exp_avg", "exp_avg_sq")}


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("change", [not_at_all, shrink_second_moments, round_moments])
def test_a_state_that_is_changed_in_mid_run_is_named_where_its_length_does_not_tell(
    change: Callable[[dict[str, Tensor]], None], coarse: bool, tmp_path: Path
) -> None:
    found = compared(partial(restore, not_at_all, coarse, 1), partial(restore, change, coarse, 1), tmp_path)
    said = ("bitwise", None, None) if change is not_at_all else ("different", "optimizer-state", BEFORE)
    assert (found.verdict, found.cause, found.step) == said, found.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_a_state_that_is_loaded_as_it_was_changes_nothing_in_another_cut(coarse: bool, tmp_path: Path) -> None:
    found = compared(partial(restore, not_at_all, coarse, 1), partial(restore, not_at_all, coarse, 4), tmp_path)
    assert found.verdict == "equivalent", found.explanation


def exchange_rows(kept: dict[str, Tensor]) -> None:
    kept["exp_avg"] = kept["exp_avg"].roll(1, 0)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam])
def test_a_state_that_is_changed_is_named_without_twins(kind: type[torch.optim.Optimizer], tmp_path: Path) -> None:
    """What is assumed of noise in gradients excuses no other update of gradients of the same bits."""
    for name, change in (("as saved", not_at_all), ("changed", exchange_rows)):
        restore(change, False, 1, tmp_path / name, 0, kind=kind)
    found = compare_folders(tmp_path / "as saved", tmp_path / "changed")
    assert (found.verdict, found.cause, found.step) == ("different", "optimizer-state", BEFORE), found.explanation


def count_anew(kept: dict[str, Tensor]) -> None:
    kept["step"] = torch.zeros_like(kept["step"])


def test_steps_that_are_counted_anew_are_a_fact_where_weights_are_coarse(tmp_path: Path) -> None:
    """Adam corrects its moments by the count, and weights in bf16 round as much as the update is."""
    runs = (partial(restore, change, True, 1, stored=torch.bfloat16) for change in (not_at_all, count_anew))
    found = compared(*runs, tmp_path)
    assert (found.verdict, found.cause, found.step) == ("different", "optimizer-state", BEFORE), found.explanation
    assert f"it counts as steps {BEFORE} in" in str(found.explanation) and " and 0 in" in str(found.explanation)


@pytest.mark.parametrize(
    "kind", [torch.optim.Adafactor, partial(torch.optim.Adagrad, lr_decay=0.05)], ids=["Adafactor", "Adagrad"]
)
def test_steps_are_counted_for_more_than_moments(kind: Callable[..., torch.optim.Optimizer], tmp_path: Path) -> None:
    runs = (partial(restore, change, True, 1, stored=torch.bfloat16, kind=kind) for change in (not_at_all, count_anew))
    found = compared(*runs, tmp_path)
    assert (found.verdict, found.cause, found.step) == ("different", "optimizer-state", BEFORE), found.explanation


def test_steps_that_are_counted_for_nothing_are_none(tmp_path: Path) -> None:
    kind = partial(torch.optim.RMSprop, momentum=0.9)
    runs = (partial(restore, change, False, parts, kind=kind) for change, parts in ((not_at_all, 1), (count_anew, 4)))
    found = compared(*runs, tmp_path)
    assert found.verdict == "equivalent", found.explanation
