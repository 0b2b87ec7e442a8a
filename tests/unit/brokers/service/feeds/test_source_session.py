"""A source's end of a stream: what shadows are sent, in what order, and what ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from brokers.domain.position import Position
from brokers.ports.source_feed import SourceAway
from brokers.ports.source_stream import (
    FeedCredit,
    FollowSource,
    ShadowReport,
    SourceChanged,
    SourceFed,
    SourceLeft,
    UnfollowSource,
)
from brokers.service.feeds.source_session import SourceSession
from brokers.service.feeds.source_sessions import SourceSessions
from nextgen.kernel.errors import InvalidRequest, Overloaded
from nextgen.kernel.limits import shadow as limits
from nextgen.tasks import background
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.feed_world import SHADOW, SOURCE, list_shadows, publish, source_at
from tests.support.brokers.world import BrokerWorld, settle

OTHER = f"{SHADOW}-2"


class Stream:
    """The other end of a session."""

    def __init__(self, world: BrokerWorld, *, credit: int = limits.FEED_CREDIT_BYTES) -> None:
        self.session = SourceSession(world.broker("a").topics, "b")
        self.updates: list[Any] = []
        if credit:
            self.session.take(FeedCredit(credit))

    def follow(self, *shadows: str, feed_id: int = 1, source: str = SOURCE) -> None:
        for shadow in shadows:
            self.session.take(FollowSource(feed_id, source, shadow))

    async def new(self) -> list[Any]:
        """Return what is sent now."""
        await settle()
        found = []
        while updates := self.session.updates():
            found += updates
        return found


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


async def test_a_listed_shadow_gets_the_state_and_then_what_is_new(world: BrokerWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW)
    await publish(client, 0, 3)
    stream = Stream(world)
    stream.follow(SHADOW)

    (fed,) = await stream.new()
    assert isinstance(fed, SourceFed)
    assert (fed.feed_id, list(fed.shadows)) == (1, [SHADOW])
    assert (fed.state.topic_id, fed.state.unit, fed.state.epoch) == (
        topic.unit.topic_id,
        "",
        topic.unit.epoch,
    )
    assert fed.state.extents == topic.ledger.extents
    assert await stream.new() == []
    await publish(client, 3, 5)
    changes = [update.change for update in await stream.new()]

    entries = [entry for change in changes for entry in change.entries]
    assert entries == await topic.ledger.read(
        Position(fed.state.extents[-1].ledger_id, 2), entries_max=9, bytes_max=10**6
    )
    assert changes[-1].extents == topic.ledger.extents


async def test_nothing_is_sent_before_it_is_acknowledged(world: BrokerWorld) -> None:
    _, client = await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()
    ledger = world.broker("a").ledger(SOURCE)
    ledger.is_holding = True

    client.send(0)
    assert await stream.new() == []
    ledger.is_holding = False
    ledger.release()

    (changed,) = await stream.new()
    assert len(changed.change.entries) == 1


async def test_a_shadow_that_is_not_listed_is_told_so_and_fed_once_it_is(
    world: BrokerWorld,
) -> None:
    topic, client = await source_at(world, "a", OTHER)
    stream = Stream(world)
    stream.follow(SHADOW, OTHER)

    left, fed = await stream.new()
    assert (left.shadows, left.reason) == ([SHADOW], SourceAway.UNLISTED)
    assert list(fed.shadows) == [OTHER]
    list_shadows(topic, OTHER, SHADOW)
    (fed,) = await stream.new()
    assert list(fed.shadows) == [SHADOW]
    list_shadows(topic, SHADOW)
    await publish(client, 0, 1)
    left, changed = await stream.new()

    assert (left.shadows, left.reason) == ([OTHER], SourceAway.UNLISTED)
    assert isinstance(changed, SourceChanged), "for the other one"
    list_shadows(topic)
    (left,) = await stream.new()
    assert left.shadows == [SHADOW]
    await publish(client, 1, 2)
    assert await stream.new() == []


async def test_a_shadow_that_comes_later_gets_the_state_after_what_the_others_lack(
    world: BrokerWorld,
) -> None:
    topic, client = await source_at(world, "a", SHADOW, OTHER)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()
    await publish(client, 0, 2)
    stream.follow(OTHER)

    changed, fed = await stream.new()

    assert changed.change.extents == fed.state.extents == topic.ledger.extents
    assert list(fed.shadows) == [OTHER]


async def test_a_shadow_that_follows_again_gets_the_state_again(world: BrokerWorld) -> None:
    await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()

    stream.follow(SHADOW)

    (fed,) = await stream.new()
    assert list(fed.shadows) == [SHADOW]


async def test_a_large_entry_is_announced_and_those_behind_it_are_sent(world: BrokerWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()
    ledger = world.broker("a").ledger(SOURCE)
    ledger.is_holding = True
    overhead = await payload_overhead(world)

    client.send(0)
    client.send(1, b"x" * (limits.FED_ENTRY_BYTES_MAX - overhead))
    client.send(2, b"x" * (limits.FED_ENTRY_BYTES_MAX + 1 - overhead))
    client.send(3, b"x" * (limits.FED_ENTRY_BYTES_MAX - overhead))
    client.send(4)
    ledger.is_holding = False
    ledger.release()
    changes = [update.change for update in await stream.new()]

    assert changes[-1].extents == topic.ledger.extents
    assert [entry.sequence_id for entry in changes[-1].entries] == [3, 4]
    sizes = [len(entry.payload) for entry in changes[-1].entries]
    assert sizes[0] == limits.FED_ENTRY_BYTES_MAX


async def payload_overhead(world: BrokerWorld) -> int:
    """Return what a message has beside its body. Sequence ids below 128 make no difference."""
    client = world.broker("a").client()
    other = f"{SOURCE}-measured"
    world.assign(other, "a")
    await client.producer(other, producer_name="p")
    client.send(1, b"x" * limits.FED_ENTRY_BYTES_MAX)
    await client.receipts(1)
    (entry,) = world.broker("a").ledger(other).appended
    return len(entry.payload) - limits.FED_ENTRY_BYTES_MAX


async def test_without_credit_only_positions_are_sent(world: BrokerWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW)
    stream = Stream(world, credit=0)
    stream.follow(SHADOW)
    await stream.new()

    await publish(client, 0, 1)
    (changed,) = await stream.new()
    assert not changed.change.entries
    assert changed.change.extents == topic.ledger.extents
    stream.session.take(FeedCredit(1))
    await publish(client, 1, 2)
    (changed,) = await stream.new()
    assert not changed.change.entries, "one byte is not enough"
    stream.session.take(FeedCredit(1_000))
    await publish(client, 2, 3)
    (changed,) = await stream.new()

    assert [entry.sequence_id for entry in changed.change.entries] == [2]


async def test_credit_is_used_up_by_what_is_sent(world: BrokerWorld) -> None:
    _, client = await source_at(world, "a", SHADOW)
    stream = Stream(world, credit=1_500)
    stream.follow(SHADOW)
    await stream.new()

    counts = []
    for number in range(3):
        await publish(client, number, number + 1, size=600)
        (changed,) = await stream.new()
        counts.append(len(changed.change.entries))

    assert counts == [1, 1, 0]


async def test_credit_beyond_its_limit_counts_as_the_limit(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED_CREDIT_BYTES, whatever the other broker says: a slow one is not sent more."""
    monkeypatch.setattr("brokers.service.feeds.source_session.FEED_CREDIT_BYTES", 1_500)
    _, client = await source_at(world, "a", SHADOW)
    stream = Stream(world, credit=1_500)
    stream.session.take(FeedCredit(2**60))
    stream.follow(SHADOW)
    await stream.new()

    counts = []
    for number in range(3):
        await publish(client, number, number + 1, size=600)
        (changed,) = await stream.new()
        counts.append(len(changed.change.entries))

    assert counts == [1, 1, 0]


