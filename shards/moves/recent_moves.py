"""Moves and deletions that the former leader may not have finished, found at the end of the log.

The log records that a unit was moved, unassigned or deleted, not that its old owner has released
it. A new leader therefore repeats the release: a repetition changes nothing at the broker, and
without it the old owner could hold the unit until its session ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from nextgen.kernel.limits.cluster import EVENTS_BATCH_BYTES_MAX
from nextgen.kernel.limits.placement import DELETED_UNITS_RECOVERED_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX, Domain, Unit, parse_topic
from nextgen.replication.ports import Entry, ReplicatedLog
from protos.nextgen.v1.events_pb2 import (
    DecidedCommand,
    Event,
    ScalableTopicDeleted,
    TopicAssigned,
    TopicDeleted,
    TopicRenamed,
    TopicUnassigned,
)
from shards.domain.assignment import (
    MOVE_REASONS,
    REASON_IDLE,
    REASON_REBALANCED,
    REASON_RENAMED,
    REASON_TOPIC_DELETED,
    REASON_UNLOADED,
    Assignment,
)
from shards.wire.event import TOPIC_DELETED_TRACE

_T = TypeVar("_T")

RECENT_MS = 30_000
"""Longer than a move takes: sync and release have deadlines of 5 s, the caches one of 2 s."""

RECENT_EVENTS_MAX = 50_000
"""Events at the end of the log that are read: some ten seconds of moves at full rate."""

EVENTS_PER_TURN_MAX = 50
"""Events read in one turn of the loop: about a millisecond."""

PAUSE_PARTS = 9
"""Length of the pause after each turn, in lengths of the turn: the first requests of a term come
first, and caches are not relied on before their time-to-live is over."""

_REASONS = frozenset({*MOVE_REASONS.values(), REASON_IDLE, REASON_UNLOADED, REASON_RENAMED})
_TRACES = (
    TOPIC_DELETED_TRACE,
    Event(topic_renamed=TopicRenamed()).SerializeToString()[:-1],
    *(reason.encode() for reason in (*_REASONS, REASON_TOPIC_DELETED)),
)


@dataclass(frozen=True, slots=True)
class RecentMoves:
    """Moves and deletions at the end of a log that may be unfinished."""

    moved: dict[str, int]
    """Name and epoch of each unit whose latest change is a move or an unassignment. Units of
    renamed topics have the names that they would get now."""

    deleted: list[Assignment]
    """Assignments that ended with their topic, without a broker: the view has forgotten it."""

    deleted_idle: list[Assignment]
    """All other units of deleted topics, in epoch 0, the latest topics first: they had no owner
    then, but may have messages. At most ``DELETED_UNITS_RECOVERED_MAX``."""

    evened_at_ms: dict[str, int] = field(default_factory=dict)
    """When each unit was last moved to even brokers out, in Unix time of the leader that moved it.
    Unlike the others, these are of any age."""

    known_from_ms: int | None = 0
    """From when on these are known: the time of the first event read; 0: all there ever were; None:
    no event is left in the log."""


@dataclass(frozen=True, slots=True)
class _Change:
    epoch: int
    time_ms: int
    term: int


@dataclass(slots=True)
class _Found:
    moved: dict[str, _Change] = field(default_factory=dict)
    deleted: dict[Assignment, _Change] = field(default_factory=dict)
    deleted_topics: list[tuple[TopicDeleted | ScalableTopicDeleted, _Change]] = field(
        default_factory=list
    )
    evened_at_ms: dict[str, int] = field(default_factory=dict)


async def recent_moves(log: ReplicatedLog) -> RecentMoves:
    """Return the recent moves, unassignments and deletions, each kind in the order of the log.

    A change is old if the leader that wrote it wrote something ``RECENT_MS`` later. Both times are
    of one clock; this process's clock may have leapt and is not used. Deletions of the present
    term are left out: this leader releases their units itself.
    """
    status = log.status
    position = max(status.first_position, status.commit_position - RECENT_EVENTS_MAX + 1)
    found = _Found()
    last_payloads: dict[int, bytes] = {}
    known_from_ms = 0 if position <= 1 else None
    while position <= status.commit_position:
        began = asyncio.get_running_loop().time()
        entries = log.read(
            position, events_max=EVENTS_PER_TURN_MAX, bytes_max=EVENTS_BATCH_BYTES_MAX
        )
        if not entries:
            break
        if known_from_ms is None:
            known_from_ms = _first_time_ms(entries)
        for entry in entries:
            for record in entry.records:
                last_payloads[entry.term] = record.payload
                # Nearly all records are about something else: do not decode them.
                if found.moved or any(trace in record.payload for trace in _TRACES):
                    _note_changes(record.payload, entry.term, found)
        position = entries[-1].next_position
        await asyncio.sleep(PAUSE_PARTS * (asyncio.get_running_loop().time() - began))
    last_ms = {
        term: DecidedCommand.FromString(payload).time_ms for term, payload in last_payloads.items()
    }

    def is_recent(change: _Change) -> bool:
        return change.time_ms >= last_ms[change.term] - RECENT_MS

    def is_of_predecessor(change: _Change) -> bool:
        return change.term < status.term and is_recent(change)

    owned = {(each.topic_id, each.unit) for each in found.deleted}
    idle = (
        unit
        for topic, change in reversed(found.deleted_topics)
        if is_of_predecessor(change)
        for unit in _units_of(topic)
        if (unit.topic_id, unit.unit) not in owned
    )
    return RecentMoves(
        {name: move.epoch for name, move in found.moved.items() if is_recent(move)},
        [ended for ended, change in found.deleted.items() if is_of_predecessor(change)],
        list(islice(idle, DELETED_UNITS_RECOVERED_MAX)),
        found.evened_at_ms,
        known_from_ms,
    )


def _first_time_ms(entries: Sequence[Entry]) -> int | None:
    records = (record for entry in entries for record in entry.records)
    first = next(records, None)
    return None if first is None else DecidedCommand.FromString(first.payload).time_ms


def _units_of(topic: TopicDeleted | ScalableTopicDeleted) -> Iterator[Assignment]:
    """Yield all units that the topic could have, without owners and without an epoch."""
    if isinstance(topic, ScalableTopicDeleted):
        base = topic.name.removeprefix(f"{Domain.TOPIC}://")
        for segment in topic.segments:
            unit = parse_topic(f"{Domain.SEGMENT}://{base}/{segment}")
            yield Assignment(topic.topic_id, unit.unit.text, unit.text, 0, "", "")
        return
    if topic.name.startswith(f"{Domain.TOPIC}://"):
        # Its segments are the units: see the event beside it.
        return
    if not topic.partitions:
        yield Assignment(topic.topic_id, Unit.whole().text, topic.name, 0, "", "")
    for number in range(topic.partitions):
        name = f"{topic.name}-partition-{number}"
        yield Assignment(topic.topic_id, Unit.partition(number).text, name, 0, "", "")


def _note_changes(payload: bytes, term: int, found: _Found) -> None:
    decided = DecidedCommand.FromString(payload)
    for event in decided.events:
        changed: TopicAssigned | TopicUnassigned
        if event.HasField("topic_assigned"):
            changed = event.topic_assigned
        elif event.HasField("topic_unassigned"):
            changed = event.topic_unassigned
        elif event.HasField("topic_deleted"):
            change = _Change(0, decided.time_ms, term)
            found.deleted_topics.append((event.topic_deleted, change))
            continue
        elif event.HasField("scalable_topic_deleted"):
            change = _Change(0, decided.time_ms, term)
            found.deleted_topics.append((event.scalable_topic_deleted, change))
            continue
        elif event.HasField("topic_renamed"):
            _rename(event.topic_renamed, found)
            continue
        else:
            continue
        found.moved.pop(changed.name, None)
        change = _Change(changed.epoch, decided.time_ms, term)
        if changed.reason == REASON_REBALANCED:
            found.evened_at_ms[changed.name] = decided.time_ms
        if changed.reason in _REASONS:
            found.moved[changed.name] = change
        elif changed.reason == REASON_TOPIC_DELETED:
            # A later topic of the same name has another id, so later changes do not undo this.
            ended = Assignment(changed.topic_id, changed.unit, changed.name, changed.epoch, "", "")
            found.deleted[ended] = change


def _rename(renamed: TopicRenamed, found: _Found) -> None:
    """Have the units of a topic go by its new name. If its deletion began before, it failed."""
    parts = (renamed.name, f"{renamed.name}{PARTITION_SUFFIX}")
    _rename_keys(found.moved, parts, renamed)
    _rename_keys(found.evened_at_ms, parts, renamed)
    for ended in [each for each in found.deleted if each.topic_id == renamed.topic_id]:
        del found.deleted[ended]


def _rename_keys(by_name: dict[str, _T], parts: tuple[str, str], renamed: TopicRenamed) -> None:
    own, partition = parts
    for name in [each for each in by_name if each == own or each.startswith(partition)]:
        by_name[f"{renamed.new_name}{name.removeprefix(own)}"] = by_name.pop(name)
