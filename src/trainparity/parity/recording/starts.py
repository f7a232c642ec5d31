"""What an update starts from: weights, what the optimizer holds, its state and its settings."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.recording.facts import settings_by_parameter, state_kept, steps_counted
from trainparity.parity.recording.holders import Holders
from trainparity.parity.recording.snapshot import Snapshot
from trainparity.parity.recording.unwrap import own_part


def record_start(
    arrays: Snapshot, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], holders: Holders
) -> None:
    """Record it into a step's arrays. Every rank must call it."""
    arrays.record_start(parameters)
    arrays["held"] = holders.held
    arrays["frozen"] = torch.tensor([not parameter.requires_grad for parameter in parameters], dtype=torch.bool)
    state = own_part(optimizer).state
    states = [state.get(parameter, {}) for parameter in parameters]
    kept = holders.numbers(state_kept(parameters, states))
    arrays["state/norm"], arrays["state/tensors"], arrays["state/zeros"] = kept
    arrays["state/steps"] = holders.numbers(steps_counted(states))
    arrays["optimizer_step"] = torch.nn.functional.pad(arrays["state/steps"], (0, 1)).max()
    for key, values in settings_by_parameter(optimizer, parameters).items():
        arrays[f"setting/{key}"] = holders.numbers(values)
