"""Shard nodes over the wire: lookups, moves, events, streams, bad input. One shared cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import grpc.aio
import pytest

from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerSessionServiceStub
from protos.nextgen.v1.events_pb2 import BrokerEndpoints
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub
from tests.integration.shards.processes import (
    NAMESPACE,
    Caller,
    Nodes,
    Started,
    calling,
    serves,
)
from tests.support.callers.member_channel import member_channel

WAIT_S = 30
"""For what must happen. Only a failing test waits that long."""
ROUNDS_MAX = 3
WATCH_ID = 1
ASKED_AT_MS = 1_234
"""The subscriber's clock in every renewal: a confirmation repeats it."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    directory = tmp_path_factory.mktemp("shards")
    with Started(directory, shard_nodes=3, brokers=2, shards=4) as cluster:
        yield cluster


@pytest.fixture
def nodes(started: Started) -> Nodes:
    return started.nodes


@pytest.fixture
async def caller(started: Started) -> AsyncIterator[Caller]:
    async with calling(started.managers) as caller:
        await caller.wait_leaders()
        yield caller


async def test_topics_are_created_looked_up_and_served_where_the_answer_says(
    caller: Caller,
) -> None:
    topics = await caller.create(*(f"served-{number}" for number in range(100)))

    answers = await asyncio.gather(*(caller.lookup(topic) for topic in topics))

    for answer in answers:
        serving = await serves(answer)
        assert (serving.serves, serving.epoch) == (True, answer.epoch)
        assert serving.has_metadata


async def test_a_thousand_first_lookups_through_the_wire_make_one_assignment(
    caller: Caller, nodes: Nodes
) -> None:
    (topic,) = await caller.create("hot")

    answers = await asyncio.gather(*(caller.lookup(topic) for _ in range(1_000)))

    shard_id = caller.shard_of(topic)
    assigned: list[str] = []
    async with timeout(WAIT_S):
        while topic not in assigned:  # Whoever led when it was last heard of may be behind.
            endpoint = caller.leader_endpoint(shard_id)
            events = await caller.events(endpoint, shard_id, "topic_assigned")
            assigned = [event.topic_assigned.name for event in events]
    assert assigned.count(topic) == 1
    assert len({(answer.broker_id, answer.epoch) for answer in answers}) == 1


async def test_moved_topics_are_released_with_a_pointer_to_the_new_owner(caller: Caller) -> None:
    topics = await caller.create(*(f"moved-{number}" for number in range(200)))
    shard_id = caller.shard_of(topics[0])
    topics = [topic for topic in topics if caller.shard_of(topic) == shard_id]
    before = [await caller.lookup(topic) for topic in topics]

    answers = await caller.move(*before)

    for old, new in zip(before, answers, strict=True):
        assert new.broker_id != old.broker_id
        assert new.epoch == old.epoch + 1
        assert (await serves(new)).serves
        async with timeout(WAIT_S):
            # A move that a new leader finishes is answered before the old owner has heard.
            while (tombstone := await serves(old)).serves:
                await asyncio.sleep(0.05)
        assert (tombstone.new_broker_id, tombstone.new_epoch) == (new.broker_id, new.epoch)


class LeadershipMoved(Exception):
    """A leader that stands still is replaced, and ends its streams: then once more."""


async def test_a_subscriber_sees_assignments_and_resumes_where_it_stopped(caller: Caller) -> None:
    for number in range(ROUNDS_MAX):
        try:
            return await _sees_assignments_and_resumes(caller, number)
        except LeadershipMoved:
            await caller.wait_leaders()
    raise AssertionError(f"leadership moved each of {ROUNDS_MAX} times")


async def _sees_assignments_and_resumes(caller: Caller, number: int) -> None:
    seen, missed = await caller.create(f"watched-{number}", f"missed-{number}")
    shard_id = caller.shard_of(seen)
    while caller.shard_of(missed) != shard_id:
        (missed,) = await caller.create(missed.rpartition("/")[2] + "x")
    async with member_channel(caller.leader_endpoint(shard_id)) as channel:
        stub = ShardServiceStub(channel)

        call = stub.Watch()
        await _watch_leased(call, shard_id, "d-1")
        first = await _next_update(call)
        while not first.confirmed_at_ms:
            confirmed = await _next_update(call)
            first.confirmed_at_ms = confirmed.confirmed_at_ms
        await caller.lookup(seen)
        update = await _next_assignments(call)
        call.cancel()
        answer = await caller.lookup(missed)
        call = stub.Watch()
        await _watch_leased(call, shard_id, "d-1", from_position=update.position)
        resumed = await _next_assignments(call)
        call.cancel()

    assert first.ttl_ms == 2_000
    assert first.confirmed_at_ms == ASKED_AT_MS
    assert [event.topic_assigned.name for event in update.events] == [seen]
    found = [
        (event.topic_assigned.name, event.topic_assigned.broker_id) for event in resumed.events
    ]
    assert found == [(missed, answer.broker_id)]


