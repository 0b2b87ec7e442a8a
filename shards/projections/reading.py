"""Reads of a view other than single states: pages, prefixes, outcomes.

Ranges rest on SQLite comparing text by its UTF-8 bytes. Rows of ``foreign`` slots are left out
wherever a read may meet some: see ``foreign``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from nextgen.kernel.routing.names import Domain
from nextgen.kernel.routing.property_filter import PropertyFilter
from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession
from shards.domain.parent_gate import ParentKind
from shards.domain.states import State, StateKind
from shards.projections.foreign import NONE_FOREIGN, ForeignSlots
from shards.projections.rows import (
    MAPPINGS,
    Query,
    Row,
    pack_id,
    packed_pair,
    query_many,
    unpack_properties,
)
from shards.projections.tables import OUTCOMES, SOURCE_OF_TOPIC

TOPIC_DOMAINS = tuple(sorted(domain.value for domain in Domain))
"""Ascending, so that the ranges of one namespace in all domains come in the order of names."""

_LAST_CHARACTER = chr(sys.maxunicode)
_SURROGATES = range(0xD800, 0xE000)
"""Code points that are no characters: UTF-8 cannot encode them."""

Range = tuple[str, str]
"""A range of texts: from the first on, and before the second."""

NamedCount = tuple[str, int]
"""A name, and how many partitions it has: 0 unless it is a partitioned topic's."""


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
    """The result of a command id, and the shard's last event position after the command."""

    outcome: bytes
    position: int


def end_of_prefix(prefix: str) -> str:
    """Return the first text behind all that begin with ``prefix``, in the order of UTF-8 bytes.

    No text follows all those that begin with U+10FFFF, the last character: for a ``prefix`` of only
    that character the result is that character. No name *begins* with it: tenants and namespaces
    are ASCII, and topics begin with their domain, ``persistent://``.
    """
    head = prefix.rstrip(_LAST_CHARACTER)
    if not head:
        return _LAST_CHARACTER
    following = ord(head[-1]) + 1
    if following == _SURROGATES.start:
        following = _SURROGATES.stop
    return head[:-1] + chr(following)


def prefix_range(prefix: str) -> Range:
    """Return the range of the texts that begin with ``prefix``."""
    return prefix, end_of_prefix(prefix)


def topic_ranges(namespace: str, domain: str = "", prefix: str = "") -> tuple[Range, ...]:
    """Return the key ranges of the topics of ``tenant/namespace`` whose local names begin with
    ``prefix``, in all domains or in one."""
    domains = (domain,) if domain else TOPIC_DOMAINS
    return tuple([prefix_range(f"{each}://{namespace}/{prefix}") for each in domains])


def child_ranges(kind: ParentKind, name: str) -> tuple[StateKind, tuple[Range, ...]]:
    """Return the kind of a parent's children, and their key ranges."""
    assert kind is not ParentKind.TOPIC, "the names of shadows have nothing in common"
    if kind is ParentKind.TENANT:
        return StateKind.NAMESPACE, (prefix_range(f"{name}/"),)
    return StateKind.TOPIC, topic_ranges(name)


def has_key_within(
    query: Query,
    kind: StateKind,
    within: Range,
    without: Collection[str],
    foreign: ForeignSlots = NONE_FOREIGN,
) -> bool:
    """Return whether a state of ``kind`` is in the range, not counting the keys ``without``."""
    mapping = MAPPINGS[kind]
    start, end = within
    own, slots = foreign.condition(kind)
    rows = query(
        f"{mapping.select_keys} WHERE {mapping.key} >= ? AND {mapping.key} < ?{own} LIMIT ?",
        (start, end, *slots, len(without) + 1),
    )
    return any(row[0] not in without for row in rows)


