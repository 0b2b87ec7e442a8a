"""A shadow's end of its feed: it finds its source's owner again, whatever happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from brokers.domain.position import Position
from brokers.ports.source_feed import SourceAway
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits import shadow as limits
from nextgen.kernel.limits.cluster import TASK_RESTART_MS_MIN
from nextgen.tasks.background import failures
from tests.support.brokers.feed_world import (
    SHADOW,
    SOURCE,
    FeedWorld,
    ShadowEnd,
    list_shadows,
    publish,
    source_at,
)
from tests.support.brokers.world import BrokerWorld, settle, topic_id_of, until
from tests.support.processes.kept_tasks import break_kept, has_begun_again

OTHER = f"{SHADOW}-2"


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


@pytest.fixture
async def feeds(world: BrokerWorld) -> AsyncIterator[FeedWorld]:
    feeds = FeedWorld(world)
    yield feeds
    await feeds.stop()


def reasons(shadow: ShadowEnd) -> list[SourceAway]:
    return [reason for reason, _ in shadow.aways]


async def test_a_shadow_is_fed_from_another_broker(world: BrokerWorld, feeds: FeedWorld) -> None:
    topic, client = await source_at(world, "a", SHADOW)
    await publish(client, 0, 3)

    shadow = feeds.shadow("b")
    assert (shadow.ids, shadow.states, shadow.aways) == ([], [], []), "nothing inside the call"
    await until(lambda: shadow.is_fed)
    await publish(client, 3, 6)
    await until(lambda: shadow.entry_count == 6)

    assert shadow.ids == [(topic_id_of(SOURCE), "")]
    assert list(shadow.extents.values()) == topic.ledger.extents
    assert [entry.sequence_id for entry in shadow.entries] == [3, 4, 5]
    assert shadow.aways == []


async def test_a_source_is_followed_again_after_the_task_for_it_ended(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    _, client = await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)

    broken = break_kept("source_feed")
    await asyncio.sleep(2 * TASK_RESTART_MS_MIN / 1_000)
    assert has_begun_again("source_feed", broken)
    await until(lambda: shadow.is_fed)
    failures["source_feed"] -= len(broken)  # They were made here.

    await publish(client, 0, 3)
    await until(lambda: shadow.entry_count == 3)


async def test_shadows_of_one_source_share_what_is_sent_and_one_stream(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    _, client = await source_at(world, "a", SHADOW, OTHER)
    shadows = [feeds.shadow("b"), feeds.shadow("b", shadow=OTHER)]
    await until(lambda: all(each.is_fed for each in shadows))
    await source_at(world, "a", SHADOW, name=f"{SOURCE}-2")
    shadows.append(feeds.shadow("b", f"{SOURCE}-2"))
    await until(lambda: shadows[2].is_fed)

    await publish(client, 0, 1)
    await until(lambda: shadows[0].entries and shadows[1].entries)

    assert shadows[0].changes[0] is shadows[1].changes[0]
    assert shadows[2].changes == []
    assert len(feeds.dialled) == 1
    assert (feeds.feeds("b").source_count, feeds.feeds("b").stream_count) == (2, 1)


async def test_a_shadow_that_comes_later_learns_the_ids_and_the_state(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    await source_at(world, "a", SHADOW, OTHER)
    first = feeds.shadow("b")
    await until(lambda: first.is_fed)

    later = feeds.shadow("b", shadow=OTHER)
    assert later.ids == []
    await until(lambda: later.is_fed)

    assert later.ids == first.ids
    assert later.states == first.states
    assert len(first.states) == 1


async def test_a_source_that_moves_is_followed_and_nothing_is_lost(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    _, client = await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    await publish(client, 0, 3)
    world.broker("c")

    world.move(SOURCE, "c")
    moved = world.broker("c").client()
    await moved.producer(SOURCE, producer_name="p")
    topic = world.broker("c").topics.get(SOURCE)
    assert topic is not None
    list_shadows(topic, SHADOW)
    await until_fed(shadow, 2)
    await publish(moved, 3, 6)
    await until(lambda: shadow.entry_count == 6)

    assert reasons(shadow)[0] is SourceAway.MOVED
    assert list(shadow.extents.values()) == topic.ledger.extents
    assert [state.epoch for state in shadow.states] == [1, 2]


async def until_fed(shadow: ShadowEnd, states: int = 1) -> None:
    """Return when a shadow has been fed so many times. Pauses of the feed take no time here."""
    for _ in range(1_000):
        if shadow.is_fed and len(shadow.states) >= states:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is not fed")


async def test_a_source_whose_broker_dies_is_found_at_the_next_one(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    _, client = await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    await publish(client, 0, 3)

    feeds.die("a")
    await asyncio.sleep(2)
    assert not shadow.is_fed
    assert set(reasons(shadow)) == {SourceAway.LOST}
    attempts = len(feeds.dialled)
    assert attempts <= 1 + 2_000 / (limits.FEED_LOCATE_MS_MAX / 2) + 6, "it pauses in between"
    world.assign(SOURCE, "c")
    survivor = world.broker("c").client()
    await survivor.producer(SOURCE, producer_name="q")
    topic = world.broker("c").topics.get(SOURCE)
    assert topic is not None
    list_shadows(topic, SHADOW)
    await until_fed(shadow, 2)
    await publish(survivor, 0, 2)
    await until(lambda: shadow.entry_count == 5)

    assert list(shadow.extents.values()) == topic.ledger.extents


async def test_the_first_pause_is_short_and_they_grow(
    world: BrokerWorld, feeds: FeedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED_LOCATE_MS_MIN to FEED_LOCATE_MS_MAX, and none when a settled source moves."""
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    await asyncio.sleep(limits.FEED_SETTLED_MS / 1_000)
    world.directory.error = Unavailable("no leader")
    loop = asyncio.get_running_loop()
    times: list[float] = []
    locate = world.directory.locate

    async def timed(*args: object, **fields: object) -> object:
        times.append(loop.time())
        return await locate(*args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(world.directory, "locate", timed)
    feeds.die("a")
    died_at = loop.time()
    await asyncio.sleep(5)

    pauses = [round((each - died_at) * 1_000) for each in times[:1]]
    pauses += [round((b - a) * 1_000) for a, b in pairwise(times)]
    assert pauses[:8] == [0, 20, 40, 80, 160, 320, 500, 500]


async def test_an_ended_session_ends_its_stream_even_if_that_is_silent(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    session_id = world.broker("a").agent.session.session_id

    feeds.feeds("b").sessions_changed(lambda broker, session: (broker, session) == ("a", "x"))
    await settle()
    assert shadow.aways == []
    feeds.feeds("b").sessions_changed(
        lambda broker, session: (broker, session) == ("a", session_id)
    )
    await settle()

    assert reasons(shadow) == [SourceAway.LOST]


async def test_an_earlier_owner_is_not_believed(world: BrokerWorld, feeds: FeedWorld) -> None:
    """A broker that is cut off still serves the source; the shards name it once more."""
    await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    world.broker("c")
    old = world.directory.owners[SOURCE]
    world.assign(SOURCE, "c")
    feeds.feeds("b").sessions_changed(lambda *_: True)
    topic = await source_topic(world, "c")
    list_shadows(topic, SHADOW)
    await until_fed(shadow, 2)

    present, world.directory.owners[SOURCE] = world.directory.owners[SOURCE], old
    world.broker("a").ledger(SOURCE).inner._is_fenced = False
    feeds.feeds("b").sessions_changed(lambda *_: True)
    await asyncio.sleep(1)
    assert not shadow.is_fed
    world.directory.owners[SOURCE] = present
    await until_fed(shadow, 3)

    assert [state.epoch for state in shadow.states] == [1, 2, 2]


async def source_topic(world: BrokerWorld, broker_id: str) -> object:
    await world.broker(broker_id).client().producer(SOURCE, producer_name="q")
    topic = world.broker(broker_id).topics.get(SOURCE)
    assert topic is not None
    return topic


async def test_a_topic_that_was_created_again_is_another_source(
    world: BrokerWorld, feeds: FeedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)

    monkeypatch.setattr("tests.support.brokers.world.topic_id_of", lambda _: "f" * 32)
    world.directory.owners[SOURCE] = ("", 0)
    world.assign(SOURCE, "c")
    feeds.feeds("b").sessions_changed(lambda *_: True)
    topic = await source_topic(world, "c")
    list_shadows(topic, SHADOW)
    await until_fed(shadow, 2)

    assert [topic_id for topic_id, _ in shadow.ids] == [topic_id_of(SOURCE), "f" * 32]


async def test_a_source_that_is_absent_is_found_when_it_exists(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    """Pauses up to FEED_ABSENT_MS_MAX."""
    world.broker("a")
    shadow = feeds.shadow("b")
    await asyncio.sleep(60)
    assert set(reasons(shadow)) == {SourceAway.ABSENT}
    assert len(shadow.aways) < 25
    await source_at(world, "a", SHADOW)

    await asyncio.sleep(limits.FEED_ABSENT_MS_MAX / 1_000)

    assert shadow.is_fed


async def test_a_shadow_that_is_not_listed_waits_for_its_source(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    topic, client = await source_at(world, "a", OTHER)
    shadow, listed = feeds.shadow("b"), feeds.shadow("b", shadow=OTHER)
    await until(lambda: listed.is_fed)
    await publish(client, 0, 1)
    await until(lambda: listed.entries)
    assert (reasons(shadow), shadow.states) == ([SourceAway.UNLISTED], [])

    list_shadows(topic, OTHER, SHADOW)
    await until(lambda: shadow.is_fed)

    assert shadow.entry_count == 1
    list_shadows(topic, SHADOW)
    await until(lambda: not listed.is_fed)
    await publish(client, 1, 2)
    await until(lambda: shadow.entry_count == 2)
    assert listed.entry_count == 1
    assert len(feeds.dialled) == 1


async def test_reports_are_sent_together_and_only_when_they_change(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    """Every FEED_REPORT_MS."""
    topic, _ = await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    assert shadow.follow is not None
    shadow.follow.report(Position(1, 1))
    shadow.follow.report(Position(1, 2))
    await settle()
    assert topic.shadows.of(SHADOW) is None

    await asyncio.sleep(limits.FEED_REPORT_MS / 1_000)
    await settle()

    assert topic.shadows.of(SHADOW) == Position(1, 2)
    topic.shadows.forget_all_but([])
    shadow.follow.report(Position(1, 2))
    await asyncio.sleep(2 * limits.FEED_REPORT_MS / 1_000)
    assert topic.shadows.of(SHADOW) is None


async def test_the_next_owner_gets_the_report_when_it_feeds_the_shadow(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    assert shadow.follow is not None
    shadow.follow.report(Position(1, 2))
    world.broker("c")
    world.move(SOURCE, "c")
    topic = await source_topic(world, "c")
    list_shadows(topic, SHADOW)
    await until_fed(shadow, 2)
    await settle()

    assert topic.shadows.of(SHADOW) == Position(1, 2)


async def test_a_closed_follow_gets_nothing_more_and_the_last_ends_the_stream(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    topic, client = await source_at(world, "a", SHADOW, OTHER)
    shadow, other = feeds.shadow("b"), feeds.shadow("b", shadow=OTHER)
    await until(lambda: shadow.is_fed and other.is_fed)
    assert shadow.follow is not None
    assert other.follow is not None

    shadow.follow.close()
    shadow.follow.close()
    await publish(client, 0, 1)
    await until(lambda: other.entries)
    assert shadow.changes == []
    assert [feed.shadow for feed in topic.followers.feeds] == [OTHER]
    other.follow.close()
    await settle()

    assert len(topic.followers) == 0
    assert (feeds.feeds("b").source_count, feeds.feeds("b").stream_count) == (0, 0)
    again = feeds.shadow("b")
    await until(lambda: again.is_fed)


async def test_a_shadow_that_is_opened_anew_before_the_old_one_is_closed_stays_fed(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    _, client = await source_at(world, "a", SHADOW)
    old = feeds.shadow("b")
    await until(lambda: old.is_fed)

    new = feeds.shadow("b")
    await until(lambda: new.is_fed)
    assert old.follow is not None
    old.follow.close()
    await publish(client, 0, 1)
    await until(lambda: new.entries)

    assert old.changes == []


async def test_sources_that_a_stream_has_no_room_for_are_tried_again(
    world: BrokerWorld, feeds: FeedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED_SOURCES_MAX."""
    monkeypatch.setattr("brokers.service.feeds.shared_stream.FEED_SOURCES_MAX", 1)
    await source_at(world, "a", SHADOW)
    await source_at(world, "a", SHADOW, name=f"{SOURCE}-2")
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)
    waiting = feeds.shadow("b", f"{SOURCE}-2")
    await asyncio.sleep(1)
    assert set(reasons(waiting)) == {SourceAway.LOST}
    assert shadow.follow is not None

    shadow.follow.close()

    await until_fed(waiting)


async def test_shadows_beyond_what_a_source_lists_are_not_asked_for(
    world: BrokerWorld, feeds: FeedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.service.feeds.source_feeds.SHADOWS_PER_TOPIC_MAX", 2)
    topic, _ = await source_at(world, "a", *(f"{SHADOW}-{number}" for number in range(3)))
    shadows = [feeds.shadow("b", shadow=f"{SHADOW}-{number}") for number in range(3)]
    await asyncio.sleep(1)
    late = feeds.shadow("b", shadow=f"{SHADOW}-4")
    await asyncio.sleep(1)

    assert [each.is_fed for each in [*shadows, late]] == [True, True, False, False]
    assert len(topic.followers.feeds) == 2


async def test_credit_is_given_back_as_it_is_used(world: BrokerWorld, feeds: FeedWorld) -> None:
    """FEED_CREDIT_BYTES is a bound of what is under way, not of what is ever sent."""
    _, client = await source_at(world, "a", SHADOW)
    shadow = feeds.shadow("b")
    await until(lambda: shadow.is_fed)

    size = limits.FED_ENTRY_BYTES_MAX // 2
    count = 3 * limits.FEED_CREDIT_BYTES // size
    for number in range(count):
        await publish(client, number, number + 1, size=size)
        await settle(5)

    assert len(shadow.entries) == count


async def test_only_so_many_sources_are_looked_for_at_a_time(
    world: BrokerWorld, feeds: FeedWorld
) -> None:
    """FEED_LOCATES_AT_A_TIME."""
    world.broker("a")
    world.directory.released.clear()
    count = limits.FEED_LOCATES_AT_A_TIME + 1
    for number in range(count):
        world.directory.topics.add(f"{SOURCE}-{number}")
        feeds.shadow("b", f"{SOURCE}-{number}")
    await settle()
    assert len(world.directory.asked) == count - 1

    world.directory.released.set()
    await settle()

    assert len(world.directory.asked) == count
