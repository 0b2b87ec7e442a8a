"""Judges a move of slots by the two logs alone, and by what the two views hold at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.shard import SlotsAdopted
from shards.domain.slot_moves.keys import MOVING_KINDS, slot_of_key, slot_of_state
from shards.domain.slots.events import (
    SlotRanges,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsReclaimed,
    SlotsRefused,
    SlotsReleased,
)
from shards.domain.states import StateKind
from shards.projections.evolution import changes_of
from shards.projections.rows import MAPPINGS, query_of, read_states
from shards.wire.event import DomainEvent, decode_events, encode_decided
from tests.support.logs.memory_log import MemoryLog
from tests.support.shards.world import MemoryView

Rows = dict[tuple[StateKind, str], object]


@dataclass(slots=True)
class MoveHistory:
    """What both logs say of one move. Positions are 0 where a log does not have the event."""

    released_at: int = 0
    reclaimed_at: int = 0
    adopted_at: int = 0
    refused_at: int = 0
    adopted_from: int = 0
    faults: list[str] = field(default_factory=list)


def events_of(log: MemoryLog) -> Iterator[tuple[int, DomainEvent]]:
    """Yield what a log has committed, with positions."""
    for entry in log._entries:
        position = entry.first_position
        for record in entry.records:
            for event in decode_events(DecidedCommand.FromString(record.payload)):
                yield position, event
                position += 1


def history_of(source: MemoryLog, target: MemoryLog, move_id: int) -> MoveHistory:
    """Return where the logs begin and end the move, and what is wrong with that."""
    found = MoveHistory()
    for position, event in events_of(source):
        if isinstance(event, SlotsReleased) and event.move_id == move_id:
            found.faults += ["the slots are released twice"] if found.released_at else []
            found.released_at = position
        elif isinstance(event, SlotsReclaimed) and event.move_id == move_id:
            found.reclaimed_at = position
    for position, event in events_of(target):
        if isinstance(event, SlotsAdopted) and event.move_id == move_id:
            found.faults += ["the slots are adopted twice"] if found.adopted_at else []
            found.adopted_at, found.adopted_from = position, event.from_position
        elif isinstance(event, SlotsRefused) and event.move_id == move_id:
            found.refused_at = position
    found.faults += _contradictions(found)
    return found


def _contradictions(found: MoveHistory) -> list[str]:
    adopted, refused, reclaimed = found.adopted_at, found.refused_at, found.reclaimed_at
    wrong = {
        f"adopted from position {found.adopted_from}, released at {found.released_at}": adopted
        and found.adopted_from != found.released_at,
        "the move is adopted and refused": adopted and refused,
        "the slots are reclaimed, and nobody has refused them": reclaimed and not refused,
        "the slots are reclaimed and adopted": reclaimed and adopted,
    }
    return [sentence for sentence, is_wrong in wrong.items() if is_wrong]


def decisions(log: MemoryLog, ranges: SlotRanges) -> Iterator[tuple[int, DomainEvent]]:
    """Yield what a log decides about the slots, rows that move aside."""
    for position, event in events_of(log):
        if not isinstance(event, SlotRowsCopied | SlotRowsRemoved) and _is_of(event, ranges):
            yield position, event


def _records_of(log: MemoryLog, ranges: SlotRanges) -> Iterator[Record]:
    """Yield the records of ``decisions``, each with the events about the slots alone."""
    for entry in log._entries:
        for record in entry.records:
            decided = DecidedCommand.FromString(record.payload)
            events = [
                event
                for event in decode_events(decided)
                if not isinstance(event, SlotRowsCopied | SlotRowsRemoved) and _is_of(event, ranges)
            ]
            if events:
                payload = encode_decided(
                    events, command_id=b"", outcome=b"", time_ms=decided.time_ms
                )
                yield Record(payload, len(events))


def wrong_decisions(
    source: MemoryLog, target: MemoryLog, ranges: SlotRanges, found: MoveHistory
) -> list[str]:
    """Return what a shard has decided about slots that it did not have."""
    faults = []
    for position, event in decisions(source, ranges):
        is_behind = found.released_at and position > found.released_at
        if is_behind and not (found.reclaimed_at and position > found.reclaimed_at):
            faults.append(f"A decides at {position}, behind its release: {event}")
    for position, event in decisions(target, ranges):
        if not found.adopted_at or position < found.adopted_at:
            faults.append(f"B decides at {position}, before its adoption: {event}")
    return faults


def expected_rows(source: MemoryLog, target: MemoryLog, ranges: SlotRanges) -> Rows:
    """Return the rows of the slots by a fold of what both logs decided, in that order, that knows
    nothing of moves."""
    view = MemoryView()
    try:
        records = (*_records_of(source, ranges), *_records_of(target, ranges))
        if records:
            view.apply([Entry(1, 1, 1, records)])
        return rows_of(view, ranges)
    finally:
        view.close()


def rows_of(view: MemoryView, ranges: SlotRanges) -> Rows:
    """Return the stored states of the slots."""
    query = query_of(view.reader)
    rows: Rows = {}
    for kind in MOVING_KINDS:
        mapping = MAPPINGS[kind]
        keys = [key for (key,) in query(mapping.select_keys)]
        rows.update(
            ((kind, key), state)
            for key, state in read_states(query, kind, keys).items()
            if _is_in(slot_of_state(kind, key, state), ranges)
        )
    return rows


def wrong_sums(view: MemoryView, owned: SlotRanges) -> list[str]:
    """Return which sums of a view are not those of its rows: units of slots that the shard has, and
    objects of all that it stores."""
    dump = view.dump()
    sessions: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    for (kind, _), state in rows_of(view, owned).items():
        if kind is StateKind.ASSIGNMENT and state.is_assigned:  # type: ignore[attr-defined]
            sessions[state.session_id] += 1  # type: ignore[attr-defined]
            tenants[state.tenant] += 1  # type: ignore[attr-defined]
    totals = {
        kind.value: count
        for kind in MOVING_KINDS
        if kind not in (StateKind.ASSIGNMENT, StateKind.BROKER_SESSION, StateKind.TOPIC_LOADS)
        and (count := len(dump[MAPPINGS[kind].table]))
    }
    found = [
        ("broker_usage", dict(dump["broker_usage"]), dict(sessions)),
        ("tenant_usage", dict(dump["tenant_usage"]), dict(tenants)),
        ("totals", dict(dump["totals"]), totals),
    ]
    return [
        f"{name} has {stored}, the rows {counted}"
        for name, stored, counted in found
        if stored != counted
    ]


def refolded(log: MemoryLog) -> dict[str, list[tuple[object, ...]]]:
    """Return the tables that the log gives when it is folded in one go."""
    view = MemoryView()
    try:
        view.apply(list(log._entries))
        return view.dump()
    finally:
        view.close()


def difference(expected: Rows, found: Rows) -> list[str]:
    faults = [f"{key} is lost" for key in expected.keys() - found.keys()]
    faults += [f"{key} should not be there" for key in found.keys() - expected.keys()]
    faults += [
        f"{key} is {found[key]}, not {expected[key]}"
        for key in expected.keys() & found.keys()
        if expected[key] != found[key]
    ]
    return faults


def _is_of(event: DomainEvent, ranges: SlotRanges) -> bool:
    return any(_is_in(slot, ranges) for _, _, slot in changes_of(event))


def is_within(kind: StateKind, key: str, ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether a key's state is of one of the slots, unless it is a renamed topic's."""
    return _is_in(slot_of_key(kind, key), ranges)


def _is_in(slot: int | None, ranges: Sequence[tuple[int, int]]) -> bool:
    return slot is not None and any(first <= slot <= last for first, last in ranges)
