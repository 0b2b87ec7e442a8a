"""Histories on disk: JSON lines, appended, one file for each process that records.

    with Recorder(directory / "load-1.jsonl") as recorder:
        recorder.write(asked)      # BEFORE the request leaves
        recorder.write(answered)
    history = load_history(directory)

The first line has the format's version. A half-written last line, left by a killed process, is
ignored: the process was killed before it continued. Damage anywhere else is an error.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from nextgen.harness.history.model import (
    FORMAT_VERSION,
    Drained,
    Fault,
    FinalItem,
    FinalListing,
    History,
    LogEvent,
    Operation,
    OperationKind,
    Publish,
    Received,
    Record,
    Run,
    ViewHash,
    WatchRecord,
)
from nextgen.kernel.limits.stream import HISTORY_LINE_BYTES_MAX

HISTORY_RECORDS_MAX = 20_000_000
"""Records that one history may have: they are judged in memory, at some 500 bytes each."""

FILE_SUFFIX = ".jsonl"
_FORMAT = "nextgen-history"
_TYPES: Mapping[str, type[Record]] = {each.__name__: each for each in get_args(Record)}
_FIELDS = {each: dict.fromkeys(field.name for field in fields(each)) for each in _TYPES.values()}
_WATCH_TYPES = get_args(WatchRecord)


class BadHistory(Exception):
    """The files are not a valid history; the message names file and line."""


class Recorder:
    """Appends records to one file. Each ``write`` reaches the operating system before it returns,
    so the end of this process loses nothing; it does not wait for the disk.

    May be used by several threads. An existing file is continued behind its last complete line, for
    a process that was killed and started again.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        self._lock = threading.Lock()
        self._file = path.open("ab", buffering=0)
        if self._file.tell() == 0:
            self._append(_line({"format": _FORMAT, "version": FORMAT_VERSION}))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, record: Record) -> None:
        """Append one record.

        Raises:
            ValueError: It is longer than ``HISTORY_LINE_BYTES_MAX``. Nothing was written.
        """
        self._append(encode(record))

    def write_all(self, records: Iterable[Record]) -> None:
        """Append many records, as one write for each thousand or so of them."""
        lines: list[bytes] = []
        for record in records:
            lines.append(encode(record))
            if len(lines) >= 1_000:
                self._append(b"".join(lines))
                lines.clear()
        self._append(b"".join(lines))

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        with self._lock:
            while data:  # One call may take a part only.
                data = data[self._file.write(data) :]


def encode(record: Record) -> bytes:
    """Return the line of ``record``. Fields that have their default are written too."""
    kind = type(record)
    values: dict[str, Any] = {"record": kind.__name__}
    values |= {name: getattr(record, name) for name in _FIELDS[kind]}
    line = _line(values)
    if len(line) > HISTORY_LINE_BYTES_MAX:
        raise ValueError(
            f"a {kind.__name__} takes {len(line)} bytes, at most {HISTORY_LINE_BYTES_MAX} fit"
        )
    return line


def load_history(directory: Path) -> History:
    """Return the history in the files of ``directory``.

    Raises:
        BadHistory: A file is damaged or of a later format, or there is not exactly one ``Run``.
    """
    paths = sorted(directory.glob(f"*{FILE_SUFFIX}"))
    if not paths:
        raise BadHistory(f"{directory} holds no *{FILE_SUFFIX} files")
    return history_of(record for path in paths for record in read_records(path))


def history_of(records: Iterable[Record], *, records_max: int = HISTORY_RECORDS_MAX) -> History:
    """Return the history of ``records``; of the records of one operation the last one counts.

    Raises:
        BadHistory: They are too many, or there is not exactly one ``Run``.
    """
    sorted_out = _SortedOut()
    for count, record in enumerate(records, start=1):
        if count > records_max:
            raise BadHistory(f"a history has at most {records_max} records")
        sorted_out.add(record)
    return sorted_out.history()


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of one file, without a torn last line."""
    data = path.read_bytes()
    lines = data.split(b"\n")
    lines.pop()  # What follows the last newline: nothing, or a torn line.
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            if number > 1:
                yield _decode(values)
                continue
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadHistory(f"{path.name}:{number}: {type(error).__name__}: {error}") from error
        _check_format(path, values)


class _SortedOut:
    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._operations: dict[tuple[str, int], Operation] = {}
        self._publishes: dict[tuple[str, str, int], Publish] = {}
        self._watch_records: list[WatchRecord] = []
        self._others: dict[type, list[Any]] = {each: [] for each in _TYPES.values()}

    def add(self, record: Record) -> None:
        match record:
            case Operation():
                self._operations[(record.client, record.op_id)] = record
            case Publish():
                self._publishes[(record.topic, record.producer, record.sequence)] = record
            case Run():
                self._runs.append(record)
            case _ if isinstance(record, _WATCH_TYPES):
                self._watch_records.append(record)
            case _:
                self._others[type(record)].append(record)

    def history(self) -> History:
        if len(self._runs) != 1:
            raise BadHistory(f"a history has one Run, this one has {len(self._runs)}")
        log: list[LogEvent] = self._others[LogEvent]
        return History(
            run=self._runs[0],
            operations=tuple(self._operations.values()),
            publishes=tuple(self._publishes.values()),
            received=tuple(self._others[Received]),
            drained=tuple(self._others[Drained]),
            watch_records=tuple(self._watch_records),
            # Stable, and by shard only: an order of positions that is wrong has to be seen.
            log=tuple(sorted(log, key=lambda event: event.shard)),
            final_items=tuple(self._others[FinalItem]),
            final_listings=tuple(self._others[FinalListing]),
            view_hashes=tuple(self._others[ViewHash]),
            faults=tuple(sorted(self._others[Fault], key=lambda fault: fault.began_ns)),
        )


def _decode(values: dict[str, Any]) -> Record:
    kind = _TYPES[values.pop("record")]
    for name, value in values.items():
        if type(value) is list:
            values[name] = tuple(value)
    if kind is Operation:
        values["kind"] = OperationKind(values["kind"])
    # Fields of a later release only add information.
    for name in values.keys() - _FIELDS[kind].keys():
        del values[name]
    return kind(**values)


def _check_format(path: Path, header: Any) -> None:
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise BadHistory(f"{path.name} is not a history file")
    version = header.get("version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise BadHistory(f"{path.name} has format {version}, {FORMAT_VERSION} can be read")


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
