"""The fold: the same tables however the log is cut, right sums, outcomes forgotten alike."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.kernel.limits.write import OUTCOME_WINDOW_POSITIONS
from nextgen.replication.ports import Record
from protos.nextgen.v1 import events_pb2
from shards.domain.assignment import Assignment, TopicAssigned
from shards.domain.states import StateKind
from shards.domain.topic import Topic, TopicCreated, TopicDeleted
from shards.projections import outcomes as outcomes_module
from shards.projections.reading import read_assignments_of, read_outcomes
from shards.projections.rows import query_of, read_states
from shards.wire.event import UnknownEvent
from tests.support.shards.events import HISTORY, POLICIES, TIME_MS, TOPIC, entries_of, record_of
from tests.support.shards.world import MemoryView


@pytest.fixture
def view():
    made = MemoryView()
    yield made
    made.close()


def id_of(number):
    return number.to_bytes(16, "big")


def created(number):
    name = f"persistent://acme/orders/t-{number:05}"
    return TopicCreated(f"topic-{number}", name, 0, "ns-1", TIME_MS)


def states_in(view, kind, *keys):
    return read_states(query_of(view.reader), kind, keys)


def test_a_history_with_every_event_gives_the_states_it_tells_of(view):
    view.apply(entries_of([[record_of(HISTORY)]]))

    topics = states_in(view, StateKind.TOPIC, TOPIC, "persistent://a/b/none")
    assert topics == {
        TOPIC: Topic("topic-1", TOPIC, 5, 4, "ns-1", TIME_MS, (), POLICIES, 1),
        "persistent://a/b/none": None,
    }
    assert read_assignments_of(query_of(view.reader), "topic-1") == {
        "topic-1/p0": Assignment("topic-1", "p0", f"{TOPIC}-partition-0", 2, "broker-1", "s-2"),
        "topic-1/p1": Assignment("topic-1", "p1", f"{TOPIC}-partition-1", 1, "", ""),
    }


def test_sums_are_what_is_there(view):
    view.apply(entries_of([[record_of(HISTORY)]]))

    assert states_in(view, StateKind.USAGE, "s-1", "s-2") == {"s-1": None, "s-2": 3}
    totals = states_in(view, StateKind.TOTAL, "tenant", "namespace", "topic", "scalable_topic")
    assert totals == {"tenant": 1, "namespace": 2, "topic": 8, "scalable_topic": 2}


def test_nothing_is_kept_of_the_units_of_a_deleted_topic(view):
    view.apply(entries_of([[record_of(HISTORY)]]))

    assert read_assignments_of(query_of(view.reader), "topic-2") == {}


@settings(max_examples=25)
@given(
    records=st.lists(st.integers(0, 6), min_size=1, max_size=len(HISTORY)),
    batches=st.lists(st.integers(1, 4), max_size=len(HISTORY)),
)
def test_the_tables_depend_on_the_log_alone(records, batches):
    """Cut the history into records, and those into batches, in any way."""
    groups, rest = [], list(HISTORY)
    for number, size in enumerate([*records, len(HISTORY)]):
        groups.append([record_of(rest[:size], id_of(number), b"outcome")])
        rest = rest[size:]
    entries = entries_of(groups)
    at_once, in_batches = MemoryView(), MemoryView()

    at_once.apply(entries)
    while entries:
        size = batches.pop() if batches else len(entries)
        in_batches.apply(entries[:size])
        entries = entries[size:]

    assert in_batches.dump() == at_once.dump()
    at_once.close()
    in_batches.close()


def test_creating_a_topic_reads_no_state(view):
    """What is created starts over: nothing is read for it, which is what makes it fast."""
    view.apply(entries_of([[record_of([created(1)])]]))
    again = TopicCreated("topic-9", created(1).name, 5, "ns-1", TIME_MS)

    view.apply(entries_of([[record_of([TopicDeleted(created(1).name, "topic-1"), again])]]))

    assert states_in(view, StateKind.TOPIC, again.name)[again.name].topic_id == "topic-9"
    assert states_in(view, StateKind.TOTAL, "topic") == {"topic": 1}


def test_an_outcome_stands_at_the_last_position_of_its_record(view):
    rejected = record_of([], id_of(2), b"rejected")
    view.apply(entries_of([[record_of([created(1), created(2)], id_of(1), b"one"), rejected]]))

    outcomes = read_outcomes(query_of(view.reader), [id_of(1), id_of(2), id_of(3)])

    assert {key: (each.outcome, each.position) for key, each in outcomes.items()} == {
        id_of(1): (b"one", 2),
        id_of(2): (b"rejected", 2),
    }


@pytest.mark.parametrize(("further", "is_known"), [(0, True), (1, False)])
def test_an_outcome_is_forgotten_behind_the_window(view, further, is_known):
    first = entries_of([[record_of([created(0)], id_of(1), b"one")]])
    view.apply(first)
    position = 1 + OUTCOME_WINDOW_POSITIONS - 1 + further
    later = entries_of([[record_of([created(1)])]], from_index=2, from_position=position)

    view.apply(later)

    assert bool(read_outcomes(query_of(view.reader), [id_of(1)])) is is_known


def test_outcomes_without_orders_max_are_kept_and_more_drop_the_oldest(view, monkeypatch):
    monkeypatch.setattr(outcomes_module, "OUTCOMES_WITHOUT_ORDERS_MAX", 3)

    view.apply(entries_of([[record_of([], id_of(n), b"no") for n in range(1, 4)]]))
    view.apply(entries_of([[record_of([], id_of(n), b"no") for n in range(4, 6)]], from_index=2))

    known = read_outcomes(query_of(view.reader), [id_of(n) for n in range(1, 6)])
    assert sorted(known) == [id_of(3), id_of(4), id_of(5)]


def test_an_event_of_another_program_stops_the_replica(view):
    other = events_pb2.DecidedCommand(
        events=[events_pb2.Event(node_registered=events_pb2.NodeRegistered(node_id="n"))]
    )
    entries = entries_of([[Record(other.SerializeToString(), 1)]])

    with pytest.raises(UnknownEvent, match="node_registered"):
        view.apply(entries)


def test_a_record_that_miscounts_its_events_stops_the_replica(view):
    record = Record(record_of([created(1)]).payload, 2)

    with pytest.raises(AssertionError, match="says 2 events"):
        view.apply(entries_of([[record]]))


def test_units_assigned_within_one_batch_are_counted_once(view):
    first = TopicAssigned("topic-1", "", TOPIC, 1, "broker-1", "s-1", "first_lookup")
    second = TopicAssigned("topic-1", "", TOPIC, 2, "broker-2", "s-2", "moved")

    view.apply(entries_of([[record_of([first]), record_of([second])]]))

    assert states_in(view, StateKind.USAGE, "s-1", "s-2") == {"s-1": None, "s-2": 1}