async def test_an_idle_stream_is_kept_alive_by_updates(caller: Caller) -> None:
    async with member_channel(caller.leader_endpoint(1)) as channel:
        call = ShardServiceStub(channel).Watch()
        await _watch_leased(call, 1, "d-idle")

        async with timeout(WAIT_S):
            positions = []
            for _ in range(4):
                positions.append((await _next_update(call)).position)
                await _acknowledge(call, positions[-1])

        assert positions == sorted(positions)
        call.cancel()


async def test_a_subscriber_at_a_follower_is_sent_to_the_leader(
    caller: Caller, nodes: Nodes
) -> None:
    async def is_sent_on(follower: str, leader: str) -> bool:
        async with member_channel(follower) as channel:
            call = ShardServiceStub(channel).Watch()
            await _watch_leased(call, 1, "d-1")
            update = await call.read()
            while update.watch_id != WATCH_ID:
                update = await call.read()
            call.cancel()
            sent_to = update.watch_id, update.error.reason, update.error.leader_hint
            return sent_to == (WATCH_ID, "NOT_LEADER", leader)

    await _until_sent_on(caller, nodes, 1, is_sent_on)


async def test_events_read_anywhere_are_the_same_and_dense(caller: Caller, nodes: Nodes) -> None:
    await caller.create(*(f"event-{number}" for number in range(30)))
    wanted = await caller.events(caller.leader_endpoint(1), 1)

    for node in nodes.shard_nodes:
        async with timeout(WAIT_S):
            while len(events := await caller.events(nodes.endpoint(node), 1)) < len(wanted):
                await asyncio.sleep(0.05)
        assert events[: len(wanted)] == wanted

    assert [event.position for event in wanted] == list(range(1, len(wanted) + 1))
    assert {event.shard_id for event in wanted} == {1}
    assert all(event.term and event.time_ms for event in wanted)
    assert wanted[0].WhichOneof("payload") == "slots_adopted"


async def test_a_follower_of_the_log_sees_what_is_committed_later(
    caller: Caller, nodes: Nodes
) -> None:
    (first,) = await caller.create("before")
    shard_id = caller.shard_of(first)
    present = len(await caller.events(caller.leader_endpoint(shard_id), shard_id))
    request = pb.ReadEventsRequest(
        shard_id=shard_id, follow=True, from_position=present + 1, types=["topic_created"]
    )
    name = next(
        f"later-{number}"
        for number in range(1_000)
        if caller.shard_of(f"persistent://{NAMESPACE}/later-{number}") == shard_id
    )
    async with member_channel(nodes.endpoint("shard-node-2")) as channel:
        call = ShardServiceStub(channel).ReadEvents(request)
        (topic,) = await caller.create(name)

        async with timeout(WAIT_S):
            async for batch in call:
                if batch.events:
                    break

        assert [event.topic_created.name for event in batch.events] == [topic]
        call.cancel()


async def test_a_malformed_request_disturbs_nobody_on_its_stream(
    caller: Caller, nodes: Nodes
) -> None:
    (topic,) = await caller.create("good")
    shard_id = caller.shard_of(topic)
    async with member_channel(caller.leader_endpoint(shard_id)) as channel:
        call = channel.stream_stream("/nextgen.v1.ShardService/Exchange")()
        names = [pb.ObjectName(kind=3, name=topic)]
        good = pb.ShardRequest(request_id=7, shard_id=shard_id, get=pb.GetRequest(names=names))
        await call.write(b"\xff\xff\xff\xff")
        await call.write(pb.ShardRequest(request_id=8, shard_id=1).SerializeToString())
        await call.write(pb.ShardRequest(request_id=9, shard_id=99).SerializeToString())
        await call.write(good.SerializeToString())

        async with timeout(WAIT_S):
            answers = [pb.ShardResponse.FromString(await call.read()) for _ in range(4)]

        reasons = {answer.request_id: answer.error.reason for answer in answers}
        assert reasons == {0: "INVALID_REQUEST", 8: "INVALID_REQUEST", 9: "STALE_SHARD_MAP", 7: ""}
        call.cancel()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (broker_pb.BrokerMessage(heartbeat=broker_pb.BrokerHeartbeat()), "INVALID_REQUEST"),
        (broker_pb.BrokerMessage(hello=broker_pb.BrokerHello(broker_id="b")), "WRONG_CLUSTER"),
    ],
)
async def test_a_stranger_gets_no_session(
    nodes: Nodes, message: broker_pb.BrokerMessage, reason: str
) -> None:
    async with member_channel(nodes.endpoint("shard-node-1")) as channel:
        call = BrokerSessionServiceStub(channel).Connect()
        await call.write(message)

        answer = await call.read()

        assert answer.error.reason == reason
        assert await call.read() is grpc.aio.EOF


