"""Parts that are given what other parts made beside their input, as a denoiser the text that an encoder has read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import trainparity
from tests.support.against_twins import compared


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, noisy: Tensor, text: Tensor) -> Tensor:
        made: Tensor = self.outside(torch.tanh(self.inside(noisy) + text))
        return made


def train(fault: str, parts: int, beside: bool, folder: Path, twin: int) -> None:
    """Train both; `beside` has the loss take what the encoder returns, too."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"text": nn.Linear(8, 16), "denoiser": Denoiser()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(5):
            optimizer.zero_grad()
            texts, images = torch.randn(16, 8, generator=draws), torch.randn(16, 16, generator=draws)
            for some, wanted in zip(texts.chunk(parts), images.chunk(parts), strict=True):
                text = model["text"](some)
                given = text.detach() if fault == "detached" else text
                loss = mse_loss(model["denoiser"](wanted * 0.5, text=given), wanted)
                if beside and fault != "no term":
                    loss = loss + 0.1 * cross_entropy(text, torch.arange(16).chunk(parts)[0])
                (loss * (1.5 if fault == "scaled" else 1) / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("beside", [False, True])
def test_accumulation_is_the_same_training(beside: bool, tmp_path: Path) -> None:
    runs = (partial(train, "", parts, beside) for parts in (1, 1))
    assert compared(*runs, tmp_path / "again").verdict == "bitwise"
    if not beside:
        cut = (partial(train, "", parts, beside) for parts in (1, 4))
        assert (found := compared(*cut, tmp_path / "cut")).verdict == "equivalent", found.explanation


@pytest.mark.parametrize("parts", [1, 4])
def test_a_part_behind_a_detach_is_frozen(parts: int, tmp_path: Path) -> None:
    found = compared(partial(train, "", 1, False), partial(train, "detached", parts, False), tmp_path)
    assert (found.verdict, found.cause) == ("different", "frozen-parameter"), found.explanation
    assert "text" in (found.explanation or "")


def test_another_scale_of_the_loss_is_named(tmp_path: Path) -> None:
    found = compared(partial(train, "", 1, False), partial(train, "scaled", 1, False), tmp_path)
    assert (found.verdict, found.cause) == ("different", "loss-normalisation"), found.explanation


def test_a_term_of_what_is_handed_on_that_is_gone_is_named(tmp_path: Path) -> None:
    found = compared(partial(train, "", 1, True), partial(train, "no term", 1, True), tmp_path)
    assert found.verdict == "different" and found.cause in ("loss-or-targets", "backward"), found.explanation


class Convolution(nn.Linear):
    """Adds up what neighbours in a graph have made."""

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        return edges @ super().forward(nodes)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.strided])
def test_parts_are_given_a_graph_in_any_layout(layout: torch.layout, tmp_path: Path) -> None:
    def train(scale: float, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = nn.ModuleList([Convolution(8, 16), Convolution(16, 4)])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        edges = torch.eye(16) + torch.diag(torch.ones(15), 1)
        given = edges if layout == torch.strided else edges.to_sparse(layout=layout)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for nodes in torch.randn(4, 16, 8):
                optimizer.zero_grad()
                made = model[1](torch.tanh(model[0](nodes, given)), given)
                (scale * cross_entropy(made, torch.arange(16) % 4)).backward()
                optimizer.step()

    assert compared(partial(train, 1.0), partial(train, 1.0), tmp_path / "right").verdict == "bitwise"
    found = compared(partial(train, 1.0), partial(train, 2.0), tmp_path / "wrong")
    assert (found.verdict, found.cause) == ("different", "loss-normalisation"), found.explanation


class Quantised(nn.Module):
    """Keeps what it is given in bytes, for a part beside the next."""

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.quantize_per_tensor(hidden.detach(), 0.1, 0, torch.qint8)


class Adding(nn.Linear):
    def forward(self, hidden: Tensor, beside: Tensor) -> Tensor:
        return super().forward(hidden + beside.dequantize())


@pytest.mark.filterwarnings("ignore:.*are deprecated and will be removed:UserWarning")
def test_a_part_that_returns_quantised_numbers_is_recorded(tmp_path: Path) -> None:
    def train(scale: float, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = nn.ModuleList([nn.Linear(8, 16), Quantised(), Adding(16, 4)])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(4, 16, 8):
                optimizer.zero_grad()
                hidden = model[0](batch)
                made = model[2](hidden, model[1](hidden))
                (scale * cross_entropy(made, torch.arange(16) % 4)).backward()
                optimizer.step()

    assert compared(partial(train, 1.0), partial(train, 1.0), tmp_path / "right").verdict == "bitwise"
    found = compared(partial(train, 1.0), partial(train, 2.0), tmp_path / "wrong")
    assert (found.verdict, found.cause) == ("different", "loss-normalisation"), found.explanation


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": lambda code: code.to_sparse(),
    "compressed rows": lambda code: code.to_sparse_csr(),
    "nested": lambda code: torch.nested.as_nested_tensor([*code]),
    "jagged": lambda code: torch.nested.as_nested_tensor([*code], layout=torch.jagged),
}


class WithCode(nn.Module):
    """Returns its code in another form beside what it makes of it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.code, self.head, self.form = nn.Linear(8, 16), nn.Linear(16, 4), form

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        code = self.code(batch)
        return self.head(torch.tanh(code)), FORMS[self.form](code)


@pytest.mark.filterwarnings("ignore:.*(Sparse CSR tensor support|nested tensors).*")
@pytest.mark.parametrize("form", FORMS)
def test_a_model_may_return_numbers_in_any_form(form: str, tmp_path: Path) -> None:
    def train(scale: float, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = WithCode(form)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(4, 16, 8):
                optimizer.zero_grad()
                made, code = model(batch)
                plain = code.to_padded_tensor(0.0) if code.is_nested else code.to_dense()
                (scale * (cross_entropy(made, torch.arange(16) % 4) + plain.square().mean())).backward()
                optimizer.step()

    assert compared(partial(train, 1.0), partial(train, 1.0), tmp_path / "right").verdict == "bitwise"
    found = compared(partial(train, 1.0), partial(train, 2.0), tmp_path / "wrong")
    assert (found.verdict, found.cause) == ("different", "loss-normalisation"), found.explanation