def read_keys(
    query: Query, kind: StateKind, within: Range, foreign: ForeignSlots = NONE_FOREIGN
) -> list[str]:
    """Return the keys of the states in the range."""
    mapping = MAPPINGS[kind]
    own, slots = foreign.condition(kind)
    rows = query(
        f"{mapping.select_keys} WHERE {mapping.key} >= ? AND {mapping.key} < ?{own}",
        (*within, *slots),
    )
    return [row[0] for row in rows]


def read_present(query: Query, kind: StateKind, keys: Sequence[str]) -> set[str]:
    """Return which of ``keys``, ascending and at least one, exist.

    One range scan from the first to the last key; if the range holds many more keys, one read per
    key instead.
    """
    mapping = MAPPINGS[kind]
    limit = 2 * len(keys)
    rows = query(
        f"{mapping.select_keys} WHERE {mapping.key} BETWEEN ? AND ? LIMIT ?",
        (keys[0], keys[-1], limit + 1),
    )
    if len(rows) > limit:
        rows = query_many(query, mapping.select_keys, mapping.key, keys)
    return {row[0] for row in rows}.intersection(keys)


def read_range(
    query: Query,
    kind: StateKind,
    within: Range,
    *,
    after: str = "",
    limit: int = -1,
    foreign: ForeignSlots = NONE_FOREIGN,
) -> list[State]:
    """Return the states in the range whose key is behind ``after``, ascending.

    ``limit`` -1 means all. Of scalable topics the foreign ones are among them.
    """
    mapping = MAPPINGS[kind]
    own = _own_rows(kind, foreign)
    rows = _rows_behind(query, mapping.select, mapping.key, within, after, limit, own)
    return [mapping.from_row(row) for row in rows]


def read_page(
    query: Query,
    kind: StateKind,
    ranges: Sequence[Range],
    *,
    after: str,
    limit: int,
    foreign: ForeignSlots = NONE_FOREIGN,
) -> list[State]:
    """Return the first ``limit`` states behind ``after`` in ``ranges``, which are ascending."""
    page: list[State] = []
    for within in ranges:
        if len(page) < limit and after < within[1]:
            wanted = limit - len(page)
            page += read_range(query, kind, within, after=after, limit=wanted, foreign=foreign)
    return page


def read_names(
    query: Query,
    kind: StateKind,
    ranges: Sequence[Range],
    *,
    after: str,
    limit: int,
    foreign: ForeignSlots = NONE_FOREIGN,
) -> list[NamedCount]:
    """Return the first ``limit`` names behind ``after`` in ``ranges``, which are ascending."""
    mapping = MAPPINGS[kind]
    select = f"SELECT {mapping.key}, {_partitions(kind)} FROM {mapping.table}"
    own = _own_rows(kind, foreign)
    names: list[NamedCount] = []
    for within in ranges:
        if len(names) < limit and after < within[1]:
            wanted = limit - len(names)
            names += _rows_behind(query, select, mapping.key, within, after, wanted, own)
    return names


def read_matching(
    query: Query,
    ranges: Sequence[Range],
    properties: PropertyFilter,
    *,
    after: str,
    limit: int,
    scanned_max: int,
    foreign: ForeignSlots = NONE_FOREIGN,
) -> tuple[list[NamedCount], str]:
    """Return up to ``limit`` topics with some properties behind ``after`` in ascending ranges.

    At most ``scanned_max`` topics are looked at. The last result is the name to go on behind, "" if
    there is none left.
    """
    mapping = MAPPINGS[StateKind.TOPIC]
    select = f"SELECT {mapping.key} AS name, partitions, properties FROM {mapping.table}"
    # Most topics are passed over by the text of their properties, which SQLite reads by itself.
    has_pairs = " AND ".join("instr(properties, ?) > 0" for _ in properties.pairs)
    pairs = [packed_pair(*pair) for pair in properties.pairs]
    own = _own_rows(StateKind.TOPIC, foreign)
    found: list[NamedCount] = []
    for within in ranges:
        if after >= within[1]:
            continue
        part, parameters = _behind(select, mapping.key, within, after, scanned_max, own)
        rows = query(
            f"SELECT name, partitions, properties FROM ({part}) WHERE {has_pairs} LIMIT ?",
            (*parameters, *pairs, limit),
        )
        for name, partitions, packed in rows:
            if properties.matches(dict(unpack_properties(packed))):
                found.append((name, partitions))
        if len(rows) == limit:
            return found, rows[-1][0]
        ((scanned, last),) = query(f"SELECT count(*), max(name) FROM ({part})", parameters)
        if scanned == scanned_max:
            return found, last
        limit -= len(rows)
        scanned_max -= scanned
    return found, ""


