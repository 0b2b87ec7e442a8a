"""Ranges and pages of a view."""

from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nextgen.replication.view.database import driver_of
from shards.domain.parent_gate import ParentKind
from shards.domain.states import StateKind
from shards.domain.topic import TopicCreated
from shards.projections.reading import (
    child_ranges,
    count_names,
    end_of_prefix,
    has_key_within,
    prefix_range,
    read_names,
    read_page,
    read_range,
    read_sessions,
    topic_ranges,
)
from shards.projections.rows import query_of, read_states
from tests.support.shards.events import HISTORY, TIME_MS, entries_of, record_of
from tests.support.shards.world import MemoryView

NAMES = [
    "non-persistent://acme/orders/b",
    "persistent://acme/orders/a",
    "persistent://acme/orders/ü",
]
OTHERS = ["persistent://acme/orders2/x", "persistent://acme/order/x", "persistent://acm/orders/x"]


@pytest.fixture
def query():
    view = MemoryView()
    events = [TopicCreated(name, name, 0, "ns-1", TIME_MS) for name in [*NAMES, *OTHERS]]
    view.apply(entries_of([[record_of([*HISTORY[:1], *HISTORY[22:23], *events])]]))
    yield query_of(view.reader)
    view.close()


def test_a_namespaces_topics_are_those_and_no_others(query):
    page = read_page(query, StateKind.TOPIC, topic_ranges("acme/orders"), after="", limit=10)

    assert [topic.name for topic in page] == NAMES


def test_one_domain_is_a_range_of_its_own(query):
    ranges = topic_ranges("acme/orders", "persistent")

    page = read_page(query, StateKind.TOPIC, ranges, after="", limit=10)

    assert [topic.name for topic in page] == NAMES[1:]


@pytest.mark.parametrize("place", range(len(NAMES)))
def test_a_page_begins_behind_a_name_and_ends_at_its_limit(query, place):
    ranges = topic_ranges("acme/orders")

    page = read_page(query, StateKind.TOPIC, ranges, after=NAMES[place], limit=1)

    assert [topic.name for topic in page] == NAMES[place + 1 : place + 2]


def test_children_are_found_unless_they_are_left_out(query):
    kind, ranges = child_ranges(ParentKind.NAMESPACE, "acme/orders2")

    found = [has_key_within(query, kind, within, ()) for within in ranges]
    without = [has_key_within(query, kind, within, {OTHERS[0]}) for within in ranges]

    assert any(found)
    assert not any(without)


def test_a_tenants_children_are_namespaces():
    assert child_ranges(ParentKind.TENANT, "acme") == (
        StateKind.NAMESPACE,
        (prefix_range("acme/"),),
    )


def test_a_range_without_a_limit_is_read_whole(query):
    assert len(read_range(query, StateKind.TOPIC, prefix_range("persistent://"[:-1]))) == 5


def test_many_states_are_read_at_once(query):
    wanted = [*NAMES, "persistent://acme/orders/none"]

    states = read_states(query, StateKind.TOPIC, wanted)

    assert [state.name if state else None for state in states.values()] == [*NAMES, None]
    assert read_states(query, StateKind.TOPIC, []) == {}


def test_more_states_than_fit_one_select_are_read_all_the_same(query):
    absent = [f"persistent://acme/orders/none-{number}" for number in range(2_100)]

    states = read_states(query, StateKind.TOPIC, [NAMES[0], *absent, NAMES[1]])

    assert [key for key, state in states.items() if state is not None] == [NAMES[0], NAMES[1]]


def test_sessions_are_read(query):
    assert [each.session_id for each in read_sessions(query).values()] == ["s-1"]


@given(st.text(max_size=4), st.text(max_size=4))
def test_what_begins_with_a_prefix_is_before_its_end_and_nothing_else(
    prefix: str, other: str
) -> None:
    # No name begins with U+10FFFF, and no text is behind all that do: see ``end_of_prefix``.
    assume(not prefix or prefix.rstrip(chr(0x10FFFF)))
    try:
        in_bytes, after = prefix.encode(), end_of_prefix(prefix).encode()
        text = other.encode()
    except UnicodeEncodeError:
        return
    if in_bytes <= text < after and chr(0x10FFFF) not in other:
        assert other.startswith(prefix)
    assert (prefix + "x").encode() < after
    assert end_of_prefix("a\ud7ff") == "a\ue000"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("", NAMES), ("a", NAMES[1:2]), ("ü", NAMES[2:]), ("c", []), ("ab", []), ("%", [])],
)
def test_names_are_those_that_begin_with_the_prefix_in_every_domain(query, prefix, expected):
    ranges = topic_ranges("acme/orders", prefix=prefix)

    names = read_names(query, StateKind.TOPIC, ranges, after="", limit=10)

    assert names == [(name, 0) for name in expected]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_count_in_slices_is_that_of_the_whole_range(query, limit):
    within = prefix_range("persistent://acme/")

    counted, after = [], ""
    while True:
        count, units, after = count_names(query, StateKind.TOPIC, within, after=after, limit=limit)
        counted.append((count, units))
        if not after:
            break

    assert (sum(count for count, _ in counted), sum(units for _, units in counted)) == (4, 4)


def steps_of(view, work):
    """Return how many instructions SQLite's machine needed for ``work``, in thousands."""
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    driver = driver_of(view.reader())
    driver.set_progress_handler(count, 1_000)
    work(query_of(view.reader))
    driver.set_progress_handler(None, 1_000)
    return steps


def test_a_page_far_behind_the_beginning_of_a_range_costs_what_the_first_one_does():
    view = MemoryView()
    names = [f"persistent://acme/orders/t-{number:05}" for number in range(5_000)]
    events = [TopicCreated(name, name, 0, "ns-1", TIME_MS) for name in names]
    view.apply(entries_of([[record_of([*HISTORY[:1], *HISTORY[22:23], *events])]]))
    within = prefix_range("persistent://acme/orders/t-")

    def page_behind(after):
        read = partial(read_range, kind=StateKind.TOPIC, within=within, after=after, limit=50)
        return steps_of(view, read)

    assert page_behind(names[-51]) <= page_behind("") + 1
    view.close()
