"""Protobuf to domain and back."""

from __future__ import annotations

import pytest

from brokers.domain.holding import (
    Assignment,
    Holding,
    NamespaceMetadata,
    Release,
    TenantMetadata,
    TopicMetadata,
)
from brokers.domain.session import Delivered, Delivery, Established
from brokers.ports.session import Greeting, HeartbeatEcho, StreamEnded, Timing, TurnedAway
from brokers.wire import from_manager, serving
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1.errors_pb2 import ErrorDetail
from protos.nextgen.v1.inventory_pb2 import Namespace, Tenant, Topic
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment, TopicRelease

NAME = "persistent://acme/orders/paid"
ASSIGNMENT = Assignment(TopicMetadata("id-1", NAME, 0, {"a": "b"}, 2), "", NAME, 7, 3)
RELEASE = Release("id-1", "", NAME, 7, "broker-2", 8, "127.0.0.1:9", "pulsar://127.0.0.1:8")


def delivery(**body: object) -> wire.ManagerMessage:
    step = wire.Delivery(sequence=4, **body)  # type: ignore[arg-type]
    return wire.ManagerMessage(deliveries=wire.Deliveries(deliveries=[step]))


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (
            delivery(tenant=Tenant(tenant_id="t", name="acme", properties={"k": "v"}, version=5)),
            TenantMetadata("t", "acme", {"k": "v"}, 5),
        ),
        (
            delivery(namespace=Namespace(namespace_id="n", name="acme/orders", version=1)),
            NamespaceMetadata("n", "acme/orders", {}, 1),
        ),
        (
            delivery(
                assign=TopicAssignment(
                    topic=Topic(topic_id="id-1", name=NAME, properties={"a": "b"}, version=2),
                    name=NAME,
                    epoch=7,
                    shard_id=3,
                )
            ),
            ASSIGNMENT,
        ),
        (
            delivery(
                release=TopicRelease(
                    topic_id="id-1",
                    name=NAME,
                    epoch=7,
                    new_broker_id="broker-2",
                    new_epoch=8,
                    new_broker_grpc="127.0.0.1:9",
                    new_broker_url="pulsar://127.0.0.1:8",
                )
            ),
            RELEASE,
        ),
    ],
)
def test_every_kind_of_delivery_is_understood(message, payload):
    assert from_manager(message, 11) == Delivered([Delivery(4, payload)], 11)


def test_a_delivery_of_an_unknown_kind_ends_the_stream_because_it_must_not_be_skipped():
    assert isinstance(from_manager(delivery(), 0), StreamEnded)


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        (
            wire.ManagerMessage(
                established=wire.SessionEstablished(
                    session_id="s",
                    epoch=2,
                    resumed=True,
                    session_ttl_ms=3_000,
                    heartbeat_ms=750,
                    next_sequence=9,
                )
            ),
            Greeting(Established("s", 2, True, 9), Timing(session_ttl_ms=3_000, heartbeat_ms=750)),
        ),
        (
            wire.ManagerMessage(heartbeat_ack=wire.HeartbeatAck(sent_at_ms=5)),
            HeartbeatEcho(5),
        ),
        (
            wire.ManagerMessage(
                error=ErrorDetail(reason="NOT_LEADER", message="no", leader_hint="a:1")
            ),
            TurnedAway("NOT_LEADER", "no", "a:1"),
        ),
        (
            wire.ManagerMessage(),
            StreamEnded("the broker manager sent a message that this version does not know"),
        ),
    ],
)
def test_every_other_message_is_understood(message, meaning):
    assert from_manager(message, 0) == meaning


def held() -> Holding:
    holding = Holding()
    holding.apply(TenantMetadata("t", "acme", {}, 1), 0)
    holding.apply(NamespaceMetadata("n", "acme/orders", {}, 1), 0)
    holding.apply(ASSIGNMENT, 0)
    return holding


@pytest.mark.parametrize("spelling", [NAME, "acme/orders/paid", "PERSISTENT://acme/orders/paid"])
def test_a_topic_is_found_by_any_spelling_of_its_name(spelling: str):
    expected = wire.Serving(topic=NAME, serves=True, epoch=7, topic_id="id-1", has_metadata=True)

    assert serving(held(), spelling, 0) == expected


def test_a_released_topic_is_answered_with_where_it_went():
    holding = held()
    holding.apply(RELEASE, 0)

    assert serving(holding, NAME, 0) == wire.Serving(
        topic=NAME,
        epoch=7,
        topic_id="id-1",
        new_broker_id="broker-2",
        new_epoch=8,
        new_broker_grpc="127.0.0.1:9",
    )


@pytest.mark.parametrize(
    ("asked", "topic"),
    [("other", "persistent://public/default/other"), ("//", "//"), (NAME + "x", NAME + "x")],
)
def test_what_is_not_here_is_not_served(asked: str, topic: str):
    assert serving(held(), asked, 0) == wire.Serving(topic=topic)
