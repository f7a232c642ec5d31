import pytest
import torch
from torch import Tensor, nn

from trainparity.strategies.cpu_replicas import CpuReplicas


class Model(nn.Module):
    """Takes and returns more than one tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.sizes: list[int] = []

    def forward(self, x: Tensor, factor: float, *, shift: Tensor) -> dict[str, Tensor]:
        self.sizes.append(len(x))
        y = self.layer(x) * factor + shift
        return {"plain": y, "normalised": self.norm(y)}


@pytest.mark.parametrize(("batch", "replicas", "sizes"), [(8, 2, [4, 4]), (7, 2, [4, 3]), (6, 4, [2, 2, 2])])
def test_replicas_see_contiguous_chunks_and_their_gradients_add_up(batch: int, replicas: int, sizes: list[int]) -> None:
    x, shift = torch.randn(batch, 3), torch.randn(batch, 2)
    whole, split = Model(), Model()
    expected = whole(x, 2.0, shift=shift)["plain"]
    found = CpuReplicas(split, replicas)(x, 2.0, shift=shift)["plain"]
    assert split.sizes == sizes
    torch.testing.assert_close(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    assert split.layer.weight.grad is not None
    torch.testing.assert_close(split.layer.weight.grad, whole.layer.weight.grad)


def test_running_statistics_are_the_first_replicas_alone() -> None:
    x, shift = torch.randn(8, 3), torch.randn(8, 2)
    first, split = Model(), Model()
    first(x[:4], 1.0, shift=shift[:4])
    CpuReplicas(split, 2)(x, 1.0, shift=shift)
    torch.testing.assert_close(split.norm.running_mean, first.norm.running_mean)
    assert split.norm.num_batches_tracked == 1
