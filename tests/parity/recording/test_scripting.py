"""A loop may script the model that is recorded, as for export: hooks are none of its functions."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import trainparity
from trainparity.parity.recording.trace import Trace


class Own(nn.Module):
    """Its `forward` uses names of this file."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, batch: Tensor) -> Tensor:
        made: Tensor = self.head(functional.relu(self.body(batch)))
        return made


def train(folder: Path, script: Callable[[nn.Module], nn.Module] | None, twin: int = 0) -> Trace:
    torch.manual_seed(0)
    model = Own()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step, batch in enumerate(torch.randn(4, 16, 8)):
            optimizer.zero_grad()
            if step == 1 and script:
                scripted = torch.jit.script(script(model).eval())
                assert torch.allclose(scripted(batch), script(model).eval()(batch), atol=1e-5)
                model.train()
            model(batch).square().mean().backward()
            optimizer.step()
    return Trace.load(folder / f"twins/{twin}" if twin else folder)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("twin", [0, 1])
@pytest.mark.parametrize("script", [lambda model: model, copy.deepcopy], ids=["the model", "a copy"])
def test_a_model_is_scripted_in_a_traced_step(
    script: Callable[[nn.Module], nn.Module], twin: int, tmp_path: Path
) -> None:
    plain, scripted = train(tmp_path / "plain", None, twin), train(tmp_path / "scripted", script, twin)
    if not twin:  # whose noise is drawn for the pass beside the script, too
        assert torch.equal(plain.arrays["weight/digest"], scripted.arrays["weight/digest"])
    assert plain.layout.activations == scripted.layout.activations


def test_a_forward_that_the_loop_puts_in_the_place_of_ours_stays(tmp_path: Path) -> None:
    class Patched(Own):
        def forward(self, batch: Tensor) -> Tensor:
            return super().forward(batch)

    def doubled(self: Patched, batch: Tensor) -> Tensor:
        return 2 * Own.forward(self, batch)

    model = Patched()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, tmp_path, interval=1):
        for step, batch in enumerate(torch.randn(3, 16, 8)):
            optimizer.zero_grad()
            if step == 1:
                Patched.forward = doubled  # type: ignore[method-assign]
                torch.jit.script(model.head)
            model(batch).square().mean().backward()
            optimizer.step()
    assert Patched.forward is doubled
    assert Trace.load(tmp_path).layout.steps == [0, 1, 2]


def test_a_forward_that_is_inherited_stays_so(tmp_path: Path) -> None:
    class Base(Own):
        def forward(self, batch: Tensor) -> Tensor:
            return super().forward(batch)

    class Without(Base):
        pass

    def doubled(self: Base, batch: Tensor) -> Tensor:
        return 2 * Own.forward(self, batch)

    model, batch = Without(), torch.randn(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with trainparity.record(model, optimizer, tmp_path, interval=1):
        before = model(batch)
        before.square().mean().backward()
        optimizer.step()
        Base.forward = doubled  # type: ignore[method-assign]
        assert torch.equal(model(batch), 2 * before)
    assert "forward" not in vars(Without)


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, batch: Tensor) -> Tensor:
        return 2 * batch


class Inheriting(nn.Linear):
    """Has no forward of its own."""


def test_a_forward_that_is_inherited_is_compiled(tmp_path: Path) -> None:
    model = Inheriting(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(lambda batch: model(batch), backend="eager")
    batch = torch.randn(16, 8)
    plain = model(batch)
    with trainparity.record(model, optimizer, tmp_path, interval=1):
        assert torch.equal(compiled(batch), plain)


def test_a_class_between_others_hands_on_to_the_next(tmp_path: Path) -> None:
    class Between(Doubling):
        pass

    class Halving(Doubling):
        def forward(self, batch: Tensor) -> Tensor:
            return batch / 2

    class Last(Between, Halving):
        pass

    model, batch = Between(), torch.randn(16, 8)
    with trainparity.record(model, torch.optim.SGD(model.parameters(), lr=0.1), tmp_path, interval=1):
        assert torch.equal(Last()(batch), batch / 2)
        assert torch.equal(model(batch), 2 * batch)
