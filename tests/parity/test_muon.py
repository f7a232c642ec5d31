"""An optimizer whose iteration runs in bf16: its updates jump where rounding changes a gradient."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders

MOMENTUM = 0.95


def orthogonal(gradient: Tensor) -> Tensor:
    """Return Newton and Schulz's iteration of a matrix, as Muon computes it (Jordan et al., 2024)."""
    made = gradient.bfloat16()
    made = made / (made.norm() + 1e-7)
    for _ in range(5):
        square = made @ made.mT
        made = 3.4445 * made + (-4.775 * square + 2.0315 * square @ square) @ made
    return made.float()


class Muon(torch.optim.Optimizer):
    """Keeps a mean of gradients, or their sum, which has the same direction; takes a Nesterov step, or none."""

    def __init__(self, parameters: Any, kind: str) -> None:
        self.kind = kind
        super().__init__(parameters, {"lr": 0.02})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            kept = self.state[parameter].setdefault("kept", torch.zeros_like(parameter))
            if self.kind == "sum":
                ahead = parameter.grad + MOMENTUM * kept.mul_(MOMENTUM).add_(parameter.grad)
            else:
                kept.lerp_(parameter.grad, 1 - MOMENTUM)
                ahead = kept if self.kind == "no Nesterov" else parameter.grad.lerp(kept, MOMENTUM)
            parameter.add_(orthogonal(ahead), alpha=-0.02)


