"""Autocast that no hook sees, inside of what is compiled: gradients show its format."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.given import ArrivingGradients
from trainparity.parity.recording.trace import Trace


class Net(nn.Module):
    """Switches autocast on by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 10))

    def forward(self, samples: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(samples).float()  # type: ignore[no-any-return]


def train(how: str, parts: int, turned: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model: Any = Net()
    called = torch.compile(model, backend="eager") if how != "plain" else model
    loss: Any = lambda images, labels: cross_entropy(called(images), labels)  # noqa: E731
    if how == "the loss":
        called, loss = model, torch.compile(loss, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    recorded = called if how == "the model" else model
    with trainparity.record(recorded, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            images, labels = torch.randn(16, 4, generator=draws), LABELS.flip(0) if turned else LABELS
            for some, wanted in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                (loss(some, wanted) / parts).backward()
            optimizer.step()


HOW = ("the model", "the model, and its inside is recorded", "the loss")


@pytest.mark.parametrize("reference", ["plain", None])
@pytest.mark.parametrize("how", HOW)
def test_it_is_the_same_training(how: str, reference: str | None, tmp_path: Path) -> None:
    verdict = compared(partial(train, reference or how, 1, False), partial(train, how, 4, False), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
    layouts = [Trace.load(tmp_path / name).layout for name in ("reference", "test", "reference/twins/1")]
    assert [layout.precision for layout in layouts] == ["bf16"] * 3
    assert layouts[1].rounds_unseen


@pytest.mark.parametrize("how", HOW)
def test_a_fault_is_seen(how: str, tmp_path: Path) -> None:
    assert compared(partial(train, how, 1, False), partial(train, how, 1, True), tmp_path).verdict == "different"


class LanguageModel(nn.Module):
    """Returns its outputs and their loss, as minGPT's and nanoGPT's: compiled, no gradient of the outputs is seen."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(10, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        self.smoothing = smoothing

    def forward(self, tokens: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.head(torch.tanh(self.body(self.embed(tokens))))
        loss = cross_entropy(outputs.flatten(0, 1), wanted.flatten(), label_smoothing=self.smoothing)
        return outputs, loss


def train_language_model(
    compiled: bool, parts: int, turned: bool, folder: Path, twin: int, *, smoothing: float = 0.0, times: float = 1.0
) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model: Any = LanguageModel(smoothing)
    called = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with trainparity.record(called, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            optimizer.zero_grad()
            for tokens in torch.randint(10, (16, 9)).chunk(parts):
                with torch.autocast("cpu", torch.bfloat16):
                    _, loss = called(tokens[:, :-1], tokens[:, :-1] if turned else tokens[:, 1:])
                (times * loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("compiled", [(False, True), (True, False)], ids=["test", "reference"])
def test_a_loss_made_inside_of_what_one_run_compiles_is_no_detach(compiled: tuple[bool, bool], tmp_path: Path) -> None:
    reference, test = (partial(train_language_model, which) for which in compiled)
    verdict = compared(partial(reference, 1, False), partial(test, 4, False), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
    test(4, True, tmp_path / "wrong", 0)
    assert compare_folders(tmp_path / "reference", tmp_path / "wrong").verdict == "different"


@pytest.mark.parametrize("fault", [{"smoothing": 0.05}, {"times": 1.01}], ids=str)
@pytest.mark.parametrize("compiled", [(False, True), (True, False)], ids=["test", "reference"])
def test_another_value_of_a_loss_made_inside_of_what_one_run_compiles_is_seen(
    compiled: tuple[bool, bool], fault: dict[str, float], tmp_path: Path
) -> None:
    """No gradient of the outputs is seen there, and the weights' are within the margin of bf16."""
    reference, test = (partial(train_language_model, which) for which in compiled)
    verdict = compared(partial(reference, 1, False), partial(test, 4, False, **fault), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
    assert "twins' differ by" in str(verdict.explanation)


class Tables(nn.Module):
    """As recommenders have them: more embeddings than products."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(8, 16) for _ in range(4))
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))

    def forward(self, numbers: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            found = [table(column) for table, column in zip(self.tables, numbers.unbind(1), strict=True)]
            return self.layers(torch.cat(found, 1)).float()  # type: ignore[no-any-return]


def train_tables(compiles: bool, parts: int, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model: Any = Tables()
    called = torch.compile(model, backend="eager") if compiles else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(called, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            numbers = torch.randint(8, (16, 4), generator=draws)
            for some, wanted in zip(numbers.chunk(parts), LABELS.chunk(parts), strict=True):
                (cross_entropy(called(some), wanted) / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("compiles", [False, True])
def test_embeddings_hide_no_format(compiles: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train_tables, compiles, 1), partial(train_tables, True, 4), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
    assert Trace.load(tmp_path / "test").layout.precision == "bf16"


def test_few_numbers_and_full_ones_show_no_format() -> None:
    draws = torch.Generator().manual_seed(0)
    full, few = torch.randn(32, 32, generator=draws), torch.randint(9, (32, 32), generator=draws).float()
    for gradients in ([full, full.bfloat16().float()], [few], [full.bfloat16().float()[0]]):
        arriving = ArrivingGradients()
        assert arriving.begin()
        for gradient in gradients:
            arriving.see(gradient)
        assert arriving.format is None


def test_each_of_two_steps_shows_the_format() -> None:
    """Data of few digits and weights of zero show one in the first alone."""
    full = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    for second, shown in ((full, None), (full.bfloat16().float(), "bf16")):
        arriving = ArrivingGradients()
        for gradient in (full.bfloat16().float(), second):
            assert arriving.begin()
            arriving.see(gradient)
        assert not arriving.begin()
        assert (arriving.format.name if arriving.format else None) == shown
