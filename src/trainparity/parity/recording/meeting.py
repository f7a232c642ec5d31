"""Ranks meet before they gather what a step showed: one that goes on without the step is named, and not waited for."""

import itertools
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainparity.parity.recording import intercept, presence, ranks
from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.hooks import Hook
from trainparity.parity.recording.presence import Presence, RanksPart
from trainparity.parity.recording.unwrap import is_compiled, unwrap_model

GRACE_S = 180.0
"""How long a rank may stand still, with more forward passes than this one, before it is taken not to make the step."""

UNHEARD_S = 15.0
"""After how long it is said that another rank, of which nothing was heard yet, is waited for."""

_numbers = itertools.count()


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


class Meeting(intercept.Listener):
    """Of one recorded model: how far each rank has come, told through the process group's store."""

    def __init__(self, model: nn.Module) -> None:
        """Count the forward passes of what the loop calls. Every rank must make its meetings in the same order."""
        self._name = f"trainparity/meeting-{next(_numbers)}"
        self._state = State(0, 0, 0)
        self._model, self._alike = model, False
        self._presence = Presence(self._name)
        self.active = False
        self.parted = ""
        """Why the ranks meet no more; empty: they do."""
        self.on_exhausted: Callable[[str], None] = lambda why: None
        """Called when this rank, outside of its steps, meets the others no more."""
        # Not of the model inside: DDP talks to other ranks before it calls that.
        called = [] if is_compiled(model) else [model]
        self._handles = [one.register_forward_pre_hook(Hook(self._count_pass)) for one in called]
        intercept.listen(self)

    def close(self) -> None:
        """Count no more, and let no other rank wait for this one."""
        self._presence.leave()
        intercept.forget(self)
        for handle in self._handles:
            handle.remove()

    def begin(self) -> None:
        """Begin a traced step."""
        self.active = True
        self._tell(State(self._state.step + 1, 0, 0))

    @unseen
    def exhausted(self, model: DistributedDataParallel) -> None:
        """Tell the others before they come to meet a rank that makes no more steps."""
        if self.parted or unwrap_model(model) is not unwrap_model(self._model):
            return
        self.parted = (
            f"rank {ranks.rank()} has no more data: in `join()` it only answers what the other ranks reduce, and steps "
            "that not all ranks make can't be recorded. Give every rank as many batches"
        )
        self._presence.leave(self.parted)
        self.on_exhausted(self.parted)

    def _count_pass(self, *_: Any) -> None:
        if self.active and torch.is_grad_enabled():
            self._tell(self._state._replace(passes=self._state.passes + 1))

    def meet(self, place: Place, *told: bool) -> list[bool] | None:
        """Wait until all ranks have come to a place in the step, just before they gather something.

        Args:
            place: Where this rank is.
            told: What this rank tells the others there, as many things on every rank.

        Returns:
            Of each thing whether any rank tells it; None where another one has left this place out, as one that does
            not clip, or where the ranks have `parted`: nothing can be gathered here.
        """
        while not self.parted:
            try:
                self._come()
            except RanksPart as error:
                self.parted = str(error)
                break
            every = ranks.gather(torch.tensor([int(place), *map(int, told)]))
            places = every[:, 0]
            if place < places.amax():
                return None
            if place == places.amin():
                return list(map(bool, every[:, 1:].any(0).tolist()))
        return None

    def expect_all(self) -> None:
        """Raise `RanksPart` if the ranks have parted."""
        if self.parted:
            raise RanksPart(self.parted)

    def _come(self) -> None:
        """Wait for the other ranks.

        Raises:
            RanksPart: One does not come, or has other parameters, so that what they gather would be of other sizes.
        """
        refusal = self._other_parameters()
        self._tell(self._state._replace(met=self._state.met + 1))
        self._presence.come(Patience(self._read, self._state).lost, refusal)

    def _other_parameters(self) -> str:
        """Say which rank trains others than this one; empty: none that has come before."""
        store = presence.store_of_group()
        if store is None or self._alike:
            return ""
        mine, rank = self._parameters(), ranks.rank()
        theirs, _, other = presence.say(store, f"{self._name}/model", f"{mine} {rank}").partition(" ")
        if theirs != mine:
            return (
                f"rank {rank} trains other parameters than rank {other}, as the stages of a pipeline do: only ranks "
                "that hold one model, whole or in shards, can be recorded together"
            )
        self._alike = True
        return ""

    def _parameters(self) -> str:
        named = unwrap_model(self._model).named_parameters()
        return blake2b(str([(name, list(parameter.shape)) for name, parameter in named]).encode()).hexdigest()

    def _tell(self, state: State) -> None:
        self._state = state
        if not self.parted and (store := presence.store_of_group()) is not None:
            with suppress(dist.DistError):  # the store is gone, which the next meeting tells
                store.set(self._key(ranks.rank()), state.write())

    def _read(self, rank: int) -> State:
        store, key = presence.store_of_group(), self._key(rank)
        return State.read(store.get(key)) if store.check([key]) else State(0, 0, 0)

    def _key(self, rank: int) -> str:
        return f"{self._name}/{rank}"


class Patience:
    """With the ranks that have not come as far as this one: the next of them is looked at until it has."""

    def __init__(self, read: Callable[[int], State], mine: State) -> None:
        rank, size = ranks.rank(), ranks.world_size()
        self._read, self._mine, self._rank = read, mine, rank
        self._awaited = [(rank + further) % size for further in range(1, size)]
        self._before, self._since = (rank, mine), time.monotonic()
        self._said = False

    def lost(self) -> str:
        """Say why a rank is not waited for any longer; empty: it is."""
        while (seen := self._read(self._awaited[0]))[:2] >= self._mine[:2] and len(self._awaited) > 1:
            del self._awaited[0]
        other = self._awaited[0]
        if (other, seen) != self._before:
            self._before, self._since = (other, seen), time.monotonic()
        stands_s = time.monotonic() - self._since
        if not seen.step and not self._said and stands_s > UNHEARD_S:
            self._said = True
            warnings.warn(
                f"rank {self._rank} waits for rank {other}, which records nothing so far: all ranks must train and "
                "record (with `trainparity.record`: call it on each, before its first step)",
                stacklevel=2,
            )
        if seen.step == self._mine.step and seen.passes > self._mine.passes and stands_s > GRACE_S:
            return (
                f"rank {other} does not make the optimizer step that rank {self._rank} makes: it has begun "
                f"{seen.passes} forward passes since its last one, and rank {self._rank} {self._mine.passes}. Call "
                "optimizer.step(), and what clips gradients, on every rank"
            )
        if stands_s > presence.ABSENCE_S:
            return f"rank {other} has not come to the step that rank {self._rank} makes, for {stands_s:.0f} s"
        return ""
