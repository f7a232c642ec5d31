"""Loops in shapes that people write: right variants are the same training, faults are named."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Verdict

STEPS, BATCH = 5, 16
DATA = torch.randn(STEPS * BATCH, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.randint(0, 4, (STEPS * BATCH,), generator=torch.Generator().manual_seed(2))


class Parts(nn.Module):
    """A model that the loop never calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 6), nn.Tanh())
        self.decoder = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 8))
        self.head = nn.Linear(6, 4)


class Loop:
    """A loop over the parts of a model; subclasses are other shapes of it, or variants."""

    parts, updates_before, updates = 1, 0, 1
    optimizer = staticmethod(lambda parameters: torch.optim.AdamW(parameters, lr=1e-2))

    def run(self, folder: Path, twin: int = 0) -> None:
        torch.manual_seed(0)
        self.model = self.build()
        optimizer = self.optimizer([p for p in self.model.parameters() if p.requires_grad])
        self.after_optimizer()
        with trainparity.record(self.model, optimizer, folder, twin=twin):
            for step in range(STEPS):
                self.between(step)
                for _ in range(self.updates_before):
                    optimizer.step()
                optimizer.zero_grad()
                for rows in torch.arange(step * BATCH, (step + 1) * BATCH).chunk(self.parts):
                    self.backward(self.loss(self.data(rows), self.labels(rows)).sum() / BATCH)
                for _ in range(self.updates):
                    optimizer.step()

    def build(self) -> nn.Module:
        return Parts()

    def data(self, rows: Tensor) -> Tensor:
        return DATA[rows]

    def labels(self, rows: Tensor) -> Tensor:
        return LABELS[rows]

    def after_optimizer(self) -> None:
        """Do nothing between making the optimizer and the first step."""

    def between(self, step: int) -> None:
        """Do nothing between steps."""

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        """Return each sample's loss: an autoencoder's."""
        assert isinstance(self.model, Parts)
        return functional.mse_loss(self.model.decoder(self.model.encoder(data)), data, reduction="none").mean(1)


class Frozen(Loop):
    """A frozen encoder under no_grad, a head that is trained."""

    def build(self) -> nn.Module:
        model = Parts()
        model.encoder.requires_grad_(False)
        return model

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        assert isinstance(self.model, Parts)
        with torch.no_grad():
            features = self.model.encoder(data)
        return functional.cross_entropy(self.model.head(features), labels, reduction="none")


class FrozenInEvaluation(Frozen):
    """The same, in evaluation mode and without no_grad."""

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        assert isinstance(self.model, Parts)
        self.model.encoder.eval()
        return functional.cross_entropy(self.model.head(self.model.encoder(data)), labels, reduction="none")


class TwoLosses(Loop):
    """An encoder with a decoder and a head."""

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        assert isinstance(self.model, Parts)
        code = self.model.encoder(data)
        restored = functional.mse_loss(self.model.decoder(code), data, reduction="none").mean(1)
        return restored + functional.cross_entropy(self.head(code), labels, reduction="none")

    def head(self, code: Tensor) -> Tensor:
        assert isinstance(self.model, Parts)
        return self.model.head(code)  # type: ignore[no-any-return]


class Siamese(Loop):
    """One encoder called for two samples."""

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        assert isinstance(self.model, Parts)
        one, two = self.model.encoder(data), self.model.encoder(data.flip(1))
        return 1 - functional.cosine_similarity(one, two)


SHAPES = (Loop, Frozen, FrozenInEvaluation, TwoLosses, Siamese)


def variant(shape: type[Loop], **changes: object) -> Loop:
    made: type[Loop] = type("Variant", (shape,), changes)
    return made()


def judged(folder: Path, reference: Loop, other: Loop, twins: int = 2) -> Verdict:
    for twin in range(twins + 1):
        reference.run(folder / "a", twin)
    other.run(folder / "b")
    return compare_folders(folder / "a", folder / "b")


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_are_those_that_the_loop_takes_from_its_data(shape: type[Loop], tmp_path: Path) -> None:
    shape().run(tmp_path)
    trace = Trace.load(tmp_path)
    times = 2 if shape is Siamese else 1
    assert trace.arrays["num_samples"].tolist() == [BATCH * times] * STEPS
    assert trace.arrays["rank/rows"].tolist() == [[[BATCH] * times]] * STEPS


def validate(self: Loop, step: int) -> None:
    """Look at other data, in evaluation mode, and forget no_grad."""
    self.model.eval()
    assert isinstance(self.model, Parts)
    self.model.decoder(self.model.encoder(DATA.flip(1)[:7]))
    with torch.no_grad():
        self.model.head(self.model.encoder(DATA.flip(1)[:9]))
    self.model.train()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("change", [{"parts": 4}, {"parts": 3}, {"between": validate}], ids=["4", "3", "validates"])
