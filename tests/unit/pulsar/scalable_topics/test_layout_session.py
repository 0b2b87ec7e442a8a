"""Layout watches of one connection: answers, updates, ends, bounds, and bad input."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.scalable import (
    LAYOUT_WATCH_ATTEMPTS_MAX,
    LAYOUT_WATCHES_MAX,
    LAYOUT_WATCHES_PER_CONNECTION_MAX,
)
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.scalable_topics import layout_session as module
from nextgen.pulsar.scalable_topics.layout_session import LayoutSession, LayoutWatches
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.pulsar.fake_layouts import FakeLayouts, layout_of
from tests.support.pulsar.fake_topic_lists import FakeListClient

NAME = "topic://acme/orders/paid"
CLASSIC = "persistent://acme/orders/paid"
OWN_URL = "pulsar://here:6650"


class World:
    """A session, its client and its layouts."""

    def __init__(self) -> None:
        self.layouts = FakeLayouts(layout_of(NAME, s1="pulsar://b-1:6650"))
        self.partitions_of: dict[str, int] = {}
        self.shared = LayoutWatches(self.layouts, self.partitions, OWN_URL)
        self.client = FakeListClient()
        self.session = LayoutSession(self.client, self.shared)

    async def partitions(self, name: TopicName) -> int:
        if name.text not in self.partitions_of:
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} does not exist")
        return self.partitions_of[name.text]

    def look_up(self, topic: str = NAME, session_id: int = 7, *, create: bool = False) -> None:
        lookup = pulsar.CommandScalableTopicLookup(
            session_id=session_id, topic=topic, create_if_missing=create
        )
        self.session.handle(
            BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP, scalableTopicLookup=lookup)
        )

    def give_up(self, session_id: int = 7) -> None:
        close = pulsar.CommandScalableTopicClose(session_id=session_id)
        self.session.handle(
            BaseCommand(type=BaseCommand.SCALABLE_TOPIC_CLOSE, scalableTopicClose=close)
        )

    async def sent(self) -> list[pulsar.CommandScalableTopicUpdate]:
        """Return the updates since the last call, once nothing more is coming."""
        for _ in range(30):
            await asyncio.sleep(0)
        commands = self.client.take()
        assert all(each.type == BaseCommand.SCALABLE_TOPIC_UPDATE for each in commands)
        return [each.scalableTopicUpdate for each in commands]


@pytest.fixture
async def world(monkeypatch):
    monkeypatch.setattr(module, "LAYOUT_WATCH_RETRY_MS", 0)
    world = World()
    yield world
    world.session.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.shared.watches == 0
    assert all(place.is_closed for place in world.layouts.places)


async def test_a_client_gets_the_layout_and_then_each_change_of_it(world):
    world.look_up()

    (first,) = await world.sent()
    assert (first.session_id, first.resolved_topic_name) == (7, NAME)
    assert not first.HasField("error")
    dag = first.dag
    assert (dag.epoch, dag.controller_broker_url) == (0, OWN_URL)
    assert [(each.segment_id, each.hash_start, each.hash_end) for each in dag.segments] == [
        (0, 0, 0x7FFF),
        (1, 0x8000, 0xFFFF),
    ]
    assert [each.state for each in dag.segments] == [pulsar.ACTIVE, pulsar.ACTIVE]
    assert [list(each.entry_bucket_splits) for each in dag.segments] == [[], [32768]]
    assert [(each.segment_id, each.broker_url) for each in dag.segment_brokers] == [
        (1, "pulsar://b-1:6650")
    ]

    world.layouts.change(NAME, layout_of(NAME, 1, s0="pulsar://b-2:6650", s1="pulsar://b-3:6650"))

    (second,) = await world.sent()
    assert second.dag.epoch == 1
    assert second.dag.segments[0].state == pulsar.SEALED
    assert second.dag.segments[0].sealed_at_epoch == 1
    assert not second.dag.segments[1].HasField("sealed_at_epoch")
    assert [each.broker_url for each in second.dag.segment_brokers] == ["pulsar://b-3:6650"]


async def test_changes_while_the_client_does_not_read_come_as_one(world):
    world.look_up()
    await world.sent()
    world.client.stop_reading()
    updates = []
    for epoch in (1, 2, 3):
        world.layouts.change(NAME, layout_of(NAME, epoch))
        updates += await world.sent()

    world.client.read()
    updates += await world.sent()

    assert [each.dag.epoch for each in updates] == [1, 3]


async def test_a_deleted_topic_ends_its_watches_with_topic_not_found(world):
    world.look_up()
    await world.sent()

    world.layouts.change(NAME, None)

    (end,) = await world.sent()
    assert (end.session_id, end.error) == (7, pulsar.TopicNotFound)
    assert not end.HasField("dag")
    assert world.shared.watches == 0


async def test_an_absent_topic_is_created_if_the_client_wants_that(world):
    absent = "topic://acme/orders/absent"
    world.look_up(absent, 1)
    world.look_up(absent, 2, create=True)

    refused, made = await world.sent()

    assert (refused.session_id, refused.error) == (1, pulsar.TopicNotFound)
    assert (made.session_id, made.dag.epoch, len(made.dag.segments)) == (2, 0, 2)
    assert world.layouts.created == [absent]


async def test_a_classic_topic_is_answered_with_its_partitions(world):
    other = "persistent://acme/orders/classic"
    world.partitions_of[other] = 2
    world.look_up(other, create=True)

    (update,) = await world.sent()

    assert update.resolved_topic_name == "topic://acme/orders/classic"
    assert (update.dag.epoch, update.dag.controller_broker_url) == (0, "")
    assert [
        (each.segment_id, each.legacy_topic_name, each.hash_start, each.hash_end)
        for each in update.dag.segments
    ] == [
        (0, f"{other}-partition-0", 0, 0x7FFF),
        (1, f"{other}-partition-1", 0x8000, 0xFFFF),
    ]
    assert world.layouts.created == []


@pytest.mark.parametrize("partitions", [None, 0])
async def test_a_topic_without_partitions_is_one_segment_even_if_it_is_not_there_yet(
    world, partitions
):
    """Its first producer creates it."""
    other = "persistent://acme/orders/classic"
    if partitions is not None:
        world.partitions_of[other] = partitions
    world.look_up(other)

    (update,) = await world.sent()

    (segment,) = update.dag.segments
    assert (segment.legacy_topic_name, segment.hash_start, segment.hash_end) == (other, 0, 0xFFFF)


async def test_the_twin_of_a_scalable_topic_has_its_layout(world):
    world.look_up(CLASSIC)
    (first,) = await world.sent()

    world.layouts.change(NAME, None)
    (second,) = await world.sent()

    assert (first.resolved_topic_name, len(first.dag.segments)) == (NAME, 2)
    assert second.dag.segments[0].legacy_topic_name == CLASSIC


async def test_a_closed_watch_sends_nothing_more(world):
    world.look_up()
    world.look_up(session_id=8)
    await world.sent()

    world.give_up()
    world.give_up()
    world.give_up(99)
    world.layouts.change(NAME, layout_of(NAME, 1))

    assert [each.session_id for each in await world.sent()] == [8]
    assert world.shared.watches == 1


async def test_an_id_that_is_used_again_begins_anew(world):
    world.look_up()
    await world.sent()
    world.look_up()
    assert len(await world.sent()) == 1

    world.layouts.change(NAME, layout_of(NAME, 1))

    assert len(await world.sent()) == 1
    assert world.shared.watches == 1


async def test_a_shard_that_cannot_be_asked_is_asked_again(world):
    world.layouts.failures += [Unavailable("an election")] * (LAYOUT_WATCH_ATTEMPTS_MAX - 1)
    world.look_up()

    (update,) = await world.sent()

    assert len(update.dag.segments) == 2


async def test_layout_watch_attempts_max_fail_before_the_client_is_told(world):
    world.layouts.failures += [Unavailable("an election")] * LAYOUT_WATCH_ATTEMPTS_MAX
    world.look_up()

    (update,) = await world.sent()

    assert (update.error, update.message) == (pulsar.MetadataError, "an election")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("topic://acme/orders", pulsar.InvalidTopicName),
        ("topic://acme/orders/a\nb", pulsar.InvalidTopicName),
        ("topic://acme/orders/x-partition-1", pulsar.InvalidTopicName),
        ("", pulsar.InvalidTopicName),
        ("non-persistent://acme/orders/x", pulsar.NotAllowedError),
        (f"{CLASSIC}-partition-0", pulsar.TopicNotFound),
        ("segment://acme/orders/paid/0000-7fff-0", pulsar.TopicNotFound),
    ],
)
async def test_names_without_a_layout_are_refused_and_the_connection_stays(world, topic, code):
    world.look_up(topic, 3)

    (update,) = await world.sent()

    assert (update.session_id, update.error) == (3, code)
    assert world.shared.refused == 1
    world.look_up()
    assert len(await world.sent()) == 1


async def test_a_mistake_of_ours_is_answered(world):
    world.layouts.failures.append(RuntimeError("oops"))
    world.look_up()

    (update,) = await world.sent()

    assert update.error == pulsar.UnknownError


async def test_layout_watches_max_are_served_and_one_more_is_refused(world):
    assert world.shared.watches_max == LAYOUT_WATCHES_MAX
    world.shared.watches_max = 2
    for number in range(3):
        world.look_up(session_id=number)

    updates = {each.session_id: each for each in await world.sent()}

    assert [updates[number].error for number in range(3)] == [
        pulsar.UnknownError,
        pulsar.UnknownError,
        pulsar.TooManyRequests,
    ]
    assert updates[0].HasField("dag")


async def test_layout_watches_per_connection_max_are_served_and_one_more_is_refused(
    world, monkeypatch
):
    monkeypatch.setattr(module, "LAYOUT_WATCHES_PER_CONNECTION_MAX", 2)
    assert LAYOUT_WATCHES_PER_CONNECTION_MAX > 2
    for number in range(3):
        world.look_up(session_id=number)

    updates = {each.session_id: each for each in await world.sent()}

    assert updates[1].HasField("dag")
    assert updates[2].error == pulsar.TooManyRequests
    world.give_up(0)
    for _ in range(3):
        await asyncio.sleep(0)
    world.look_up(session_id=2)
    assert (await world.sent())[0].HasField("dag")


async def test_a_watch_keeps_the_permission_to_look_up_until_it_ends(world):
    world.look_up()
    await world.sent()
    assert world.client.access.kept == {(Action.LOOK_UP, Resource.topic(NAME), ""): 1}

    world.give_up()
    await world.sent()
    assert world.client.access.kept == {}


async def test_a_watch_that_could_not_begin_keeps_nothing(world):
    world.layouts.failures.append(RuntimeError("oops"))
    world.look_up()
    await world.sent()

    assert world.client.access.kept == {}
