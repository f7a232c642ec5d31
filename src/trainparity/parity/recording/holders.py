"""Ranks whose optimizers hold parts of one model, as in ZeRO: what counts is what a parameter's own rank has."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.sketch import digest
from trainparity.parity.recording.unwrap import own_part


class Holders:
    """Which rank updates each parameter, where that is not every rank. Every rank must make one at the same time."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> None:
        own = {id(p) for group in own_part(optimizer).param_groups for p in group["params"]}
        every = ranks.gather(torch.tensor([id(p) in own for p in parameters], dtype=torch.bool))
        plain = torch.tensor([not is_dtensor(p) for p in parameters], dtype=torch.bool)
        some = every.any(0) & ~every.all(0) & plain
        first = every.int().argmax(0).tolist()
        self._owners = [owner if apart else None for owner, apart in zip(first, some.tolist(), strict=True)]
        self.held: list[bool] = every.any(0).tolist()
        """Whether any rank's optimizer holds the parameter."""
        held = {id(p) for p, any_holds in zip(parameters, self.held, strict=True) if any_holds}
        # An optimizer that holds none of the model's parameters has copies of them in a finer format.
        self._concerned = held or own | set(map(id, parameters))

    @property
    def apart(self) -> bool:
        """Whether there are parameters that some ranks alone update."""
        return any(owner is not None for owner in self._owners)

    def concerned(self, tensors: Sequence[Tensor]) -> bool:
        """Tell whether what is done to some tensors is done to what the optimizers update."""
        return not self._concerned.isdisjoint(map(id, tensors))

    def tensors(self, parameters: Sequence[Tensor], tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return a tensor of each parameter, such as its gradient, as its owner has it. Every rank must call it."""
        if not self.apart:
            return list(tensors)
        there = self.numbers(torch.tensor([0.0 if tensor is None else 1.0 for tensor in tensors])).tolist()
        return [
            own if owner is None else _sent(parameter, own, owner) if exists else None
            for owner, parameter, own, exists in zip(self._owners, parameters, tensors, there, strict=True)
        ]

    def numbers(self, values: Tensor) -> Tensor:
        """Return values [..., P] with each parameter's as its owner has it. Every rank must call it."""
        if not self.apart:
            return values
        every = ranks.gather(values)
        chosen = [ranks.rank() if owner is None else owner for owner in self._owners]
        return torch.stack([every[rank, ..., place] for place, rank in enumerate(chosen)], dim=-1)

    def received(self, parameters: Sequence[Tensor]) -> int:
        """Hash the parameters that ranks must have sent each other."""
        hashed = 0
        for owner, parameter in zip(self._owners, parameters, strict=True):
            if owner is not None:
                hashed = derived_seed(hashed, digest(parameter))
        return hashed


def _sent(parameter: Tensor, own: Tensor | None, owner: int) -> Tensor:
    """Return the owner's tensor in the shape of its parameter."""
    own = torch.zeros_like(parameter) if own is None else own.detach()
    return ranks.broadcast(own.to_dense() if own.layout != torch.strided else own, owner)
