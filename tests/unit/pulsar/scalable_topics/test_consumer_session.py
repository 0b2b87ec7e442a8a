"""Registered consumers of one connection: answers, assignments, ends, bounds, and bad input."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.scalable import (
    CONSUMER_SESSIONS_MAX,
    CONSUMER_SESSIONS_PER_CONNECTION_MAX,
    SEGMENT_LOOK_MS,
    SEGMENT_STALL_MS,
    SEGMENT_STALL_MS_MAX,
)
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.scalable_topics import consumer_session as module
from nextgen.pulsar.scalable_topics.consumer_session import (
    ConsumerSession,
    ConsumerSessions,
    takes_buckets,
)
from nextgen.pulsar.scalable_topics.ports import ConsumerAssignment
from nextgen.pulsar.scalable_topics.stalled_segments import SegmentLooks
from protos.nextgen.v1.broker_service_pb2 import TopicStats
from protos.nextgen.v1.layouts_pb2 import TopicSegment
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.pulsar.fake_consumers import ALL, NOTHING, WHOLE, FakeConsumers
from tests.support.pulsar.fake_topic_lists import FakeListClient
from tests.support.simulated.virtual_time import run_virtual

NAME = "topic://acme/orders/paid"


class Client(FakeListClient):
    client_version = "Pulsar-Java-v5.0.0"


class World:
    """A session, its client and its consumers."""

    def __init__(self, consumers: FakeConsumers | None = None) -> None:
        self.consumers = consumers or FakeConsumers()
        self.shared = ConsumerSessions(self.consumers)
        self.client = Client()
        self.session = ConsumerSession(self.client, self.shared)

    def subscribe(
        self,
        consumer_id: int = 7,
        *,
        topic: str = NAME,
        name: str = "c",
        request_id: int = 1,
        kind: pulsar.ScalableConsumerType = pulsar.STREAM,
    ) -> None:
        subscribe = pulsar.CommandScalableTopicSubscribe(
            request_id=request_id,
            topic=topic,
            subscription="s",
            consumer_name=name,
            consumer_id=consumer_id,
            consumer_type=kind,
        )
        self.session.handle(
            BaseCommand(type=BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, scalableTopicSubscribe=subscribe)
        )

    def leave(self, consumer_id: int = 7, request_id: int = 2) -> None:
        leave = pulsar.CommandScalableTopicUnsubscribe(
            request_id=request_id, consumer_id=consumer_id
        )
        self.session.handle(
            BaseCommand(type=BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE, scalableTopicUnsubscribe=leave)
        )

    async def sent(self) -> list[BaseCommand]:
        """Return what was sent since the last call, once nothing more is coming."""
        for _ in range(30):
            await asyncio.sleep(0)
        return self.client.take()


@pytest.fixture
async def world():
    world = World()
    yield world
    world.session.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.shared.sessions == 0
    assert all(each.is_closed for each in world.consumers.joined)


def response_in(sent):
    (command,) = sent
    assert command.type == BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE
    return command.scalableTopicSubscribeResponse


async def test_a_consumer_gets_its_assignment_and_then_each_change_of_it(world):
    world.subscribe()

    response = response_in(await world.sent())
    assert (response.request_id, response.HasField("error")) == (1, False)
    (segment,) = response.assignment.segments
    assert response.assignment.layout_epoch == 0
    assert (segment.segment_id, segment.hash_start, segment.hash_end) == (0, 0, 0xFFFF)
    assert segment.segment_topic == "segment://acme/orders/paid/0000-ffff-0"
    assert list(segment.bucket_ranges) == []

    world.consumers.joined[0].assign(ConsumerAssignment(3, ((WHOLE, True),)))

    (command,) = await world.sent()
    assert command.type == BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE
    update = command.scalableTopicAssignmentUpdate
    assert (update.consumer_id, update.assignment.layout_epoch) == (7, 3)
    (segment,) = update.assignment.segments
    assert [(each.start, each.end) for each in segment.bucket_ranges] == [
        (0, 0x3FFF),
        (0x4000, 0x7FFF),
        (0x8000, 0xFFFF),
    ]


async def test_a_segment_of_a_migrated_topic_has_its_classic_name(world):
    legacy = TopicSegment(hash_end=0xFFFF, legacy_topic_name="persistent://acme/orders/paid")
    world.consumers.first = ConsumerAssignment(0, ((legacy, False),))

    world.subscribe()

    (segment,) = response_in(await world.sent()).assignment.segments
    assert segment.segment_topic == "persistent://acme/orders/paid"


async def test_changes_while_the_client_does_not_read_come_as_one(world):
    world.subscribe()
    await world.sent()
    world.client.stop_reading()
    (joined,) = world.consumers.joined
    updates = []
    for epoch in (1, 2, 3):
        joined.assign(ConsumerAssignment(epoch))
        updates += await world.sent()

    world.client.read()
    updates += await world.sent()

    epochs = [each.scalableTopicAssignmentUpdate.assignment.layout_epoch for each in updates]
    assert epochs[-1] == 3
    assert len(epochs) == 2


async def test_one_that_leaves_is_answered_when_it_has_left(world):
    world.subscribe()
    await world.sent()

    world.leave()

    (command,) = await world.sent()
    assert (command.type, command.success.request_id) == (BaseCommand.SUCCESS, 2)
    assert world.consumers.joined[0].has_left
    assert world.shared.sessions == 0


async def test_one_that_leaves_before_it_has_joined_leaves_then(world):
    world.consumers.may_join.clear()
    world.subscribe()
    await world.sent()
    world.leave()
    assert await world.sent() == []

    world.consumers.may_join.set()

    await world.sent()
    assert world.consumers.joined[0].has_left
    assert world.shared.sessions == 0


async def test_an_unknown_consumer_leaves_with_success(world):
    world.leave(consumer_id=99)

    (command,) = await world.sent()
    assert (command.type, command.success.request_id) == (BaseCommand.SUCCESS, 2)


async def test_one_that_cannot_leave_gets_the_error(world):
    world.subscribe()
    await world.sent()
    world.consumers.joined[0].leave_error = Unavailable("no leader")

    world.leave()

    (command,) = await world.sent()
    assert (command.type, command.error.request_id) == (BaseCommand.ERROR, 2)
    assert command.error.error == pulsar.MetadataError


async def test_the_end_of_a_connection_gives_consumers_up_and_does_not_make_them_leave(world):
    world.subscribe(1, name="a")
    world.subscribe(2, name="b")
    await world.sent()

    world.session.close()

    await world.sent()
    assert [(each.is_closed, each.has_left) for each in world.consumers.joined] == [
        (True, False),
        (True, False),
    ]


async def test_a_consumer_that_was_replaced_gets_nothing_more(world):
    world.subscribe()
    await world.sent()
    (joined,) = world.consumers.joined

    joined.replace()
    joined.assign(NOTHING)

    assert await world.sent() == []
    assert joined.is_closed
    assert not joined.has_left
    assert world.shared.replaced == 1


async def test_an_id_that_is_used_again_gives_the_earlier_consumer_up(world):
    world.subscribe(7, name="a")
    await world.sent()

    world.subscribe(7, name="b", request_id=5)

    assert response_in(await world.sent()).request_id == 5
    first, second = world.consumers.joined
    assert (first.is_closed, first.has_left, second.is_closed) == (True, False, False)
    assert world.shared.sessions == 1


async def test_when_assignments_end_the_consumer_is_left_without_segments(world):
    world.subscribe()
    await world.sent()

    world.consumers.joined[0].assign(Refused(RejectionCode.NOT_FOUND, "the topic was deleted"))

    (command,) = await world.sent()
    update = command.scalableTopicAssignmentUpdate
    assert (update.consumer_id, list(update.assignment.segments)) == (7, [])
    assert world.shared.sessions == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(RejectionCode.NOT_FOUND, "there is no such topic"), pulsar.TopicNotFound),
        (Refused(RejectionCode.NOT_ALLOWED, "it is a queue"), pulsar.NotAllowedError),
        (Refused(RejectionCode.LIMIT_EXCEEDED, "1024 consumers"), pulsar.NotAllowedError),
        (Unavailable("no leader"), pulsar.MetadataError),
        (Overloaded("too many"), pulsar.MetadataError),
        (ValueError("a bug"), pulsar.UnknownError),
    ],
)
async def test_one_that_cannot_join_gets_the_code(world, error, code):
    world.consumers.failures.append(error)

    world.subscribe()

    response = response_in(await world.sent())
    assert (response.request_id, response.error) == (1, code)
    assert not response.HasField("assignment")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("topic://acme", pulsar.InvalidTopicName),
        ("", pulsar.InvalidTopicName),
        ("topic://acme/orders/" + "x" * 70_000, pulsar.InvalidTopicName),
        ("non-persistent://acme/orders/paid", pulsar.NotAllowedError),
        ("persistent://acme/orders/paid-partition-1", pulsar.NotAllowedError),
        ("segment://acme/orders/paid/0000-ffff-0", pulsar.NotAllowedError),
    ],
)
async def test_what_is_no_scalable_topic_is_refused(world, topic, code):
    world.subscribe(topic=topic)

    assert response_in(await world.sent()).error == code
    assert world.consumers.joined == []


async def test_the_classic_twin_of_a_name_stands_for_the_scalable_topic(world):
    world.subscribe(topic="persistent://acme/orders/paid")
    await world.sent()

    assert world.consumers.joined[0].request.topic == parse_topic(NAME)


@pytest.mark.parametrize(
    ("version", "takes"),
    [
        ("Pulsar-Java-v5.0.0-M1", False),
        ("5.0.0-M1", False),
        ("Pulsar-Java-v5.0.0-M1-SNAPSHOT", False),
        ("Pulsar-Java-v5.0.0-M10", True),
        ("Pulsar-Java-v5.0.0-M2", True),
        ("Pulsar-Java-v5.0.0", True),
        ("Pulsar-CPP-v4.2.0", True),
        ("", True),
    ],
)
async def test_the_first_milestone_of_java_takes_no_buckets(world, version, takes):
    assert takes_buckets(version) is takes
    world.client.client_version = version

    world.subscribe()

    await world.sent()
    assert world.consumers.joined[0].request.takes_buckets is takes


async def test_consumer_sessions_per_connection_max_join_and_one_more_is_refused(
    world, monkeypatch
):
    assert CONSUMER_SESSIONS_PER_CONNECTION_MAX < CONSUMER_SESSIONS_MAX
    monkeypatch.setattr(module, "CONSUMER_SESSIONS_PER_CONNECTION_MAX", 2)
    world.subscribe(1)
    world.subscribe(2)
    assert len(await world.sent()) == 2

    world.subscribe(3)

    assert response_in(await world.sent()).error == pulsar.TooManyRequests
    world.subscribe(2)
    assert not response_in(await world.sent()).HasField("error")


async def test_consumer_sessions_max_join_and_one_more_is_refused(world):
    world.shared.sessions_max = 2
    world.subscribe(1)
    world.subscribe(2)
    assert len(await world.sent()) == 2

    world.subscribe(3)
    assert response_in(await world.sent()).error == pulsar.TooManyRequests

    world.leave(1)
    await world.sent()
    world.subscribe(3)
    assert not response_in(await world.sent()).HasField("error")
    assert world.shared.counts() == {
        "consumer_assignments": 3,
        "consumer_sessions_refused": 1,
        "consumer_sessions_replaced": 0,
        "consumer_segments_renewed": 0,
    }
    assert ALL.segments


SEALED = TopicSegment(segment_id=0, hash_end=0x7FFF, is_sealed=True)
ACTIVE = TopicSegment(segment_id=1, hash_start=0x8000, hash_end=0xFFFF)


class StuckOwners:
    """Each segment has one message that is delivered and not acknowledged."""

    async def call(self, name, request):
        stats = TopicStats(topic=name.text, is_terminated=True)
        group = stats.subscriptions.add(name="s", kind="EXCLUSIVE", backlog_entries=1)
        group.rows.add(available_permits=1)
        return stats


def updates_of(first, *, kind=pulsar.STREAM, then=()):
    """Return the segments of the updates that a consumer with stuck segments gets."""

    async def main():
        world = World()
        world.shared.looks = SegmentLooks(StuckOwners())
        world.consumers.first = first
        world.subscribe(kind=kind)
        await asyncio.sleep(1)
        for each in then:
            world.consumers.joined[0].assign(each)
            await asyncio.sleep(1)
        world.client.take()
        await asyncio.sleep((SEGMENT_LOOK_MS + SEGMENT_STALL_MS) / 1_000 + 1)
        sent = world.client.take()
        world.session.close()
        await asyncio.sleep(SEGMENT_STALL_MS_MAX / 1_000)
        assert world.client.take() == []
        updates = [each.scalableTopicAssignmentUpdate.assignment for each in sent]
        assert world.shared.renewed == len(updates) / 2
        assert {each.layout_epoch for each in updates} <= {3}
        return [[each.segment_id for each in update.segments] for update in updates]

    return run_virtual(main)


def assigned(*segments, is_shared=False):
    return ConsumerAssignment(3, tuple((each, is_shared) for each in segments))


def test_a_stuck_sealed_segment_is_taken_and_given_back():
    assert updates_of(assigned(SEALED, ACTIVE)) == [[1], [0, 1]]


def test_one_that_was_sealed_later_is_taken_and_given_back():
    before = assigned(ACTIVE)
    assert updates_of(before, then=[assigned(SEALED, ACTIVE)]) == [[1], [0, 1]]


def test_one_that_went_to_another_consumer_is_not_given_back():
    assert updates_of(assigned(SEALED), then=[assigned(ACTIVE)]) == []


def test_one_that_is_shared_or_read_by_a_checkpoint_consumer_is_left_alone():
    assert updates_of(assigned(SEALED, is_shared=True)) == []
    assert updates_of(assigned(SEALED), kind=pulsar.CHECKPOINT) == []


async def test_a_consumer_keeps_the_permission_to_consume_until_it_leaves(world):
    world.subscribe()
    await world.sent()
    assert world.client.access.kept == {(Action.CONSUME, Resource.topic(NAME), "s"): 1}

    world.leave()
    await world.sent()
    assert world.client.access.kept == {}
