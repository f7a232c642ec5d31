from typing import Any

import pytest

from trainparity.check.settings import assemble, candidates
from trainparity.params import Own
from trainparity.validation import ParamsError


def params(workload: str = "examples.workload:Classifier", **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "options": "{}",
        "dataset": None,
        "train": {"max_steps": 4, "global_batch_size": 32, "optimizer": "{name: sgd, lr: 0.1}"},
        "parity": {"window": 4},
        "accelerator": "auto",
    }
    return assemble(workload, candidates(["ddp:2"]), **settings | changes)


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
