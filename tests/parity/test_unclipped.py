"""Clipping by code of the loop's own, beside a run that clips with PyTorch's function."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import trainparity
from tests.support.against_twins import LABELS, compared, train_in_parts
from tests.support.on_ranks import on_ranks
from trainparity.parity.compare import compare_folders

Clip = Callable[[nn.Module], object]
Make = Callable[[nn.Module], torch.optim.Optimizer]


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(clip: Clip, parts: int, coarse: bool, folder: Path, twin: int, make: Make = momentum) -> None:
    train_in_parts(parts, coarse, folder, twin, optimizer=make, scale=1 / parts, before_update=clip)


def by_function(limit: float, model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), limit)


def by_hand(limit: float, model: nn.Module) -> None:
    shorten(limit, [parameter.grad for parameter in model.parameters() if parameter.grad is not None])


def shorten(limit: float, gradients: list[Tensor]) -> None:
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    for gradient in gradients:
        gradient.mul_(min(1.0, limit / (float(norm) + 1e-6)))


FUNCTION, HAND, NONE = partial(by_function, 0.3), partial(by_hand, 0.3), partial(by_function, 1e9)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("reference", "other"), [(FUNCTION, HAND), (HAND, FUNCTION)], ids=["function", "hand"])
def test_one_limit_is_one_training_whoever_clips(
    reference: Clip, other: Clip, parts: int, coarse: bool, tmp_path: Path
) -> None:
    verdict = compared(partial(train, reference, 1, coarse), partial(train, other, parts, coarse), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("reference", "other"), [(FUNCTION, partial(by_hand, 0.33)), (HAND, NONE), (HAND, partial(by_function, 0.33))]
)
def test_another_limit_is_another_training(reference: Clip, other: Clip, coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, reference, 1, coarse), partial(train, other, 1, coarse), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "clipping"), verdict.explanation
    assert "1 of them is applied" not in str(verdict.explanation) or other is NONE


class Plain(torch.optim.Optimizer):
    """Steps against the gradient, or as Adam does, after it has cut this at a limit of its own."""

    def __init__(self, limit: float, adam: bool, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.01})
        self.limit, self.adam = limit, adam

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        held = [parameter for parameter in self.param_groups[0]["params"] if parameter.grad is not None]
        shorten(self.limit, [parameter.grad for parameter in held])
        for parameter in held:
            update = parameter.grad
            if self.adam:
                state = self.state[parameter]
                state["mean"] = torch.lerp(state.get("mean", 0 * update), update, 0.1)
                state["square"] = torch.lerp(state.get("square", 0 * update), update.square(), 0.01)
                update = state["mean"] / (state["square"].sqrt() + 1e-8)
            parameter.sub_(0.01 * update)


@pytest.mark.parametrize("adam", [False, True], ids=["plain", "adam"])
@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("limit", [0.3, 1e9])
def test_an_optimizer_may_clip_by_itself(limit: float, coarse: bool, adam: bool, tmp_path: Path) -> None:
    outside = partial(train, FUNCTION, 1, coarse, make=partial(Plain, 1e9, adam))
    verdict = compared(outside, partial(train, NONE, 2, coarse, make=partial(Plain, limit, adam)), tmp_path)
    if limit == 0.3:
        assert verdict.verdict == "equivalent", verdict.explanation
    else:
        assert (verdict.verdict, verdict.cause) == ("different", "clipping"), verdict.explanation


def rmsprop(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(model.parameters(), lr=1e-5, momentum=0.99, weight_decay=1e-8)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_an_optimizer_of_pytorch_that_hides_a_limit_in_its_first_update_has_none(coarse: bool, tmp_path: Path) -> None:
    """An update as long, and a state that is nearly a sum of such updates, come of gradients of any length."""
    outside = partial(train, FUNCTION, 1, coarse, make=rmsprop)
    verdict = compared(outside, partial(train, NONE, 1, coarse, make=rmsprop), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "clipping", 0), verdict.explanation


def test_an_optimizer_of_ones_own_has_a_limit_by_whatever_name(tmp_path: Path) -> None:
    """A class that extends PyTorch's, with its name."""

    def make(limit: float, model: nn.Module) -> torch.optim.Optimizer:
        class AdamW(torch.optim.AdamW):
            def step(self, closure: object = None) -> None:  # type: ignore[override]
                shorten(limit, [parameter.grad for parameter in model.parameters()])
                super().step()

        return AdamW(model.parameters(), lr=0.01)

    outside = partial(train, FUNCTION, 1, False, make=partial(make, 1e9))
    verdict = compared(outside, partial(train, NONE, 2, False, make=partial(make, 0.3)), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_limits_by_hand_that_always_cut_are_no_multiple_of_each_other(coarse: bool, tmp_path: Path) -> None:
    """Under Adam both runs update alike, and one gradient stays twice the other."""
    runs = (partial(train, partial(by_hand, limit), 1, coarse, make=adam) for limit in (0.1, 0.05))
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "clipping"), verdict.explanation


