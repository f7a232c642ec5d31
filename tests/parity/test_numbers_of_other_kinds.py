"""Models whose parameters are not all real numbers in memory: integers, complex numbers, meta tensors."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.masked import masked_tensor

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Verdict


class Quantised(nn.Linear):
    """A frozen weight of bytes, and what is trained beside it."""

    def __init__(self) -> None:
        super().__init__(16, 4)
        self.stored = nn.Parameter(torch.randint(0, 9, (16, 4), dtype=torch.uint8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x @ (self.stored.float() - 4)


class Complex(nn.Module):
    """Nothing but complex weights; what the inner module returns is complex too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4, dtype=torch.complex64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(self.inner(x.to(torch.complex64))).flatten(1)


class Offloaded(nn.Linear):
    """A frozen weight whose numbers are elsewhere, before those that are trained."""

    def __init__(self) -> None:
        super().__init__(16, 4)
        frozen = nn.Parameter(torch.zeros(4, device="meta"), requires_grad=False)
        self._parameters = {"frozen": frozen, **self._parameters}


def record(kind: type[nn.Module], folder: Path, *, factor: float = 1.0, parts: int = 1, **options: int) -> None:
    """Train a model; its gradients, or the imaginary parts of complex ones, are multiplied by a factor."""
    torch.manual_seed(0)
    data = torch.randn(6, 8, 16)
    model = kind()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    with trainparity.record(model, optimizer, folder, **options):
        for batch in data:
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                (model(part).square().mean() / parts).backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    numbers = torch.view_as_real(parameter.grad)[..., 1] if parameter.is_complex() else parameter.grad
                    numbers *= factor
            optimizer.step()


def judged(kind: type[nn.Module], folder: Path, *, factor: float) -> Verdict:
    """Judge two micro-batches, and a factor, against a reference with two twins."""
    record(kind, folder / "reference")
    for twin in (1, 2):
        record(kind, folder / "reference", parts=2, twin=twin)
    record(kind, folder / "other", parts=2, factor=factor)
    return compare_folders(folder / "reference", folder / "other")


@pytest.mark.parametrize("kind", [Quantised, Complex, Offloaded])
@pytest.mark.parametrize(("factor", "expected"), [(1.0, "equivalent"), (1.005, "different")])
def test_a_fault_is_told_from_rounding(kind: type[nn.Module], factor: float, expected: str, tmp_path: Path) -> None:
    assert judged(kind, tmp_path, factor=factor).verdict == expected


def test_what_complex_modules_return_is_seen(tmp_path: Path) -> None:
    record(Complex, tmp_path)
    trace = Trace.load(tmp_path)
    assert "inner" in trace.layout.activations
    place = trace.layout.activations.index("inner")
    for kind in ("activation", "activation_gradient"):
        assert (trace.arrays[f"{kind}/sketch"][:, place] != 0).any()


