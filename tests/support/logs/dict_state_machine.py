"""A view for the tests of replicated logs: a list of what was folded, kept like a real view."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from nextgen.kernel.routing.hashing import hash64
from nextgen.replication.ports import AppliedPoint, Entry, Record, ViewDigest
from nextgen.replication.view.digest import next_digest_position


class DictStateMachine:
    """Folds records into a list. ``path`` makes it survive a restart, as a database would.

    ``full`` lets the next applies fail like a full disk; ``broken`` like a program error.
    ``twist`` stands for rows that were changed behind the fold's back: it is in the digest, on
    disk and in snapshots, and gone when the view is begun again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._point = AppliedPoint(0, 0, 0)
        self.records: list[Record] = []
        self.twist = 0
        self._digest: ViewDigest | None = None
        self.full = False
        self.broken = False
        self.closed = False
        if path is not None and path.exists():
            self._load(path)

    def payloads(self) -> list[bytes]:
        return [record.payload for record in self.records]

    def applied(self) -> AppliedPoint:
        return self._point

    def apply(self, entries: Sequence[Entry]) -> None:
        if self.full:
            raise OSError(28, "no space left on device")
        assert not self.broken, "the view is broken"
        reached = next_digest_position(self._point.position)
        assert entries[-1].first_position <= reached, "a digest point ends its batch"
        for entry in entries:
            assert entry.index == self._point.index + 1, "a gap in what is folded"
            assert entry.first_position == self._point.position + 1, "positions are dense"
            self.records += entry.records
            self._point = AppliedPoint(entry.index, entry.term, entry.next_position - 1)
        if self._point.position >= reached:
            digest = hash64(json.dumps(self._body())) ^ self.twist
            self._digest = ViewDigest(self._point.index, self._point.position, digest)

    def make_durable(self) -> AppliedPoint:
        if self._path is not None:
            self._save(self._path)
        return self._point

    def digest(self) -> ViewDigest | None:
        return self._digest

    def write_snapshot(self, path: Path) -> AppliedPoint:
        self._save(path)
        return self._point

    def install_snapshot(self, path: Path) -> AppliedPoint:
        self._load(path)
        return self._point

    def quarantine(self) -> None:
        self._point = AppliedPoint(0, 0, 0)
        self.records = []
        self._digest = None
        self.twist = 0

    def close(self) -> None:
        self.closed = True

    def _save(self, path: Path) -> None:
        digest = None if self._digest is None else astuple(self._digest)
        path.write_text(json.dumps(self._body() | {"twist": self.twist, "digest": digest}))

    def _body(self) -> dict[str, object]:
        point = self._point
        return {
            "point": [point.index, point.term, point.position],
            "records": [[record.payload.decode(), record.events] for record in self.records],
        }

    def _load(self, path: Path) -> None:
        body = json.loads(path.read_text())
        self._point = AppliedPoint(*body["point"])
        self.records = [Record(payload.encode(), events) for payload, events in body["records"]]
        self.twist = body["twist"]
        self._digest = None if body["digest"] is None else ViewDigest(*body["digest"])
