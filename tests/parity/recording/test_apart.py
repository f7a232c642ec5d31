"""What a loop does beside plain calls: the Recorder neither breaks nor changes it, and what it computes is not seen."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import trainparity
from tests.support.against_twins import compared

Use = Callable[[nn.Module, Tensor], object]
"""Uses a model and a batch in some way, beside the step's own forward and backward pass."""


def _step(model: nn.Module, batch: Tensor) -> None:
    model(batch).sum().backward()


def _without_gradients(use: Use) -> Use:
    return torch.no_grad()(use)


def _as_parameters(model: nn.Module, device: str = "cpu") -> dict[str, Tensor]:
    return {name: parameter.detach().to(device) for name, parameter in model.named_parameters()}


def _loss_of_parameters(model: nn.Module, batch: Tensor, parameters: dict[str, Tensor]) -> Tensor:
    result: Tensor = functional_call(model, parameters, (batch,)).sum()
    return result


def _ensemble(model: nn.Module, batch: Tensor) -> None:
    stacked = {name: torch.stack([value, value]) for name, value in _as_parameters(model).items()}
    vmap(partial(_loss_of_parameters, model, batch))(stacked)


def _on_meta(model: nn.Module, batch: Tensor) -> None:
    _loss_of_parameters(model, batch.to("meta"), _as_parameters(model, "meta"))


def _gradients_of_many(model: nn.Module, batch: Tensor) -> None:
    output = model(batch)
    directions = torch.eye(output.numel()).reshape(-1, *output.shape)
    torch.autograd.grad(output, list(model.parameters()), directions, is_grads_batched=True)


def _fake(model: nn.Module, batch: Tensor) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        model(mode.from_tensor(batch))


def _compiled(model: nn.Module, batch: Tensor) -> None:
    torch.compile(lambda given: model(given).sum(), backend="eager", fullgraph=True)(batch)


BESIDE: dict[str, Use] = {
    "empty batch": lambda model, batch: _step(model, batch[:0]),
    "empty batch without gradients": _without_gradients(lambda model, batch: model(batch[:0])),
    "vmap": lambda model, batch: vmap(model)(batch),
    "vmap without gradients": _without_gradients(lambda model, batch: vmap(model)(batch)),
    "ensemble": _ensemble,
    "jvp": lambda model, batch: jvp(model, (batch,), (batch,)),
    "jvp without gradients": _without_gradients(lambda model, batch: jvp(model, (batch,), (batch,))),
    "grad": lambda model, batch: grad(partial(_loss_of_parameters, model, batch))(_as_parameters(model)),
    "jacrev": lambda model, batch: jacrev(model)(batch[0]),
    "jacfwd": _without_gradients(lambda model, batch: jacfwd(model)(batch[0])),
    "hessian": lambda model, batch: hessian(lambda one: model(one).sum())(batch[0]),
    "jacobian": lambda model, batch: torch.autograd.functional.jacobian(model, batch, vectorize=True),  # type: ignore[no-untyped-call]
    "gradients of many": _gradients_of_many,
    "meta": _without_gradients(_on_meta),
    "fake": _fake,
    "inference": torch.inference_mode()(lambda model, batch: model(batch)),
    "make_fx": lambda model, batch: make_fx(model)(batch),
    "export": lambda model, batch: torch.export.export(model, (batch,)),
    "jit.trace": lambda model, batch: torch.jit.trace(model, batch),
    "compiled function": _compiled,
    "nested": _without_gradients(
        lambda model, batch: model(torch.nested.nested_tensor([batch[:2], batch[2:5]], layout=torch.jagged))
    ),
    "sparse": lambda model, batch: _step(model, batch.to_sparse()),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_recorded_step_may_use_its_model_in_any_way_beside(name: str, tmp_path: Path) -> None:
    assert torch.equal(_trained(BESIDE[name], tmp_path), _trained(BESIDE[name]))


def _trained(beside: Use, folder: Path | None = None) -> Tensor:
    """Return the weights after two steps, recorded or not, that use the model in a way before their own pass."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = trainparity.record(model, optimizer, folder, interval=1) if folder else None
    with warnings.catch_warnings(action="ignore"):  # of torch.jit, and of nested tensors
        for _ in range(2):
            optimizer.zero_grad()
            batch = torch.randn(8, 4)
            beside(model, batch)
            _step(model, batch)
            optimizer.step()
    if recorder:
        recorder.close()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


class Operations(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return call(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Counts calls of PyTorch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, call, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return call(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Operations, Functions])
def test_a_mode_counts_no_operation_of_the_recorder(kind: type[Operations] | type[Functions], tmp_path: Path) -> None:
    counts = set[int]()
    for folder in (None, tmp_path):
        mode = kind()

        def counted(model: nn.Module, batch: Tensor, mode: Operations | Functions = mode) -> None:
            with mode:
                _step(model, batch)

        _trained(counted, folder)
        counts.add(mode.count)
    assert len(counts) == 1


def test_floating_point_operations_are_the_loops_own(tmp_path: Path) -> None:
    counts = set[int]()
    for folder in (None, tmp_path):
        with FlopCounterMode(display=False) as mode:
            _trained(lambda model, batch: None, folder)
        counts.add(mode.get_total_flops())
    assert len(counts) == 1


def test_what_a_selective_checkpoint_keeps_is_the_models_own(tmp_path: Path) -> None:
    kept = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default, torch.ops.aten.mul.Tensor]

    def policy(context: object, operation: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operation in kept else CheckpointPolicy.PREFER_RECOMPUTE

    def checkpointed(model: nn.Module, batch: Tensor) -> None:
        contexts = partial(create_selective_checkpoint_contexts, policy)
        checkpoint(lambda given: model(given), batch, use_reentrant=False, context_fn=contexts).sum().backward()

    assert torch.equal(_trained(checkpointed, tmp_path), _trained(checkpointed))


def test_the_default_device_is_the_loops(tmp_path: Path) -> None:
    def elsewhere(model: nn.Module, batch: Tensor) -> None:
        with torch.device("meta"):
            _step(model, batch)

    assert torch.equal(_trained(elsewhere, tmp_path), _trained(elsewhere))


def _train_compiled(offset: float, folder: Path, twin: int) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.compile(lambda batch: model(batch + offset).square().mean(), backend="eager", fullgraph=True)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            loss(torch.randn(8, 4)).backward()
            optimizer.step()


def test_a_model_in_a_compiled_function_is_judged_by_its_gradients(tmp_path: Path) -> None:
    right = compared(partial(_train_compiled, 0.0), partial(_train_compiled, 0.0), tmp_path / "right")
    assert right.verdict in ("bitwise", "equivalent")
    wrong = compared(partial(_train_compiled, 0.0), partial(_train_compiled, 0.1), tmp_path / "wrong")
    assert (wrong.verdict, wrong.cause) == ("different", "unknown")
    assert "inside a function that torch.compile compiled" in str(wrong.advice)


def test_an_error_of_the_recording_says_so(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    raises = pytest.raises(KeyError, match="the model's forward got no such argument")
    with trainparity.record(model, optimizer, tmp_path, samples="index"), raises as caught:
        model(torch.zeros(1, 4))
    assert caught.value.__notes__ == ["(raised while trainparity recorded this training)"]