async def test_much_at_a_time_is_announced_and_not_sent(world: BrokerWorld) -> None:
    """More than FED_BYTES_MAX, or FED_ENTRIES_MAX, in one change."""
    topic, client = await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()
    size = limits.FED_ENTRY_BYTES_MAX // 2
    fitting = limits.FED_BYTES_MAX // size - 1
    ledger = world.broker("a").ledger(SOURCE)

    sent = []
    for number, count in enumerate((fitting, fitting + 1)):
        ledger.is_holding = True
        for each in range(count):
            client.send(number * 100 + each, b"x" * size)
        ledger.is_holding = False
        ledger.release()
        sent.append([len(update.change.entries) for update in await stream.new()])

    assert sent == [[fitting], [0]]
    assert topic.ledger.entry_count == 2 * fitting + 1


async def test_many_entries_at_a_time_are_announced_and_not_sent(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.service.feeds.source_session.FED_ENTRIES_MAX", 3)
    _, client = await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()
    ledger = world.broker("a").ledger(SOURCE)

    sent = []
    for number, count in enumerate((3, 4)):
        ledger.is_holding = True
        for each in range(count):
            client.send(number * 100 + each)
        ledger.is_holding = False
        ledger.release()
        sent.append([len(update.change.entries) for update in await stream.new()])

    assert sent == [[3], [0]]


async def test_sources_with_many_entries_are_sent_in_turns(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.service.feeds.source_session.FED_ENTRIES_MAX", 4)
    stream = Stream(world)
    clients = []
    for number in range(3):
        name = f"{SOURCE}-{number}"
        clients.append((await source_at(world, "a", SHADOW, name=name))[1])
        stream.follow(SHADOW, feed_id=number + 1, source=name)
    await stream.new()

    for client in clients:
        await publish(client, 0, 2)
    await settle()

    turns = [[update.feed_id for update in stream.session.updates()] for _ in range(3)]
    assert turns == [[1, 2], [3], []]


async def test_schemas_and_the_end_of_the_source_are_sent_as_facts(world: BrokerWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW)
    schema = pulsar.Schema(name="s", type=pulsar.Schema.String, schema_data=b"")
    stream = Stream(world)
    stream.follow(SHADOW)
    (fed,) = await stream.new()
    assert fed.state.facts == {}

    await client.producer(SOURCE, producer_id=1, schema=schema)
    (changed,) = await stream.new()
    assert list(changed.change.facts) == ["schema/0"]
    await publish(client, 0, 1)
    (changed,) = await stream.new()
    assert changed.change.facts is None, "they did not change"
    await topic.terminate()
    (changed,) = await stream.new()

    assert sorted(changed.change.facts) == ["schema/0", "terminated"]
    assert not changed.change.extents


async def test_ledgers_that_are_dropped_are_told(world: BrokerWorld) -> None:
    world.broker("a").store.segment_bytes = 1
    topic, client = await source_at(world, "a", SHADOW)
    await publish(client, 0, 4)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()

    await topic.ledger.trim(topic.ledger.last)
    topic.followers.changed()

    (changed,) = await stream.new()
    assert changed.change.first_ledger_id == topic.ledger.first.ledger_id
    assert not changed.change.extents


async def test_what_was_acknowledged_is_sent_before_the_source_leaves(world: BrokerWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()
    await publish(client, 0, 2)

    world.move(SOURCE, world.broker("b").broker_id)
    changed, left = await stream.new()

    assert changed.change.extents == topic.ledger.extents
    assert (left.shadows, left.reason) == ((), SourceAway.MOVED)
    assert len(stream.session) == 0
    assert not topic.followers


async def test_a_source_that_is_not_here_or_nowhere_is_left_at_once(world: BrokerWorld) -> None:
    world.broker("a")
    world.assign(SOURCE, "b")
    stream = Stream(world)
    stream.follow(SHADOW)
    stream.follow(SHADOW, feed_id=2, source=f"{SOURCE}-absent")

    updates = await stream.new()

    reasons = {left.feed_id: left.reason for left in updates if isinstance(left, SourceLeft)}
    assert reasons == {1: SourceAway.MOVED, 2: SourceAway.ABSENT}


async def test_a_source_that_begins_to_close_while_it_is_opened_is_left(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, _ = await source_at(world, "a", SHADOW)

    async def opened(*_: Any, **__: Any) -> Any:
        topic.is_closing = True
        return topic

    monkeypatch.setattr(world.broker("a").topics, "open", opened)
    stream = Stream(world)
    stream.follow(SHADOW)

    (left,) = await stream.new()
    assert left.reason is SourceAway.MOVED
    assert len(topic.followers) == 0
    topic.is_closing = False


async def test_a_source_whose_opening_fails_by_a_mistake_is_left(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(world.broker("a").topics, "open", fails)
    stream = Stream(world)
    stream.follow(SHADOW)

    (left,) = await stream.new()

    assert left == SourceLeft(1, (), SourceAway.MOVED, "RuntimeError('a mistake')")
    assert len(stream.session) == 0
    background.failures.clear()  # It was made here.


async def test_reports_of_fed_shadows_reach_the_topic(world: BrokerWorld) -> None:
    topic, _ = await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW, OTHER)
    stream.session.take(ShadowReport(1, SHADOW, Position(1, 1)))
    assert topic.shadows.of(SHADOW) is None, "it is not fed yet"
    await stream.new()

    stream.session.take(ShadowReport(1, SHADOW, Position(1, 2)))
    stream.session.take(ShadowReport(1, OTHER, Position(1, 2)))
    stream.session.take(ShadowReport(7, SHADOW, Position(1, 3)))

    assert topic.shadows.of(SHADOW) == Position(1, 2)
    assert topic.shadows.of(OTHER) is None


async def test_a_topic_knows_which_shadows_are_fed_and_what_they_got(world: BrokerWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW, OTHER)
    stream = Stream(world)
    stream.follow(SHADOW)
    await stream.new()
    await publish(client, 0, 2)
    await stream.new()
    stream.follow(OTHER)
    await stream.new()
    await publish(client, 2, 3)
    await stream.new()

    feeds = {feed.shadow: feed for feed in topic.followers.feeds}

    assert {name: feed.entries_out for name, feed in feeds.items()} == {SHADOW: 3, OTHER: 1}
    assert feeds[SHADOW].broker_id == "b"
    assert feeds[SHADOW].bytes_out == 3 * feeds[OTHER].bytes_out > 0
    assert feeds[OTHER].connected_since_ms == world.wall_clock_ms


async def test_what_nobody_follows_any_more_is_let_go(world: BrokerWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW, OTHER)
    stream = Stream(world)
    stream.follow(SHADOW, OTHER)
    await stream.new()

    stream.session.take(UnfollowSource(1, OTHER))
    assert [feed.shadow for feed in topic.followers.feeds] == [SHADOW]
    stream.session.take(UnfollowSource(1, SHADOW))
    assert (len(stream.session), len(topic.followers)) == (0, 0)
    stream.session.take(UnfollowSource(1))
    await publish(client, 0, 1)

    assert await stream.new() == []


async def test_a_stream_that_ends_lets_go_of_everything(world: BrokerWorld) -> None:
    topic, _ = await source_at(world, "a", SHADOW)
    sessions = SourceSessions(world.broker("a").topics)
    with sessions.opened("b") as session:
        session.take(FollowSource(1, SOURCE, SHADOW))
        session.take(FollowSource(2, f"{SOURCE}-later", SHADOW))
        await settle()
        assert (sessions.stream_count, sessions.source_count) == (1, 2)
        assert len(topic.followers) == 1

    assert (sessions.stream_count, sessions.source_count) == (0, 0)
    assert len(topic.followers) == 0


async def test_streams_have_a_limit(world: BrokerWorld) -> None:
    """FEED_STREAMS_MAX."""
    sessions = SourceSessions(world.broker("a").topics, streams_max=1)

    with sessions.opened("b"), pytest.raises(Overloaded), sessions.opened("c"):
        raise AssertionError("it was opened")
    with sessions.opened("c"):
        assert sessions.stream_count == 1


async def test_sources_of_a_stream_and_shadows_of_a_source_have_limits(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED_SOURCES_MAX, and SHADOWS_PER_TOPIC_MAX as for a list."""
    monkeypatch.setattr("brokers.service.feeds.source_session.FEED_SOURCES_MAX", 2)
    monkeypatch.setattr("brokers.service.feeds.source_session.SHADOWS_PER_TOPIC_MAX", 2)
    stream = Stream(world)
    stream.follow(SHADOW, OTHER)
    stream.follow(SHADOW, feed_id=2, source=f"{SOURCE}-2")

    with pytest.raises(InvalidRequest):
        stream.follow(SHADOW, feed_id=3, source=f"{SOURCE}-3")
    with pytest.raises(InvalidRequest):
        stream.follow(f"{SHADOW}-3")
    stream.follow(OTHER)
    stream.session.close()


@pytest.mark.parametrize(
    ("source", "shadow"),
    [
        ("persistent://t", SHADOW),
        (SOURCE, ""),
        ("non-persistent://t/ns/x", SHADOW),
        (SOURCE, "non-persistent://t/ns/x"),
        ("topic://t/ns/x", SHADOW),
        (f"{SOURCE}-partition-1", SHADOW),
        (f"{SOURCE}-partition-1", f"{SHADOW}-partition-2"),
    ],
)
async def test_nonsense_ends_the_stream(world: BrokerWorld, source: str, shadow: str) -> None:
    stream = Stream(world)

    with pytest.raises(InvalidRequest):
        stream.follow(shadow, source=source)

    assert len(stream.session) == 0


async def test_a_number_stands_for_one_source(world: BrokerWorld) -> None:
    await source_at(world, "a", SHADOW)
    stream = Stream(world)
    stream.follow(SHADOW)

    with pytest.raises(InvalidRequest):
        stream.follow(SHADOW, source=f"{SOURCE}-2")
    await stream.new()
