"""The kinds of state that a shard keeps, and how a state is found by its kind and key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from shards.domain import (
    assignment,
    broker_session,
    namespace,
    parent_gate,
    shard,
    tenant,
    topic,
)
from shards.domain.renames.names import FormerName, TopicPointer
from shards.domain.scalable.loads import TopicLoads
from shards.domain.scalable.state import ScalableTopic
from shards.domain.shadows import source as shadow_source


class StateKind(StrEnum):
    """The kinds of state, each with its key:"""

    TENANT = "tenant"  # The tenant's name.
    NAMESPACE = "namespace"  # tenant/namespace
    TOPIC = "topic"  # Canonical base text.
    SCALABLE_TOPIC = "scalable_topic"  # Canonical base text. Beside the topic of that name.
    TOPIC_LOADS = "topic_loads"  # Canonical base text, of a scalable topic.
    PARENT_GATE = "parent_gate"  # parent_gate.gate_key
    SHADOW_SOURCE = "shadow_source"  # Canonical base text. Beside the topic of that name.
    TOPIC_NAME = "topic_name"  # Canonical base text. In the shard with its slot.
    FORMER_NAME = "former_name"  # Canonical base text. In the topic's home.
    ASSIGNMENT = "assignment"  # names.assignment_key, assignment.unit_key
    BROKER_SESSION = "broker_session"  # The broker's id.
    SHARD = "shard"  # shard.SHARD_KEY
    USAGE = "usage"  # A session's id. State: units assigned to it by this shard.
    TENANT_USAGE = "tenant_usage"  # A tenant's name. State: units assigned in this shard.
    TOTAL = "total"  # The kind of what exists. State: how many there are.


State = (
    tenant.Tenant
    | namespace.Namespace
    | topic.Topic
    | ScalableTopic
    | TopicLoads
    | parent_gate.ParentGate
    | shadow_source.ShadowSource
    | TopicPointer
    | FormerName
    | assignment.Assignment
    | broker_session.BrokerSession
    | shard.Shard
    | int
)
States = dict[StateKind, dict[str, State | None]]
"""States by kind and key; None: there is none (for sums: 0)."""

LoadStates = Callable[[StateKind, Iterable[str]], Mapping[str, State | None]]