def test_a_model_of_integers_alone_is_recorded_as_one_that_does_not_change(tmp_path: Path) -> None:
    model = nn.ParameterList([nn.Parameter(torch.arange(3), requires_grad=False)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, tmp_path, twin=1):
        optimizer.step()
    assert Trace.load(tmp_path / "twins" / "1").layout.precision == "fp32"


def test_windows_need_the_numbers_of_all_parameters(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="at step 3 .*frozen is on the meta device and has no numbers"):
        record(Offloaded, tmp_path, every=3)


def freed(numbers: Tensor, *, but: int = 0) -> Tensor:
    numbers.untyped_storage().resize_(but)
    return numbers


def edges(numbers: Tensor) -> Tensor:
    """Return a matrix that has 116 GB as a dense one, with few entries."""
    places = torch.arange(numbers.numel()) * 8000
    return torch.sparse_coo_tensor(torch.stack([places, places.flip(0)]), numbers.flatten(), (170_000, 170_000))


BUFFERS = {
    "quantised": lambda numbers: torch.quantize_per_tensor(numbers, 0.1, 0, torch.qint8),
    "quantised by rows": lambda numbers: torch.quantize_per_channel(
        numbers, torch.full((4,), 0.1), torch.zeros(4), 0, torch.qint8
    ),
    "nested": lambda numbers: torch.nested.nested_tensor([numbers[0], numbers[1, :3]]),
    "jagged": lambda numbers: torch.nested.nested_tensor([numbers[0], numbers[1, :3]], layout=torch.jagged),
    "mkldnn": lambda numbers: numbers.to_mkldnn(),
    "bits": lambda numbers: (numbers * 9).to(torch.int8).view(torch.bits8),
    "four bits": lambda numbers: (numbers * 9).to(torch.int8).view(torch.int4),
    **{
        name: lambda numbers, dtype=dtype: (
            (numbers * 9).to(torch.int8 if dtype != torch.bits16 else torch.int16).view(dtype)
        )
        for name, dtype in {"bits16": torch.bits16, "bits1x8": torch.bits1x8, "bits2x4": torch.bits2x4}.items()
    },
    "masked": lambda numbers: masked_tensor(numbers, numbers > -1),
    "edges of a large graph": lambda numbers: edges(numbers),
    "edges by rows": lambda numbers: edges(numbers).to_sparse_csr(),
    "compressed rows": lambda numbers: numbers.to_sparse_csr(),
    "freed": freed,
    "freed in part": partial(freed, but=8),
}


class Keeping(nn.Linear):
    """A layer with a buffer of a given kind, which every step sets anew."""

    def __init__(self, kind: str) -> None:
        super().__init__(16, 4)
        self.kind = kind

    def keep(self, numbers: Tensor) -> None:
        self.register_buffer("kept", BUFFERS[self.kind](numbers))


def weights_of_training(kind: str, folder: Path | None, *, factor: float = 1.0) -> list[str]:
    """Train a model that keeps numbers, times a factor; return its weights' bits."""
    torch.manual_seed(0)
    model = Keeping(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.keep(torch.zeros(4, 5))
    recorder = trainparity.record(model, optimizer, folder, interval=1) if folder else None
    for step in range(4):
        model.keep(torch.arange(20.0).view(4, 5) * step / 10 * factor)
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    if recorder:
        recorder.close()
    return [number.hex() for number in model.weight.flatten().tolist()]


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_of_any_kind_are_recorded_and_change_nothing(kind: str, tmp_path: Path) -> None:
    for name, factor in (("reference", 1.0), ("same", 1.0), ("other", 2.0)):
        assert weights_of_training(kind, tmp_path / name, factor=factor) == weights_of_training(kind, None)
    assert compare_folders(tmp_path / "reference", tmp_path / "same").verdict == "bitwise"
    verdict = compare_folders(tmp_path / "reference", tmp_path / "other")
    if kind.startswith("freed"):
        assert verdict.verdict == "bitwise"  # nothing is known of numbers that nobody has
    else:
        assert (verdict.verdict, verdict.cause) == ("different", "buffers-only")


ROWS = [torch.ones(2, 16), torch.ones(3, 16)]
WEIGHTS: dict[str, Callable[[], nn.Parameter]] = {
    "sparse": lambda: nn.Parameter(torch.eye(16).to_sparse()),
    "compressed rows": lambda: nn.Parameter(torch.eye(16).to_sparse_csr(), requires_grad=False),
    "mkldnn": lambda: nn.Parameter(torch.ones(4, 4).to_mkldnn(), requires_grad=False),
    "nested": lambda: nn.Parameter(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), requires_grad=False),
    "nested, trained": lambda: nn.Parameter(torch.nested.as_nested_tensor(ROWS)),
    "jagged, trained": lambda: nn.Parameter(torch.nested.as_nested_tensor(ROWS, layout=torch.jagged)),
}


class WithWeight(nn.Module):
    """A layer behind a weight that lies in memory in its own way, and comes first; a trained one is used."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.own, self.layer = WEIGHTS[kind](), nn.Linear(16, 4)

    def forward(self, batch: Tensor) -> Tensor:
        if self.own.is_nested and self.own.requires_grad:
            batch = batch * self.own.to_padded_tensor(0.0).sum((0, 1))
        elif self.own.requires_grad:
            batch = torch.sparse.mm(self.own, batch.T).T
        made: Tensor = self.layer(batch)
        return made


@pytest.mark.filterwarnings("ignore:.*(Sparse CSR|nested tensors).*:UserWarning")
@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_of_any_kind_are_recorded(kind: str, tmp_path: Path) -> None:
    def train(factor: float, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = WithWeight(kind)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(4, 8, 16):
                optimizer.zero_grad()
                (factor * model(batch).square().mean()).backward()
                optimizer.step()

    assert compared(partial(train, 1.0), partial(train, 1.0), tmp_path / "same").verdict == "bitwise"
    verdict = compared(partial(train, 1.0), partial(train, 2.0), tmp_path / "other")
    assert (verdict.verdict, verdict.cause) == ("different", "loss-normalisation"), verdict.explanation