def test_a_right_variant_is_the_same_training(shape: type[Loop], change: dict[str, object], tmp_path: Path) -> None:
    assert judged(tmp_path, shape(), variant(shape, **change)).verdict in ("bitwise", "equivalent")


def rolled(self: Loop, rows: Tensor) -> Tensor:
    return LABELS[rows].roll(1)


def one_left_out(self: Loop, rows: Tensor) -> Tensor:
    return DATA[rows.where(rows != BATCH, BATCH + 1)]


FAULTS: dict[str, tuple[type[Loop], dict[str, object]]] = {
    "loss-or-targets": (TwoLosses, {"labels": rolled}),
    "backward": (TwoLosses, {"head": lambda self, code: self.model.head(code.detach())}),
    "samples": (Loop, {"data": one_left_out}),
    "forward": (TwoLosses, {"head": lambda self, code: self.model.head(2 * code)}),
}


@pytest.mark.parametrize("cause", FAULTS)
@pytest.mark.parametrize("parts", [1, 2])
def test_a_fault_between_parts_is_named(cause: str, parts: int, tmp_path: Path) -> None:
    shape, change = FAULTS[cause]
    found = judged(tmp_path, shape(), variant(shape, parts=parts, **change))
    assert (found.verdict, found.cause) == ("different", cause), found.explanation
    assert str(tmp_path / "b") in str(found.explanation) or cause == "samples"


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax before cross entropy": lambda logits, labels: functional.cross_entropy(
        logits.softmax(1), labels, reduction="none"
    ),
    "label smoothing": lambda logits, labels: functional.cross_entropy(
        logits, labels, reduction="none", label_smoothing=0.1
    ),
    "focal weights": lambda logits, labels: (
        (1 - logits.softmax(1).gather(1, labels[:, None])[:, 0])
        * functional.cross_entropy(logits, labels, reduction="none")
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_another_loss_is_the_loss(name: str, tmp_path: Path) -> None:
    def loss(self: Loop, data: Tensor, labels: Tensor) -> Tensor:
        assert isinstance(self.model, Parts)
        self.model.encoder.train()  # which makes no difference: nothing in it has modes
        return LOSSES[name](self.model.head(self.model.encoder(data)), labels)

    plain = variant(FrozenInEvaluation)
    found = judged(tmp_path, plain, variant(FrozenInEvaluation, loss=loss))
    assert (found.verdict, found.cause, found.link) == ("different", "loss-or-targets", "loss"), found.explanation


def penalised(self: Loop, loss: Tensor) -> None:
    weights = [parameter for parameter in self.model.parameters() if parameter.ndim > 1]
    (loss + 1e-3 * sum(weight.abs().sum() for weight in weights)).backward()  # type: ignore[no-untyped-call]


def test_a_norm_of_the_weights_is_a_term_of_the_loss(tmp_path: Path) -> None:
    found = judged(tmp_path, variant(Siamese), variant(Siamese, backward=penalised))
    assert (found.verdict, found.cause, found.link) == ("different", "loss-or-targets", "loss"), found.explanation
    assert min(found.evidence["cosines"]) > 0.6


class ActorCritic(nn.Module):
    """Two outputs of one trunk; the second input chooses a row of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.table = nn.Linear(8, 6), nn.Embedding(4, 6)
        self.actor, self.critic = nn.Linear(6, 4), nn.Linear(6, 1)

    def forward(self, states: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.trunk(states) + self.table(kinds))
        return self.actor(hidden), self.critic(hidden)[:, 0]


class TwoOutputs(Loop):
    """A loss of two outputs."""

    weight, shift = 1.0, 0

    def build(self) -> nn.Module:
        return ActorCritic()

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        logits, values = self.model(data, (labels + self.shift) % 4)
        return functional.cross_entropy(logits, labels, reduction="none") + self.weight * (values - 1).square()


class Images(Loop):
    """Images of several sizes in a list, as detection models take them; the model returns its loss."""

    def build(self) -> nn.Module:
        class Detector(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(3, 4)

            def forward(self, images: list[Tensor], labels: Tensor) -> dict[str, Tensor]:
                means = torch.stack([image.mean((1, 2)) for image in images])
                return {"loss": functional.cross_entropy(self.head(means), labels, reduction="sum")}

        return Detector()

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        images = [row.outer(row[: 2 + int(label)]).expand(3, -1, -1) * row[:3, None, None]
                  for row, label in zip(data, labels, strict=True)]  # fmt: skip
        return self.model(images, self.targets(labels))["loss"]  # type: ignore[no-any-return]

    def targets(self, labels: Tensor) -> Tensor:
        return labels


MORE: dict[str, tuple[type[Loop], dict[str, object], str]] = {
    "the loss of a second output": (TwoOutputs, {"weight": 2.0}, "loss-or-targets"),
    "a loss without a second output": (TwoOutputs, {"weight": 0.0}, "loss-or-targets"),
    "a second input": (TwoOutputs, {"shift": 1}, "inputs"),
    "targets inside a model": (Images, {"targets": lambda self, labels: labels.roll(1)}, "loss-or-targets"),
    "gradients thrown away": (
        Loop,
        {"backward": lambda self, loss: (loss.backward(), self.model.zero_grad())},
        "gradients-not-zeroed",
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_a_fault_beside_the_first_input_and_output_is_named(name: str, tmp_path: Path) -> None:
    shape, change, cause = MORE[name]
    found = judged(tmp_path, shape(), variant(shape, **change))
    assert (found.verdict, found.cause) == ("different", cause), found.explanation


@pytest.mark.parametrize("shape", [TwoOutputs, Images])
def test_images_in_lists_and_several_outputs_may_be_cut(shape: type[Loop], tmp_path: Path) -> None:
    assert judged(tmp_path, shape(), variant(shape, parts=4)).verdict == "equivalent"
    assert Trace.load(tmp_path / "b").arrays["num_samples"].tolist() == [BATCH] * STEPS


class Whole(nn.Module):
    """A model that may be called by `forward`, past its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 6), nn.Linear(6, 4)

    def forward(self, data: Tensor, other: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(data) - self.first(other)))  # type: ignore[no-any-return]


