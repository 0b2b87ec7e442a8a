"""Streams that keep a node or a broker in the cluster, used by a caller that is not a member."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.kernel.limits.cluster import (
    ADDRESS_BYTES_MAX,
    BROKER_CAPACITY_UNITS_MAX,
    NODE_ID_BYTES_MAX,
    SERVES_NAMES_MAX,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from tests.integration.bad_input.conftest import TOPIC, Site
from tests.support.callers.member_channel import member_channel
from tests.support.callers.raw_calls import Method, Outcome, call, methods

METHODS = {method.name: method for method in methods()}
LONG = "a" * (ADDRESS_BYTES_MAX + 1)
DEADLINE_S = 40


async def say(endpoint: str, method: Method, *messages: Any) -> Outcome:
    async with member_channel(endpoint) as channel:
        return await call(channel, method, *(each.SerializeToString() for each in messages))


def broker_hello(**changed: Any) -> broker_pb.BrokerMessage:
    hello = broker_pb.BrokerHello(
        cluster_id="test",
        broker_id="broker-77",
        endpoints=events_pb.BrokerEndpoints(grpc="127.0.0.1:1"),
        capacity_units=1,
    )
    hello.MergeFrom(broker_pb.BrokerHello(**changed))
    return broker_pb.BrokerMessage(hello=hello)


def node_hello(**changed: Any) -> cluster_pb.NodeMessage:
    hello = cluster_pb.Hello(cluster_id="test", node_id="node-77", kind="client")
    hello.MergeFrom(cluster_pb.Hello(**changed))
    return cluster_pb.NodeMessage(hello=hello)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cluster_id": "another"}, "WRONG_CLUSTER"),
        ({"broker_id": "b" * (NODE_ID_BYTES_MAX + 1)}, "INVALID_REQUEST"),
        ({"broker_id": "two\nlines"}, "INVALID_REQUEST"),
        ({"endpoints": events_pb.BrokerEndpoints(http=LONG)}, "INVALID_REQUEST"),
        ({"zone": LONG}, "INVALID_REQUEST"),
        ({"last_sequence": 2**64 - 1}, "INVALID_REQUEST"),
        ({"capacity_units": BROKER_CAPACITY_UNITS_MAX + 1}, "REFUSED"),
    ],
)
async def test_a_broker_that_cannot_register_gets_the_reason(
    site: Site, changed: dict[str, Any], reason: str
) -> None:
    outcome = await say(site.shard, METHODS["Connect"], broker_hello(**changed))

    assert outcome.reason == reason
    assert outcome.error is not None
    assert outcome.error.message


async def test_a_broker_says_hello_first_and_once(site: Site) -> None:
    heartbeat = broker_pb.BrokerMessage(heartbeat=broker_pb.BrokerHeartbeat())
    goodbye = broker_pb.BrokerMessage(goodbye=broker_pb.BrokerGoodbye())
    unknown = broker_pb.BrokerMessage()
    connect = METHODS["Connect"]

    first = await say(site.shard, connect, heartbeat)
    twice = await say(site.shard, connect, broker_hello(), broker_hello())
    odd = await say(site.shard, connect, broker_hello(), unknown)
    await say(site.shard, connect, broker_hello(), goodbye)

    assert [each.reason for each in (first, twice, odd)] == ["INVALID_REQUEST"] * 3


async def test_who_says_nothing_is_not_kept(site: Site) -> None:
    """Not until its own deadline: it would hold a stream of the server for as long."""

    async def hear(name: str) -> str:
        method = METHODS[name]
        async with member_channel(site.endpoint(method.server)) as channel:
            stream = channel.stream_stream(method.path)(timeout=60)
            async with timeout(DEADLINE_S):
                answer: Any = method.response.FromString(await stream.read())
            return str(answer.error.reason)

    silent = ("Connect", "Watch", "Join")

    assert await asyncio.gather(*map(hear, silent)) == ["INVALID_REQUEST"] * 3


async def test_a_subscriber_that_sends_garbage_gets_an_error(site: Site) -> None:
    method = METHODS["Watch"]
    opening = shard_pb.WatchOpen(shard_id=1, subscriber_id="somebody")
    subscription = shard_pb.WatchShardRequest(open=opening)
    async with member_channel(site.shard) as channel:
        outcome = await call(channel, method, subscription.SerializeToString(), b"\xff\xff")

    assert outcome.reason == "INVALID_REQUEST"


async def test_the_second_session_of_a_broker_ends_the_first(site: Site) -> None:
    """The one that comes later is the one that lives: the first may be a ghost."""
    async with member_channel(site.shard) as channel:
        connect = channel.stream_stream(
            METHODS["Connect"].path,
            request_serializer=broker_pb.BrokerMessage.SerializeToString,
            response_deserializer=broker_pb.ManagerMessage.FromString,
        )
        first, second = connect(timeout=DEADLINE_S), connect(timeout=DEADLINE_S)
        await first.write(broker_hello(broker_id="broker-twin"))
        one = (await first.read()).established
        await second.write(broker_hello(broker_id="broker-twin"))
        two = (await second.read()).established
        ended = await first.read()
        await second.write(broker_pb.BrokerMessage(goodbye=broker_pb.BrokerGoodbye()))
        said_goodbye = await second.read()

    assert not one.resumed
    assert not two.resumed
    assert two.epoch == one.epoch + 1
    assert ended.error.reason == "SESSION_EXPIRED"
    assert said_goodbye.error.reason == "SESSION_EXPIRED"


async def test_nobody_resumes_the_session_of_another(site: Site) -> None:
    async with member_channel(site.broker) as channel:
        answer = await channel.unary_unary(METHODS["GetBrokerStatus"].path)(b"")
        stolen = broker_pb.BrokerStatus.FromString(answer).session_id
    goodbye = broker_pb.BrokerMessage(goodbye=broker_pb.BrokerGoodbye())

    outcome = await say(site.shard, METHODS["Connect"], broker_hello(session_id=stolen), goodbye)

    established = broker_pb.ManagerMessage.FromString(outcome.answers[0]).established
    assert established.session_id != stolen
    assert not established.resumed


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cluster_id": "another"}, "WRONG_CLUSTER"),
        ({"node_id": "n" * (NODE_ID_BYTES_MAX + 1)}, "INVALID_REQUEST"),
        ({"node_id": "two\nlines"}, "INVALID_REQUEST"),
        ({"kind": "discovery", "grpc": LONG}, "REFUSED"),
        ({"kind": "shard", "grpc": "127.0.0.1:1"}, "REFUSED"),
        ({"kind": "shard", "raft_host": "h", "raft_port": 65_536}, "REFUSED"),
        ({"kind": "discovery", "node_id": "shard-node-1"}, "REFUSED"),
    ],
)
async def test_a_node_that_cannot_join_gets_the_reason(
    site: Site, changed: dict[str, Any], reason: str
) -> None:
    if "node_id" in changed and reason == "REFUSED":
        changed = {**changed, "node_id": "shard-node-1"}
    hello = node_hello()
    for name, value in changed.items():
        setattr(hello.hello, name, value)

    outcome = await say(site.manager, METHODS["Join"], hello)

    assert outcome.reason == reason
    assert outcome.error is not None
    assert outcome.error.message


@pytest.mark.parametrize(
    "message",
    [
        cluster_pb.NodeMessage(),
        node_hello(),
        cluster_pb.NodeMessage(leader=cluster_pb.LeaderReport(shard_id=1, term=9)),
        cluster_pb.NodeMessage(broker=cluster_pb.BrokerReport()),
    ],
    ids=["unknown", "hello", "leader", "broker"],
)
async def test_a_client_that_says_what_it_may_not_is_dropped(
    site: Site, message: cluster_pb.NodeMessage
) -> None:
    outcome = await say(site.manager, METHODS["Join"], node_hello(), message)

    assert outcome.reason == "INVALID_REQUEST"


async def test_a_session_number_that_no_table_holds_is_not_recorded(site: Site) -> None:
    """It would be accepted by the log and then stop every replica that folds it."""
    record = events_pb.BrokerRecorded(
        broker_id="broker-88", session_id="s", epoch=2**63, is_live=True, zone="z"
    )
    long = events_pb.BrokerRecorded(broker_id="broker-89", session_id="s", epoch=1, zone=LONG)
    hello = node_hello(
        node_id="shard-node-77", kind="shard", grpc="127.0.0.1:1", raft_host="h", raft_port=1
    )
    reports = [
        cluster_pb.NodeMessage(broker=cluster_pb.BrokerReport(broker=each))
        for each in (record, long)
    ]

    outcome = await say(site.manager, METHODS["Join"], hello, *reports)
    async with member_channel(site.manager) as channel:
        answer = await channel.unary_unary(METHODS["GetClusterState"].path)(b"")

    assert outcome.status == "OK"
    brokers = cluster_pb.ClusterUpdate.FromString(answer).brokers
    assert {"broker-88", "broker-89"}.isdisjoint(broker.broker_id for broker in brokers)


async def test_leases_of_strangers_are_refused(site: Site) -> None:
    lease = METHODS["LeaseCapacity"]
    nowhere = cluster_pb.LeaseCapacityRequest(shard_id=99, units_wanted=2**32 - 1)
    deposed = cluster_pb.LeaseCapacityRequest(shard_id=1, term=0)

    assert (await say(site.manager, lease, nowhere)).reason == "INVALID_REQUEST"
    assert (await say(site.manager, lease, deposed)).reason == "REFUSED"


async def test_a_broker_is_asked_for_so_many_names_and_no_more(site: Site) -> None:
    at_limit = broker_pb.ServesRequest(topics=[TOPIC] + [""] * (SERVES_NAMES_MAX - 1))
    beyond = broker_pb.ServesRequest(topics=[""] * (SERVES_NAMES_MAX + 1))
    for name in ("Serves", "ServesStream"):
        answered = await say(site.broker, METHODS[name], at_limit)
        refused = await say(site.broker, METHODS[name], beyond)

        response = broker_pb.ServesResponse.FromString(answered.answers[0])
        assert [serving.serves for serving in response.answers[:2]] == [True, False]
        assert refused.reason == "INVALID_REQUEST"
