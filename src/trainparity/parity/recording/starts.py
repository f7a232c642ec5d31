"""What an update starts from: weights, what the optimizer holds, its state and its settings."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
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
    *kept, steps = _where_most_is_kept(torch.cat([state_kept(parameters, states), steps_counted(states)[None]]))
    arrays["state/norm"], arrays["state/tensors"], arrays["state/zeros"] = (numbers.float() for numbers in kept)
    arrays["state/steps"] = steps
    arrays["optimizer_step"] = torch.nn.functional.pad(arrays["state/steps"], (0, 1)).max()
    record_settings(arrays, optimizer, parameters, holders)


def record_settings(
    arrays: Snapshot, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], holders: Holders
) -> None:
    """Record the options that a step is made with. Every rank must call it."""
    for key, values in settings_by_parameter(optimizer, parameters).items():
        arrays[f"setting/{key}"] = holders.numbers(values)


def _where_most_is_kept(numbers: Tensor) -> Tensor:
    """Return what ranks' optimizers keep of each parameter, [4, P], as the first rank has it that keeps most of it.

    Of several that hold a parameter one alone may keep something of it: a step may share the work out, as Muon's does
    over the matrices, and send what it has made.
    """
    every = ranks.gather(numbers)
    most = every[:, 1].argmax(0)
    return every.gather(0, most.expand(1, len(numbers), -1))[0]
