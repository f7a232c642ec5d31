"""A part whose backbone is called under `no_grad`, with functions between them: its samples are the backbone's."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.recording.trace import Trace


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.drop, self.head = nn.Dropout(0.0), nn.Linear(8, 5)

    def features(self, images: Tensor) -> Tensor:
        return self.body(torch.relu(self.stem(images))).relu().mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.drop(self.features(images)))
        return scores


class OfTokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Embedding(32, 8), nn.Linear(8, 8)
        self.drop, self.head = nn.Dropout(0.0), nn.Linear(8, 5)

    def features(self, tokens: Tensor) -> Tensor:
        return self.body(torch.tanh(self.stem(tokens))).tanh().sum(1)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.drop(self.features(tokens)))
        return scores


def train(
    folder: Path, twin: int, *, kind: type[nn.Module], how: str = "whole", frozen: bool = False, smoothing: float = 0.0,
    parts: int = 1, shift: float = 0.0, evaluates: str = "",
) -> None:  # fmt: skip
    torch.manual_seed(0)
    model = kind()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not frozen or name.startswith("head"))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    data = torch.randint(0, 32, (5, 16, 6)) if kind is OfTokens else torch.randn(5, 16, 1, 6, 6)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for batch in data:
            optimizer.zero_grad()
            for some, labels in zip(batch.chunk(parts), torch.arange(16).chunk(parts), strict=True):
                if evaluates:
                    with torch.no_grad():
                        (model if evaluates == "whole" else model.features)(data[0][: len(some)])
                if how == "whole":
                    scores = model(some)
                elif how == "kept":
                    with torch.no_grad():
                        kept = copy.deepcopy(model).features(some)
                    scores = model.head(model.drop(kept))
                else:
                    with torch.set_grad_enabled(how == "parts"):
                        made = model.features(some) + shift
                    scores = model.head(model.drop(made))
                (cross_entropy(scores, labels % 5, label_smoothing=smoothing) / parts).backward()
            optimizer.step()


@pytest.fixture(params=[Classifier, OfTokens])
def kind(request: pytest.FixtureRequest) -> type[nn.Module]:
    found: type[nn.Module] = request.param
    return found


def test_samples_are_known_by_what_the_backbone_is_given(kind: type[nn.Module], tmp_path: Path) -> None:
    train(tmp_path / "whole", 0, kind=kind)
    train(tmp_path / "aside", 0, kind=kind, how="aside")
    whole, aside = (Trace.load(tmp_path / name).arrays["samples"] for name in ("whole", "aside"))
    assert torch.equal(whole, aside)


@pytest.mark.parametrize("how", ["whole", "parts"])
def test_a_backbone_that_gets_no_gradient_is_frozen(how: str, kind: type[nn.Module], tmp_path: Path) -> None:
    found = compared(partial(train, kind=kind, how=how), partial(train, kind=kind, how="aside"), tmp_path)
    assert (found.verdict, found.cause) == ("different", "frozen-parameter"), found.explanation


@pytest.mark.parametrize("parts", [1, 2])
def test_beside_a_frozen_backbone_it_is_the_same_training(parts: int, kind: type[nn.Module], tmp_path: Path) -> None:
    reference = partial(train, kind=kind, frozen=True)
    found = compared(reference, partial(reference, how="aside", parts=parts), tmp_path)
    assert found.verdict in ("bitwise", "equivalent"), found.explanation


def test_a_fault_beside_it_is_named(kind: type[nn.Module], tmp_path: Path) -> None:
    reference = partial(train, kind=kind, frozen=True)
    found = compared(reference, partial(reference, how="aside", smoothing=0.1), tmp_path / "loss")
    assert (found.verdict, found.cause) == ("different", "loss-or-targets"), found.explanation
    found = compared(reference, partial(reference, how="aside", shift=0.01), tmp_path / "features")
    assert (found.verdict, found.cause) == ("different", "inputs"), found.explanation


@pytest.mark.parametrize("evaluates", ["whole", "features"])
def test_an_evaluation_before_it_is_none_of_its_samples(evaluates: str, kind: type[nn.Module], tmp_path: Path) -> None:
    reference = partial(train, kind=kind, frozen=True, how="aside")
    found = compared(reference, partial(reference, evaluates=evaluates, smoothing=0.1), tmp_path)
    assert (found.verdict, found.cause) == ("different", "loss-or-targets"), found.explanation


@pytest.mark.parametrize("how", ["whole", "aside"])
def test_features_that_were_kept_are_not_said_to_be_other_samples(
    how: str, kind: type[nn.Module], tmp_path: Path
) -> None:
    reference = partial(train, kind=kind, frozen=True, how=how)
    found = compared(reference, partial(reference, how="kept"), tmp_path / "right")
    assert found.verdict in ("bitwise", "equivalent"), found.explanation
    found = compared(reference, partial(reference, how="kept", smoothing=0.1), tmp_path / "wrong")
    assert (found.verdict, found.cause) == ("different", "unknown"), found.explanation


def test_features_that_were_kept_are_known_by_themselves_after_an_evaluation(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    reference = partial(train, kind=kind, frozen=True, how="kept")
    other = partial(reference, evaluates="whole", smoothing=0.1)
    found = compared(reference, other, tmp_path)
    assert (found.verdict, found.cause) == ("different", "loss-or-targets"), found.explanation
