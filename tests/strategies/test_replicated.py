from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainparity.errors import UserError
from trainparity.strategies.replicated import Replicated


@pytest.fixture(autouse=True)
def _one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Spare(nn.Module):
    """A model of which some layers take no part."""

    def __init__(self, spare: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.used, self.spare = nn.Linear(2, 2), nn.ModuleList(nn.Linear(2, 2) for _ in range(spare))

    def forward(self, inputs: Tensor) -> Tensor:
        """Use one layer."""
        output: Tensor = self.used(self.frozen(inputs))
        return output


@pytest.mark.parametrize(
    ("spare", "named"), [(1, "spare.0.weight, spare.0.bias took"), (5, "spare.3.weight, spare.3.bias, ... took")]
)
def test_parameters_that_ddp_waits_for_in_vain_are_named(spare: int, named: str) -> None:
    wrapped = Replicated(Spare(spare))
    wrapped(torch.ones(3, 2)).sum().backward()
    with pytest.raises(UserError, match=named):
        wrapped(torch.ones(3, 2))


def test_other_mistakes_of_a_model_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Replicated(Spare(0))(torch.ones(3, 7))
