"""FSDP2 in mixed precision beside autocast on one device: it casts what the loop gives the model."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.auxiliary = nn.Linear(12, 32), nn.Linear(32, 10), nn.Linear(32, 10)

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(samples).relu()
        return self.head(hidden), self.auxiliary(hidden)


def train(mesh: DeviceMesh | None, parts: int, scale: float, weight: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = TwoHeads()
    if mesh is not None:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            optimizer.zero_grad()
            batch = torch.randn(16, 12, generator=draws)
            for samples, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=mesh is None):
                    found, beside = model(samples)
                loss = cross_entropy(found.float(), labels) + weight * cross_entropy(beside.float(), labels)
                (scale * loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("parts", [1, 4])
def test_it_is_the_same_training(parts: int, mesh: DeviceMesh, tmp_path: Path) -> None:
    verdict = compared(partial(train, None, 1, 1.0, 0.4), partial(train, mesh, parts, 1.0, 0.4), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


@pytest.mark.parametrize(
    ("scale", "weight", "cause"), [(2.0, 0.4, "loss-normalisation"), (1.0, 0.2, "loss-or-targets")]
)
def test_a_fault_is_named_and_not_held_against_the_inputs(
    scale: float, weight: float, cause: str, mesh: DeviceMesh, tmp_path: Path
) -> None:
    verdict = compared(partial(train, None, 1, 1.0, 0.4), partial(train, mesh, 2, scale, weight), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation
