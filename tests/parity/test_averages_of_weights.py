"""Weights that a loop keeps as averages of those it trains: their momentum is seen under any format."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trainparity
from tests.support.against_twins import LABELS, compared

MOMENTUM = 0.996
Update = Callable[[nn.Module, nn.Module, int], None]
"""Updates a teacher from the student, after a step."""


@torch.no_grad()
def average(momentum: float, every: int, teacher: nn.Module, student: nn.Module, step: int) -> None:
    if step % every == 0:
        for ours, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
            ours.mul_(momentum).add_(theirs, alpha=1 - momentum)


@torch.no_grad()
def interpolate(momentum: float, teacher: nn.Module, student: nn.Module, step: int) -> None:
    """The same, computed otherwise."""
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)


def never(teacher: nn.Module, student: nn.Module, step: int) -> None:
    pass


def train(update: Update, parts: int, coarse: bool, stored: torch.dtype, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 10)).to(stored)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(nn.ModuleList([student, teacher]), optimizer, folder, twin=twin, interval=1):
        for step in range(6):
            optimizer.zero_grad()
            batch = torch.randn(16, 4, generator=draws).to(stored)
            for images, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = student(images).float()
                    with torch.no_grad():
                        wanted = teacher(images).float()
                ((cross_entropy(outputs, labels) + mse_loss(outputs, wanted)) / parts).backward()
            optimizer.step()
            update(teacher, student, step)


RIGHT = partial(average, MOMENTUM, 1)
WRONG: dict[str, tuple[Update, Update]] = {
    "never": (RIGHT, never),
    "in the other run": (never, RIGHT),
    "for each micro-batch": (RIGHT, partial(average, MOMENTUM**4, 1)),
    "nearly the same momentum": (partial(average, 0.999, 1), partial(average, 0.9995, 1)),
    "copied later": (partial(average, 0, 2), partial(average, 0, 3)),
}


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("fault", WRONG)
def test_another_momentum_is_a_fact(fault: str, coarse: bool, tmp_path: Path) -> None:
    reference, test = (
        partial(train, update, parts, coarse, torch.float32) for update, parts in zip(WRONG[fault], (1, 4), strict=True)
    )
    verdict = compared(reference, test, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "weights-not-loaded"), verdict.reason
    assert "towards 0." in (verdict.explanation or "") and "of the way" in (verdict.explanation or "")


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("momentum", [0.9, MOMENTUM, 0.99999])
def test_how_an_average_is_computed_is_none(momentum: float, stored: torch.dtype, tmp_path: Path) -> None:
    """As good as no step of the last one is seen in these formats: it is rounded away, or not."""
    updates: tuple[Update, Update] = partial(average, momentum, 1), partial(interpolate, momentum)
    reference, test = (
        partial(train, update, parts, True, stored) for update, parts in zip(updates, (1, 4), strict=True)
    )
    verdict = compared(reference, test, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_an_average_that_is_updated_before_the_step_is_a_fact(coarse: bool, frozen: bool, tmp_path: Path) -> None:
    """Its forward pass is not made with what the update begins with; writes to `.data` count no version."""

    def train(late: bool, parts: int, folder: Path, twin: int, *, logs: bool = False) -> None:
        torch.manual_seed(0)
        student = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 10))
        teacher = copy.deepcopy(student).requires_grad_(not frozen)
        optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)

        def follow() -> None:
            for ours, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                if parts == 1:
                    ours.data.mul_(MOMENTUM).add_(theirs.data, alpha=1 - MOMENTUM)
                else:  # of equal weights, as at first, the same ones to the bit
                    ours.data.lerp_(theirs.data, 1 - MOMENTUM)

        with trainparity.record(nn.ModuleList([student, teacher]), optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                for images, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                    with torch.autocast("cpu", torch.bfloat16, enabled=coarse), torch.no_grad():
                        wanted = teacher(images).float()
                    with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                        outputs = student(images).float()
                    ((cross_entropy(outputs, labels) + mse_loss(outputs, wanted)) / parts).backward()
                if late:
                    follow()
                if logs:
                    with torch.no_grad():
                        teacher(batch)
                optimizer.step()
                if not late:
                    follow()

    for logs in (False, True):
        reference, other = partial(train, False, 1, logs=logs), partial(train, True, 4, logs=logs)
        verdict = compared(reference, other, tmp_path / f"wrong {logs}")
        assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "weights-not-loaded", 1), verdict.reason
        assert "written after the last forward pass of step 1" in (verdict.explanation or ""), verdict.explanation
    for late in (False, True):
        verdict = compared(partial(train, late, 1), partial(train, late, 4), tmp_path / str(late))
        assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_an_average_that_the_loss_does_not_use_is_seen_to_lag_though_all_bits_are_equal(
    coarse: bool, tmp_path: Path
) -> None:
    """As one that is evaluated: where each update begins it is what it should be, and after each it is not."""

    def train(late: bool, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = nn.Linear(4, 10)
        kept, optimizer = copy.deepcopy(model), torch.optim.AdamW(model.parameters(), lr=1e-3)
        with trainparity.record(nn.ModuleList([model, kept]), optimizer, folder, twin=twin, interval=1):
            for step, batch in enumerate(torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(1))):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(batch)
                cross_entropy(outputs.float(), LABELS).backward()
                if late:
                    interpolate(MOMENTUM, kept, model, step)
                optimizer.step()
                if not late:
                    interpolate(MOMENTUM, kept, model, step)

    verdict = compared(partial(train, False), partial(train, True), tmp_path / "wrong")
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "weights-not-loaded", 1), verdict.reason
    for late in (False, True):
        assert compared(partial(train, late), partial(train, late), tmp_path / str(late)).verdict == "bitwise"


def test_a_model_that_updates_its_average_as_it_is_called_lags_behind_nothing(tmp_path: Path) -> None:
    """As MoCo's key encoder: it ends as it was in the last step, and passes are the same."""

    class Momentum(nn.Module):
        def __init__(self, inside: bool) -> None:
            super().__init__()
            self.student = nn.Linear(4, 10)
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)
            self.inside = inside

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if self.inside:
                average(MOMENTUM, 1, self.teacher, self.student, 0)
            return self.student(images), self.teacher(images)

    def train(inside: bool, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = Momentum(inside)
        optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                outputs, wanted = model(batch)
                (cross_entropy(outputs, LABELS) + mse_loss(outputs, wanted)).backward()
                optimizer.step()
                if not inside:
                    average(MOMENTUM, 1, model.teacher, model.student, 0)

    verdict = compared(partial(train, True), partial(train, False), tmp_path)
    assert verdict.cause != "weights-not-loaded" and "end with other weights" in (verdict.explanation or "")


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_a_target_that_is_updated_before_it_is_called_lags_behind_nothing(coarse: bool, tmp_path: Path) -> None:
    """As BYOL's, before the online network is called or after it: its weights are the same."""

    def train(late: bool, parts: int, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        online = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
        target = copy.deepcopy(online).requires_grad_(False)
        optimizer, draws = torch.optim.Adam(online.parameters(), lr=1e-3), torch.Generator().manual_seed(1)
        with trainparity.record(nn.ModuleDict({"q": online, "k": target}), optimizer, folder, twin=twin, interval=1):
            for step, views in enumerate(torch.randn(6, 2, 16, 4, generator=draws)):
                optimizer.zero_grad()
                if not late:
                    interpolate(MOMENTUM, target, online, step)
                for part, (one, other) in enumerate(zip(*(view.chunk(parts) for view in views), strict=True)):
                    with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                        made = online(one)
                        with torch.no_grad():
                            if late and not part:
                                interpolate(MOMENTUM, target, online, step)
                            wanted = target(other)
                    (mse_loss(made.float(), wanted.float()) / parts).backward()
                optimizer.step()

    verdict = compared(partial(train, False, 1), partial(train, True, 2), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


class Following(torch.optim.AdamW):
    """Updates an average of its weights at the end of its own step."""

    def __init__(self, model: nn.Module, follow: Callable[[], None]) -> None:
        super().__init__(model.parameters(), lr=1e-3)
        self.follow = follow

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        self.follow()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("how", ["hook", "optimizer"])
def test_an_average_may_be_updated_within_the_step_or_after_it(how: str, coarse: bool, tmp_path: Path) -> None:
    def train(how: str, momentum: float, parts: int, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        student = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 10))
        teacher = copy.deepcopy(student).requires_grad_(False)
        follow = partial(interpolate, momentum, teacher, student, 0)
        own = Following(student, follow) if how == "optimizer" else None
        optimizer = own or torch.optim.AdamW(student.parameters(), lr=1e-3)
        if how == "hook":
            optimizer.register_step_post_hook(lambda *_: follow())
        with trainparity.record(nn.ModuleList([student, teacher]), optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                for images in batch.chunk(parts):
                    with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                        outputs, wanted = student(images).float(), teacher(images).float()
                    ((mse_loss(outputs, wanted) + outputs.square().mean()) / parts).backward()
                optimizer.step()
                if how == "after":
                    follow()

    right = partial(train, "after", MOMENTUM, 1)
    verdict = compared(right, partial(train, how, MOMENTUM, 2), tmp_path / "right")
    assert verdict.verdict == "equivalent", verdict.explanation
    wrong = partial(train, how, 0.5 + MOMENTUM / 2, 2)
    assert compared(right, wrong, tmp_path / "wrong").verdict == "different"
    verdict = compared(partial(train, how, MOMENTUM, 1), wrong, tmp_path / "both within")
    assert (verdict.verdict, verdict.cause) == ("different", "weights-not-loaded"), verdict.explanation


def actor_critic(late: bool, lags: bool, parts: int, folder: Path, twin: int) -> None:
    """Train an actor and a critic beside averages of both, the critic's updated `late`, the actor's before its step."""
    torch.manual_seed(0)
    actor, critic = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    follows, target = (copy.deepcopy(model).requires_grad_(False) for model in (actor, critic))
    of_actor, of_critic = (torch.optim.Adam(model.parameters(), lr=1e-3) for model in (actor, critic))
    both, acts = nn.ModuleDict({"critic": critic, "target": target}), nn.ModuleDict({"own": actor, "follows": follows})
    with (
        trainparity.record(both, of_critic, folder, twin=twin, interval=1),
        trainparity.record(acts, of_actor, folder, twin=twin, interval=1, name="actor"),
    ):
        for step, states in enumerate(torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(1))):
            of_critic.zero_grad()
            for some in states.chunk(parts):
                with torch.no_grad():
                    wanted = target(follows(some))
                (mse_loss(critic(some), wanted) / parts).backward()
            of_critic.step()
            if not late:
                interpolate(MOMENTUM, target, critic, step)
            of_actor.zero_grad()
            for some in states.chunk(parts):
                (-critic(actor(some)).mean() / parts).backward()
            if late:
                interpolate(MOMENTUM, target, critic, step)
            if lags:
                interpolate(MOMENTUM, follows, actor, step)
            of_actor.step()
            if not lags:
                interpolate(MOMENTUM, follows, actor, step)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_critics_target_may_be_updated_before_or_after_the_actor_is(parts: int, tmp_path: Path) -> None:
    """The weights that it follows are another optimizer's, whose step was before."""
    verdict = compared(partial(actor_critic, False, False, 1), partial(actor_critic, True, False, parts), tmp_path)
    assert verdict.verdict == ("bitwise" if parts == 1 else "equivalent"), verdict.explanation


def test_an_actors_average_that_lags_is_named_before_the_critics_loss_which_it_makes(tmp_path: Path) -> None:
    verdict = compared(partial(actor_critic, False, False, 1), partial(actor_critic, False, True, 1), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.model) == ("different", "weights-not-loaded", "actor"), verdict


def test_an_average_in_bf16_that_never_moves_is_seen(tmp_path: Path) -> None:
    """How far it moves in a step is rounded away there, and no part of the way."""
    runs = (partial(train, update, 1, False, torch.bfloat16) for update in (partial(average, 0.5, 1), never))
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "weights-not-loaded"), verdict.reason


def test_an_averaged_model_of_pytorch_is_followed(tmp_path: Path) -> None:
    def averaged(momentum: float, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = nn.Linear(4, 10)
        mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(momentum))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(nn.ModuleList([model, mean]), optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(5, 16, 4, generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                cross_entropy(model(batch), LABELS).backward()
                optimizer.step()
                mean.update_parameters(model)

    verdict = compared(partial(averaged, 0.99), partial(averaged, 0.98), tmp_path)
    assert (verdict.cause, verdict.step) == ("weights-not-loaded", 2), verdict.explanation  # the first is a copy
    assert verdict.evidence["parts"] == pytest.approx([0.01, 0.02], rel=1e-3)


@pytest.mark.parametrize(("momentum", "rate"), [(0.9, 1e-5), (0.999, 1e-3), (0.9999, 1e-5)])
def test_a_sum_that_rounds_one_way_is_no_other_average(momentum: float, rate: float, tmp_path: Path) -> None:
    """Where weights hardly move, or are frozen, or begin at zero: `m * a + (1 - m) * p` and `lerp` end otherwise."""

    def averaged(sums: bool, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 10))
        model[0].requires_grad_(False)
        nn.init.zeros_(model[2].weight)
        mean = copy.deepcopy(model).requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=0.1)
        with trainparity.record(nn.ModuleList([model, mean]), optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(20, 16, 4, generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                cross_entropy(model(batch), LABELS).backward()
                optimizer.step()
                with torch.no_grad():
                    for ours, theirs in zip(mean.parameters(), model.parameters(), strict=True):
                        ours.copy_(momentum * ours + (1 - momentum) * theirs) if sums else ours.lerp_(
                            theirs, 1 - momentum
                        )

    verdict = compared(partial(averaged, False), partial(averaged, True), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
