"""Ranks whose optimizers hold parts of one model, as in ZeRO: what counts is what a parameter's own rank has."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.sketch import digest
from trainparity.parity.recording.unwrap import own_part


class Holders:
    """Which rank updates each parameter, where that is not every rank: an optimizer may get parameters, or lose some.

    Nothing is known before `renew`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Callable[[], Sequence[Tensor]]) -> None:
        self._optimizer, self._parameters = optimizer, parameters
        self._own: Tensor | None = None
        self._owners: list[int | None] = []
        self._concerned: set[int] = set()
        self.held = torch.zeros(0, dtype=torch.bool)
        """Whether any rank's optimizer holds the parameter: bool [P]."""

    @property
    def known(self) -> bool:
        """Whether ranks have told each other what they hold."""
        return self._own is not None

    @property
    def outdated(self) -> bool:
        """Whether this rank's optimizer holds other parameters than the ranks know, or they know nothing."""
        return self._own is None or not torch.equal(self._own, self._held_here())

    def renew(self) -> None:
        """Tell the other ranks what this one's optimizer holds now. Every rank must call it at the same time."""
        parameters, self._own = self._parameters(), self._held_here()
        every = ranks.gather(self._own)
        plain = torch.tensor([not is_dtensor(p) for p in parameters], dtype=torch.bool)
        some = every.any(0) & ~every.all(0) & plain
        first = every.int().argmax(0).tolist()
        self._owners = [owner if apart else None for owner, apart in zip(first, some.tolist(), strict=True)]
        self.held = every.any(0)
        held = {id(p) for p, any_holds in zip(parameters, self.held.tolist(), strict=True) if any_holds}
        # An optimizer that holds none of the model's parameters has copies of them in a finer format.
        self._concerned = held or self.members() | set(map(id, parameters))

    def _held_here(self) -> Tensor:
        own = self.members()
        return torch.tensor([id(p) in own for p in self._parameters()], dtype=torch.bool)

    def members(self) -> set[int]:
        """Return the parameters that this rank's optimizer holds, by identity."""
        return {id(p) for group in own_part(self._optimizer).param_groups for p in group["params"]}

    @property
    def apart(self) -> bool:
        """Whether there are parameters that some ranks alone update."""
        return any(owner is not None for owner in self._owners)

    def concern(self) -> set[int]:
        """Return the parameters, by identity, that optimizers update: on any rank, as far as this one knows.

        Of what optimizers got since ranks met last it knows its own; before several have met, it may be any.
        """
        parameters = set(map(id, self._parameters()))
        own = self.members() & parameters
        if self.known:
            return self._concerned | own
        return own or parameters if ranks.world_size() == 1 else parameters

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
