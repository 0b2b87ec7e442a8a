"""A terminated topic on a disk that loses power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.refusal import ServerError
from brokers.ports.ledger import NewEntry
from brokers.service.topics.operations import last_message
from brokers.service.topics.topic import Topic
from brokers.service.topics.unit import TopicDependencies, TopicUnit
from brokers.service.traffic import Latency, Traffic
from tests.support.brokers.world import POLICY
from tests.support.simulated.disk import SimDisk


async def opened_topic(ledger: Any, epoch: int) -> Topic:
    dependencies = TopicDependencies(
        policy=POLICY,
        traffic=Traffic(),
        append_latency=Latency(),
        make_name=lambda: "producer",
        now_ms=lambda: 0,
    )
    unit = TopicUnit("persistent://a/b/c", "topic", "", epoch, -1, is_persistent=True)
    topic = Topic(unit, ledger, dependencies, lambda *_: None)
    await topic.recover()
    return topic


async def successor_of(disk: SimDisk) -> tuple[bool, int]:
    """Have the next owner open what a loss of power would leave; return what it finds."""
    store = DiskLedgerStore(Path("/ledgers"), broker_id="b", storage=disk.durable_copy())
    try:
        ledger = await store.open("topic", "", 2, topic_name="persistent://a/b/c")
        topic = await opened_topic(ledger, 2)
        found = topic.is_terminated, ledger.entry_count
        refusal = topic._publishing.refusal
        assert (refusal is not None and refusal.code == ServerError.TOPIC_TERMINATED) == found[0]
        return found
    finally:
        await store.close()


async def test_a_loss_of_power_behind_the_answer_leaves_the_topic_terminated():
    disk = SimDisk()
    store = DiskLedgerStore(Path("/ledgers"), broker_id="a", storage=disk)
    ledger = await store.open("topic", "", 1, topic_name="persistent://a/b/c")
    topic = await opened_topic(ledger, 1)
    await ledger.append(NewEntry(b"x", 1, "p", 0))
    assert await successor_of(disk) == (False, 1), "nothing has ended yet"

    await topic.terminate()

    assert await successor_of(disk) == (True, 1)
    await store.close()


async def test_the_last_id_outlives_the_messages_and_a_loss_of_power():
    disk = SimDisk()
    store = DiskLedgerStore(Path("/ledgers"), broker_id="a", storage=disk)
    ledger = await store.open("topic", "", 1, topic_name="persistent://a/b/c")
    topic = await opened_topic(ledger, 1)
    for number in range(3):
        await ledger.append(NewEntry(b"x", 1, "p", number))
    await topic.terminate()
    await ledger.trim(ledger.last)

    last = (await last_message(topic))[0]

    for epoch in (2, 3):
        later = DiskLedgerStore(Path("/ledgers"), broker_id="b", storage=disk.durable_copy())
        try:
            reopened = await later.open("topic", "", epoch, topic_name="persistent://a/b/c")
            found = await opened_topic(reopened, epoch)
            assert found.is_terminated
            assert (await last_message(found))[0] == last
        finally:
            await later.close()
    await store.close()
