"""What a user's workload returns: something else than it may is named by its method, with what is allowed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel

from tests.support.mlp import Mlp, MlpOptions, Scored
from trainparity.workloads import Batch, SampleRandomness
from trainparity.workloads.checked import Checked, WorkloadError

BATCH: Batch = {
    "images": torch.zeros(4, 1, 8, 8, dtype=torch.uint8),
    "labels": torch.tensor([0, 1, 2, 3]),
    "samples": torch.arange(4),
}
RANDOMNESS = SampleRandomness(0, 0, BATCH["samples"])
CACHED = nn.Linear(2, 2)


def asked(method: str) -> Any:
    """Ask a workload as the loop does."""
    workload = Checked(Scored(MlpOptions()))
    if method == "build_model":
        return workload.build_model(BATCH)
    model = Mlp(MlpOptions()).build_model(BATCH)
    if method in ("optimizer", "blocks", "tensor_parallel_plan"):
        return getattr(workload, method)(model)
    if method == "draw":
        return workload.draw(BATCH, RANDOMNESS)
    batch = BATCH | {"noise": torch.zeros(4, 1, 8, 8)}
    return workload.count(batch) if method == "count" else getattr(workload, method)(model, batch)


METHODS = [
    "build_model", "loss", "count", "draw", "optimizer", "blocks", "tensor_parallel_plan", "predict", "picture",
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_right_answer_is_handed_on(method: str) -> None:
    asked(method)


def frozen(*_: Any) -> nn.Module:
    return nn.Linear(2, 2).requires_grad_(False)


def on_no_device(*_: Any) -> nn.Module:
    with torch.device("meta"):
        return nn.Linear(2, 2)


WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("build_model", lambda *_: 3, "returned a value of type int"),
    ("build_model", lambda *_: nn.Linear, "returned the class Linear"),
    ("build_model", lambda *_: nn.Flatten(), "without a parameter that is trained"),
    ("build_model", frozen, "without a parameter that is trained"),
    ("build_model", on_no_device, "whose weight is on the device meta"),
    ("build_model", lambda *_: nn.LazyLinear(2), "whose weight has no shape yet"),
    ("loss", lambda *_: None, "returned None"),
    ("loss", lambda *_: 3.0, "returned a value of type float"),
    ("loss", lambda *_: torch.zeros(4, requires_grad=True), r"returned a tensor \[4\] of float32"),
    ("loss", lambda *_: torch.zeros((), dtype=torch.int64), r"returned a tensor \[\] of int64"),
    ("loss", lambda *_: torch.zeros(()), "without a gradient"),
    ("count", lambda *_: 2.5, "returned 2.5"),
    ("count", lambda *_: -1, "returned -1"),
    ("count", lambda *_: 10**30, "returned 1000"),
    ("count", lambda *_: torch.ones(3), "returned a tensor"),
    ("draw", lambda *_: None, "returned None"),
    ("draw", lambda *_: {"noise": 1.0}, "a value of type float under the name 'noise'"),
    ("draw", lambda *_: {"samples": torch.zeros(4)}, "under the name 'samples'"),
    ("optimizer", lambda *_: torch.optim.SGD, "returned the class SGD"),
    ("optimizer", lambda *_: [], "returned a value of type list"),
    ("optimizer", lambda *_: torch.optim.SGD(nn.Linear(2, 2).parameters()), "holds no parameter of the model"),
    ("blocks", lambda *_: None, "returned None"),
    ("blocks", lambda self, model: model[1], "returned a value of type Linear"),
    ("blocks", lambda *_: ["1"], "a value of type str among the modules"),
    ("blocks", lambda *_: [nn.Linear(2, 2)], "a Linear that is no part of the model"),
    ("blocks", lambda self, model: [model[1], model[1]], "a Linear twice"),
    ("tensor_parallel_plan", lambda *_: None, "returned None"),
    ("tensor_parallel_plan", lambda *_: {"1": "colwise"}, "a value of type str for '1'"),
    ("tensor_parallel_plan", lambda *_: {"fc": ColwiseParallel()}, "names 'fc', which the model does not have"),
    ("predict", lambda *_: torch.zeros(4), r"returned a tensor \[4\]"),
    ("picture", lambda *_: torch.zeros(3, 8, 8), r"returned a tensor \[3, 8, 8\] of float32"),
]


@pytest.mark.parametrize(("method", "answer", "message"), WRONG)
def test_another_answer_is_the_users_mistake(
    method: str, answer: Callable[..., Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scored, method, answer)
    with pytest.raises(WorkloadError, match=f"`{method}` of Scored .*{message}.*; allowed: "):
        asked(method)


def test_a_model_that_has_trained_does_not_start_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin would start from the reference's last weights."""
    monkeypatch.setattr(Scored, "build_model", lambda *_: CACHED)
    asked("build_model")
    with pytest.raises(WorkloadError, match="a model that it had returned before"):
        asked("build_model")


def test_gradients_that_stay_switched_off_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Scored.loss

    def switching(self: Scored, model: nn.Module, batch: Batch) -> torch.Tensor:
        loss = plain(self, model, batch)
        torch.set_grad_enabled(False)
        return loss

    monkeypatch.setattr(Scored, "loss", switching)
    try:
        with pytest.raises(WorkloadError, match="`loss` of Scored switched gradients off"):
            asked("loss")
    finally:
        torch.set_grad_enabled(True)


def test_a_tensor_that_the_batch_lacks_is_answered_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scored, "loss", lambda self, model, batch: batch["pixels"])
    with pytest.raises(KeyError) as raised:
        asked("loss")
    assert raised.value.__notes__ == ["the batch has images, labels, samples, noise"]


def test_a_container_is_no_block() -> None:
    """It is never called, so nothing of it would be compiled."""

    class Listed(Mlp):
        def blocks(self, model: nn.Module) -> list[nn.Module]:
            return [model[0]]

    with pytest.raises(WorkloadError, match="a ModuleList, which is never called itself"):
        Checked(Listed(MlpOptions())).blocks(nn.Sequential(nn.ModuleList([nn.Linear(2, 2)])))
