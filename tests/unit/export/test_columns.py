"""Events as columns, and back."""

import io

import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.export.format.columns import INT64_MAX, EventColumns
from nextgen.export.format.rows import events_of
from nextgen.export.format.schema import payload_fields
from protos.nextgen.v1.events_pb2 import Event, TenantCreated
from tests.support.logs.export_logs import envelope, events

BEYOND_63_BITS = 2**64 - 1


def filled(message, text, number):
    """Set every field of a message, nested ones too."""
    for field in message.DESCRIPTOR.fields:
        target = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(target, field.message_type.fields_by_name, text, number)
        elif field.message_type is not None:
            target.SetInParent() if not field.is_repeated else target.add()
            filled(target[0] if field.is_repeated else target, text, number)
        else:
            value = _value(field, text, number)
            target.extend([value, value]) if field.is_repeated else setattr(
                message, field.name, value
            )


def _fill_map(target, entry, text, number):
    """Set two entries, one of them with the silent value."""
    if entry["key"].cpp_type == entry["key"].CPPTYPE_STRING:
        target[text], target[f"{text}-2"] = text, ""
    else:
        target[number], target[number // 2] = number, 0


def _value(field, text, number):
    if field.cpp_type == field.CPPTYPE_STRING:
        return text.encode() if field.type == field.TYPE_BYTES else text
    return number % 2**32 if field.cpp_type == field.CPPTYPE_UINT32 else number


def one_of_each(text="ünï", number=7):
    made = []
    for position, field in enumerate(payload_fields(), start=1):
        event = envelope(position)
        getattr(event, field.name).SetInParent()
        filled(getattr(event, field.name), text, number)
        made.append(event)
    return made


def round_trip(made):
    table = EventColumns().table(made)
    file = io.BytesIO()
    pq.write_table(table, file, store_schema=False)
    file.seek(0)
    return list(events_of(pq.read_table(file)))


def test_every_event_type_with_every_field_comes_back() -> None:
    assert round_trip(one_of_each()) == one_of_each()


def test_every_event_type_without_any_field_comes_back() -> None:
    made = []
    for position, field in enumerate(payload_fields(), start=1):
        event = Event(position=position, shard_id=1, schema_version=1)
        getattr(event, field.name).SetInParent()
        made.append(event)

    assert round_trip(made) == made


@settings(max_examples=30)
@given(st.lists(st.sampled_from(one_of_each() + events(1, 8)), max_size=30))
def test_any_mixture_comes_back_in_order(mixture) -> None:
    assert list(events_of(EventColumns().table(mixture))) == mixture


def test_what_columns_say_is_not_kept_twice() -> None:
    table = EventColumns().table(one_of_each())

    assert table["raw"].null_count == table.num_rows


def test_a_row_has_the_struct_of_its_type_alone() -> None:
    row = EventColumns().table(events(1, 2)).slice(0, 1).to_pylist()[0]
    payloads = {name: row[name] for name in row if name in {f.name for f in payload_fields()}}

    assert [name for name, value in payloads.items() if value is not None] == ["topic_created"]
    assert row["topic_created"]["properties"] == [("a", ""), ("b", "2")]
    assert row["event_type"] == "topic_created"


def test_an_event_of_an_unknown_type_is_kept_as_bytes() -> None:
    newer = Event.FromString(envelope(1).SerializeToString() + b"\xe2\x12\x02hi")
    assert newer.WhichOneof("payload") is None

    table = EventColumns().table([newer, *events(2, 3)])

    assert table["event_type"].to_pylist()[0] == "unknown"
    assert table["raw"].null_count == 2
    assert list(events_of(table)) == [newer, *events(2, 3)]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\xa2\x01\x05\x82\x7d\x02hi", id="a field of a known type"),
        # broker_session_established (70) with endpoints (4) with field 2000.
        pytest.param(b"\xb2\x04\x07\x22\x05\x82\x7d\x02hi", id="a field of a message in it"),
    ],
)
def test_a_field_that_a_newer_release_added_is_kept_in_raw(payload: bytes) -> None:
    newer = Event.FromString(envelope(1).SerializeToString() + payload)
    assert newer.WhichOneof("payload") is not None

    table = EventColumns().table([newer, *events(2, 3)])

    assert table["raw"].null_count == 2
    assert table["event_type"].to_pylist()[0] == newer.WhichOneof("payload")
    assert list(events_of(table)) == [newer, *events(2, 3)]


