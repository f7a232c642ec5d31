"""Ranks that come, leave, or never come."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import local

import pytest
import torch.distributed as dist

from trainparity.parity.recording import presence, ranks
from trainparity.parity.recording.presence import Presence, RanksPart

Together = Callable[..., list[str]]


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Together:
    """Return a function that lets ranks, as threads, do something each, and returns why each one's coming ended."""
    store, current = dist.HashStore(), local()
    monkeypatch.setattr(presence, "store_of_group", lambda: store)
    monkeypatch.setattr(ranks, "rank", lambda: current.rank)

    def run(*works: Callable[[], object]) -> list[str]:
        monkeypatch.setattr(ranks, "world_size", lambda: len(works))

        def work(rank: int) -> str:
            current.rank = rank
            try:
                works[rank]()
            except RanksPart as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(len(works)) as pool:
            return list(pool.map(work, range(len(works))))

    return run


def _comes(times: int) -> Callable[[], None]:
    def come() -> None:
        mine = Presence("here")
        for _ in range(times):
            mine.come(presence.for_at_most(20))
        mine.leave()

    return come


def test_ranks_that_come_as_often_go_on(together: Together) -> None:
    assert together(_comes(5), _comes(5), _comes(5)) == ["", "", ""]


def test_a_rank_that_ends_earlier_is_not_waited_for(together: Together) -> None:
    assert together(_comes(5), _comes(3)) == ["rank 1 has ended its training, or left the process group", ""]


def test_no_rank_goes_on_without_one_that_never_comes(together: Together) -> None:
    said = together(_comes(5), _comes(5), lambda: presence.leave(records=False))
    assert said[:2] == ["rank 2 records nothing: only runs whose ranks all train can be recorded"] * 2


def test_all_hear_of_one_that_refuses(together: Together) -> None:
    assert together(_comes(1), lambda: Presence("here").come(str, "it can't")) == ["it can't"] * 2


def test_a_rank_that_has_waited_for_too_long_ends_it_for_those_that_come_later(together: Together) -> None:
    assert together(lambda: Presence("here").come(presence.for_at_most(0)), lambda: None)[0].startswith("not all ranks")
    assert together(lambda: None, _comes(1))[1].startswith("not all ranks")


def test_another_number_of_ranks_is_noticed(together: Together) -> None:
    mine = Presence("here")
    assert together(lambda: mine.come(str)) == [""]
    assert "1 rank before, now 2" in together(lambda: mine.come(str), lambda: None)[0]
