"""Which ranks take part, told by the process group's store: none enters a collective that another one leaves out."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from trainparity.parity.recording import ranks
from trainparity.parity.recording.destruction import call_before_destruction, call_no_more
from trainparity.records.numbers import counted

ABSENCE_S = 600.0
"""How long a rank is waited for that shows no sign of its training: it may validate, or wait for others elsewhere."""

_GO = "go"
_LEFT = "trainparity/left"
_ENDED = "has ended its training, or left the process group"


class RanksPart(RuntimeError):
    """Ranks make no more steps together: the training goes on, and its recording does not."""


class Presence:
    """Of what all ranks do together again and again: they come, or one that can't says why."""

    def __init__(self, name: str) -> None:
        """Every rank must make one of this name."""
        self._name, self._came = name, 0
        self._world_size = 0
        call_before_destruction(self.leave)

    def leave(self, why: str = "") -> None:
        """Tell the others, if any wait for this rank now or later, that it comes no more."""
        call_no_more(self.leave)
        if (store := store_of_group()) is not None:
            say(store, self._over, why or f"rank {ranks.rank()} {_ENDED}")

    def come(self, lost: Callable[[], str], refusal: str = "") -> None:
        """Wait until every rank has come here as often as this one; all of them then go on, or none does.

        Args:
            lost: Asked while others are missing: why to wait no longer; empty: wait.
            refusal: Why this rank can't go on with the others; empty: it can.

        Raises:
            RanksPart: A rank is gone or refuses, or the group has other ranks than before.
        """
        self._compare_world_size()
        store = store_of_group()
        if store is None:
            return
        self._came += 1
        try:
            decision = self._decided(store, lost, refusal)
        except dist.DistError as error:  # the rank that keeps the store has ended
            raise RanksPart(f"the process group's store is gone: {str(error).splitlines()[0]}") from None
        if decision != _GO:
            raise RanksPart(decision)

    def _decided(self, store: Any, lost: Callable[[], str], refusal: str) -> str:
        """Return what the first rank to decide has said: that all go on, or why none does."""
        here, pause = self._place(self._came), 0.0002
        if refusal:
            self._give_up(store, here, refusal)
        elif store.add(f"{here}/ranks", 1) == ranks.world_size():
            say(store, here, _GO)
        while not store.check([here]):
            if why := _said(store, self._over) or _said(store, _LEFT) or lost():
                self._give_up(store, here, why)
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        if self._came > 1 and ranks.rank() == 0:  # all have read what was decided the last time
            last = self._place(self._came - 1)
            store.delete_key(last)
            store.delete_key(f"{last}/ranks")
        return str(store.get(here).decode())

    def _give_up(self, store: Any, here: str, why: str) -> None:
        if say(store, here, why) != _GO:
            say(store, self._over, why)

    def _compare_world_size(self) -> None:
        here = ranks.world_size()
        self._world_size = self._world_size or here
        if here != self._world_size:
            raise RanksPart(
                f"another process group is there, or none: {counted(self._world_size, 'rank')} before, now {here}"
            )

    def _place(self, number: int) -> str:
        return f"{self._name}/coming-{number}"

    @property
    def _over(self) -> str:
        return f"{self._name}/over"


def leave(records: bool) -> None:
    """Tell the other ranks that this process ends; `records`: it has recorded what it trained."""
    if (store := store_of_group()) is not None:
        nothing = "records nothing: only runs whose ranks all train can be recorded"
        say(store, _LEFT, f"rank {ranks.rank()} {_ENDED if records else nothing}")


def for_at_most(seconds: float) -> Callable[[], str]:
    """Return what is asked while ranks are missing, and gives them so long."""
    end = time.monotonic() + seconds
    return lambda: f"not all ranks came within {seconds:.0f} s" if time.monotonic() > end else ""


def store_of_group() -> Any:
    """Return the process group's store; None without another rank."""
    return dist.distributed_c10d._get_default_store() if ranks.world_size() > 1 else None


def say(store: Any, key: str, text: str) -> str:
    """Write something unless another rank has; return what is there, empty if the store is gone."""
    with suppress(dist.DistError):
        return str(store.compare_set(key, "", text).decode())
    return ""


def _said(store: Any, key: str) -> str:
    return str(store.get(key).decode()) if store.check([key]) else ""
