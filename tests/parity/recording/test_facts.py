"""Options of an optimizer, by parameter."""

from typing import Any

import torch
from torch import nn

from trainparity.parity.recording.facts import settings_by_parameter


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
