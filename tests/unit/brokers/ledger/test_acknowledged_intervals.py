"""What owners on one disk say of when they acknowledged, as an auditor judges it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.ports.ledger import Fenced, NewEntry
from nextgen.audit.interval_check import AcknowledgedInterval, Grant
from tests.support.history.intervals import check_intervals

TOPIC_ID = "0000000000000001"


def entry(sequence_id: int) -> NewEntry:
    return NewEntry(b"payload", 1, "producer", sequence_id)


def told(store, broker_id):
    return [
        AcknowledgedInterval(
            broker_id, each.topic, *each.key, each.first_ns, each.last_ns, each.entries
        )
        for each in store.acknowledgements
    ]


@pytest.fixture
async def stores(tmp_path: Path):
    made = [DiskLedgerStore(tmp_path, broker_id=broker_id) for broker_id in ("a", "b")]
    yield made
    for store in made:
        await store.close()


def opened(store, epoch):
    return store.open(TOPIC_ID, "", epoch, topic_name="t")


async def test_acknowledged_messages_lie_within_the_reported_interval(stores):
    store, _ = stores
    ledger = await opened(store, 1)
    assert told(store, "a") == []
    began_ns = time.time_ns()

    await asyncio.gather(*(ledger.append(entry(number)) for number in range(3)))

    (interval,) = told(store, "a")
    assert began_ns <= interval.first_ns <= interval.last_ns <= time.time_ns()
    assert (interval.topic, interval.epoch, interval.acknowledged) == ("t", 1, 3)


async def test_facts_alone_are_no_acknowledgements(stores):
    store, _ = stores
    ledger = await opened(store, 1)

    await ledger.put_state("cursor/s", b"value")

    assert told(store, "a") == []


async def test_a_closed_unit_is_still_reported(stores):
    store, _ = stores
    ledger = await opened(store, 1)
    await ledger.append(entry(0))

    await ledger.close()

    assert [each.acknowledged for each in told(store, "a")] == [1]


async def test_owners_that_fence_each_other_under_load_never_overlap(stores):
    epochs, ended = range(1, 13), []

    async def produce(epoch):
        ledger = await opened(stores[epoch % 2], epoch)
        number = 0
        try:
            while True:
                await ledger.append(entry(number))
                number += 1
                started[epoch].set()
        except Fenced:
            ended.append(epoch)

    started = {epoch: asyncio.Event() for epoch in epochs}
    tasks = []
    for epoch in epochs:
        tasks.append(asyncio.create_task(produce(epoch)))
        await started[epoch].wait()
    last = tasks.pop()
    # Somebody has to look for the fence: whoever appends does.
    await asyncio.gather(*tasks)
    last.cancel()

    intervals = [*told(stores[0], "a"), *told(stores[1], "b")]
    grants = [Grant(TOPIC_ID, "", epoch, "ab"[epoch % 2], f"1:{epoch}") for epoch in epochs]
    assert sorted(ended) == list(epochs[:-1])
    assert sorted(each.epoch for each in intervals) == list(epochs)
    assert list(check_intervals(intervals, grants, tolerance_ns=0)) == []


async def test_an_owner_that_does_not_look_for_fences_is_found(stores, monkeypatch):
    """The check is no use if it is blind: break the rule, and it must say so."""
    first = await opened(stores[0], 1)
    await first.append(entry(0))
    monkeypatch.setattr(first._queue.files, "is_fenced", lambda: False)
    second = await opened(stores[1], 2)
    await second.append(entry(0))
    await first.append(entry(1))

    intervals = [*told(stores[0], "a"), *told(stores[1], "b")]
    grants = [Grant(TOPIC_ID, "", epoch, "xab"[epoch], f"1:{epoch}") for epoch in (1, 2)]
    findings = list(check_intervals(intervals, grants))

    assert len(findings) == 1
    assert "broker a under epoch 1 until" in findings[0].message
