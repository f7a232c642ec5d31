"""Gradients that a loop copies to the weights that its optimizer holds."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import trainparity
from trainparity.parity.compare import compare_folders

STEPS, BATCH = 3, 16
X = torch.randn(STEPS * BATCH, 8, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 4, (STEPS * BATCH,), generator=torch.Generator().manual_seed(2))


def train(folder: Path, *, parts: int = 1, shift: int = 0, limit: float = 0.0, twin: int = 0) -> Path:
    """Train a model in bf16 whose optimizer holds weights in fp32: the Recorder is given these alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)).bfloat16()
    held = nn.ParameterList([parameter.detach().float() for parameter in model.parameters()])
    optimizer = torch.optim.AdamW(held.parameters(), lr=1e-3)
    with trainparity.record(held, optimizer, folder, twin=twin):
        for rows in torch.arange(STEPS * BATCH).view(STEPS, -1):
            model.zero_grad()
            for part in rows.chunk(parts):
                loss = functional.cross_entropy(model(X[part].bfloat16()).float(), (Y[part] + shift) % 4)
                (loss / parts).backward()
            for ours, computed in zip(held, model.parameters(), strict=True):
                ours.grad = computed.grad.float()
            if limit:
                nn.utils.clip_grad_norm_(held.parameters(), limit)
            optimizer.step()
            with torch.no_grad():
                for ours, computed in zip(held, model.parameters(), strict=True):
                    computed.copy_(ours)
    return folder


@pytest.mark.parametrize("limit", [0.0, 0.05])
def test_fp32_weights_of_a_model_in_bf16_are_judged_as_it_rounds(limit: float, tmp_path: Path) -> None:
    reference = train(tmp_path / "a", limit=limit)
    for twin in (1, 2):
        train(tmp_path / "a", limit=limit, twin=twin)
    found = compare_folders(reference, train(tmp_path / "b", limit=limit, parts=2))
    assert found.verdict == "equivalent", found
    assert compare_folders(reference, train(tmp_path / "c", limit=limit, shift=1)).verdict == "different"


def test_gradients_of_torch_func_in_several_parts_are_judged(tmp_path: Path) -> None:
    def train(folder: Path, parts: int, smoothing: float = 0.0) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def loss(weights: dict[str, Tensor], part: Tensor) -> Tensor:
            output = torch.func.functional_call(model, weights, (part,))
            target = torch.zeros(len(part), dtype=torch.int64)
            return nn.functional.cross_entropy(output, target, reduction="sum", label_smoothing=smoothing)

        with trainparity.record(model, optimizer, folder):
            for batch in torch.randn(4, 16, 6):
                optimizer.zero_grad()
                for part in batch.chunk(parts):
                    weights = {name: weight.detach() for name, weight in model.named_parameters()}
                    found = torch.func.grad(loss)(weights, part)
                    for name, weight in model.named_parameters():
                        held = 0.0 if weight.grad is None else weight.grad
                        weight.grad = held + found[name] / len(batch)
                optimizer.step()

    train(tmp_path / "whole", 1)
    train(tmp_path / "parts", 4)
    train(tmp_path / "smoothed", 4, smoothing=0.1)
    assert compare_folders(tmp_path / "whole", tmp_path / "parts").verdict == "equivalent"
    assert compare_folders(tmp_path / "whole", tmp_path / "smoothed").verdict == "different"