def each_by_function(limit: float, model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.utils.clip_grad_norm_([parameter], limit)


def each_by_hand(limit: float, model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        shorten(limit, [parameter.grad])


def values_by_function(limit: float, model: nn.Module) -> None:
    nn.utils.clip_grad_value_(model.parameters(), limit)


def values_by_hand(limit: float, model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.clamp_(-limit, limit)


def without_last(clip: Clip, model: nn.Module) -> None:
    clip(model)
    list(model.parameters())[-1].grad = None


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("function", "hand", "limit"),
    [(each_by_function, each_by_hand, 0.1), (values_by_function, values_by_hand, 0.02)],
    ids=["each", "values"],
)
def test_parameters_or_numbers_that_are_cut_each_by_hand_are_the_same_training(
    function: Callable[..., None], hand: Callable[..., None], limit: float, coarse: bool, tmp_path: Path
) -> None:
    function, hand = partial(function, limit), partial(hand, limit)
    dropped = partial(without_last, function), partial(without_last, hand)
    pairs = {"": (function, hand), "hand": (hand, function), "dropped": dropped}
    for name, (left, right) in pairs.items():
        verdict = compared(partial(train, left, 1, coarse), partial(train, right, 1, coarse), tmp_path / name)
        assert verdict.verdict == "equivalent", (name, verdict.explanation)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("function", "hand"), [(each_by_function, each_by_hand), (values_by_function, values_by_hand)])
def test_another_limit_of_theirs_is_seen(
    function: Callable[..., None], hand: Callable[..., None], coarse: bool, tmp_path: Path
) -> None:
    runs = partial(function, 0.02), partial(hand, 0.03)
    verdict = compared(*(partial(train, clip, 1, coarse) for clip in runs), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "clipping"), verdict.explanation


def _sharded(rank: int, folder: str) -> Tensor:
    """Record a sharded training that PyTorch's function clips, its twins, and one that the loop clips by hand."""
    for place, twin in (("function", 0), ("function", 1), ("function", 2), ("hand", 0)):
        torch.manual_seed(0)
        model = fully_shard(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10)))
        optimizer = momentum(model)
        draws = torch.Generator().manual_seed(1 + rank)
        with trainparity.record(model, optimizer, Path(folder) / place, twin=twin, interval=1):
            for _ in range(4):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(torch.randn(16, 4, generator=draws)), LABELS).backward()
                if place == "function":
                    by_function(0.3, model)
                else:
                    _shorten_shards([parameter.grad for parameter in model.parameters()])
                optimizer.step()
    return torch.tensor(True)


def _shorten_shards(gradients: list[Any]) -> None:
    squares = torch.stack([gradient.to_local().square().sum() for gradient in gradients]).sum()
    dist.all_reduce(squares)
    for gradient in gradients:
        gradient.mul_(min(1.0, 0.3 / float(squares.sqrt())))


def test_shards_that_the_loop_clips_by_the_whole_norm_are_clipped_as_by_the_function(tmp_path: Path) -> None:
    on_ranks(2, tmp_path, _sharded, str(tmp_path))
    verdict = compare_folders(tmp_path / "function", tmp_path / "hand")
    assert verdict.verdict == "equivalent", verdict.explanation


def in_groups(limit: float, model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.utils.clip_grad_norm_(parameter, limit)


@pytest.mark.parametrize("swapped", [False, True])
def test_parameters_that_are_clipped_by_norms_of_their_own_are_named(swapped: bool, tmp_path: Path) -> None:
    runs = [partial(train, clip, 1, True, make=adam) for clip in (FUNCTION, partial(in_groups, 0.3))]
    verdict = compared(*(runs[::-1] if swapped else runs), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "clipping"), verdict.explanation
    assert "are clipped apart" in str(verdict.explanation), verdict.explanation


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def in_hooks(limit: float, make: Make, model: nn.Module) -> torch.optim.Optimizer:
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-limit, limit))
    return make(model)


def by_value(limit: float, model: nn.Module) -> None:
    nn.utils.clip_grad_value_(model.parameters(), limit)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_hooks_that_clip_each_number_apply_what_the_function_does(coarse: bool, tmp_path: Path) -> None:
    def hooked(limit: float, folder: Path, twin: int) -> None:
        train(lambda model: None, 1, coarse, folder, twin, make=partial(in_hooks, limit, momentum))

    reference = partial(train, partial(by_value, 0.01), 1, coarse)
    assert compared(reference, partial(hooked, 0.01), tmp_path / "right").verdict in ("bitwise", "equivalent")
    assert compared(reference, partial(hooked, 0.02), tmp_path / "wrong").verdict == "different"