class OfPairs(Loop):
    """A model that is given two samples at a time."""

    def build(self) -> nn.Module:
        return Whole()

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.model(data, data.flip(1)), labels, reduction="none")


class PastHooks(OfPairs):
    """The same by `forward`."""

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.model.forward(data, data.flip(1)), labels, reduction="none")


class PastHooksWithOtherLabels(PastHooks):
    def labels(self, rows: Tensor) -> Tensor:
        return 3 - LABELS[rows]


def test_a_forward_that_is_called_past_hooks_is_seen_as_a_call(tmp_path: Path) -> None:
    forward = Whole.forward
    for twin in range(3):
        OfPairs().run(tmp_path / "hooks", twin)
    PastHooks().run(tmp_path / "past")
    PastHooksWithOtherLabels().run(tmp_path / "labels")
    assert compare_folders(tmp_path / "hooks", tmp_path / "past").verdict == "bitwise"
    assert Trace.load(tmp_path / "hooks").layout.activations == Trace.load(tmp_path / "past").layout.activations
    assert compare_folders(tmp_path / "hooks", tmp_path / "labels").cause == "loss-or-targets"
    assert Whole.forward is forward


class SharpnessAware(Loop):
    """Moves the weights uphill, passes the samples again, and updates from where it began."""

    radius, again = 0.05, True

    def backward(self, loss: Tensor) -> None:
        super().backward(loss)
        if not self.again or not self.radius:
            return
        self.again = False
        moved = [(p, self.radius * p.grad / p.grad.norm()) for p in self.model.parameters() if p.grad is not None]
        for parameter, by in moved:
            parameter.data.add_(by)
            parameter.grad = None
        rows = slice(self.step * BATCH, (self.step + 1) * BATCH)
        self.backward(self.loss(DATA[rows], self.labels(torch.arange(rows.start, rows.stop))).sum() / BATCH)
        for parameter, by in moved:
            parameter.data.sub_(by)
        self.again = True

    def between(self, step: int) -> None:
        self.step = step

    def build(self) -> nn.Module:
        model = Parts()
        model.decoder.requires_grad_(False)
        return model

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        assert isinstance(self.model, Parts)
        return functional.cross_entropy(self.model.head(self.model.encoder(data)), labels, reduction="none")


@pytest.mark.parametrize(
    ("changes", "cause"),
    [({}, None), ({"radius": 0.1}, "update"), ({"radius": 0.0}, "update"),
     ({"labels": lambda rows: 3 - LABELS[rows]}, "loss-or-targets")],
)  # fmt: skip
def test_of_a_loop_that_evaluates_again_with_moved_weights_the_first_evaluation_is_compared(
    changes: dict[str, object], cause: str | None, tmp_path: Path
) -> None:
    for twin in range(3):
        SharpnessAware().run(tmp_path / "ref", twin)
    other = SharpnessAware()
    for name, value in changes.items():
        setattr(other, name, value)
    other.run(tmp_path / "other")
    found = compare_folders(tmp_path / "ref", tmp_path / "other")
    assert found.cause == cause and (cause or found.verdict == "bitwise"), found.explanation
