"""A source topic at one broker and a shadow of it at another: no sockets, no disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brokers.adapters.ledger.memory_ledger import MemoryLedgers, MemoryReader
from brokers.adapters.ledger.shadow_ledger import FedLedgers
from brokers.domain.topic_facts import source_facts
from brokers.ports.ledger import Extent
from brokers.ports.source_feed import SourceChange, SourceState
from brokers.service.topics.shadow import Shadow
from brokers.service.topics.topic import Topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.fake_feeds import FakeFeeds
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle, topic_id_of

SHADOW = f"{TOPIC}-shadow"
EARLIEST = {"initialPosition": pulsar.CommandSubscribe.Earliest}


class MemoryFeedReader(MemoryReader):
    """Shows of a unit in memory what was announced, as a ``FeedReader`` does of files."""

    def __init__(self, source: Any) -> None:
        super().__init__(type(source)(MemoryLedgers()))
        self._source = source
        self._announced: dict[int, int] = {}
        """Number of entries by ledger."""

    @property
    def last_time_ms(self) -> int:
        return int(self._unit.last_time_ms)

    def replace(self, extents: Sequence[Extent], first_ledger_id: int) -> None:
        self._show(first_ledger_id, extents)

    def change(self, change: SourceChange) -> None:
        self._show(change.first_ledger_id, change.extents)

    def close(self) -> None:
        """Nothing is kept."""

    def _show(self, first_ledger_id: int, extents: Sequence[Extent]) -> None:
        announced = self._announced
        for ledger_id in [each for each in announced if each < first_ledger_id]:
            del announced[ledger_id]
        for each in extents:
            announced[each.ledger_id] = max(each.entries, announced.get(each.ledger_id, 0))
        self._unit.drop(len(self._unit.entries))
        for entry in self._source.entries:
            ledger_id, entry_id = entry.position
            if entry_id < announced.get(ledger_id, 0):
                self._unit.add(entry)


class MemorySources:
    """Units in memory as the sources of shadows."""

    def __init__(self, disk: MemoryLedgers) -> None:
        self._disk = disk

    def feed_reader(self, topic_id: str, unit: str) -> Any:
        return MemoryFeedReader(self._disk.units[topic_id, unit])

    async def look(self, topic_id: str, unit: str) -> SourceState | None:
        stored = self._disk.units[topic_id, unit]
        reader = MemoryReader(stored)
        return SourceState(topic_id, unit, 0, reader.extents, source_facts(stored.state))


class ShadowWorld(BrokerWorld):
    """Broker ``a`` has the source, broker ``b`` the shadow. ``publish`` sends to both."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.feeds = FakeFeeds(topic_id_of(TOPIC))
        self.shadows_of = lambda _: FedLedgers(MemorySources(self.disk), self.feeds)
        self._published = 0

    async def begin(self) -> None:
        """Open the source, and let it have a producer; create the shadow."""
        self.assign(TOPIC, "a")
        self.producer = self.broker("a").client()
        await self.producer.producer(producer_name="p")
        ledger: Any = self.broker("a").ledger(TOPIC)
        self.feeds.ledger = ledger
        ledger.on_appended(self._send)
        self.assign(SHADOW, "b", properties={SHADOW_SOURCE_PROPERTY: TOPIC})

    @property
    def source(self) -> Topic:
        topic = self.broker("a").topics.get(TOPIC)
        assert topic is not None
        return topic

    @property
    def topic(self) -> Topic:
        topic = self.broker("b").topics.get(SHADOW)
        assert topic is not None
        return topic

    @property
    def shadow(self) -> Shadow:
        shadow = self.topic.as_shadow
        assert shadow is not None
        return shadow

    def client(self) -> FakeClient:
        return self.broker("b").client()

    async def publish(self, count: int, *, size: int = 1) -> list[tuple[int, int]]:
        """Publish at the source; return the positions."""
        before = self._published
        for _ in range(count):
            self.producer.send(self._published, b"x" * size)
            self._published += 1
        receipts = await self.producer.receipts(self._published)
        await settle()
        return [(ledger, entry) for _, ledger, entry in receipts[before:]]

    def _send(self) -> None:
        self.feeds.send()
