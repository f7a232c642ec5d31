"""A bias' gradient whose terms cancel, as that of a new discriminator: what is left is rounding."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders
from trainparity.parity.noise.cancelling_biases import of_terms_that_cancel
from trainparity.parity.recording.trace import Trace


def train(parts: int, scale: float, seed: int, coarse: bool, folder: Path, twin: int) -> None:
    """Tell real samples from made ones, each in one pass or in several; `scale` multiplies the last bias' gradient."""
    torch.manual_seed(seed)
    judge = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    last = judge[2].bias
    assert isinstance(last, nn.Parameter)
    last.register_hook(lambda gradient: gradient * scale)
    optimizer = torch.optim.Adam(judge.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(seed + 1)
    with trainparity.record(judge, optimizer, folder, twin=twin, interval=1):
        for _ in range(8):
            optimizer.zero_grad()
            batch = torch.randn(2, 32, 16, generator=draws) + torch.tensor([0.1, 0.0])[:, None, None]
            for samples in batch.chunk(parts, 1):
                losses = []
                for some, label in zip(samples, (1.0, 0.0), strict=True):
                    with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                        found = judge(some).float()
                    losses.append(binary_cross_entropy_with_logits(found, torch.full_like(found, label)))
                (sum(losses, torch.zeros(())) / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("seed", [2, 6, 8, 9])
@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_its_rounding_is_that_of_its_terms(seed: int, coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, 1, 1.0, seed, coarse), partial(train, 4, 1.0, seed, coarse), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def test_another_gradient_of_it_is_seen(tmp_path: Path) -> None:
    assert compared(partial(train, 1, 1.0, 0, False), partial(train, 4, 1.5, 0, False), tmp_path).verdict == "different"


class Scores(nn.Module):
    """Scores each place of an image, as a detector does."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.score = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 27, 3, padding=1)
        nn.init.constant_(self.score.bias, -4.6)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.score(torch.tanh(self.body(images)))
        return scores


def detect(folder: Path, twin: int, *, turned: bool = False, scale: float = 1.0) -> None:
    """Tell nearly nothing from nothing at all places, with the images of a batch in another order where `turned`."""
    torch.manual_seed(0)
    model = Scores()
    assert isinstance(model.score.bias, nn.Parameter)
    model.score.bias.register_hook(lambda gradient: gradient * scale)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for images in torch.randn(3, 4, 1, 96, 96):
            optimizer.zero_grad()
            scores = model(images.flip(0) if turned else images)
            (binary_cross_entropy_with_logits(scores, torch.zeros_like(scores), reduction="sum") / 4).backward()
            optimizer.step()


def test_a_sum_of_very_many_terms_rounds_otherwise_in_another_order(tmp_path: Path) -> None:
    verdict = compared(detect, partial(detect, turned=True), tmp_path)
    assert verdict.verdict == "equivalent", (verdict.explanation, verdict.distance_over_floor)
    detect(tmp_path / "wrong", 0, turned=True, scale=1.001)
    assert compare_folders(tmp_path / "reference", tmp_path / "wrong").verdict == "different"


def rank(bias: bool, folder: Path, twin: int, *, at_once: bool, held: bool = True, moved: float = 0.0) -> None:
    """Learn which of two is better, each in a pass of its own or both at once: a constant of all has no gradient."""
    torch.manual_seed(0)
    body, norm, score = nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 1, bias=bias)
    model = nn.Sequential(body, nn.Tanh(), norm, score)
    optimizer = torch.optim.AdamW([*model.parameters()][: None if held else -1], lr=1e-3, weight_decay=0.1)
    if moved:
        score.bias.requires_grad_(False)
        optimizer.register_step_post_hook(lambda *_: score.bias.data.add_(moved))
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for _ in range(6):
            pair = torch.randn(2, 16, 8, generator=draws)
            optimizer.zero_grad()
            better, worse = model(pair.flatten(0, 1)).chunk(2) if at_once else map(model, pair)
            (-logsigmoid(better - worse).mean()).backward()
            optimizer.step()


@pytest.mark.parametrize("bias", [False, True])
def test_one_that_is_zero_to_the_bit_in_the_reference_alone_is_rounding_to_the_end(bias: bool, tmp_path: Path) -> None:
    """Of which Adam makes an update like any other."""
    verdict = compared(partial(rank, bias, at_once=False), partial(rank, bias, at_once=True), tmp_path)
    assert verdict.verdict == "equivalent", verdict.reason
    assert not Trace.load(tmp_path / "reference").arrays["gradient/norm"][:, 3].any()


def test_without_twins_its_layer_tells_that_it_is(tmp_path: Path) -> None:
    rank(True, tmp_path / "a", 0, at_once=False)
    rank(True, tmp_path / "b", 0, at_once=True)
    verdict = compare_folders(tmp_path / "a", tmp_path / "b")
    assert verdict.verdict == "equivalent", (verdict.reason, verdict.explanation)


def test_it_is_seen_where_one_optimizer_alone_decays_it(tmp_path: Path) -> None:
    for name, held in (("a", True), ("b", False)):
        rank(True, tmp_path / name, 0, at_once=False, held=held)
    verdict = compare_folders(tmp_path / "a", tmp_path / "b")
    assert verdict.cause == "parameters-not-updated", verdict


def test_a_frozen_one_has_no_terms(tmp_path: Path) -> None:
    for name, moved in (("a", 1e-4), ("b", 1e-3)):
        rank(True, tmp_path / name, 0, at_once=False, moved=moved)
    assert not of_terms_that_cancel(Trace.load(tmp_path / "a"))[-1]
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict == "different"


class WithDeadBranch(nn.Module):
    """A branch that is multiplied by zero has a gradient of zeros, in twins too."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.body, self.head = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, batch: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.tanh(self.body(batch)) + 0 * self.branch(batch))
        return scores


def train_beside(
    decay: float, rate: float, parts: int, folder: Path, twin: int, *, held: bool = True, **options: Any
) -> None:
    torch.manual_seed(0)
    model = WithDeadBranch()
    branch = {"params": model.branch.parameters(), "weight_decay": decay, "lr": rate, **options}
    others = {"params": [*model.body.parameters(), *model.head.parameters()]}
    optimizer = torch.optim.AdamW([branch, others] if held else [others], lr=1e-3)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for batch in torch.randn(5, 16, 8, generator=torch.Generator().manual_seed(1)):
            optimizer.zero_grad()
            for some in batch.chunk(parts):
                (model(some).square().mean() / parts).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("decay", "rate", "cause"),
    [(0.01, 1e-3, None), (0.1, 1e-3, "optimizer-state"), (0.0, 1e-3, "optimizer-state"), (0.01, 1e-2, "learning-rate")],
)
def test_what_decay_alone_moves_is_no_rounding(decay: float, rate: float, cause: str | None, tmp_path: Path) -> None:
    reference, other = partial(train_beside, 0.01, 1e-3, 1), partial(train_beside, decay, rate, 2)
    for number, (one, two) in enumerate([(reference, other), (other, reference)]):
        folder = tmp_path / str(number)
        by_twins = compared(one, two, folder)
        one(folder / "alone", 0)
        for verdict in (by_twins, compare_folders(folder / "alone", folder / "test")):
            said = ("different" if cause else "equivalent", cause)
            assert (verdict.verdict, verdict.cause) == said, verdict.explanation


@pytest.mark.parametrize(
    ("rate", "options"),
    [(1e-3, {"betas": (0.8, 0.99)}), (1e-3, {"eps": 1e-6}), (0.0, {"weight_decay": 0.5}), (0.0, {"amsgrad": True})],
)
def test_options_that_choose_nothing_are_not_asked(rate: float, options: dict[str, Any], tmp_path: Path) -> None:
    """As betas of what decay alone moves, and anything beside a learning rate of zero."""
    reference = partial(train_beside, 0.01, rate, 1)
    verdict = compared(reference, partial(train_beside, 0.01, rate, 2, **options), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def test_what_one_optimizer_alone_holds_and_decays_is_named(tmp_path: Path) -> None:
    reference = partial(train_beside, 0.01, 1e-3, 1)
    for number, runs in enumerate(
        [(reference, partial(reference, held=False)), (partial(reference, held=False), reference)]
    ):
        verdict = compared(*runs, tmp_path / str(number))
        assert verdict.cause == "parameters-not-updated", verdict.explanation
        assert (verdict.explanation or "").startswith("branch.weight, branch.bias do not move in")


def train_with_norms(layout: torch.memory_format, rate: float, folder: Path, *, shift: float = 0.0) -> None:
    """Train convolutions with biases that BatchNorms take away again, without twins."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for given in (3, 16):
        layers += [nn.Conv2d(given, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    draws = torch.Generator().manual_seed(0)
    with trainparity.record(model, optimizer, folder, interval=1):
        for step in range(6):
            if step == 4:
                model[4].running_mean += shift
            optimizer.zero_grad()
            images = torch.randn(16, 3, 8, 8, generator=draws).contiguous(memory_format=layout)
            cross_entropy(model(images), torch.arange(16) % 5).backward()
            optimizer.step()


def test_its_rounding_before_a_batchnorm_is_none_without_twins(tmp_path: Path) -> None:
    """It moves the running mean, and may be to one side for each of very many terms."""
    train_with_norms(torch.contiguous_format, 1e-3, tmp_path / "reference")
    for name, layout, rate in (("right", torch.channels_last, 1e-3), ("wrong", torch.contiguous_format, 1.1e-3)):
        train_with_norms(layout, rate, tmp_path / name)
    right, wrong = (compare_folders(tmp_path / "reference", tmp_path / name) for name in ("right", "wrong"))
    assert right.verdict != "different", right.explanation
    assert (wrong.verdict, wrong.cause) == ("different", "learning-rate")


def test_a_running_mean_that_is_written_is_seen_without_twins(tmp_path: Path) -> None:
    """A bias moves it by no more than Adam's steps are long."""
    for shift in (0.0, 0.05):
        train_with_norms(torch.contiguous_format, 1e-3, tmp_path / str(shift), shift=shift)
    found = compare_folders(tmp_path / "0.0", tmp_path / "0.05")
    assert (found.verdict, found.cause) == ("different", "buffers-only"), found.explanation


def train_on_distances(parts: int, weight: float, seed: int, folder: Path, twin: int) -> None:
    """Draw images by a loss of whose gradient each term is as long as any other; `weight` is one of the first pass."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            images = torch.randn(32, 3, 12, 12, generator=draws)
            wanted = torch.rand(32, 4, 12, 12, generator=draws) + 2
            optimizer.zero_grad()
            for number, (some, to) in enumerate(zip(images.chunk(parts), wanted.chunk(parts), strict=True)):
                (nn.functional.l1_loss(model(some), to) * (1 if number else weight) / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weight", [1.0, 1.01])
def test_terms_of_one_length_round_alike_in_all_twins(weight: float, seed: int, tmp_path: Path) -> None:
    """The whole gradient, of which such biases are most, rounds as they do."""
    reference, test = (partial(train_on_distances, *how, seed) for how in ((1, 1.0), (4, weight)))
    verdict = compared(reference, test, tmp_path)
    assert verdict.verdict == ("equivalent" if weight == 1 else "different"), verdict.explanation


def _train_before_a_batchnorm(shift: float, folder: Path, twin: int) -> None:
    """Train convolutions, of which each number that comes back to the first norm may be moved by as much."""
    torch.manual_seed(0)
    first, second = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
    body = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), first, nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), second)
    model = nn.Sequential(body, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def moved(_: nn.Module, __: object, made: Tensor) -> None:
        made.register_hook(lambda gradient: gradient + shift * gradient.square().mean().sqrt())

    if shift:
        first.register_forward_hook(moved)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            cross_entropy(model(torch.randn(64, 3, 12, 12)), torch.randint(0, 5, (64,))).backward()
            optimizer.step()


@pytest.mark.parametrize(("shift", "verdict"), [(1e-6, "equivalent"), (1e-4, "different")])
def test_a_mean_in_front_of_a_batchnorm_may_round_to_one_side(shift: float, verdict: str, tmp_path: Path) -> None:
    found = compared(partial(_train_before_a_batchnorm, 0.0), partial(_train_before_a_batchnorm, shift), tmp_path)
    assert found.verdict == verdict, found
