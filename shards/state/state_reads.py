"""Reads by key of one shard: the pending state if there is one, else the view's.

No method awaits anything. See ``shard_state`` for the rule that rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession
from shards.domain.namespace import Namespace
from shards.domain.parent_gate import ParentGate, ParentKind, gate_key
from shards.domain.scalable.loads import TopicLoads
from shards.domain.scalable.state import ScalableTopic
from shards.domain.shadows.source import ShadowSource
from shards.domain.shard import SHARD_KEY, Shard
from shards.domain.slot_moves.keys import slot_of_state
from shards.domain.slots.events import has_slot
from shards.domain.states import State, StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections.rows import Query, read_states
from shards.state.shard_term import ShardTerm
from shards.state.state_cache import UNREAD, StateCache

_TOTAL_KEYS = {kind: kind.value for kind in StateKind}

S = TypeVar("S")


class StateReads:
    """States by kind and key, for one term. What it reads from the view stays in ``cache``.

    Every method raises ``NotLeader`` once the term is over.
    """

    def __init__(self, term: ShardTerm, cache: StateCache, query: Query) -> None:
        self._term = term
        self._cache = cache
        self._query = query

    def load(self, kind: StateKind, keys: Iterable[str]) -> dict[str, State | None]:
        """Return the states under ``keys``, pending ones included; at most one view read."""
        self._term.check()
        found, missing = self._cache.find(kind, keys)
        if missing:
            read = read_states(self._query, kind, missing)
            self._cache.remember(kind, read)
            found.update(read)
        return found

    def load_shard(self) -> Shard | None:
        """Return the shard's own record, None before its first leader has written it."""
        return self._one(StateKind.SHARD, SHARD_KEY, Shard)

    def load_tenant(self, name: str) -> Tenant | None:
        return self._one(StateKind.TENANT, name, Tenant)

    def load_namespace(self, name: str) -> Namespace | None:
        """Return the namespace ``tenant/namespace``."""
        return self._one(StateKind.NAMESPACE, name, Namespace)

    def load_topic(self, base_text: str) -> Topic | None:
        """Return the topic of that name; None for a row of a slot that moves, under a name that
        became the topic's."""
        return self._own(self._one(StateKind.TOPIC, base_text, Topic))

    def load_topics(self, base_texts: Sequence[str]) -> list[Topic | None]:
        """Return topics by ``TopicName.base_text``, in the same order, as ``load_topic``."""
        return [self._own(topic) for topic in self._many(StateKind.TOPIC, base_texts, Topic)]

    def load_scalable(self, base_text: str) -> ScalableTopic | None:
        """Return the layout of a scalable topic, None of another topic."""
        return self._one(StateKind.SCALABLE_TOPIC, base_text, ScalableTopic)

    def load_loads(self, base_text: str) -> TopicLoads | None:
        """Return the recorded loads of a scalable topic's segments, None if there are none."""
        return self._one(StateKind.TOPIC_LOADS, base_text, TopicLoads)

    def load_gate(self, kind: ParentKind, name: str) -> ParentGate | None:
        return self._one(StateKind.PARENT_GATE, gate_key(kind, name), ParentGate)

    def load_shadow_source(self, base_text: str) -> ShadowSource | None:
        """Return the record of a topic that shadows were created of, None of another topic.

        Nearly no shard has one, which the first look tells.
        """
        if not self.total(StateKind.SHADOW_SOURCE):
            return None
        return self._one(StateKind.SHADOW_SOURCE, base_text, ShadowSource)

    def load_assignments(self, keys: Sequence[str]) -> list[Assignment | None]:
        """Return assignments by ``unit_key``, in the same order."""
        return self._many(StateKind.ASSIGNMENT, keys, Assignment)

    def load_session(self, broker_id: str) -> BrokerSession | None:
        """Return the latest session of a broker whose manager is in this shard."""
        return self._one(StateKind.BROKER_SESSION, broker_id, BrokerSession)

    def used_units(self, session_id: str) -> int:
        """Return how many units this shard has assigned to a broker session."""
        return self._one(StateKind.USAGE, session_id, int) or 0

    def tenant_units(self, tenant: str) -> int:
        """Return how many units of a tenant's topics this shard has assigned."""
        return self._one(StateKind.TENANT_USAGE, tenant, int) or 0

    def total(self, kind: StateKind) -> int:
        """Return how many tenants, namespaces or topics the shard has."""
        return self._one(StateKind.TOTAL, _TOTAL_KEYS[kind], int) or 0

    def _own(self, topic: Topic | None) -> Topic | None:
        # Of any other topic the caller has checked the slot, by its name.
        if topic is None or not topic.is_renamed:
            return topic
        slot, own = slot_of_state(StateKind.TOPIC, topic.name, topic), self.load_shard()
        is_own = own is None or slot is None or has_slot(own.ranges, slot)
        return topic if is_own else None

    def _one(self, kind: StateKind, key: str, of_type: type[S]) -> S | None:
        self._term.check()
        state = self._cache.get(kind, key)
        if state is UNREAD:
            state = self.load(kind, (key,))[key]
        assert state is None or isinstance(state, of_type)
        return state

    def _many(self, kind: StateKind, keys: Sequence[str], of_type: type[S]) -> list[S | None]:
        states = self.load(kind, keys)
        found: list[S | None] = []
        for key in keys:
            state = states[key]
            assert state is None or isinstance(state, of_type)
            found.append(state)
        return found
