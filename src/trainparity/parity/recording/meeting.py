"""Ranks meet before they gather what a step showed: one that goes on without the step is named, and not waited for."""

import itertools
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist
from torch import nn

from trainparity.parity.recording import ranks
from trainparity.parity.recording.hooks import Hook
from trainparity.parity.recording.unwrap import is_compiled, unwrap_model

GRACE_S = 180.0
"""How long a rank may stand still, with more forward passes than this one, before it is taken not to make the step."""

_numbers = itertools.count()


class RankLeftBehind(RuntimeError):
    """A rank makes an optimizer step that another one does not make."""


class OtherModel(RuntimeError):
    """Ranks train other parameters, as the stages of a pipeline do."""


class Place(IntEnum):
    """Where ranks meet in a step, in the order in which they come there."""

    CLIPPING = 0
    UPDATE = 1
    END = 2


class State(NamedTuple):
    """How far a rank has come."""

    step: int
    """Traced steps begun."""
    met: int
    """How often it has come to meet the others in that step."""
    passes: int
    """Forward passes of that step."""

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read what `write` wrote."""
        return cls(*map(int, text.split()))

    def write(self) -> str:
        """Write it for the store."""
        return " ".join(map(str, self))


class Meeting:
    """Of one recorded model: how far each rank has come, told through the process group's store."""

    def __init__(self, model: nn.Module) -> None:
        """Count the forward passes of what the loop calls. Every rank must make its meetings in the same order."""
        self._name = f"trainparity/meeting-{next(_numbers)}"
        self._state = State(0, 0, 0)
        self._model, self._alike = model, False
        self.active = False
        # Not of the model inside: DDP talks to other ranks before it calls that.
        called = [] if is_compiled(model) else [model]
        self._handles = [one.register_forward_pre_hook(Hook(self._count_pass)) for one in called]

    def close(self) -> None:
        """Count no more."""
        for handle in self._handles:
            handle.remove()

    def begin(self) -> None:
        """Begin a traced step."""
        self.active = True
        self._tell(State(self._state.step + 1, 0, 0))

    def _count_pass(self, *_: Any) -> None:
        if self.active and torch.is_grad_enabled():
            self._tell(self._state._replace(passes=self._state.passes + 1))

    def meet(self, place: Place, told: bool = False) -> list[bool] | None:
        """Wait until all ranks have come to a place in the step, just before they gather something.

        Args:
            place: Where this rank is.
            told: Something that this rank tells the others there.

        Returns:
            What each rank tells; None where another one has left this place out, as one that does not clip: nothing can
            be gathered here.

        Raises:
            RankLeftBehind: A rank passes samples forward, and does not come.
            OtherModel: A rank has other parameters, so that what they gather would be of other sizes.
        """
        while True:
            self._wait_for_next_rank()
            places, every = ranks.gather(torch.tensor([int(place), int(told)])).T
            if place < places.amax():
                return None
            if place == places.amin():
                return list(map(bool, every.tolist()))

    def _wait_for_next_rank(self) -> None:
        store = _store()
        if store is not None and not self._alike:
            store.set(f"{self._key(ranks.rank())}/model", self._parameters())
        self._tell(self._state._replace(met=self._state.met + 1))
        if store is not None:
            other = (ranks.rank() + 1) % ranks.world_size()
            wait_for(lambda: self._read(store, other), self._state, other)
            self._compare_with(store, other)

    def _compare_with(self, store: Any, other: int) -> None:
        if self._alike:
            return
        if store.get(f"{self._key(other)}/model") != self._parameters().encode():
            raise OtherModel(
                f"rank {ranks.rank()} trains other parameters than rank {other}, as the stages of a pipeline do: only "
                "ranks that hold one model, whole or in shards, can be recorded together"
            )
        self._alike = True

    def _parameters(self) -> str:
        return str([(name, list(parameter.shape)) for name, parameter in unwrap_model(self._model).named_parameters()])

    def _tell(self, state: State) -> None:
        self._state = state
        if (store := _store()) is not None:
            store.set(self._key(ranks.rank()), state.write())

    def _read(self, store: Any, rank: int) -> State:
        key = self._key(rank)
        return State.read(store.get(key)) if store.check([key]) else State(0, 0, 0)

    def _key(self, rank: int) -> str:
        return f"{self._name}/{rank}"


def wait_for(read: Callable[[], State], mine: State, other: int) -> None:
    """Wait until another rank has come as far as this one.

    Raises:
        RankLeftBehind: It has made more forward passes of the step than this one, and stands still.
    """
    before, since, pause = mine, time.monotonic(), 0.0002
    while (seen := read())[:2] < mine[:2]:
        if seen != before or seen.step < mine.step or seen.passes <= mine.passes:
            before, since = seen, time.monotonic()
        elif time.monotonic() - since > GRACE_S:
            raise RankLeftBehind(
                f"rank {other} does not make the optimizer step that rank {ranks.rank()} makes: it has begun "
                f"{seen.passes} forward passes since its last one, and rank {ranks.rank()} {mine.passes}. Call "
                "optimizer.step(), and what clips gradients, on every rank"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _store() -> Any:
    """Return the process group's store; None without another rank."""
    return dist.distributed_c10d._get_default_store() if ranks.world_size() > 1 else None
