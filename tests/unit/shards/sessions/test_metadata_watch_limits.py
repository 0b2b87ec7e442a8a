"""Many names, few watches: how names are put together, and what is bounded."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import Overloaded, Refused, SessionExpired
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.stream import WATCH_NAMES_MAX
from shards.sessions import home_watch, metadata_watch
from tests.support.scenarios import run_by
from tests.support.shards.metadata_world import MetadataWorld, gathered, in_world, told

TOPIC = "persistent://acme/orders/paid"
OTHER = "persistent://acme/orders/open"


@run_by(in_world)
async def test_a_burst_of_assignments_makes_a_few_watches(world: MetadataWorld) -> None:
    topics = [f"persistent://acme/orders/t-{number}" for number in range(40)]
    world.create_topics(*topics)
    for topic in topics:
        world.assign("a", topic)
    await world.settle()

    (stream,) = world.homes.streams
    assert stream.adds == [2, 40]


def test_ten_thousand_assignments_in_one_burst_make_two_watches() -> None:
    topics = [f"persistent://acme/orders/t-{number}" for number in range(10_000)]

    assert _adds_of(topics) == [2, WATCH_NAMES_MAX]


@pytest.mark.parametrize(("names", "adds"), [(4, [2, 4]), (5, [2, 4, 1])])
def test_a_watch_has_so_many_names_and_not_one_more(
    monkeypatch: pytest.MonkeyPatch, names: int, adds: list[int]
) -> None:
    monkeypatch.setattr(home_watch, "WATCH_NAMES_MAX", 4)
    assert _adds_of([f"persistent://acme/orders/t-{number}" for number in range(names)]) == adds


@pytest.mark.parametrize(("bytes_max", "adds"), [(2, [2, 2]), (1, [2, 1, 1])])
def test_metadata_watch_names_bytes_max_share_a_watch_and_one_byte_more_does_not(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, adds: list[int]
) -> None:
    topics = [TOPIC, OTHER]
    size = sum(len(topic) for topic in topics)
    monkeypatch.setattr(home_watch, "METADATA_WATCH_NAMES_BYTES_MAX", size + bytes_max - 2)
    assert _adds_of(topics) == adds


def _adds_of(topics: list[str]) -> list[int]:
    """Return how many names each watch has when these are assigned together."""
    adds: list[int] = []

    async def scenario(world: MetadataWorld) -> None:
        world.create_topics(*topics)
        world.assign("a", *topics)
        await gathered()
        (stream,) = world.homes.streams
        adds.extend(stream.adds)

    in_world(scenario)
    return adds


def test_loose_watches_are_put_together_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_watch, "METADATA_LOOSE_WATCHES_MAX", 3)

    async def scenario(world: MetadataWorld) -> None:
        topics = [f"persistent://acme/orders/t-{number}" for number in range(5)]
        world.create_topics(*topics)
        for topic in topics[:4]:
            world.assign("a", topic)
            await world.settle()
        assert world.watch.watch_count == 5, "the fourth was without snapshot when it was added"

        for topic in topics:
            world.homes.set_properties(topic, a="b")
        world.homes.deliver(behind=3)
        world.assign("a", topics[4])
        await gathered()
        (stream,) = world.homes.streams
        assert world.watch.watch_count == 3
        assert stream.adds == [2, 1, 1, 1, 1, 1, 4]
        await world.settle()

        assert world.deliveries == {"topic": 4}, "the fifth was sent as it is"
        world.check_converged()

    in_world(scenario)


def test_an_event_that_one_watch_was_given_is_not_counted_again_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. One watch is ahead of the other. 2. Both go on as one, from where the later one is."""
    monkeypatch.setattr(home_watch, "METADATA_LOOSE_WATCHES_MAX", 1)

    async def scenario(world: MetadataWorld) -> None:
        topics = [f"persistent://acme/orders/t-{number}" for number in range(3)]
        world.create_topics(*topics)
        world.homes.deliver()
        for topic in topics[:2]:
            world.assign("a", topic)
            await gathered()
            world.homes.deliver()
        (stream,) = world.homes.streams
        ahead = [number for number in stream.watches if number % 2 == 0]
        assert stream.adds == [2, 1, 1]
        assert ahead == [2]
        world.homes.set_properties(topics[0], a="b")
        world.homes.set_properties(topics[1], a="b")
        world.homes.deliver(every=2)
        world.assign("a", topics[2])
        await gathered()
        assert stream.adds == [2, 1, 1, 1, 2]
        await world.settle()
        world.homes.set_properties(topics[0], a="c")
        await world.settle()

        assert told(world.brokers["a"].changes)[2:] == [
            ("topic", topics[0], 2),
            ("topic", topics[1], 2),
            ("topic", topics[0], 3),
        ]

    in_world(scenario)


