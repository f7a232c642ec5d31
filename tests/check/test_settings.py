from collections.abc import Sequence
from typing import Any

import pytest

from trainparity.checking.settings import assemble, candidates
from trainparity.params import Own
from trainparity.validation import ParamsError


def params(workload: str = "examples.workload:Classifier", chosen: Sequence[str] = ("ddp:2",), **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "options": "{}",
        "dataset": None,
        "train": {"max_steps": 4, "global_batch_size": 32, "optimizer": "{name: sgd, lr: 0.1}"},
        "parity": {"window": 4},
        "accelerator": "auto",
        "seeds": 5,
    }
    return assemble(workload, candidates(chosen), **settings | changes)


def test_a_workloads_own_data_is_used_unless_a_dataset_is_given() -> None:
    assert isinstance(params().dataset, Own)
    assert params(dataset="{name: digits, limit: 50}").dataset.limit == 50
    assert params("tests.support.mlp:Mlp").dataset.name == "digits"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": "{depth: 2}"}, "workload.options.depth"),
        ({"options": "[1]"}, "--options .*must be a mapping"),
        ({"options": "{a: "}, "--options .*not YAML"),
        ({"workload": "examples.workload:Klassifier"}, "can't be imported"),
        (
            {"train": {"max_steps": 4, "global_batch_size": 33, "optimizer": "{name: sgd, lr: 0.1}"}},
            "33 can't be divided",
        ),
    ],
)
def test_a_mistake_in_the_settings_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        params(**changes)


def test_candidates_of_a_reduced_precision_get_learning_curves() -> None:
    assert params().curves is None
    reduced = ("amp-bf16", "amp-fp16", "ddp:2", "ddp:2+amp-bf16")
    found = params(chosen=reduced).curves
    assert found and list(found.pairs) == ["bf16", "fp16"]
    assert found.references == ["fp32", "bf16", "fp16"]
    assert params(chosen=reduced, seeds=0).curves is None
    with pytest.raises(ParamsError, match=r"curves\.seeds"):
        params(chosen=reduced, seeds=3)
