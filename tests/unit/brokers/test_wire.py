"""Protobuf to domain and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

import brokers.wire
from brokers.domain.former_names import OldName
from brokers.domain.holding import (
    Assignment,
    Holding,
    MetadataKind,
    MetadataRemoved,
    Moving,
    NamespaceMetadata,
    Prepare,
    Release,
    TenantMetadata,
    TopicMetadata,
    UnknownStep,
)
from brokers.domain.session import Delivered, Delivery, Established
from brokers.ports.session import (
    DrainedSettled,
    DrainedUnit,
    Greeting,
    HeartbeatEcho,
    LoadsRecorded,
    SegmentTraffic,
    StreamEnded,
    Timing,
    TurnedAway,
)
from brokers.wire import (
    drained_to_proto,
    from_manager,
    held_item,
    held_pages,
    segment_traffic_to_proto,
    serving,
)
from nextgen.kernel.governance.broker_load import Rates
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1 import inventory_pb2, policies_pb2
from protos.nextgen.v1.errors_pb2 import ErrorDetail
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Namespace,
    Tenant,
    Topic,
)
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment, TopicRelease

NAME = "persistent://acme/orders/paid"
ASSIGNMENT = Assignment(TopicMetadata("id-1", NAME, 0, {"a": "b"}, 2), "", NAME, 7, 3)
RELEASE = Release("id-1", "", NAME, 7, "broker-2", 8, "127.0.0.1:9", "pulsar://127.0.0.1:8")


def delivery(**body: object) -> wire.ManagerMessage:
    step = wire.Delivery(sequence=4, **body)  # type: ignore[arg-type]
    return wire.ManagerMessage(deliveries=wire.Deliveries(deliveries=[step]))


def test_what_may_come_and_what_is_about_to_go_are_told_apart_from_what_does():
    topic = Topic(topic_id="id-1", name=NAME, properties={"a": "b"}, version=2)
    wanted = TopicAssignment(topic=topic, name=NAME, epoch=7, shard_id=3, take_over=True)
    release = TopicRelease(
        topic_id="id-1",
        name=NAME,
        epoch=7,
        new_broker_id="broker-2",
        new_epoch=8,
        new_broker_grpc="127.0.0.1:9",
        new_broker_url="pulsar://127.0.0.1:8",
    )

    told = [
        from_manager(delivery(**body), 0)
        for body in ({"prepare": wanted}, {"moving": release}, {"assign": wanted})
    ]

    payloads = [each.deliveries[0].payload for each in told if isinstance(each, Delivered)]
    assert payloads == [Prepare(ASSIGNMENT), Moving(RELEASE), ASSIGNMENT]
    assert isinstance(payloads[2], Assignment)
    assert payloads[2].take_over


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
            delivery(topic=Topic(topic_id="id-1", name=NAME, properties={"a": "b"}, version=2)),
            TopicMetadata("id-1", NAME, 0, {"a": "b"}, 2),
        ),
        (
            delivery(removed=wire.MetadataRemoved(kind=KIND_NAMESPACE, name="a/b", id="n")),
            MetadataRemoved(MetadataKind.NAMESPACE, "a/b", "n"),
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


def test_a_delivery_of_an_unknown_kind_has_its_place_in_the_sequence_and_nothing_else():
    assert from_manager(delivery(), 0) == Delivered([Delivery(4, UnknownStep())], 0)


def test_a_removal_of_an_unknown_kind_is_an_unknown_step():
    removed = delivery(removed=wire.MetadataRemoved(kind=KIND_ASSIGNMENT, name="a", id="b"))

    assert from_manager(removed, 0) == Delivered([Delivery(4, UnknownStep())], 0)


def test_held_units_are_reported_in_pages_of_bounded_size(monkeypatch):
    monkeypatch.setattr(brokers.wire, "HELD_OBJECTS_PER_MESSAGE_MAX", 2)

    at_limit = list(held_pages(holding_of_topics(0)))
    beyond = list(held_pages(holding_of_topics(1)))

    assert [(len(page.objects), page.complete) for page in at_limit] == [(2, True)]
    assert [(len(page.objects), page.complete) for page in beyond] == [(2, False), (1, True)]
    assert beyond[1].objects[0] == wire.HeldObject(
        kind=KIND_TOPIC,
        name=f"{NAME}-0",
        id="id-0",
        version=2,
        units=[wire.HeldUnit(unit="", epoch=7)],
    )


def test_units_of_a_deleted_topic_are_reported_until_released():
    holding = holding_of_topics(1)
    (before,) = list(held_pages(holding))
    holding.apply(MetadataRemoved(MetadataKind.TOPIC, f"{NAME}-0", "id-0"), 0)

    (page,) = list(held_pages(holding))
    assert list(page.objects) == list(before.objects)

    release = Release("id-0", "", f"{NAME}-0", 7, "", 0, "", "")
    holding.apply(release, 0)
    (page,) = list(held_pages(holding))
    assert KIND_TOPIC not in {held.kind for held in page.objects}


def test_held_bytes_per_message_max_are_one_page_and_one_byte_more_is_two(monkeypatch):
    sizes = [held.ByteSize() for page in held_pages(holding_of_topics(0)) for held in page.objects]
    monkeypatch.setattr(brokers.wire, "HELD_BYTES_PER_MESSAGE_MAX", sum(sizes))
    assert [len(page.objects) for page in held_pages(holding_of_topics(0))] == [2]

    monkeypatch.setattr(brokers.wire, "HELD_BYTES_PER_MESSAGE_MAX", sum(sizes) - 1)
    assert [len(page.objects) for page in held_pages(holding_of_topics(0))] == [1, 1]


def test_a_broker_that_holds_nothing_reports_an_empty_page():
    assert list(held_pages(Holding())) == [wire.HeldMetadata(complete=True)]


def test_an_object_is_answered_as_it_is_held_and_an_absent_one_without_a_value():
    holding = holding_of_topics(1)

    topic = held_item(holding, KIND_TOPIC, f"{NAME}-0")
    namespace = held_item(holding, KIND_NAMESPACE, "acme/orders")
    absent = held_item(holding, KIND_TENANT, "other")

    assert (topic.topic.topic_id, topic.topic.version) == ("id-0", 2)
    assert dict(topic.topic.properties) == {"a": "b"}
    assert namespace.namespace.namespace_id == "n"
    assert absent == Item(kind=KIND_TENANT, name="other")


def test_policies_come_with_their_object_and_are_answered_as_they_came():
    said = policies_pb2.Policies(message_ttl_ms=5, deduplication=False)
    said.MergeFromString(b"\xa2\x06\x05later")
    objects = [
        wire.Delivery(tenant=inventory_pb2.Tenant(name="acme", version=2, policies=said)),
        wire.Delivery(
            namespace=inventory_pb2.Namespace(name="acme/orders", version=2, policies=said)
        ),
        wire.Delivery(
            topic=inventory_pb2.Topic(name=f"{NAME}-0", topic_id="id-0", version=3, policies=said)
        ),
    ]
    holding = holding_of_topics(1)
    message = wire.ManagerMessage(deliveries=wire.Deliveries(deliveries=objects))

    given = from_manager(message, 0)
    for delivery in given.deliveries:
        holding.apply(delivery.payload, 0)

    assert held_item(holding, KIND_TENANT, "acme").tenant.policies == said
    assert held_item(holding, KIND_NAMESPACE, "acme/orders").namespace.policies == said
    assert held_item(holding, KIND_TOPIC, f"{NAME}-0").topic.policies == said


def test_an_object_without_policies_is_answered_without():
    item = held_item(holding_of_topics(1), KIND_TOPIC, f"{NAME}-0")

    assert not item.topic.HasField("policies")


def holding_of_topics(count: int) -> Holding:
    """Return a holding of a tenant, a namespace and so many topics."""
    holding = Holding()
    holding.apply(TenantMetadata("t", "acme", {}, 1), 0)
    holding.apply(NamespaceMetadata("n", "acme/orders", {}, 1), 0)
    for number in range(count):
        name = f"{NAME}-{number}"
        topic = TopicMetadata(f"id-{number}", name, 0, {"a": "b"}, 2)
        holding.apply(Assignment(topic, "", name, 7, 3), 0)
    return holding


LOAD = SegmentTraffic("id", "s3", "segment://t/n/x/0000-ffff-3", 7, Rates(1, 2, 3, 4))
DRAINED = DrainedUnit("id", "s3", "segment://t/n/x/0000-ffff-3", 7, "sub")


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
            wire.ManagerMessage(
                established=wire.SessionEstablished(session_id="s", report_held=True)
            ),
            Greeting(Established("s", 0, False, 0), Timing(0, 0), wants_held=True),
        ),
        (
            wire.ManagerMessage(
                established=wire.SessionEstablished(session_id="s", takes_drained=True)
            ),
            Greeting(Established("s", 0, False, 0), Timing(0, 0), takes_drained=True),
        ),
        (
            wire.ManagerMessage(
                established=wire.SessionEstablished(session_id="s", takes_loads=True)
            ),
            Greeting(Established("s", 0, False, 0), Timing(0, 0), takes_loads=True),
        ),
        (
            wire.ManagerMessage(
                loads_recorded=wire.SegmentLoadReports(segments=[segment_traffic_to_proto(LOAD)])
            ),
            LoadsRecorded([LOAD]),
        ),
        (
            wire.ManagerMessage(
                drained_settled=wire.DrainedUnits(units=[drained_to_proto(DRAINED)])
            ),
            DrainedSettled([DRAINED]),
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

    assert serving(held(), spelling, 0, 0) == expected


def test_a_topic_is_served_by_a_former_name_in_any_spelling_until_its_time_is_over():
    former = "persistent://public/default/before"
    holding = Holding()
    renamed = replace(ASSIGNMENT.topic, former_names=(OldName(former, 1_000),))
    holding.apply(replace(ASSIGNMENT, topic=renamed), 0)

    answers = [serving(holding, name, 0, 999) for name in (former, "before")]

    assert [(each.topic, each.serves, each.topic_id) for each in answers] == [
        (former, True, "id-1")
    ] * 2
    assert serving(holding, "before", 0, 1_000) == wire.Serving(topic=former)


def test_former_names_come_with_their_topic_and_are_answered_as_they_came():
    topic = Topic(topic_id="id-1", name=NAME, version=2)
    topic.former_names.add(name="persistent://a/b/c", until_ms=7)
    assigned = TopicAssignment(topic=topic, name=NAME, epoch=7, shard_id=3)

    delivered = from_manager(delivery(assign=assigned), 0)

    assert isinstance(delivered, Delivered)
    payload = delivered.deliveries[0].payload
    assert isinstance(payload, Assignment)
    assert payload.topic.former_names == (OldName("persistent://a/b/c", 7),)
    holding = Holding()
    holding.apply(payload, 0)
    assert held_item(holding, KIND_TOPIC, NAME).topic == topic


def test_a_released_topic_is_answered_with_where_it_went():
    holding = held()
    holding.apply(RELEASE, 0)

    assert serving(holding, NAME, 0, 0) == wire.Serving(
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
    assert serving(held(), asked, 0, 0) == wire.Serving(topic=topic)
