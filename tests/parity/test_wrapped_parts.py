"""Parts of a model that are wrapped, or compiled in place, and losses that the model makes itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.func import functional_call
from torch.nn import functional

import trainparity
from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Verdict

STEPS, BATCH = 4, 16
DATA = torch.randn(STEPS, BATCH, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.randint(0, 4, (STEPS, BATCH), generator=torch.Generator().manual_seed(2))
MASK = (torch.arange(8) < 6).expand(BATCH, 8)

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def checkpointed() -> nn.Module:
    model = plain()
    assert isinstance(model, nn.Sequential)
    model[2] = checkpoint_wrapper(nn.Sequential(model[2]))[0]
    model[2] = checkpoint_wrapper(model[2])
    return model


def compiled_in_place() -> nn.Module:
    model = plain()
    model.compile(backend="eager")
    return model


def cross_entropy(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(data), labels)


def train(
    folder: Path, *, build: Callable[[], nn.Module] = plain, loss: Loss = cross_entropy, cut: int = 1,
    bf16: bool = False, twins: int = 0,
) -> Path:  # fmt: skip
    for twin in range(twins + 1):
        torch.manual_seed(0)
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with trainparity.record(model, optimizer, folder, twin=twin):
            for data, labels in zip(DATA, LABELS, strict=True):
                optimizer.zero_grad()
                for some, targets in zip(data.chunk(cut), labels.chunk(cut), strict=True):
                    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                        found = loss(model, some, targets) / cut
                    found.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return folder


def judged(left: Path, right: Path) -> Verdict:
    return trainparity.compare(left, right)


def test_parts_under_activation_checkpointing_keep_their_names_and_have_twins(tmp_path: Path) -> None:
    reference = train(tmp_path / "checkpointed", build=checkpointed, twins=2)
    found = judged(reference, train(tmp_path / "plain", cut=2))
    assert (found.verdict, found.calibrated) == ("equivalent", True), found.reason
    assert Trace.load(reference).layout.parameters.keys() == dict(plain().named_parameters()).keys()


def test_a_model_that_is_compiled_in_place_is_looked_at_from_outside(tmp_path: Path) -> None:
    reference = train(tmp_path / "a", build=compiled_in_place, bf16=True, twins=1)
    recorded = Trace.load(reference)
    assert recorded.layout.precision == "bf16"
    assert recorded.arrays["num_samples"].tolist() == [BATCH] * STEPS
    accumulated = train(tmp_path / "b", build=compiled_in_place, bf16=True, cut=2)
    assert judged(reference, accumulated).verdict == "equivalent"
    model = compiled_in_place()
    compiled = model._compiled_call_impl
    with trainparity.record(model, torch.optim.SGD(model.parameters()), tmp_path / "c"):
        assert model._compiled_call_impl is not compiled
    assert model._compiled_call_impl is compiled


class WithLoss(nn.Module):
    """Returns its loss and what that is made of, as models of Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.other = nn.Linear(8, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, data: Tensor, mask: Tensor | None = None, labels: Tensor | None = None) -> tuple[Tensor, ...]:
        hidden = torch.tanh(self.body(data if mask is None else data * mask[: len(data)]))
        logits = self.head(hidden)
        if labels is None:
            return (logits,)
        return functional.cross_entropy(logits, labels), logits


def inside(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = model(data, labels=labels % 2)[0]
    return loss


def outside(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(data, labels=labels % 2)[1], labels % 2)


def smoothed(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(data, labels=labels % 2)[1], labels % 2, label_smoothing=0.2)


def masks_nothing(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = model(data, torch.ones_like(MASK), labels % 2)[0]
    return loss


def masks_two(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = model(data, MASK, labels % 2)[0]
    return loss


@pytest.mark.parametrize(
    ("loss", "cause"),
    [(outside, None), (smoothed, "loss-or-targets"), (masks_nothing, None), (masks_two, "inputs")],
    ids=["outside", "smoothed", "masks nothing", "masks two"],
)
def test_a_loss_that_the_model_makes_is_compared_with_one_that_the_loop_makes_in_bf16(
    loss: Loss, cause: str | None, tmp_path: Path
) -> None:
    reference = train(tmp_path / "a", build=WithLoss, loss=inside, bf16=True, twins=2)
    found = judged(reference, train(tmp_path / "b", build=WithLoss, loss=loss, bf16=True))
    assert (found.exit_code, found.cause) == (1 if cause else 0, cause), found.explanation


class Detector(WithLoss):
    """Returns two losses alone, as detection models do."""

    detached = False

    def forward(self, data: Tensor, mask: Tensor | None = None, labels: Tensor | None = None) -> tuple[Tensor, ...]:
        assert labels is not None
        hidden = torch.tanh(self.body(data))
        boxes = functional.mse_loss(self.other(hidden)[:, 0], labels / 4)
        return functional.cross_entropy(self.head(hidden), labels % 2), boxes.detach() if self.detached else boxes


class Detached(Detector):
    """Hands no gradient of one of them back."""

    detached = True


def all_losses(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
    return torch.stack(model(data, labels=labels)).sum()


def test_a_loss_inside_of_the_model_that_hands_no_gradient_back_is_named(tmp_path: Path) -> None:
    reference = train(tmp_path / "a", build=Detector, loss=all_losses, twins=1)
    found = judged(reference, train(tmp_path / "b", build=Detached, loss=all_losses))
    assert found.cause == "backward"
    assert "no gradient of it comes back to other" in (found.explanation or "")


def adapted(rate: float = 0.1, factor: float = 1.0) -> Loss:
    """Return a loss of weights that an inner step has moved, as MAML's."""

    def loss(model: nn.Module, data: Tensor, labels: Tensor) -> Tensor:
        fast = dict(model.named_parameters())
        first = functional.cross_entropy(functional_call(model, fast, (data[:8],)), labels[:8])
        slopes = torch.autograd.grad(first, list(fast.values()), create_graph=True)
        fast = {name: p - rate * slope for (name, p), slope in zip(fast.items(), slopes, strict=True)}
        return factor * functional.cross_entropy(functional_call(model, fast, (data[8:],)), labels[8:])

    return loss


@pytest.mark.parametrize(
    ("other", "cause"), [(adapted(rate=0.2), "update"), (adapted(factor=2.0), "loss-normalisation")]
)
def test_an_inner_learning_rate_is_told_from_the_outer_loss(other: Loss, cause: str, tmp_path: Path) -> None:
    reference = train(tmp_path / "a", loss=adapted(), twins=1)
    assert judged(reference, train(tmp_path / "b", loss=other)).cause == cause
