"""Every event has a route, and every state a place."""

from typing import get_args

from shards.domain import (
    assignment,
    broker_session,
    namespace,
    parent_gate,
    shard,
    tenant,
    topic,
)
from shards.domain.renames import names as topic_names
from shards.domain.scalable import events as scalable
from shards.domain.shadows import source as shadow_source
from shards.domain.states import StateKind
from shards.projections.evolution import ROUTES, evolve_all
from shards.projections.rows import MAPPINGS
from tests.support.shards.events import HISTORY

EVENT_TYPES = {
    *get_args(shard.ShardEvent),
    *get_args(tenant.TenantEvent),
    *get_args(namespace.NamespaceEvent),
    *get_args(topic.TopicEvent),
    *get_args(topic_names.NameEvent),
    *get_args(parent_gate.ParentGateEvent),
    *get_args(assignment.AssignmentEvent),
    *get_args(broker_session.BrokerSessionEvent),
    *get_args(shadow_source.ShadowSourceEvent),
    *get_args(scalable.ScalableTopicEvent),
    scalable.SegmentLoadsRecorded,
}


def test_every_event_of_the_domain_has_a_route():
    assert set(ROUTES) == EVENT_TYPES


def test_every_kind_of_state_has_rows():
    assert set(MAPPINGS) == set(StateKind)


def test_the_history_that_tests_use_has_every_event():
    assert {type(event) for event in HISTORY} == EVENT_TYPES


def test_states_are_loaded_once_per_kind_and_only_where_something_builds_on_them():
    loads = []

    def load(kind, keys):
        loads.append((kind, sorted(keys)))
        return dict.fromkeys(keys)

    evolve_all(HISTORY, load)

    assert sorted(kind for kind, _ in loads) == [
        StateKind.ASSIGNMENT,
        StateKind.BROKER_SESSION,
        StateKind.FORMER_NAME,
        StateKind.NAMESPACE,
        StateKind.PARENT_GATE,
        StateKind.SHADOW_SOURCE,
        StateKind.SHARD,
        StateKind.TENANT,
        StateKind.TENANT_USAGE,
        StateKind.TOPIC,
        StateKind.TOPIC_LOADS,
        StateKind.TOPIC_NAME,
        StateKind.TOTAL,
        StateKind.USAGE,
    ]
