"""A fault in a run that also cuts its batches in another way, which is right: the fault is named, and not the cut."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders

STEPS, BATCH = 4, 12


def _contrast(parts: int, temperature: float, folder: Path, twin: int) -> None:
    """Train on a contrastive loss of the whole batch, whose parts are passed one after the other (GradCache)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws, views = torch.Generator().manual_seed(1), torch.randn(STEPS, BATCH, 8, generator=torch.Generator())
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for view in views:
            rows = torch.randn(BATCH, 6, generator=draws).chunk(parts)
            optimizer.zero_grad()
            with torch.no_grad():
                kept = [model(some) for some in rows]
            for place, some in enumerate(rows):
                made = torch.cat([*kept[:place], model(some), *kept[place + 1 :]])
                products = nn.functional.normalize(made) @ nn.functional.normalize(made + view).T
                nn.functional.cross_entropy(products / temperature, torch.arange(BATCH)).backward()
            optimizer.step()


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_another_temperature_over_a_batch_that_is_kept_whole_is_no_coupling(temperature: float, tmp_path: Path) -> None:
    found = compared(partial(_contrast, 1, 0.5), partial(_contrast, 3, temperature), tmp_path)
    if temperature == 0.5:
        assert found.verdict == "equivalent", found.explanation
    else:
        assert (found.verdict, found.cause) == ("different", "loss-or-targets"), found.explanation


class Bags(nn.Module):
    """Judges dense features beside bags of words, which lie one after the other."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.dense, self.head = nn.Linear(5, 8), nn.Linear(8, 1)
        self.bags = nn.EmbeddingBag(20, 8, mode=mode)

    def forward(self, dense: Tensor, words: Tensor, offsets: Tensor) -> Tensor:
        output: Tensor = self.head(torch.tanh(self.dense(dense)) * self.bags(words, offsets))
        return output


def _on_bags(parts: int, mode: str, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Bags(mode)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(STEPS):
            dense = torch.randn(BATCH, 5, generator=draws)
            # In the first step there are twice as many words as samples, by chance.
            lengths = 1 + torch.arange(BATCH) % 4 if step else 1 + 2 * (torch.arange(BATCH) % 2)
            words = torch.randint(20, (int(lengths.sum()),), generator=draws).split(lengths.tolist())
            optimizer.zero_grad()
            for part in torch.arange(BATCH).chunk(parts):
                offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths[part][:-1]]).cumsum(0)
                rows = torch.cat([words[place] for place in part.tolist()])
                output = model(dense[part], rows, offsets)
                (output.square().sum() / BATCH).backward()
            optimizer.step()


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_that_are_averaged_are_no_other_input(mode: str, tmp_path: Path) -> None:
    found = compared(partial(_on_bags, 1, "sum"), partial(_on_bags, 2, mode), tmp_path)
    if mode == "sum":
        assert found.verdict == "equivalent", found.explanation
    else:
        assert (found.verdict, found.cause) == ("different", "forward"), found.explanation
        assert "bags (EmbeddingBag)" in (found.explanation or "")


def _critic_after_its_actor(parts: int, target: float, folder: Path, twin: int) -> None:
    """Train a critic; what the actor's loss leaves in it is zeroed before its own passes."""
    torch.manual_seed(0)
    actor, critic = nn.Linear(4, 2), nn.Bilinear(4, 2, 1)
    updates = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in (critic, actor)]
    draws = torch.Generator().manual_seed(1)
    with (
        trainparity.record(critic, updates[0], folder, twin=twin, interval=1),
        trainparity.record(actor, updates[1], folder, twin=twin, name="actor", interval=1),
    ):
        for _ in range(STEPS):
            states = torch.randn(BATCH, 4, generator=draws)
            updates[1].zero_grad()
            for some in states.chunk(parts):
                (-critic(some, actor(some)).sum() / BATCH).backward()
            updates[1].step()
            updates[0].zero_grad()
            for some in states.chunk(parts):
                (critic(some, some[:, :2]) - target * some.sum(1, keepdim=True)).square().sum().div(BATCH).backward()
            updates[0].step()


@pytest.mark.parametrize("target", [1.0, 1.0003])
def test_gradients_that_are_zeroed_are_not_said_to_be_taken(target: float, tmp_path: Path) -> None:
    reference, test = partial(_critic_after_its_actor, 1, 1.0), partial(_critic_after_its_actor, 2, target)
    found = compared(reference, test, tmp_path)
    if target == 1.0:
        assert found.verdict == "equivalent", found.explanation
    else:
        assert found.verdict == "different" and found.cause != "gradients-not-zeroed", found.explanation


def _critic_with_penalty(sign: float, folder: Path, twin: int) -> None:
    """Train a critic of real and made samples with a gradient penalty, and what makes them."""
    torch.manual_seed(0)
    critic, maker = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(3, 5)
    updates = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (critic, maker)]
    draws = torch.Generator().manual_seed(1)
    with (
        trainparity.record(critic, updates[0], folder, twin=twin, name="critic", interval=1),
        trainparity.record(maker, updates[1], folder, twin=twin, name="maker", interval=1),
    ):
        for _ in range(STEPS):
            real, noise = torch.randn(6, 5, generator=draws) + 1, torch.randn(6, 3, generator=draws)
            with torch.no_grad():
                made = maker(noise)
            loss = sign * (critic(made).mean() - critic(real).mean())
            between = (real / 2 + made / 2).requires_grad_()
            (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            (loss + 10 * (slope.norm(2, 1) - 1).square().mean()).backward()
            updates[0].step()
            updates[0].zero_grad()
            (-critic(maker(noise)).mean()).backward()
            updates[1].step()
            for update in updates:
                update.zero_grad()


def test_a_term_that_is_turned_is_not_said_to_agree(tmp_path: Path) -> None:
    found = compared(partial(_critic_with_penalty, 1.0), partial(_critic_with_penalty, -1.0), tmp_path)
    assert found.verdict == "different"
    assert "create_graph" not in (found.explanation or ""), found.explanation


class WithoutLength(nn.Module):
    """No container, so a compiled one has no length, and refuses to be asked for its truth."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)
        return output


def test_a_compiled_model_may_be_called_twice_before_backward(tmp_path: Path) -> None:
    for name in ("a", "b"):
        torch.manual_seed(0)
        model = WithoutLength()
        called = torch.compile(model, backend="eager") if name == "b" else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(called, optimizer, tmp_path / name, interval=1):
            for _ in range(2):
                optimizer.zero_grad()
                (called(torch.ones(3, 4)).square().mean() + called(torch.zeros(3, 4)).mean()).backward()
                optimizer.step()
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict in ("bitwise", "equivalent")
