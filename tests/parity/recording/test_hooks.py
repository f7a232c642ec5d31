"""Hooks that are there in traced steps alone, each in its place among the others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.utils
from torch import nn
from torch.utils.hooks import RemovableHandle

import trainparity
from trainparity.parity.recording.hooks import Switched
from trainparity.parity.recording.trace import Trace


def noting(into: list[str], name: str) -> Callable[..., None]:
    def hook(*_: Any) -> None:
        into.append(name)

    return hook


def test_each_comes_back_to_its_place_among_older_and_younger_ones() -> None:
    module, called = nn.Identity(), []

    def add(name: str, *, prepend: bool = False) -> RemovableHandle:
        return module.register_forward_pre_hook(noting(called, name), prepend=prepend)

    def order() -> list[str]:
        called.clear()
        module(torch.ones(1))
        return [*called]

    add("older")
    hooks = Switched()
    hooks.add(add("own 1"), add("own 2"))
    add("younger")
    hooks.add(add("own first", prepend=True))
    whole = order()
    hooks.off()
    hooks.off()
    assert order() == ["older", "younger"]
    gone = add("while they were out")
    hooks.on()
    assert order() == [*whole, "while they were out"] == ["own first", "older", "own 1", "own 2", *order()[-2:]]
    gone.remove()
    hooks.off()
    hooks.remove()
    hooks.on()
    assert order() == ["older", "younger"]


def test_the_loops_own_keep_their_order_where_one_comes_first_meanwhile() -> None:
    module, called = nn.Identity(), []
    module.register_forward_hook(noting(called, "older"))
    hooks = Switched()
    hooks.add(module.register_forward_hook(noting(called, "own"), with_kwargs=True, always_call=True))
    module.register_forward_hook(noting(called, "younger"))
    hooks.off()
    assert not module._forward_hooks_with_kwargs and not module._forward_hooks_always_called
    module.register_forward_hook(noting(called, "before all"), prepend=True)
    for found in (["before all", "older", "younger"], ["before all", "older", "own", "younger"]):
        called.clear()
        module(torch.ones(1))
        assert called == found
        hooks.on()
    assert len(module._forward_hooks_with_kwargs) == len(module._forward_hooks_always_called) == 1


def test_a_model_that_is_compiled_after_recording_began_is_compiled_once(tmp_path: Path) -> None:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    with trainparity.record(model, optimizer, tmp_path, first=2, interval=4):
        compiled = torch.compile(model, backend="aot_eager")
        for _ in range(6):
            compiled(torch.randn(8, 4)).square().sum().backward()
            optimizer.step()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.fixture(autouse=True)
def nothing_is_compiled() -> None:
    """Forget what other tests of this process have compiled."""
    torch._dynamo.utils.counters.clear()


def trained(folder: Path, **options: Any) -> tuple[Trace, list[int]]:
    """Train with a hook of the loop's own that clips what arrives; return the trace, and the hooks in each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    hooks = []
    with trainparity.record(model, optimizer, folder, **options):
        model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
        for _ in range(9):
            of_modules = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()]
            hooks.append(sum(of_modules) + sum(len(p._backward_hooks or ()) for p in model.parameters()))
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().sum().backward()
            optimizer.step()
    return Trace.load(folder), hooks


def test_between_traced_steps_a_model_has_the_loops_own_hooks_alone_and_traced_ones_show_the_same(
    tmp_path: Path,
) -> None:
    all_of_them, few = trained(tmp_path / "all", interval=1), trained(tmp_path / "few", first=2, interval=4)
    traced = few[0].layout.steps
    assert traced == [0, 1, 4, 8]
    one_of_meeting = 1  # which counts the model's own passes
    assert {few[1][step] for step in range(9) if step not in traced} == {1 + one_of_meeting}
    assert {few[1][step] for step in traced} == set(all_of_them[1])
    arrays = all_of_them[0].arrays
    for name, values in few[0].arrays.items():
        if not name.startswith(("end/", "sequence")):
            torch.testing.assert_close(values, arrays[name][traced], rtol=0, atol=0, equal_nan=True, msg=name)
