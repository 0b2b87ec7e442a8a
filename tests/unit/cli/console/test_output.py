"""What commands print for programs."""

from __future__ import annotations

from nextgen.cli.console.output import as_dict
from protos.nextgen.v1.events_pb2 import Event, TopicAssigned
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item, Topic


def test_numbers_stay_numbers_and_bytes_become_digits():
    event = Event(position=2**40, causation_id=b"\x01\xff", topic_assigned=TopicAssigned(epoch=3))

    shown = as_dict(event)

    assert (shown["position"], shown["causation_id"]) == (2**40, "01ff")
    assert shown["topic_assigned"]["epoch"] == 3


def test_only_the_set_field_of_a_oneof_is_shown():
    shown = as_dict(Item(kind=KIND_TOPIC, name="n", topic=Topic(properties={"a": "b"})))

    assert set(shown) == {"kind", "name", "topic"}
    assert (shown["kind"], shown["topic"]["properties"]) == ("KIND_TOPIC", {"a": "b"})