def test_mostly_dead_watches_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_watch, "METADATA_LOOSE_WATCHES_MAX", 1)
    monkeypatch.setattr(home_watch, "METADATA_WATCH_NAMES_MIN", 0)

    async def scenario(world: MetadataWorld) -> None:
        topics = [f"persistent://acme/orders/t-{number}" for number in range(11)]
        world.create_topics(*topics)
        units = [world.prepare(topic) for topic in topics]
        for start in (0, 5):
            world.assign("a", *units[start : start + 5])
            await world.settle()
        (stream,) = world.homes.streams
        for unit in (*units[:3], *units[5:8]):
            world.release("a", unit)
        world.sync("a")
        world.watch.synced()
        assert world.watch.watch_count == 3

        world.assign("a", units[10])
        await world.settle()

        assert stream.adds == [2, 5, 5, 1, 4]
        assert world.watch.watch_count == 3
        world.homes.set_properties(topics[9], a="b")
        await world.settle()
        assert world.deliveries == {"topic": 1}

    in_world(scenario)


def test_names_gather_while_too_many_watches_wait_for_their_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(home_watch, "METADATA_LOOSE_WATCHES_MAX", 3)

    async def scenario(world: MetadataWorld) -> None:
        topics = [f"persistent://acme/orders/t-{number}" for number in range(6)]
        world.create_topics(*topics)
        for topic in topics:
            world.assign("a", topic)
            await gathered()
        (stream,) = world.homes.streams
        assert stream.adds == [2, 1, 1]

        await world.settle()

        assert stream.adds == [2, 1, 1, 4]
        world.homes.set_properties(topics[5], a="b")
        await world.settle()
        assert world.deliveries == {"topic": 1}

    in_world(scenario)


def test_a_name_beyond_the_limit_is_refused_before_it_is_sent_and_never_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_watch, "METADATA_NAMES_WATCHED_MAX", 3)

    async def scenario(world: MetadataWorld) -> None:
        world.create_topics(TOPIC, OTHER)
        metadata = world.brokers["a"].session.metadata
        world.watch.check_room(metadata, parents=["acme", "acme/orders"], topics=[TOPIC, TOPIC])
        world.assign("a", TOPIC)
        world.watch.check_room(metadata, parents=[], topics=[TOPIC])

        with pytest.raises(Refused) as refused:
            world.watch.check_room(metadata, parents=[], topics=[OTHER])
        with pytest.raises(Overloaded):
            world.assign("a", OTHER)

        assert refused.value.code is RejectionCode.NO_CAPACITY
        assert world.watch.name_count == 3

    in_world(scenario)


@run_by(in_world)
async def test_a_report_that_cannot_be_followed_is_not_complete_before_its_session_has_ended(
    world: MetadataWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader of the home shard calls no write effective until then."""
    world.create_topics(TOPIC, OTHER)
    world.assign("a", TOPIC, OTHER)
    await world.settle()
    monkeypatch.setattr(metadata_watch, "METADATA_NAMES_WATCHED_MAX", 3)
    world.next_leader()
    session = world.brokers["a"].session
    world.watch.are_reported = lambda: not session.metadata.awaits_report
    world.watch.note_leader(1, 3, "node-2")

    with pytest.raises(Overloaded):
        world.report("a")
    world.report("a")
    await gathered()

    (stream,) = world.homes.streams
    assert stream.complete_term() == 0
    session.end(SessionExpired("not followed"))
    world.watch.drop_all(session)
    assert stream.complete_term() == 3
    assert world.watch.name_count == 0


def test_metadata_deltas_unsynced_max_are_sent_and_then_only_the_last_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_watch, "METADATA_DELTAS_UNSYNCED_MAX", 4)

    async def scenario(world: MetadataWorld) -> None:
        world.create_topics(TOPIC, OTHER)
        world.assign("a", TOPIC, OTHER)
        await world.settle()
        session = world.brokers["a"].session

        for value in "123456":
            world.homes.set_properties(TOPIC, a=value)
        world.homes.delete(OTHER)
        world.homes.deliver()
        assert (session.unsynced, len(session.metadata.behind)) == (4, 2)

        world.sync("a")
        world.sync("a")

        assert told(world.brokers["a"].changes)[2:] == [
            *(("topic", TOPIC, version) for version in (2, 3, 4, 5, 7)),
            ("removed", OTHER, 0),
        ]
        assert session.metadata.behind == {}
        world.check_converged()

    in_world(scenario)
