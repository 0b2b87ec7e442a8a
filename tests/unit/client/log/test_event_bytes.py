"""Events as they are sent are, byte for byte read, what the stored ones say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.log.event_bytes import EventFilter, SentEvents
from nextgen.client.log.event_keys import event_keys
from nextgen.client.log.wire import filled_events
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.stream import KEY_PREFIX_BYTES_MAX
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1 import event_bytes_pb2 as bytes_pb
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb

STORED = st.one_of(
    st.builds(
        lambda name, version: pb.Event(
            topic_created=pb.TopicCreated(name=name, properties={"a": name}),
            schema_version=version,
        ),
        st.text(max_size=300),
        st.integers(0, 3),
    ),
    st.builds(lambda name: pb.Event(tenant_deleted=pb.TenantDeleted(name=name)), st.text()),
    st.builds(lambda units: pb.Event(capacity_granted=pb.CapacityGranted(units=units)), st.just(7)),
    st.builds(
        lambda name, new: pb.Event(topic_renamed=pb.TopicRenamed(name=name, new_name=new)),
        st.text(),
        st.text(),
    ),
    st.just(pb.Event(slots_adopted=pb.SlotsAdopted(ranges=[pb.SlotRange(first=1, last=2)]))),
    st.just(pb.Event(broker_recorded=pb.BrokerRecorded(broker_id="broker-1"))),
)
DECIDED = st.builds(
    lambda command_id, time_ms, events, outcome: pb.DecidedCommand(
        command_id=command_id, outcome=outcome, time_ms=time_ms, events=events
    ),
    st.sampled_from([b"", b"x", b"0123456789abcdef", b"y" * 200]),
    st.sampled_from([0, 1, 127, 128, 1_800_000_000_000, 2**63]),
    st.lists(STORED, max_size=3),
    st.binary(max_size=20),
)


def entry_of(decided: Sequence[pb.DecidedCommand], *, first_position: int = 1) -> Entry:
    records = tuple(Record(one.SerializeToString(), len(one.events)) for one in decided)
    return Entry(index=9, term=4, first_position=first_position, records=records)


def sent(
    entry: Entry, wanted: EventFilter, from_position: int = 1, events_max: int = 100
) -> list[pb.Event]:
    sender = SentEvents(7, wanted)
    positions, found, behind = sender.of(entry, from_position, events_max)
    while behind < entry.next_position:
        assert behind - from_position >= events_max
        more_positions, more, behind = sender.of(entry, behind, events_max)
        positions, found = positions + more_positions, found + more
    assert behind == entry.next_position
    events = [pb.Event.FromString(data) for data in found]
    assert [event.position for event in events] == positions
    return events


@given(
    decided=st.lists(DECIDED, max_size=4),
    first_position=st.sampled_from([1, 120, 127, 128, 16_380, 2**40]),
    skipped=st.integers(0, 12),
    events_max=st.integers(1, 5),
)
def test_what_is_sent_is_what_the_messages_say(
    decided: list[pb.DecidedCommand], first_position: int, skipped: int, events_max: int
) -> None:
    entry = entry_of(decided, first_position=first_position)

    found = sent(entry, EventFilter(), first_position + skipped, events_max)

    assert found == list(filled_events(entry, 7))[skipped:]


@given(
    decided=st.lists(DECIDED, max_size=4),
    types=st.lists(st.sampled_from(["topic_created", "tenant_deleted", "slots_adopted"])),
    prefix=st.sampled_from(["", "a", "broker-", "0"]),
)
def test_a_filter_narrows_what_is_sent_and_nothing_else(
    decided: list[pb.DecidedCommand], types: list[str], prefix: str
) -> None:
    entry = entry_of(decided)

    found = sent(entry, EventFilter(types, prefix))

    assert found == [
        event
        for event in filled_events(entry, 7)
        if (not types or event.WhichOneof("payload") in types)
        and any(key.startswith(prefix) for key in event_keys(event))
    ]


def test_an_event_about_no_name_is_left_out_by_any_prefix() -> None:
    adopted = pb.DecidedCommand(events=[pb.Event(slots_adopted=pb.SlotsAdopted())])

    assert len(sent(entry_of([adopted]), EventFilter())) == 1
    assert sent(entry_of([adopted]), EventFilter(key_prefix="a")) == []


def test_a_message_of_event_bytes_is_an_event_batch() -> None:
    entry = entry_of([pb.DecidedCommand(events=[pb.Event(tenant_deleted={"name": "acme"})])])
    _, data, _ = SentEvents(7, EventFilter()).of(entry, 1, 9)

    message = bytes_pb.EventBatchBytes(
        events=data,
        next_position=2,
        oldest_position=3,
        commit_position=4,
        snapshot_position=5,
    )

    batch = shard_pb.EventBatch.FromString(message.SerializeToString())
    assert batch.events[0].tenant_deleted.name == "acme"
    assert (batch.next_position, batch.oldest_position) == (2, 3)
    assert (batch.commit_position, batch.snapshot_position) == (4, 5)


@pytest.mark.parametrize(
    ("of_bytes", "real"),
    [
        (bytes_pb.EventBatchBytes, shard_pb.EventBatch),
        (bytes_pb.DecidedCommandBytes, pb.DecidedCommand),
    ],
)
def test_the_messages_of_bytes_have_the_numbers_of_what_they_stand_for(
    of_bytes: type, real: type
) -> None:
    known = real.DESCRIPTOR.fields_by_name  # type: ignore[attr-defined]
    for field in of_bytes.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        assert known[field.name].number == field.number
        assert known[field.name].is_repeated == field.is_repeated
    one_event = bytes_pb.DecidedEventBytes.DESCRIPTOR.fields_by_name["event"]
    assert one_event.number == pb.DecidedCommand.DESCRIPTOR.fields_by_name["events"].number


def test_a_type_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="no event type 'nonsense'"):
        EventFilter(["topic_created", "nonsense"])


def test_the_length_of_a_prefix_is_bounded() -> None:
    EventFilter(key_prefix="x" * KEY_PREFIX_BYTES_MAX)
    with pytest.raises(InvalidRequest, match="at most"):
        EventFilter(key_prefix="x" * (KEY_PREFIX_BYTES_MAX + 1))