def read_shadows(
    query: Query, source: str, *, after: str, limit: int, foreign: ForeignSlots = NONE_FOREIGN
) -> list[NamedCount]:
    """Return the first ``limit`` names behind ``after`` of shadows of ``source``; -1 means all."""
    own, slots = foreign.condition(StateKind.TOPIC)
    rows = query(
        f"SELECT name, partitions FROM topics WHERE {SOURCE_OF_TOPIC} = ? AND name > ?{own} "
        "ORDER BY name LIMIT ?",
        (source, after, *slots, limit),
    )
    return [tuple(row) for row in rows]


def count_names(
    query: Query,
    kind: StateKind,
    within: Range,
    *,
    after: str,
    limit: int,
    foreign: ForeignSlots = NONE_FOREIGN,
) -> tuple[int, int, str]:
    """Count the first ``limit`` names in the range behind ``after``, and their units.

    The last result is the name to go on behind, "" if there is none left.
    """
    mapping = MAPPINGS[kind]
    select = f"SELECT {mapping.key} AS name, {_partitions(kind)} AS parts FROM {mapping.table}"
    own = _own_rows(kind, foreign)
    part, parameters = _behind(select, mapping.key, within, after, limit, own)
    counting = f"SELECT count(*), total(max(parts, 1)), max(name) FROM ({part})"
    ((count, units, last),) = query(counting, parameters)
    return count, int(units), last if count == limit else ""


def read_assignments_of(query: Query, topic_id: str) -> dict[str, Assignment]:
    """Return all assignments of a topic's units by key."""
    found = read_range(query, StateKind.ASSIGNMENT, prefix_range(f"{topic_id}/"))
    return {each.key: each for each in found if isinstance(each, Assignment)}


def read_units_of_session(
    query: Query,
    session_id: str,
    after: str,
    limit: int,
    foreign: ForeignSlots = NONE_FOREIGN,
) -> list[Assignment]:
    """Return the first ``limit`` units behind the key ``after`` that the session has, by key."""
    mapping = MAPPINGS[StateKind.ASSIGNMENT]
    own, slots = foreign.condition(StateKind.ASSIGNMENT)
    rows = query(
        f"{mapping.select} WHERE session_id = ? AND {mapping.key} > ?{own} "
        f"ORDER BY {mapping.key} LIMIT ?",
        (pack_id(session_id), after, *slots, limit),
    )
    units = [mapping.from_row(row) for row in rows]
    return [unit for unit in units if isinstance(unit, Assignment)]


def read_scalable(
    query: Query, flag: str, after: str, limit: int, foreign: ForeignSlots = NONE_FOREIGN
) -> list[str]:
    """Return the first ``limit`` names behind ``after`` of scalable topics that have a flag set:
    ``has_work`` or ``has_consumers``."""
    return _own_names(query, StateKind.SCALABLE_TOPIC, f"{flag} = 1 AND ", after, limit, foreign)


def read_scalable_with_loads(
    query: Query, after: str, limit: int, foreign: ForeignSlots = NONE_FOREIGN
) -> list[str]:
    """Return the first ``limit`` names behind ``after`` of scalable topics with loads."""
    return _own_names(query, StateKind.TOPIC_LOADS, "", after, limit, foreign)


