"""What an event is about: every payload of the contract is decided."""

from __future__ import annotations

import pytest

from nextgen.client.changes.index import change_of, changes_in
from nextgen.client.log.event_keys import EVENT_TYPES, KEY_FIELDS, NO_KEY, event_key, event_keys
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC

PAYLOADS = pb.Event.DESCRIPTOR.oneofs_by_name["payload"].fields


def test_every_payload_of_the_contract_is_decided() -> None:
    assert {payload.name for payload in PAYLOADS} == EVENT_TYPES


@pytest.mark.parametrize("payload", list(PAYLOADS), ids=lambda payload: payload.name)
def test_the_key_of_a_payload_is_a_string_that_it_has(payload: object) -> None:
    name, message = payload.name, payload.message_type  # type: ignore[attr-defined]
    field = KEY_FIELDS[name]
    if field is None:
        about = {"name", "broker_id", "parent_name"}
        assert not about & set(message.fields_by_name), f"{name} is about something"
        assert event_key(pb.Event(**{name: {}})) == NO_KEY
    else:
        assert event_key(pb.Event(**{name: {field: "acme/orders"}})) == "acme/orders"


def test_a_payload_without_its_name_and_an_event_without_payload_have_no_key() -> None:
    assert event_key(pb.Event(topic_created=pb.TopicCreated())) == NO_KEY
    assert event_key(pb.Event(position=7)) == NO_KEY


def test_a_rename_is_about_both_names_and_other_events_about_one() -> None:
    renamed = pb.Event(topic_renamed=pb.TopicRenamed(name="a", new_name="b"))
    created = pb.Event(topic_created=pb.TopicCreated(name="a"))
    moved = pb.Event(shard_map_changed=pb.ShardMapChanged())

    assert [event_keys(each) for each in (renamed, created, moved)] == [("a", "b"), ("a",), ("",)]
    assert [*changes_in(renamed)] == [(KIND_TOPIC, "a"), (KIND_TOPIC, "b")]
    assert [*changes_in(created)] == [(KIND_TOPIC, "a")]
    assert not changes_in(moved)


@pytest.mark.parametrize("payload", ["topic_name_pointed", "topic_name_freed"])
def test_what_a_shard_keeps_of_a_name_is_a_change_of_the_topic_of_that_name(payload: str) -> None:
    event = pb.Event()
    getattr(event, payload).name = "a"
    assert [*changes_in(event)] == [(KIND_TOPIC, "a")]


@pytest.mark.parametrize(
    ("scope", "kind"),
    [
        ("tenant", KIND_TENANT),
        ("namespace", KIND_NAMESPACE),
        ("topic", KIND_TOPIC),
        ("cluster", None),
    ],
)
@pytest.mark.parametrize("payload", ["policy_set", "policy_cleared"])
def test_policies_are_a_change_of_the_object_that_they_are_of(scope, kind, payload):
    event = pb.Event()
    getattr(event, payload).scope = scope
    getattr(event, payload).name = "x"

    assert change_of(event) == (None if kind is None else (kind, "x"))