def test_a_number_beyond_63_bits_is_the_largest_and_kept_in_raw() -> None:
    huge, fitting = envelope(1), envelope(2)
    huge.topic_assigned.epoch = BEYOND_63_BITS
    fitting.topic_assigned.epoch = INT64_MAX

    table = EventColumns().table([huge, fitting])

    epochs = [row["epoch"] for row in table["topic_assigned"].to_pylist()]
    assert epochs == [INT64_MAX, INT64_MAX]
    assert [raw is None for raw in table["raw"].to_pylist()] == [False, True]
    assert list(events_of(table)) == [huge, fitting]


def test_a_time_beyond_63_bits_is_kept_in_raw() -> None:
    late = envelope(1, time_ms=BEYOND_63_BITS)
    late.tenant_created.CopyFrom(TenantCreated(name="a"))

    assert round_trip([late]) == [late]


def _foreign_event():
    """An event with shapes that no type has today: lists, nested maps, enumerations, emptiness."""
    file = descriptor_pb2.FileDescriptorProto(name="foreign.proto", package="f", syntax="proto3")
    level = file.enum_type.add(name="Level")
    level.value.add(name="LOW", number=0)
    level.value.add(name="HIGH", number=1)
    kinds = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="Nothing")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="count", number=1, type=kinds.TYPE_UINT64, label=1)
    shaped = file.message_type.add(name="Shaped")
    entry = shaped.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=".f.Inner", label=1)
    for number, (name, type_, label, of) in enumerate(
        [
            ("inners", kinds.TYPE_MESSAGE, 3, ".f.Inner"),
            ("levels", kinds.TYPE_ENUM, 3, ".f.Level"),
            ("level", kinds.TYPE_ENUM, 1, ".f.Level"),
            ("counts", kinds.TYPE_UINT64, 3, ""),
            ("by_name", kinds.TYPE_MESSAGE, 3, ".f.Shaped.ByNameEntry"),
            ("empty", kinds.TYPE_MESSAGE, 1, ".f.Nothing"),
        ],
        start=1,
    ):
        shaped.field.add(name=name, number=number, type=type_, label=label, type_name=of or None)
    event = file.message_type.add(name="Event")
    event.CopyFrom(descriptor_pb2.DescriptorProto(name="Event"))
    for field in Event.DESCRIPTOR.fields:
        if field.containing_oneof is None:
            event.field.add(name=field.name, number=field.number, type=field.type, label=1)
    event.oneof_decl.add(name="payload")
    for number, name in ((20, "Shaped"), (21, "Nothing")):
        event.field.add(
            name=name.lower(),
            number=number,
            type=kinds.TYPE_MESSAGE,
            type_name=f".f.{name}",
            label=1,
            oneof_index=0,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("f.Event"))


def test_shapes_that_no_event_has_yet_have_columns_too() -> None:
    foreign = _foreign_event()
    shaped, nothing = (foreign(position=n, shard_id=1, schema_version=1) for n in (1, 2))
    shaped.shaped.inners.add(count=3)
    shaped.shaped.inners.add(count=BEYOND_63_BITS)
    shaped.shaped.levels.extend([1, 0, 9])
    shaped.shaped.level = 1
    shaped.shaped.counts.extend([1, BEYOND_63_BITS])
    shaped.shaped.by_name["a"].count = BEYOND_63_BITS
    nothing.nothing.SetInParent()

    row, other = EventColumns(foreign.DESCRIPTOR).table([shaped, nothing]).to_pylist()

    assert row["shaped"] == {
        "inners": [{"count": 3}, {"count": INT64_MAX}],
        "levels": ["HIGH", "LOW", "9"],
        "level": "HIGH",
        "counts": [1, INT64_MAX],
        "by_name": [("a", {"count": INT64_MAX})],
        "empty": None,
    }
    assert foreign.FromString(row["raw"]) == shaped
    assert (other["shaped"], other["nothing"]) == (None, {"is_present": True})