async def test_a_broker_at_the_wrong_node_is_sent_to_its_manager(
    caller: Caller, nodes: Nodes
) -> None:
    hello = broker_pb.BrokerHello(
        cluster_id="test", broker_id="broker-9", endpoints=BrokerEndpoints(grpc="127.0.0.1:1")
    )

    async def is_sent_on(elsewhere: str, leader: str) -> bool:
        async with member_channel(elsewhere) as channel:
            call = BrokerSessionServiceStub(channel).Connect()
            await call.write(broker_pb.BrokerMessage(hello=hello))
            answer = await call.read()
            return (answer.error.reason, answer.error.leader_hint) == ("NOT_LEADER", leader)

    await _until_sent_on(caller, nodes, caller.router.shard_of_key("broker-9"), is_sent_on)


async def test_every_process_shows_its_metrics(caller: Caller, nodes: Nodes) -> None:
    (topic,) = await caller.create("measured")
    await caller.lookup(topic)

    async with timeout(WAIT_S):
        # The pages are not of one moment: leadership may move in between.
        while True:
            pages = [await asyncio.to_thread(nodes.metrics, node) for node in nodes.shard_nodes]
            if all(_leaders_shown(pages, shard_id) == 1 for shard_id in range(1, 5)):
                break
            await asyncio.sleep(0.1)
    assert any("nextgen_shard_assignments_total" in page for page in pages)


def _leaders_shown(pages: list[str], shard_id: int) -> int:
    return sum(f'nextgen_shard_leads{{shard="{shard_id}"}} 1.0' in page for page in pages)


async def _until_sent_on(
    caller: Caller,
    nodes: Nodes,
    shard_id: int,
    is_sent_on: Callable[[str, str], Awaitable[bool]],
) -> None:
    """Return once a node that does not lead has named the one that does.

    Asked again when leadership moves between the look at who leads and the question.
    """
    async with timeout(WAIT_S):
        while True:
            leader = caller.leader_endpoint(shard_id)
            others = (nodes.endpoint(each) for each in nodes.shard_nodes)
            if await is_sent_on(next(each for each in others if each != leader), leader):
                return
            await asyncio.sleep(0.1)


async def _watch_leased(
    call: grpc.aio.StreamStreamCall, shard_id: int, subscriber_id: str, *, from_position: int = 0
) -> None:
    """Open a change stream with one leased watch of the shard's assignments."""
    opening = pb.WatchOpen(shard_id=shard_id, subscriber_id=subscriber_id)
    add = pb.WatchAdd(
        watch_id=WATCH_ID,
        kinds=[KIND_ASSIGNMENT],
        from_position=from_position,
        without_snapshot=True,
        leased=True,
    )
    await call.write(pb.WatchShardRequest(open=opening))
    await call.write(pb.WatchShardRequest(add=add))
    await _acknowledge(call, from_position)


async def _acknowledge(call: grpc.aio.StreamStreamCall, position: int) -> None:
    renew = pb.WatchRenew(acked_position=position, asked_at_ms=ASKED_AT_MS)
    await call.write(pb.WatchShardRequest(renew=renew))


async def _next_assignments(call: grpc.aio.StreamStreamCall) -> pb.WatchShardUpdate:
    async with timeout(WAIT_S):
        while True:
            update = await _next_update(call)
            await _acknowledge(call, update.position)
            if update.events:
                return update


async def _next_update(call: grpc.aio.StreamStreamCall) -> pb.WatchShardUpdate:
    """Return the leased watch's next update; the stream's own progress is passed over."""
    while True:
        update: pb.WatchShardUpdate = await call.read()
        if update is grpc.aio.EOF or update.error.reason == "NOT_LEADER":
            raise LeadershipMoved
        assert not update.HasField("error"), update.error
        if update.watch_id == WATCH_ID:
            return update
