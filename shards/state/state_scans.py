"""Reads of many keys of one shard: what the view has, corrected by what is pending on top of it.

Rows of slots that are not the shard's are left out, in the view and among what is pending.
No method awaits anything, and none keeps what it read: a scan would push what is in use out of
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession
from shards.domain.parent_gate import ParentKind
from shards.domain.scalable.state import ScalableTopic
from shards.domain.states import State, StateKind
from shards.domain.topic import Topic
from shards.projections.foreign import ForeignSlots
from shards.projections.reading import (
    child_ranges,
    has_key_within,
    read_assignments_of,
    read_keys,
    read_present,
    read_scalable,
    read_scalable_to_prune,
    read_scalable_with_loads,
    read_sessions,
    read_shadows,
    read_units_of_session,
    read_usage,
    topic_ranges,
)
from shards.projections.rows import Query
from shards.state.shard_term import ShardTerm
from shards.state.state_cache import StateCache


class StateScans:
    """Sessions, usage, units, topics and children of one shard, for one term.

    Every method raises ``NotLeader`` once the term is over.
    """

    def __init__(
        self,
        term: ShardTerm,
        cache: StateCache,
        query: Query,
        foreign: Callable[[], ForeignSlots],
    ) -> None:
        """``foreign`` returns the slots that are not the shard's, though it may have their rows."""
        self._term = term
        self._cache = cache
        self._query = query
        self._foreign = foreign

    def existing_topics(self, base_texts: Sequence[str]) -> set[str]:
        """Return which of ``base_texts``, ascending and at least one, are names of topics.

        Cheap where the names lie close together.
        """
        self._term.check()
        existing = read_present(self._query, StateKind.TOPIC, base_texts)
        for name, state in self._cache.pending_of(StateKind.TOPIC, base_texts).items():
            (existing.discard if state is None else existing.add)(name)
        return existing

    def sessions(self) -> tuple[BrokerSession, ...]:
        """Return the latest session of each broker of this shard's, ended ones too."""
        self._term.check()
        sessions = read_sessions(self._query, self._foreign())
        for broker_id, state in self._pending(StateKind.BROKER_SESSION):
            sessions.pop(broker_id, None)
            if isinstance(state, BrokerSession):
                sessions[broker_id] = state
        return tuple(sessions.values())

    def usage(self) -> dict[str, int]:
        """Return how many units each broker session has; sessions without any are left out."""
        self._term.check()
        usage = read_usage(self._query)
        for session_id, units in self._cache.pending(StateKind.USAGE):
            usage.pop(session_id, None)
            if isinstance(units, int):
                usage[session_id] = units
        return usage

    def units_of_session(self, session_id: str, after: str, limit: int) -> list[Assignment]:
        """Return the first ``limit`` units behind the key ``after`` that a session has, by key.

        At most one view read, of the page and of as many units as are pending.
        """
        self._term.check()
        gone: set[str] = set()
        come: dict[str, Assignment] = {}
        for key, state in self._pending(StateKind.ASSIGNMENT):
            if key <= after:
                continue
            gone.add(key)
            if isinstance(state, Assignment) and state.session_id == session_id:
                come[key] = state
        wanted = limit + len(gone)
        stored = read_units_of_session(self._query, session_id, after, wanted, self._foreign())
        units = {unit.key: unit for unit in stored if unit.key not in gone} | come
        return [units[key] for key in sorted(units)[:limit]]

    def assignments_of_topic(self, topic_id: str) -> dict[str, Assignment]:
        """Return the assignments of all units of a topic by key."""
        self._term.check()
        assignments = read_assignments_of(self._query, topic_id)
        prefix = f"{topic_id}/"
        for key, state in self._cache.pending(StateKind.ASSIGNMENT):
            if not key.startswith(prefix):
                continue
            assignments.pop(key, None)
            if isinstance(state, Assignment):
                assignments[key] = state
        return assignments

    def scalable_with_consumers(self, after: str, limit: int) -> list[str]:
        """Return the first ``limit`` names behind ``after`` of scalable topics with registered
        consumers."""
        return self._scalable("has_consumers", after, limit)

    def scalable_with_loads(self, after: str, limit: int) -> list[str]:
        """Return the first ``limit`` names behind ``after`` of scalable topics of which the view
        has loads."""
        self._term.check()
        return read_scalable_with_loads(self._query, after, limit, self._foreign())

    def scalable_with_work(self, after: str, limit: int) -> list[str]:
        """Return the first ``limit`` names behind ``after`` of scalable topics of which something
        was begun that is not finished."""
        return self._scalable("has_work", after, limit)

    def scalable_to_prune(self, until_ms: int, limit: int) -> list[str]:
        """Return up to ``limit`` names of scalable topics of which a segment is to be examined for
        pruning by ``until_ms``, those that are due for longest first.

        What is not in the view yet is not looked at: a topic may be missing, or not be due any
        more.
        """
        self._term.check()
        return read_scalable_to_prune(self._query, until_ms, limit, self._foreign())

    def _scalable(self, flag: str, after: str, limit: int) -> list[str]:
        self._term.check()
        gone: set[str] = set()
        come: set[str] = set()
        for name, state in self._pending(StateKind.SCALABLE_TOPIC):
            if name > after:
                gone.add(name)
                if isinstance(state, ScalableTopic) and getattr(state, flag):
                    come.add(name)
        stored = read_scalable(self._query, flag, after, limit + len(gone), self._foreign())
        return sorted(come.union(stored) - (gone - come))[:limit]

    def has_children(self, kind: ParentKind, name: str) -> bool:
        """Return whether this shard has a namespace of the tenant, a topic of the namespace, or a
        shadow of the topic."""
        self._term.check()
        if kind is ParentKind.TOPIC:
            return bool(self.shadows_of(name, 1))
        child_kind, ranges = child_ranges(kind, name)
        for start, end in ranges:
            gone: set[str] = set()
            for key, state in self._pending(child_kind):
                if start < key < end:
                    if state is not None:
                        return True
                    gone.add(key)
            if has_key_within(self._query, child_kind, (start, end), gone, self._foreign()):
                return True
        return False

    def shadows_of(self, source: str, limit: int | None = None) -> list[str]:
        """Return the first ``limit`` names, or all, of this shard's topics that are shadows of
        ``source``, ascending."""
        self._term.check()
        gone: set[str] = set()
        come: set[str] = set()
        for name, state in self._pending(StateKind.TOPIC):
            gone.add(name)
            if isinstance(state, Topic) and state.source == source:
                come.add(name)
        wanted = -1 if limit is None else limit + len(gone)
        stored = read_shadows(self._query, source, after="", limit=wanted, foreign=self._foreign())
        return sorted(come.union(name for name, _ in stored if name not in gone))[:limit]

    def count_topics(self, namespace: str) -> int:
        """Return how many topics this shard has of ``tenant/namespace``: reads each of its keys."""
        self._term.check()
        count = 0
        for start, end in topic_ranges(namespace):
            stored = read_keys(self._query, StateKind.TOPIC, (start, end), self._foreign())
            keys = set(stored)
            for key, state in self._pending(StateKind.TOPIC):
                if start < key < end:
                    (keys.discard if state is None else keys.add)(key)
            count += len(keys)
        return count

    def _pending(self, kind: StateKind) -> Iterator[tuple[str, State | None]]:
        """Yield the pending states of ``kind`` in slots of the shard."""
        foreign = self._foreign()
        if not foreign:
            return self._cache.pending(kind)
        pending = self._cache.pending(kind)
        return ((key, state) for key, state in pending if not foreign.has_state(kind, key, state))