def read_scalable_to_prune(
    query: Query, until_ms: int, limit: int, foreign: ForeignSlots = NONE_FOREIGN
) -> list[str]:
    """Return up to ``limit`` names of scalable topics of which a segment is to be examined by
    ``until_ms``, those that are due for longest first."""
    mapping = MAPPINGS[StateKind.SCALABLE_TOPIC]
    rows = query(
        f"{mapping.select_keys} WHERE prune_at_ms > 0 AND prune_at_ms <= ? "
        "ORDER BY prune_at_ms LIMIT ?",
        (until_ms, -1 if foreign else limit),
    )
    return foreign.without(StateKind.SCALABLE_TOPIC, [row[0] for row in rows])[:limit]


def read_usage(query: Query) -> dict[str, int]:
    """Return how many units each session has that has any."""
    return {row[0]: int(row[1]) for row in query(MAPPINGS[StateKind.USAGE].select)}


def read_sessions(query: Query, foreign: ForeignSlots = NONE_FOREIGN) -> dict[str, BrokerSession]:
    """Return every broker session of the shard by broker id, ended ones included."""
    mapping = MAPPINGS[StateKind.BROKER_SESSION]
    sessions = [mapping.from_row(row) for row in query(mapping.select)]
    return {
        each.broker_id: each
        for each in sessions
        if isinstance(each, BrokerSession)
        and not foreign.has(StateKind.BROKER_SESSION, each.broker_id)
    }


def read_outcomes(query: Query, command_ids: Iterable[bytes]) -> dict[bytes, RecordedOutcome]:
    """Return the recorded outcomes among ``command_ids``."""
    select = f"SELECT command_id, position, outcome FROM {OUTCOMES.name}"
    rows = query_many(query, select, "command_id", list(command_ids))
    return {row[0]: RecordedOutcome(row[2], row[1]) for row in rows}


def _partitions(kind: StateKind) -> str:
    return "partitions" if kind is StateKind.TOPIC else "0"


_Condition = tuple[str, tuple[str, ...]]
"""A condition behind others, and its parameters."""


def _own_rows(kind: StateKind, foreign: ForeignSlots) -> _Condition:
    # A scalable topic's row has no id beside its state: who reads them filters by name.
    return ("", ()) if kind is StateKind.SCALABLE_TOPIC else foreign.condition(kind)


def _own_names(
    query: Query, kind: StateKind, that: str, after: str, limit: int, foreign: ForeignSlots
) -> list[str]:
    """Return the first ``limit`` keys behind ``after`` of rows that fulfil the condition ``that``
    and are not foreign."""
    mapping = MAPPINGS[kind]
    select = f"{mapping.select_keys} WHERE {that}{mapping.key} > ? ORDER BY {mapping.key} LIMIT ?"
    own: list[str] = []
    while True:
        keys = [row[0] for row in query(select, (after, limit))]
        own += foreign.without(kind, keys)
        if len(own) >= limit or len(keys) < limit:
            return own[:limit]
        after = keys[-1]


def _behind(
    select: str, key: str, within: Range, after: str, limit: int, own: _Condition = ("", ())
) -> tuple[str, tuple[object, ...]]:
    """Return the statement of the first ``limit`` rows of a range behind ``after``, by key.

    SQLite begins at one of two lower bounds, whichever comes first in the statement, and reads its
    way to the other one: so the first is never before the second.
    """
    start, end = within
    condition, slots = own
    behind = f"{key} >= ? AND {key} > ? AND {key} < ?{condition}"
    statement = f"{select} WHERE {behind} ORDER BY {key} LIMIT ?"
    return statement, (max(start, after), after, end, *slots, limit)


def _rows_behind(
    query: Query, select: str, key: str, within: Range, after: str, limit: int, own: _Condition
) -> Sequence[Row]:
    return query(*_behind(select, key, within, after, limit, own))
