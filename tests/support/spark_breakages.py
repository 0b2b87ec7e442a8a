"""Exports that are broken on purpose, one way each, and the rule that must be found broken.

``LOG_BREAKAGES`` spoil what a cluster logged before it is exported: the files are whole, what they
say is not. ``FILE_BREAKAGES`` spoil the files of a right export.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from protos.nextgen.v1 import events_pb2 as e
from tests.support.spark_histories import AGAIN, PAID, SHORT, History, told_history


@dataclass(frozen=True, slots=True)
class LogBreakage:
    """``spoil`` changes a told history; an audit of it has to find ``rule``."""

    name: str
    rule: str
    spoil: Callable[[History], Any]


@dataclass(frozen=True, slots=True)
class FileBreakage:
    """``spoil`` changes the files of an export; an audit of them has to find ``rule``."""

    name: str
    rule: str
    spoil: Callable[[Path, int], Any]
    """Of an export and the place of one of its ``data_files``."""


def events_of_type(history: History, event_type: str) -> Iterator[Any]:
    """Yield the events of one type, by shard and position."""
    for _, log in sorted(history.logs.items()):
        yield from (event for event in log if event.WhichOneof("payload") == event_type)


def replace_payload(event: Any, **payload: Any) -> None:
    """Make another event of it, in its place."""
    event.ClearField(event.WhichOneof("payload"))
    for name, value in payload.items():
        getattr(event, name).CopyFrom(value)


def _assigned(history: History, reason: str) -> Any:
    return next(
        event
        for event in events_of_type(history, "topic_assigned")
        if event.topic_assigned.reason == reason
    )


def _two_owners(history: History) -> None:
    _assigned(history, "broker_lost").topic_assigned.epoch -= 1


def _epoch_jumps(history: History) -> None:
    _assigned(history, "broker_lost").topic_assigned.epoch += 3


def _unknown_session(history: History) -> None:
    _assigned(history, "first_lookup").topic_assigned.session_id = "ff" * 12


def _no_such_topic(history: History) -> None:
    created = next(
        event
        for event in events_of_type(history, "topic_created")
        if event.topic_created.name == PAID
    )
    created.topic_created.topic_id = "ee" * 12


def _created_twice(history: History) -> None:
    history.create_topic(PAID)


def _namespace_never_created(history: History) -> None:
    created = next(events_of_type(history, "namespace_created"))
    created.namespace_created.namespace_id = "dd" * 12


def _policies_skip_a_version(history: History) -> None:
    said = [each for each in events_of_type(history, "policy_set") if each.policy_set.version == 2]
    said[0].policy_set.version = 4


def _drain_of_nobody(history: History) -> None:
    said = next(events_of_type(history, "broker_drain_set"))
    said.broker_drain_set.session_id = "cc" * 12


def _term_goes_back(history: History) -> None:
    shard_id = history.home(PAID)
    history.logs[shard_id][-1].term = 1
    history.logs[shard_id][-2].term = 2


def _deleted_without_being_there(history: History) -> None:
    deleted = e.TopicDeleted(name=SHORT, topic_id="bb" * 12)
    history.add(history.home(SHORT), topic_deleted=deleted)


def _gate_closed_over_children(history: History) -> None:
    opened = next(
        event
        for event in events_of_type(history, "parent_gate_opened")
        if event.parent_gate_opened.parent_name == "acme/orders"
    )
    gate = opened.parent_gate_opened
    closed = e.ParentGateClosed(
        parent_kind=gate.parent_kind,
        parent_name=gate.parent_name,
        parent_id=gate.parent_id,
        attempt=1 << 33,
    )
    history.add(opened.shard_id, parent_gate_closed=closed)


def _two_sessions(history: History) -> None:
    ended = next(events_of_type(history, "broker_session_ended"))
    session = ended.broker_session_ended
    replace_payload(
        ended,
        capacity_granted=e.CapacityGranted(
            broker_id=session.broker_id, session_id=session.session_id, units=100
        ),
    )


def _session_that_ended(history: History) -> None:
    ended = next(events_of_type(history, "broker_session_ended")).broker_session_ended
    *_, last = (
        event
        for event in events_of_type(history, "topic_assigned")
        if event.topic_assigned.name == AGAIN
    )
    last.topic_assigned.session_id = ended.session_id
    last.topic_assigned.broker_id = ended.broker_id


def _deleted_with_owners(history: History) -> None:
    left = next(
        event
        for event in events_of_type(history, "topic_unassigned")
        if event.topic_unassigned.reason == "topic_deleted"
    )
    replace_payload(left, topic_properties_set=e.TopicPropertiesSet(name=SHORT))


def _id_given_twice(history: History) -> None:
    first, second = (
        event.topic_created
        for event in events_of_type(history, "topic_created")
        if event.topic_created.name == AGAIN
    )
    second.topic_id = first.topic_id


def _window_told_again(history: History) -> None:
    window = next(events_of_type(history, "lookup_window_recorded")).lookup_window_recorded
    history.add(0, lookup_window_recorded=window)


def _overdraft(history: History) -> None:
    session_id = history.sessions["broker-2"]
    history.add(
        0,
        capacity_granted=e.CapacityGranted(broker_id="broker-2", session_id=session_id, units=10),
    )
    for shard_id in (1, 2):
        leased = e.CapacityLeased(
            broker_id="broker-2", session_id=session_id, shard_id=shard_id, units=6, version=1
        )
        history.add(0, capacity_leased=leased)


LOG_BREAKAGES = (
    LogBreakage("two owners of one epoch", "overlap", _two_owners),
    LogBreakage("an epoch that jumps", "epoch", _epoch_jumps),
    LogBreakage("a session that never was", "unknown_session", _unknown_session),
    LogBreakage("an assignment without a topic", "orphan_assignment", _no_such_topic),
    LogBreakage("a topic created twice", "created_twice", _created_twice),
    LogBreakage("a namespace never created", "orphan_parent_unknown", _namespace_never_created),
    LogBreakage("policies that skip a version", "policies_version", _policies_skip_a_version),
    LogBreakage("a drain of nobody", "session_not_live", _drain_of_nobody),
    LogBreakage("a term that goes back", "term_back", _term_goes_back),
    LogBreakage("a deletion of nothing", "not_there", _deleted_without_being_there),
    LogBreakage("a gate over children", "gate_over_children", _gate_closed_over_children),
    LogBreakage("two sessions of a broker", "session_overlap", _two_sessions),
    LogBreakage("a session that ended a day before", "ended_session", _session_that_ended),
    LogBreakage("a topic deleted with owners", "deleted_with_owners", _deleted_with_owners),
    LogBreakage("an id given twice", "id_given_twice", _id_given_twice),
    LogBreakage("a window told again", "window_not_later", _window_told_again),
    LogBreakage("more leased than granted", "lease_overdraft", _overdraft),
)


SHARDS_APART = 10
"""Between the shards of histories that are told side by side."""

_NAMED = frozenset({"name", "parent_name", "broker_id", "node_id"})
_IDS = frozenset({"topic_id", "tenant_id", "namespace_id", "parent_id", "object_id", "session_id"})


def side_by_side(histories: Sequence[History]) -> dict[int, list[Any]]:
    """Return the logs of clusters that know nothing of each other, as if they were one.

    History k has the shards from k * ``SHARDS_APART`` on, and names and ids of its own; shard 0 has
    the events of all cluster managers, by their times.
    """
    logs: dict[int, list[Any]] = {0: []}
    for place, history in enumerate(histories):
        for shard_id, log in sorted(history.logs.items()):
            target = shard_id + SHARDS_APART * place if shard_id else 0
            moved = logs.setdefault(target, [])
            for event in log:
                copy = e.Event()
                copy.CopyFrom(event)
                _rename(copy, place)
                copy.shard_id, copy.term = target, copy.term if target else 1
                moved.append(copy)
    logs[0].sort(key=lambda event: event.time_ms)
    for log in logs.values():
        for position, event in enumerate(log, start=1):
            event.position = position
    return logs


def _rename(message: Any, place: int) -> None:
    for field, value in message.ListFields():
        if field.name in _NAMED:
            scheme, separator, rest = value.rpartition("://")
            setattr(message, field.name, f"{scheme}{separator}h{place}{rest}")
        elif field.name in _IDS:
            setattr(message, field.name, f"{value}-{place}")
        elif field.message_type is not None and not field.is_repeated:
            _rename(value, place)


async def broken_log(directory: Path, breakage: LogBreakage) -> Path:
    """Write an export of a told history that ``breakage`` has spoilt."""
    history = told_history()
    breakage.spoil(history)
    return await history.export(directory)


def data_files(export: Path) -> list[Path]:
    """Return the files of events, by shard, day and position."""
    return sorted(export.rglob("[0-9]*.parquet"))


def change_manifest(export: Path, change: Callable[[Any], None]) -> None:
    """Change the manifest's fields in place."""
    path = export / "manifest.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def rewrite(export: Path, path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a file's rows; the manifest has its new size and hash, and its old range."""
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)
    content = path.read_bytes()

    def name_it(fields: Any) -> None:
        for shard in fields["shards"].values():
            for file in shard["files"]:
                if file["path"] == path.relative_to(export).as_posix():
                    file["bytes"] = len(content)
                    file["sha256"] = hashlib.sha256(content).hexdigest()

    change_manifest(export, name_it)