def _train(seed: int, coarse: bool, kind: str, folder: Path, twin: int) -> None:
    torch.manual_seed(seed)
    layers = [(nn.Linear(32, 32, bias=False), nn.LayerNorm(32, elementwise_affine=False), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(*(layer for block in layers for layer in block), nn.Linear(32, 32, bias=False))
    optimizer = Muon(model.parameters(), kind)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            optimizer.zero_grad()
            inputs, labels = torch.randn(32, 32, generator=draws), torch.randint(32, (32,), generator=draws)
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                outputs = model(inputs)
            cross_entropy(outputs.float(), labels).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_momentum_that_is_kept_as_a_sum_makes_the_same_updates(seed: int, coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(_train, seed, coarse, "mean"), partial(_train, seed, coarse, "sum"), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_a_nesterov_step_that_is_left_out_is_seen(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(_train, 0, coarse, "mean"), partial(_train, 0, coarse, "no Nesterov"), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "update"), verdict.explanation


class MuonWithAuxAdam(torch.optim.Optimizer):
    """Makes both kinds of updates itself, by what its groups say (Jordan, 2024)."""

    def __init__(self, matrices: list[Tensor], rest: list[Tensor], rate: float) -> None:
        groups: list[dict[str, Any]] = [
            {"params": matrices, "use_muon": True, "lr": 5e-3}, {"params": rest, "use_muon": False, "lr": rate}
        ]  # fmt: skip
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state, gradient = self.state[parameter], parameter.grad
                mean = state.setdefault("mean", torch.zeros_like(parameter))
                mean.lerp_(gradient, 0.05)
                if group["use_muon"]:
                    parameter.add_(orthogonal(gradient.lerp(mean, 0.95)), alpha=-group["lr"])
                else:
                    square = state.setdefault("square", torch.zeros_like(parameter))
                    square.lerp_(gradient.square(), 0.05)
                    parameter.addcdiv_(mean, square.sqrt() + 1e-8, value=-group["lr"])


def _two(matrices: list[Tensor], rest: list[Tensor], rate: float) -> list[torch.optim.Optimizer]:
    return [torch.optim.Muon(matrices, lr=5e-3), torch.optim.AdamW(rest, lr=rate)]


def _in_one(matrices: list[Tensor], rest: list[Tensor], rate: float) -> list[torch.optim.Optimizer]:
    return [MuonWithAuxAdam(matrices, rest, rate)]


def _train_beside_adam(
    parts: int, rate: float, seed: int, folder: Path, twin: int, *,
    later: float = 1.0, make: Any = _two, coarse: bool = False,
) -> None:  # fmt: skip
    """Train matrices by Muon, and the rest by Adam, as Muon takes matrices alone; under bf16 autocast where asked."""
    torch.manual_seed(seed)
    blocks = [(nn.Linear(32, 32, bias=False), nn.LayerNorm(32), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(40, 32), *(layer for block in blocks for layer in block), nn.Linear(32, 40))
    matrices = [parameter for name, parameter in model.named_parameters() if parameter.ndim > 1 and name[0] in "147"]
    rest = [parameter for parameter in model.parameters() if all(parameter is not one for one in matrices)]
    both = make(matrices, rest, rate)
    draws = torch.Generator().manual_seed(seed)
    with trainparity.record(model, both, folder, twin=twin, interval=1):
        for step in range(8):
            temperature = later if step >= 5 else 1.0
            words = torch.randint(40, (64,), generator=draws)
            for some in words.chunk(parts):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(some)
                (cross_entropy(outputs.float() / temperature, (some * 3) % 40) / parts).backward()
            for optimizer in both:
                optimizer.step()
                optimizer.zero_grad()


@pytest.mark.parametrize("make", [_two, _in_one])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_what_jumps_beside_an_optimizer_that_does_not_is_no_other_update(seed: int, make: Any, tmp_path: Path) -> None:
    """With twins, and without."""
    reference, cut = (partial(_train_beside_adam, parts, 1e-3, seed, make=make) for parts in (1, 4))
    verdict = compared(reference, cut, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
    reference(tmp_path / "alone", 0)
    cut(tmp_path / "cut", 0)
    found = compare_folders(tmp_path / "alone", tmp_path / "cut")
    assert found.verdict != "different", found.explanation


@pytest.mark.parametrize("make", [_two, _in_one])
def test_another_rate_of_the_one_beside_it_is_seen(make: Any, tmp_path: Path) -> None:
    verdict = compared(*(partial(_train_beside_adam, 1, rate, 0, make=make) for rate in (1e-3, 1.1e-3)), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "learning-rate"), verdict.explanation


@pytest.mark.parametrize("make", [_two, _in_one])
@pytest.mark.parametrize("twins", [True, False])
def test_no_jump_hides_another_loss_of_weights_with_the_same_bits(twins: bool, make: Any, tmp_path: Path) -> None:
    reference = partial(_train_beside_adam, 1, 1e-3, 0, make=make)
    for twin in range(3 if twins else 1):
        reference(tmp_path / "reference", twin)
    reference(tmp_path / "other", 0, later=1.02)
    verdict = compare_folders(tmp_path / "reference", tmp_path / "other")
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation


def _train_convolutions(last: bool, seed: int, folder: Path, twin: int, *, later: float = 1.0) -> None:
    """Train kernels by Muon, flattened, in front of BatchNorm; in channels_last where asked."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    model = model.to(memory_format=torch.channels_last if last else torch.contiguous_format)  # type: ignore[call-overload]
    kernels = [parameter for parameter in model.parameters() if parameter.ndim == 4]
    rest = [parameter for parameter in model.parameters() if parameter.ndim < 4]
    both = [MuonOfKernels(kernels), torch.optim.AdamW(rest, lr=3e-3)]
    draws = torch.Generator().manual_seed(5)
    with trainparity.record(model, both, folder, twin=twin, interval=1):
        for step in range(6):
            images, labels = torch.randn(16, 3, 8, 8, generator=draws), torch.randint(10, (16,), generator=draws)
            model.zero_grad()
            outputs = model(images.contiguous(memory_format=torch.channels_last) if last else images)
            cross_entropy(outputs, labels, label_smoothing=0.3 if step >= later else 0.0).backward()
            for optimizer in both:
                optimizer.step()


class MuonOfKernels(torch.optim.Optimizer):
    """Muon of kernels, each as the matrix of its output channels."""

    def __init__(self, kernels: list[Tensor]) -> None:
        super().__init__(kernels, {"lr": 0.02})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for kernel in self.param_groups[0]["params"]:
            kernel.add_(orthogonal(kernel.grad.flatten(1)).view_as(kernel), alpha=-0.02)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_what_jumps_make_of_means_and_kinks_is_no_difference_without_twins(seed: int, tmp_path: Path) -> None:
    for last in (False, True):
        _train_convolutions(last, seed, tmp_path / str(last), 0)
    found = compare_folders(tmp_path / "False", tmp_path / "True")
    assert found.verdict != "different", (found.reason, found.explanation)


def test_another_loss_after_jumps_is_named_without_twins(tmp_path: Path) -> None:
    for name, later in (("one", 9), ("other", 3)):
        _train_convolutions(False, 0, tmp_path / name, 0, later=later)
    found = compare_folders(tmp_path / "one", tmp_path / "other")
    assert (found.verdict, found.cause, found.step) == ("different", "loss-or-targets", 3), found.explanation


@pytest.mark.parametrize("make", [_two, _in_one])
@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_a_jump_in_another_cut_is_not_named_for_what_another_loss_makes_later(
    coarse: bool, make: Any, tmp_path: Path
) -> None:
    reference, other = (
        partial(_train_beside_adam, parts, 1e-3, 0, later=later, make=make, coarse=coarse)
        for parts, later in ((1, 1.0), (4, 3.0))
    )
    found = compared(reference, other, tmp_path)
    assert (found.verdict, found.cause, found.step) == ("different", "loss-or-targets", 5), found.explanation


class MuonByState(torch.optim.Optimizer):
    """Knows which it updates as matrices by what it keeps of each, and says it in no group (Liu et al., 2025)."""

    def __init__(self, matrices: list[Tensor], rest: list[Tensor], rate: float) -> None:
        super().__init__([*matrices, *rest], {"lr": rate})
        for parameter in [*matrices, *rest]:
            self.state[parameter]["use_muon"] = any(parameter is one for one in matrices)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state, gradient = self.state[parameter], parameter.grad
            mean = state.setdefault("mean", torch.zeros_like(parameter)).lerp_(gradient, 0.05)
            if state["use_muon"]:
                parameter.add_(orthogonal(gradient.lerp(mean, 0.95)), alpha=-self.defaults["lr"])
            else:
                square = state.setdefault("square", torch.zeros_like(parameter)).lerp_(gradient.square(), 0.05)
                parameter.addcdiv_(mean, square.sqrt() + 1e-8, value=-self.defaults["lr"])


def _by_state(matrices: list[Tensor], rest: list[Tensor], rate: float) -> list[torch.optim.Optimizer]:
    return [MuonByState(matrices, rest, rate)]


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_a_class_that_updates_vectors_too_makes_of_signs_is_no_other_update(
    seed: int, coarse: bool, tmp_path: Path
) -> None:
    for name, parts in (("one", 1), ("cut", 4)):
        _train_beside_adam(parts, 1e-3, seed, tmp_path / name, 0, make=_by_state, coarse=coarse)
    found = compare_folders(tmp_path / "one", tmp_path / "cut")
    assert found.verdict != "different", found.explanation


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_directions_that_gradients_lack_are_no_other_update_without_twins(seed: int, tmp_path: Path) -> None:
    """Of fewer samples than a matrix has rows half of its update is made of what rounding leaves."""
    for name, parts in (("one", 1), ("cut", 4)):
        _train_few(parts, seed, tmp_path / name)
    found = compare_folders(tmp_path / "one", tmp_path / "cut")
    assert found.verdict != "different", found.explanation


class Block(nn.Module):
    """A transformer's layer of linear maps, between two of which what is added stays."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Linear(8, 32), nn.LayerNorm(32)
        self.inner, self.outer, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        stream = self.embedding(images)
        scores: Tensor = self.head(stream + self.outer(nn.functional.gelu(self.inner(self.norm(stream)))))
        return scores


def _train_few(parts: int, seed: int, folder: Path) -> None:
    torch.manual_seed(seed)
    model = Block()
    matrices = [model.inner.weight, model.outer.weight]
    rest = [parameter for parameter in model.parameters() if all(parameter is not one for one in matrices)]
    both, draws = _two(matrices, rest, 1e-2), torch.Generator().manual_seed(1)
    with trainparity.record(model, both, folder, interval=1):
        for _ in range(8):
            images, labels = torch.randn(16, 8, generator=draws), torch.randint(10, (16,), generator=draws)
            for some, wanted in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(some)
                (cross_entropy(outputs.float(), wanted) / parts).backward()
            for optimizer in both:
                optimizer.step()
                optimizer.zero_grad()
