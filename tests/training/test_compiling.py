from pathlib import Path

import pytest
from torch import nn

from tests.support.runs import configuration, prepared, spec, trainer_of


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