def _cut_short(export: Path, place: int) -> None:
    path = data_files(export)[place]
    path.write_bytes(path.read_bytes()[:-9])


def _missing(export: Path, place: int) -> None:
    data_files(export)[place].unlink()


def _foreign(export: Path, place: int) -> None:
    (export / "shard=00001" / "part-0.parquet").write_bytes(b"PAR1")


def _another_content(export: Path, place: int) -> None:
    """Another file of the same size in its place: one bit of the data is another."""
    path = data_files(export)[place]
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(bytes(content))


def _lost_row(export: Path, place: int) -> None:
    path = data_files(export)[place]
    rewrite(export, path, lambda table: pa.concat_tables([table.slice(0, 3), table.slice(4)]))


def _row_twice(export: Path, place: int) -> None:
    path = data_files(export)[place]
    rewrite(export, path, lambda table: pa.concat_tables([table, table.slice(2, 1)]))


def _of_another_shard(export: Path, place: int) -> None:
    path = data_files(export)[place]

    def moved(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("shard_id")
        return table.set_column(
            place, "shard_id", pc.add(table["shard_id"], pa.scalar(50, pa.int32()))
        )

    rewrite(export, path, moved)


def _another_last_event(export: Path, place: int) -> None:
    def change(fields: Any) -> None:
        fields["shards"]["1"]["last_event_sha256"] = "0" * 64

    change_manifest(export, change)


def _copied_file(export: Path, place: int) -> None:
    path = data_files(export)[place]
    first, _, last = path.stem.partition("-")
    path.with_name(f"{first}-{int(last) - 1:020d}.parquet").write_bytes(path.read_bytes())


def _named_twice(export: Path, place: int) -> None:
    def change(fields: Any) -> None:
        files = fields["shards"]["1"]["files"]
        files.insert(1, files[0])

    change_manifest(export, change)


def _damaged_manifest(export: Path, place: int) -> None:
    path = export / "manifest.json"
    path.write_text(path.read_text()[:-20])


FILE_BREAKAGES = (
    FileBreakage("cut short", "size", _cut_short),
    FileBreakage("missing", "missing_file", _missing),
    FileBreakage("foreign", "foreign_file", _foreign),
    FileBreakage("one bit of it another", "hash", _another_content),
    FileBreakage("a row lost", "gap", _lost_row),
    FileBreakage("a row twice", "duplicate_position", _row_twice),
    FileBreakage("rows of another shard", "wrong_shard", _of_another_shard),
    FileBreakage("another last event", "last_event", _another_last_event),
    FileBreakage("a file copied", "unnamed_file", _copied_file),
    FileBreakage("a file named twice", "named_twice", _named_twice),
    FileBreakage("the manifest damaged", "manifest", _damaged_manifest),
)


LARGE_FILE = 2
"""The first day of shard 1: the one before has too few rows to lose one in the middle."""


async def _write_all(folder: Path) -> None:
    await told_history().export(folder / "clean")
    for log_breakage in LOG_BREAKAGES:
        await broken_log(folder / log_breakage.name.replace(" ", "-"), log_breakage)
    for file_breakage in FILE_BREAKAGES:
        export = await told_history().export(folder / file_breakage.name.replace(" ", "-"))
        file_breakage.spoil(export, LARGE_FILE)


if __name__ == "__main__":
    # python -m tests.support.spark_breakages DIR: each in a folder of its own, to be audited.
    asyncio.run(_write_all(Path(sys.argv[1])))
