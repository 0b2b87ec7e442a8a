"""Ranges and pages of a view."""

import pytest

from shards.domain.parent_gate import ParentKind
from shards.domain.states import StateKind
from shards.domain.topic import TopicCreated
from shards.projections.reading import (
    child_ranges,
    has_key_within,
    prefix_range,
    read_page,
    read_range,
    read_sessions,
    read_shard_map_version,
    topic_ranges,
)
from shards.projections.rows import query_of, read_states
from tests.support.shard_events import HISTORY, TIME_MS, entries_of, record_of
from tests.support.shard_world import MemoryView

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


def test_sessions_and_the_map_version_are_read(query):
    assert [each.session_id for each in read_sessions(query).values()] == ["s-1"]
    assert read_shard_map_version(query) == 1
