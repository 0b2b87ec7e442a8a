"""Brokers in one process whose shadows follow each other's sources, without sockets.

feeds = FeedWorld(world)
shadow = feeds.shadow("b", SOURCE, SHADOW)
await until(lambda: shadow.is_fed)
"""

from __future__ import annotations

from dataclasses import replace

from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.ledger import Entry, Extent
from brokers.ports.source_feed import SourceAway, SourceChange, SourceFollow, SourceState
from brokers.ports.source_stream import SourceStream
from brokers.service.feeds.source_feeds import OwnersSourceFeeds
from brokers.service.feeds.source_sessions import LocalSourceStream
from brokers.service.topics.topic import Topic
from nextgen.kernel.errors import ConnectionLost
from nextgen.kernel.routing.names import parse_topic
from nextgen.tasks.background import failures
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import BrokerWorld, FakeClient

SOURCE = "persistent://public/default/orders"
SHADOW = "persistent://public/default/orders-shadow"


class ShadowEnd:
    """A shadow's end of a feed. ``broken`` has the promises that the feed did not keep: an error
    that is raised in a call would only end the stream."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.ids: list[tuple[str, str]] = []
        self.states: list[SourceState] = []
        self.changes: list[SourceChange] = []
        self.aways: list[tuple[SourceAway, str]] = []
        self.extents: dict[int, Extent] = {}
        self.entries: list[Entry] = []
        """All that came as entries."""
        self.facts: dict[str, bytes] = {}
        self.is_fed = False
        self.follow: SourceFollow | None = None

    @property
    def last(self) -> Position:
        if not self.extents:
            return BEFORE_ALL
        extent = self.extents[max(self.extents)]
        return Position(extent.ledger_id, extent.entries - 1)

    @property
    def entry_count(self) -> int:
        return sum(extent.entries for extent in self.extents.values())

    def on_located(self, topic_id: str, unit: str) -> None:
        self.ids.append((topic_id, unit))

    def on_source(self, state: SourceState) -> None:
        known = self.last
        if self.states and self.states[-1].topic_id == state.topic_id:
            self._expect(state.epoch >= self.states[-1].epoch, "an earlier owner")
        self.states.append(state)
        self.extents = {extent.ledger_id: extent for extent in state.extents}
        self._expect(list(self.extents) == sorted(self.extents), "ledgers out of order")
        self._expect(self.last >= known, "an acknowledged entry is gone")
        self.facts = dict(state.facts)
        self.is_fed = True

    def on_change(self, change: SourceChange) -> None:
        self._expect(self.is_fed, "a change without a state before")
        before = self.last
        self.changes.append(change)
        for ledger_id in [each for each in self.extents if each < change.first_ledger_id]:
            del self.extents[ledger_id]
        for extent in change.extents:
            known = self.extents.get(extent.ledger_id)
            self._expect(known is None or extent.entries >= known.entries, "it shrank")
            self.extents[extent.ledger_id] = extent
        self._expect(self.last >= before, "the end went back")
        if change.entries:
            positions = [entry.position for entry in change.entries]
            self._expect(positions == sorted(positions), "entries out of order")
            self._expect(positions[0] > before, "it was sent before")
            self._expect(positions[-1] == self.last, "the entries do not end at the end")
            self.entries += change.entries
        if change.facts is not None:
            self.facts = dict(change.facts)

    def _expect(self, holds: bool, promise: str) -> None:
        if not holds:
            self.broken.append(promise)

    def on_away(self, reason: SourceAway, message: str) -> None:
        self.is_fed = False
        self.aways.append((reason, message))


class BreakableStream(SourceStream):
    """A stream to a broker of the same process, which can break as a broker's death breaks it."""

    def __init__(self, inner: SourceStream, feeds: FeedWorld, broker_id: str) -> None:
        self.inner = inner
        self.feeds = feeds
        self.broker_id = broker_id

    def send(self, request: object) -> None:
        self.inner.send(request)  # type: ignore[arg-type]

    async def run(self, take: object) -> None:
        if self.broker_id in self.feeds.dead:
            raise ConnectionLost(f"{self.broker_id} does not answer")
        await self.inner.run(take)  # type: ignore[arg-type]


class FeedWorld:
    """The feeds of each broker of a ``BrokerWorld``, and the lists of its sources."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.dead: set[str] = set()
        self.dialled: list[tuple[str, str, str]] = []
        """Each stream: from broker, to broker, in session."""
        self._feeds: dict[str, OwnersSourceFeeds] = {}
        self._ends: list[ShadowEnd] = []
        self._failures = failures.total()

    def feeds(self, broker_id: str) -> OwnersSourceFeeds:
        """Return the feeds of a broker with shadows."""

        def dial(to: str, session_id: str) -> SourceStream:
            self.dialled.append((broker_id, to, session_id))
            sessions = self.world.broker(to).front.sources
            return BreakableStream(LocalSourceStream(sessions, broker_id), self, to)

        if broker_id not in self._feeds:
            self._feeds[broker_id] = OwnersSourceFeeds(self.world.directory, dial)
        return self._feeds[broker_id]

    def shadow(self, broker_id: str, source: str = SOURCE, shadow: str = SHADOW) -> ShadowEnd:
        """Have a shadow at a broker follow a source."""
        end = ShadowEnd()
        self._ends.append(end)
        feeds = self.feeds(broker_id)
        end.follow = feeds.follow(parse_topic(source), parse_topic(shadow), end)
        return end

    def die(self, broker_id: str) -> None:
        """The process of a broker is gone: its streams break, and nobody reaches it."""
        self.dead.add(broker_id)
        for feeds in self._feeds.values():
            for (to, _), stream in list(feeds._streams.items()):
                if to == broker_id:
                    stream.end(SourceAway.LOST, "the connection broke")

    async def stop(self) -> None:
        """End all feeds, which must have kept their promises."""
        for feeds in self._feeds.values():
            await feeds.close()
        assert [promise for end in self._ends for promise in end.broken] == []
        assert failures.total() == self._failures, "a task has failed"


async def source_at(
    world: BrokerWorld, broker_id: str = "a", *shadows: str, name: str = SOURCE
) -> tuple[Topic, FakeClient]:
    """Return a source at a broker, which lists these shadows, and a client that may send to it."""
    world.assign(name, broker_id)
    client = world.broker(broker_id).client()
    await client.producer(name, producer_name="p")
    topic = world.broker(broker_id).topics.get(name)
    assert topic is not None
    list_shadows(topic, *shadows)
    return topic, client


def list_shadows(topic: Topic, *shadows: str) -> None:
    """Set the list of a source at its present owner."""
    topic.use_policy(replace(topic.policy, shadow_topics=shadows))


async def publish(client: FakeClient, begin: int, end: int, *, size: int = 10) -> None:
    """Send messages and return when they are acknowledged."""
    before = len(client.got(pulsar.BaseCommand.SEND_RECEIPT))
    for number in range(begin, end):
        client.send(number, b"x" * size)
    await client.receipts(before + end - begin)
