"""A field map is the same table in both directions, and refuses fields that are not shared."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.wire.fields import FieldMap
from protos.nextgen.v1 import events_pb2 as pb


@dataclass(frozen=True, slots=True)
class Gone:
    topic_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Seen:
    broker_id: str
    units_used: int


@dataclass(frozen=True, slots=True)
class Chosen:
    rule: str
    compared: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    topic: str
    decision: Chosen | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    broker_id: str
    url: str
    http: str


SEEN = FieldMap(Seen, pb.CandidateSeen)
CHOSEN = FieldMap(Chosen, pb.PlacementDecision, converted={"compared": SEEN.each})
ASSIGNED = FieldMap(
    Assigned,
    pb.TopicAssigned,
    renamed={"topic": "name"},
    converted={"decision": CHOSEN.one},
    optional={"decision": None},
)
RECORDED = FieldMap(
    Recorded,
    pb.BrokerRecorded,
    renamed={"url": "endpoints.pulsar_url", "http": "endpoints.http"},
)

seen = st.builds(Seen, st.text(max_size=5), st.integers(0, 2**32 - 1))
chosen = st.builds(Chosen, st.text(max_size=5), st.lists(seen, max_size=3).map(tuple))


@given(st.builds(Assigned, st.text(max_size=5), st.none() | chosen))
def test_value_is_the_same_after_the_way_there_and_back(value):
    assert ASSIGNED.from_stored(ASSIGNED.to_stored(value)) == value


def test_renamed_field_is_stored_under_its_other_name():
    stored = ASSIGNED.to_stored(Assigned("t", Chosen("balance", (Seen("b", 3),))))

    decision = pb.PlacementDecision(rule="balance")
    decision.compared.add(broker_id="b", units_used=3)
    assert stored == pb.TopicAssigned(name="t", decision=decision)


def test_absent_optional_message_is_none_and_an_empty_one_is_not():
    assert ASSIGNED.from_stored(pb.TopicAssigned()).decision is None
    stored = pb.TopicAssigned(decision=pb.PlacementDecision())
    assert ASSIGNED.from_stored(stored).decision == Chosen("")


def test_optional_field_is_not_stored_while_it_is_what_absence_means():
    nothing = Chosen("nothing")
    assigned = FieldMap(
        Assigned,
        pb.TopicAssigned,
        renamed={"topic": "name"},
        converted={"decision": CHOSEN.one},
        optional={"decision": nothing},
    )

    assert assigned.to_stored(Assigned("t", nothing)) == pb.TopicAssigned(name="t")
    assert assigned.from_stored(pb.TopicAssigned(name="t")) == Assigned("t", nothing)


def test_dotted_name_is_a_field_of_the_message_inside():
    value = Recorded("b", "pulsar://a:1", "a:2")

    stored = RECORDED.to_stored(value)

    inner = pb.BrokerEndpoints(pulsar_url="pulsar://a:1", http="a:2")
    assert stored == pb.BrokerRecorded(broker_id="b", endpoints=inner)
    assert RECORDED.from_stored(stored) == value


def test_message_inside_another_is_made_with_nothing_beside_it():
    encode = FieldMap(Gone, pb.TopicDeleted).inside(pb.Event, "topic_deleted")

    assert encode(Gone("id", "t")) == pb.Event(
        topic_deleted=pb.TopicDeleted(topic_id="id", name="t")
    )


@pytest.mark.parametrize(
    ("differences", "message"),
    [
        ({"renamed": {"name": "title"}}, "TopicDeleted has no field title"),
        ({"renamed": {"title": "name"}}, "Gone has no fields"),
        ({"converted": {"title": (str, str)}}, "Gone has no fields"),
        ({"optional": {"title": None}}, "Gone has no fields"),
    ],
)
def test_field_that_one_side_lacks_is_refused(differences, message):
    with pytest.raises(AssertionError, match=message):
        FieldMap(Gone, pb.TopicDeleted, **differences)


def test_payload_that_the_outer_message_lacks_is_refused():
    with pytest.raises(AssertionError, match="Event has no field topic_lost"):
        FieldMap(Gone, pb.TopicDeleted).inside(pb.Event, "topic_lost")