def train_scaled(
    clip: Clip, parts: int, coarse: torch.dtype, folder: Path, twin: int, *, unscales: bool = True,
    scale: float = 1024.0, weight: float = 1.0,
) -> None:  # fmt: skip
    """Train for 6 steps under a GradScaler, as `train_in_parts` does without one; `weight` is one of the loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    optimizer, scaler = momentum(model), torch.amp.GradScaler("cpu", init_scale=scale)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            optimizer.zero_grad()
            batch = torch.randn(16, 4, generator=draws)
            for images, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", coarse):
                    outputs = model(images)
                scaler.scale(weight * nn.functional.cross_entropy(outputs.float(), labels) / parts).backward()
            if unscales:
                scaler.unscale_(optimizer)
            clip(model)
            scaler.step(optimizer)
            scaler.update()


@pytest.mark.parametrize("coarse", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("twins", [0, 2])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("reference", "other", "said"),
    [(FUNCTION, HAND, "equivalent"), (HAND, FUNCTION, "equivalent"), (FUNCTION, partial(by_hand, 0.05), "different")],
    ids=["function", "hand", "another-limit"],
)
def test_what_is_clipped_after_a_scaler_carries_no_scale(
    reference: Clip, other: Clip, said: str, parts: int, twins: int, coarse: torch.dtype, tmp_path: Path
) -> None:
    for twin in range(1 + twins):
        train_scaled(reference, 1, coarse, tmp_path / "reference", twin)
    train_scaled(other, parts, coarse, tmp_path / "test", 0)
    verdict = compare_folders(tmp_path / "reference", tmp_path / "test")
    assert verdict.verdict == said, verdict.explanation
    assert said == "equivalent" or verdict.cause == "clipping"


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("factor", [1.0, 1.1, 2.0])
def test_one_gradient_that_is_changed_after_clipping_is_named(factor: float, coarse: bool, tmp_path: Path) -> None:
    """As the whole norm is hardly another one, it says nothing of what was changed."""

    def clips(by: float, model: nn.Module) -> None:
        FUNCTION(model)
        bias = next(model.children()).bias
        assert isinstance(bias, Tensor) and bias.grad is not None
        bias.grad.mul_(by)

    verdict = compared(*(partial(train, partial(clips, by), 1, coarse) for by in (1.0, factor)), tmp_path)
    if factor == 1.0:
        assert verdict.verdict == "bitwise"
    else:
        assert (verdict.verdict, verdict.cause) == ("different", "clipping")
        assert "the gradient of 0.bias is changed between clipping and the update" in (verdict.explanation or "")


@pytest.mark.parametrize("coarse", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reference", [FUNCTION, HAND], ids=["function", "hand"])
@pytest.mark.parametrize("limit", [0.3 * 1024, 0.3])
def test_a_limit_may_carry_the_scale_that_gradients_carry(
    limit: float, reference: Clip, coarse: torch.dtype, tmp_path: Path
) -> None:
    scaled = partial(train_scaled, partial(by_function, limit), 4, coarse, unscales=False)
    verdict = compared(partial(train_scaled, reference, 1, coarse), scaled, tmp_path)
    assert verdict.verdict == ("different" if limit == 0.3 else "equivalent"), verdict.explanation
    assert limit != 0.3 or reference is HAND or verdict.cause == "grad-scaler"


@pytest.mark.parametrize("coarse", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("scale", "weight"), [(1024.0, 1.0), (4096.0, 1.0), (1024.0, 0.5)])
def test_both_limits_may_carry_a_scale_of_their_own(
    scale: float, weight: float, coarse: torch.dtype, tmp_path: Path
) -> None:
    """They are one limit, whatever else is off."""
    reference = partial(train_scaled, partial(by_function, 0.3 * 1024), 1, coarse, unscales=False)
    other = partial(train_scaled, partial(by_function, 0.3 * scale), 4, coarse, unscales=False)
    verdict = compared(reference, partial(other, scale=scale, weight=weight), tmp_path)
    if weight == 1:
        assert verdict.verdict == "equivalent", verdict.explanation
    else:
        assert (verdict.verdict, verdict.cause) == ("different", "loss-normalisation"), verdict.explanation


def adapts(times: float, model: nn.Module) -> None:
    """Clip as Brock et al. do (2021): each parameter's gradient to a part of its weight."""
    for parameter in model.parameters():
        nn.utils.clip_grad_norm_([parameter], times * 0.02 * float(parameter.detach().norm()))


@pytest.mark.parametrize("coarse", [torch.float16, torch.bfloat16], ids=str)
def test_adaptive_limits_may_carry_the_scale(coarse: torch.dtype, tmp_path: Path) -> None:
    scaled = partial(train_scaled, partial(adapts, 1024.0), 4, coarse, unscales=False)
    verdict = compared(partial(train_scaled, partial(adapts, 1.0), 1, coarse), scaled, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_a_limit_of_each_parameter_may_be_a_part_of_its_weight(coarse: bool, tmp_path: Path) -> None:
    """Of weights that rounding has parted."""
    clip = partial(adapts, 1.0)
    verdict = compared(partial(train, clip, 1, coarse), partial(train, clip, 4, coarse), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
