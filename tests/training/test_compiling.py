from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.support.runs import configuration, prepared, spec, trainer_of
from trainparity.training.loop import compile_in_place


def compiled_parts(model: nn.Module) -> set[str]:
    """Return the class names of the modules that are compiled when they are first called."""
    return {type(module).__name__ for module in model.modules() if module._compiled_call_impl is not None}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, set()),
        ({"compile": "default"}, {"Sequential"}),
        ({"compile": "default", "compile_blocks": True}, {"BasicBlock"}),
    ],
)
def test_the_model_or_its_blocks_are_compiled(settings: dict[str, object], expected: set[str], tmp_path: Path) -> None:
    small = {"width": 8, "norm": "group"}
    run = spec(
        tmp_path, prepared(tmp_path), "run", settings=configuration(**settings), workload="resnet", options=small
    )
    assert compiled_parts(trainer_of(run).plain) == expected


def test_a_model_without_blocks_is_compiled_whole(tmp_path: Path) -> None:
    run = spec(tmp_path, prepared(tmp_path), "run", settings=configuration(compile="default", compile_blocks=True))
    model = trainer_of(run).plain
    assert compiled_parts(model) == {type(model).__name__}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.layer(inputs).relu()


@pytest.mark.slow
def test_a_sequence_of_layers_is_one_graph_and_keeps_its_names() -> None:
    """Torch 2.11 compiles them apart through `Module.compile`."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Block(), Block()))
    names = [name for name, _ in model.named_parameters()]
    torch.compiler.reset()
    counters.clear()
    compile_in_place(model, "default")
    model(torch.ones(2, 4)).sum().backward()
    assert counters["stats"]["unique_graphs"] == 1
    assert [name for name, _ in model.named_parameters()] == names
