"""The first training forward pass is seen however the script makes it."""

import torch
from torch import Tensor, nn

from trainparity.attach.first_pass import FirstPass


class Layer(nn.Linear):
    """Trains itself: its `forward` is called past `Module.__call__`, as Forward-Forward's layers do."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


def test_a_forward_that_is_called_past_hooks_is_seen_before_it_runs() -> None:
    forward, call = Layer.forward, nn.Module.__call__
    seen: list[nn.Module] = []
    layer = Layer(2, 3)
    first = FirstPass(seen.append)
    first.begin()
    first.see_modules_of(torch.optim.SGD(layer.parameters(), lr=0.1))
    with torch.no_grad():
        layer.forward(torch.ones(1, 2))
    assert seen == []
    layer.forward(torch.ones(1, 2))
    assert seen == [layer]
    first.end()
    assert Layer.forward is forward and nn.Module.__call__ is call
    layer.forward(torch.ones(1, 2))
    assert seen == [layer]


def test_inside_of_a_transform_nothing_is_attached() -> None:
    seen: list[nn.Module] = []
    net = nn.Linear(1, 1)
    first = FirstPass(seen.append)
    first.begin()
    torch.func.vmap(torch.func.grad(lambda x: net(x).squeeze()))(torch.ones(3, 1))
    assert seen == []
    net(torch.ones(3, 1))
    first.end()
    assert seen == [net]
