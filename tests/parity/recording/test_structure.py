"""Models that grow, shrink or are no plain modules: recording ends before them, or is refused, and training goes on."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import trainparity
from trainparity.parity.recording.structure import Structure
from trainparity.parity.recording.trace import Trace

Change = Callable[[nn.Sequential, torch.optim.Optimizer], object]


def _grow(model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    model.append(nn.Linear(2, 2))
    optimizer.add_param_group({"params": model[-1].parameters()})


CHANGES: dict[str, tuple[Change, str]] = {
    "grown": (_grow, "added 3.weight, 3.bias"),
    "cut": (lambda model, optimizer: model.pop(2), "lost 2.weight, 2.bias"),
    "reparametrised": (
        lambda model, optimizer: weight_norm(model[0]),
        "added 0.parametrizations.weight.original0, 0.parametrizations.weight.original1, lost 0.weight",
    ),
}


def trained(folder: Path | None, change: Change, step: int = 2) -> list[torch.Tensor]:
    """Train for four steps, recorded or not, with a change before one of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = trainparity.record(model, optimizer, folder, interval=1) if folder else None
    for number in range(4):
        if number == step:
            change(model, optimizer)
        optimizer.zero_grad()
        model(torch.randn(8, 4)).abs().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    if recorder:
        recorder.close()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("name", CHANGES)
def test_recording_ends_where_the_model_gets_other_parameters(name: str, tmp_path: Path) -> None:
    change, odd = CHANGES[name]
    with pytest.warns(UserWarning, match=f"from step 2 on the model has other parameters: {odd}"):
        recorded = trained(tmp_path, change)
    assert all(map(torch.equal, recorded, trained(None, change)))
    layout = Trace.load(tmp_path).layout
    assert layout.steps == [0, 1]
    assert odd in str(layout.settings["ended"])


BUFFERS: dict[str, Change] = {
    "later": lambda model, optimizer: model.register_buffer("mask", torch.ones(3)),
    "gone": lambda model, optimizer: delattr(model, "kept"),
    "longer": lambda model, optimizer: model.register_buffer("kept", torch.ones(7)),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_may_come_and_go(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2))
    model.register_buffer("kept", torch.ones(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, tmp_path, interval=1):
        for number in range(3):
            if number == 2:
                BUFFERS[name](model, optimizer)
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()
    trace = Trace.load(tmp_path)
    assert (trace.layout.steps, list(trace.layout.buffers)) == ([0, 1, 2], ["kept"])


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_model_that_takes_no_hooks_is_refused_with_what_to_record(wrapped: bool, tmp_path: Path) -> None:
    scripted = torch.jit.script(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(scripted.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="a ScriptModule, which takes no hooks; record the module"):
        trainparity.record(nn.DataParallel(scripted) if wrapped else scripted, optimizer, tmp_path)


SCRIPTED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "script": torch.jit.script,
    "freeze": lambda part: torch.jit.freeze(torch.jit.script(part.eval())),
}


def with_a_part(part: Callable[[nn.Module], nn.Module], folder: Path | None) -> list[torch.Tensor]:
    """Train a model of which `part` scripts a part for four steps, recorded or not."""
    torch.manual_seed(0)
    inner = part(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU()))
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(inner, nn.ReLU()), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    recorder = trainparity.record(model, optimizer, folder, interval=1) if folder else None
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().sum().backward()
        optimizer.step()
        model.load_state_dict(model.state_dict())
    if recorder:
        recorder.close()
    return [*model.state_dict().values()]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SCRIPTED)
def test_around_a_part_that_takes_no_hooks_the_model_is_recorded(name: str, tmp_path: Path) -> None:
    recorded = with_a_part(SCRIPTED[name], tmp_path)
    assert all(map(torch.equal, recorded, with_a_part(SCRIPTED[name], None)))
    layout = Trace.load(tmp_path).layout
    assert layout.steps == [0, 1, 2, 3] and "ended" not in layout.settings
    assert layout.activations == ["(input)", "0", "1.1", "2", "(output)"]
    assert ("1.0.0.weight" in layout.parameters) is (name != "freeze")


def test_a_model_without_shapes_is_refused_with_what_to_do(tmp_path: Path) -> None:
    model = nn.LazyLinear(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="weight has no shape yet; let a first batch pass through the model"):
        trainparity.record(model, optimizer, tmp_path)


def test_a_change_is_told_each_time_it_is_asked_for() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    structure = Structure(model)
    model[1] = nn.Linear(4, 4)  # of the same names
    assert structure.changed() == ""
    model.append(nn.Linear(4, 4))
    assert structure.changed() == structure.changed() == "added 2.weight, 2.bias"
    del model[2]
    assert structure.changed() == ""


def test_weights_that_are_shared_no_more_are_a_change() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    structure = Structure(model)
    model[1].weight = nn.Parameter(torch.ones(4, 4))
    assert structure.changed() == "added 1.weight"
