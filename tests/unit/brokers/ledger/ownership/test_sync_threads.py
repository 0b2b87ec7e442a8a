"""Syncs of one takeover that are waited for at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from brokers.adapters.ledger.ownership.sync_threads import SyncThreads

WAIT_S = 30


@pytest.fixture
def threads() -> Iterator[SyncThreads]:
    threads = SyncThreads(2)
    yield threads
    threads.stop()


def test_steps_run_at_the_same_time(threads: SyncThreads) -> None:
    all_there = threading.Barrier(3)

    def meet() -> None:
        all_there.wait(WAIT_S)

    threads.together([meet] * 3)

    assert not all_there.broken


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_is_raised_once_every_step_has_ended(threads: SyncThreads, place: int) -> None:
    ended: list[int] = []
    may_end = threading.Event()

    def refuse() -> None:
        may_end.set()
        raise OSError("the disk refuses")

    def end(number: int) -> None:
        assert may_end.wait(WAIT_S)
        ended.append(number)

    steps = [partial(end, 0), partial(end, 1)]
    steps.insert(place, partial(refuse))

    with pytest.raises(OSError, match="refuses"):
        threads.together(steps)
    assert sorted(ended) == [0, 1]
