"""Events of the wire as a history has them."""

from __future__ import annotations

import pytest

from nextgen.harness.history.log_events import key_of, log_event_of, observation_of
from nextgen.harness.history.model import LogEvent, Observation
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.policies_pb2 import Policies

PLACE = {"position": 7, "term": 3, "shard_id": 2, "causation_id": b"\x01\xff"}


def place(kind: str, key: str, **more: object) -> LogEvent:
    return LogEvent(2, 7, 3, kind, key, causation_id="01ff", **more)  # type: ignore[arg-type]


EXAMPLES = [
    (
        pb.Event(
            **PLACE,
            topic_renamed=pb.TopicRenamed(
                name="x",
                topic_id="t",
                new_name="y",
                version=5,
                properties={"a": "b"},
                policies=Policies(message_ttl_ms=1).SerializeToString(),
                policies_version=2,
            ),
        ),
        place(
            "topic_renamed",
            "x",
            id="t",
            properties={"a": "b"},
            policies='{"message_ttl_ms":"1"}',
            policies_version=2,
            facts={"new_name": "y", "version": 5},
        ),
    ),
    (
        pb.Event(**PLACE, tenant_created=pb.TenantCreated(tenant_id="i", name="acme")),
        place("tenant_created", "acme", id="i"),
    ),
    (
        pb.Event(
            **PLACE,
            namespace_created=pb.NamespaceCreated(
                namespace_id="n", name="acme/orders", tenant_id="i", properties={"a": "b"}
            ),
        ),
        place("namespace_created", "acme/orders", id="n", properties={"a": "b"}),
    ),
    (
        pb.Event(**PLACE, topic_created=pb.TopicCreated(topic_id="t", name="x", namespace_id="n")),
        place("topic_created", "x", id="t"),
    ),
    (
        pb.Event(
            **PLACE,
            topic_assigned=pb.TopicAssigned(
                topic_id="t",
                unit="p3",
                name="x-partition-3",
                epoch=4,
                broker_id="b",
                session_id="s",
                reason="moved",
            ),
        ),
        place(
            "topic_assigned",
            "x-partition-3",
            id="t",
            unit="p3",
            epoch=4,
            broker_id="b",
            session_id="s",
            reason="moved",
        ),
    ),
    (
        pb.Event(
            **PLACE,
            broker_session_ended=pb.BrokerSessionEnded(
                broker_id="b", session_id="s", epoch=2, reason="expired"
            ),
        ),
        place(
            "broker_session_ended", "b", epoch=2, broker_id="b", session_id="s", reason="expired"
        ),
    ),
    (
        pb.Event(
            **PLACE,
            parent_gate_opened=pb.ParentGateOpened(
                parent_kind="namespace", parent_name="acme/orders", parent_id="n"
            ),
        ),
        place("parent_gate_opened", "acme/orders", id="n"),
    ),
    (pb.Event(**PLACE, slots_adopted=pb.SlotsAdopted()), place("slots_adopted", "")),
]


@pytest.mark.parametrize(("event", "expected"), EXAMPLES, ids=lambda each: "")
def test_an_event_keeps_what_checks_ask_for(event: pb.Event, expected: LogEvent) -> None:
    assert log_event_of(event) == expected
    assert key_of(event) == expected.key
    assert observation_of(event, watcher="w", shard=2, watch=1) == Observation(
        "w", 2, 1, 7, expected.type, expected.key, expected.epoch
    )


def test_every_kind_of_event_can_be_printed() -> None:
    for field in pb.Event.DESCRIPTOR.oneofs_by_name["payload"].fields:
        event = pb.Event(position=1)
        getattr(event, field.name).SetInParent()

        assert log_event_of(event).type == field.name


def test_an_event_of_a_later_release_has_no_name() -> None:
    assert log_event_of(pb.Event(position=1, shard_id=1)).type == ""
