"""Events survive the way into the log and back."""

import pytest

from nextgen.client.log.wire import filled_events
from nextgen.replication.ports import Entry
from protos.nextgen.v1 import events_pb2 as pb
from shards.domain.assignment import TopicAssigned
from shards.domain.placement.choice import CandidateSeen, PlacementDecision
from shards.projections.evolution import ROUTES
from shards.wire.event import (
    _DECODERS,
    _ENCODERS,
    UnknownEvent,
    decode_events,
    encode_decided,
)
from tests.support.shards.events import HISTORY, TIME_MS, record_of


@pytest.mark.parametrize("event", HISTORY, ids=lambda event: type(event).__name__)
def test_an_event_is_the_same_after_the_log(event):
    payload = encode_decided([event], command_id=b"c", outcome=b"o", time_ms=TIME_MS)

    decided = pb.DecidedCommand.FromString(payload)

    assert decode_events(decided) == [event]
    assert (decided.command_id, decided.outcome, decided.time_ms) == (b"c", b"o", TIME_MS)


def test_the_tables_of_the_wire_are_total():
    fields = {field.name for field in pb.Event.DESCRIPTOR.oneofs_by_name["payload"].fields}
    not_of_a_shard = {
        "capacity_leased",
        "capacity_lease_released",
        "node_registered",
        "shard_map_changed",
        "broker_recorded",
        "lookup_window_recorded",
        "quotas_set",
        "configuration_set",
        "node_excluded",
        "slot_move_changed",
        "shard_changed",
        "plan_changed",
        "node_state_set",
    }

    assert set(_ENCODERS) == set(ROUTES)
    assert set(_DECODERS) == fields - not_of_a_shard


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(pb.Event(), id="no-payload"),
        pytest.param(pb.Event(policy_set=pb.PolicySet(scope="cluster")), id="scope"),
        pytest.param(
            pb.Event(schema_version=2, tenant_deleted=pb.TenantDeleted()), id="later-schema"
        ),
    ],
)
def test_an_event_that_is_not_known_is_not_passed_over(stored):
    decided = pb.DecidedCommand(events=[stored])

    with pytest.raises(UnknownEvent):
        decode_events(decided)


def test_a_payload_from_a_later_program_is_not_passed_over():
    event = b"\x22\x04\x82\x19\x01\x00"  # With a payload numbered 400.
    later = pb.DecidedCommand.FromString(event)

    with pytest.raises(UnknownEvent):
        decode_events(later)


def test_events_are_filled_in_with_their_place():
    entry = Entry(
        9, 4, 100, (record_of(HISTORY[:2], b"cause"), record_of([]), record_of(HISTORY[2:3]))
    )

    events = list(filled_events(entry, 7))

    assert [event.position for event in events] == [100, 101, 102]
    assert {event.term for event in events} == {4}
    assert {event.shard_id for event in events} == {7}
    assert {event.time_ms for event in events} == {TIME_MS}
    assert [event.causation_id for event in events] == [b"cause", b"cause", b""]
    assert {event.schema_version for event in events} == {1}


def test_an_assignment_keeps_why_it_was_made():
    decision = PlacementDecision(
        "two_choices",
        candidates=3,
        excluded=2,
        compared=(CandidateSeen("b-1", 4, 10, 250), CandidateSeen("b-2", 5, 10)),
        asked_by="drain",
    )
    event = TopicAssigned("id", "p1", "name", 2, "b-1", "s-1", "drained", decision)

    payload = encode_decided([event], command_id=b"", outcome=b"", time_ms=TIME_MS)

    assert decode_events(pb.DecidedCommand.FromString(payload)) == [event]


def test_an_assignment_of_a_log_without_decisions_has_none():
    stored = pb.Event(topic_assigned=pb.TopicAssigned(topic_id="id", name="name", epoch=1))

    (event,) = decode_events(pb.DecidedCommand(events=[stored]))

    assert isinstance(event, TopicAssigned)
    assert event.decision is None
