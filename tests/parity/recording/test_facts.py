"""Options of an optimizer, by parameter, and what its state counts, in all the ways that optimizers count."""

from typing import Any

import torch
from torch import nn

from trainparity.parity.recording.facts import layout_of, settings_by_parameter, steps_counted


class Grouped(torch.optim.Optimizer):
    """An optimizer without defaults, whose groups hold all of its options, as Muon with Adam for the rest."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    def step(self, closure: Any = None) -> None:
        """Move nothing."""


def test_options_of_an_optimizer_without_defaults_are_those_of_its_groups() -> None:
    first, second = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    adam = {"kind": "adam", "params": [second], "lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-10}
    optimizer = Grouped([{"kind": "muon", "params": [first], "lr": 0.02, "momentum": 0.95, "ns_steps": 5}, adam])
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]  # a scheduler's note
    found = {name: values.tolist() for name, values in settings_by_parameter(optimizer, [first, second]).items()}
    assert found == {
        "lr": [0.02, 0.1],
        "momentum": [0.95, 0.0],
        "ns_steps": [5.0, 0.0],
        "betas.0": [0.0, 0.8],
        "betas.1": [0.0, 0.95],
        "eps": [0.0, 1e-10],
    }


def test_what_a_loop_notes_in_groups_is_no_option() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([{"params": [parameter], "depth": 3}], lr=0.1)
    assert "depth" not in settings_by_parameter(optimizer, [parameter])


def test_hooks_of_the_loops_own_are_told_of_in_whatever_code_they_stand() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert not layout_of(model, optimizer, [])["hooked"]
    made: dict[str, Any] = {}
    exec("def hook(*_): pass", made)  # as a notebook's magic does: it stands in no module
    made["hook"].__module__ = None
    optimizer.register_step_post_hook(made["hook"])
    assert layout_of(model, optimizer, [])["hooked"]


def test_steps_are_counted_by_one_number_of_any_kind_and_else_not() -> None:
    states = [
        {"step": 3}, {"step": torch.tensor(4.0)}, {"step": torch.tensor([5])}, {}, {"step": "six"}, {"step": None},
        {"step": torch.zeros(2)}, {"step": torch.zeros(0)}, {"step": torch.tensor(2**31, dtype=torch.float32)},
    ]  # fmt: skip
    assert steps_counted(states).tolist() == [3, 4, 5, 0, 0, 0, 0, 0, 2**31]
    assert steps_counted([]).tolist() == []
