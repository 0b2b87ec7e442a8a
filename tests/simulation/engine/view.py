"""A view that is nothing but a chain of hashes: any difference, anywhere, shows at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path

from nextgen.replication.ports import AppliedPoint, Entry, ViewDigest
from nextgen.replication.view.digest import next_digest_position
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.view import SimView

FILLER_CHARACTERS = 8_000
"""So that a snapshot takes several chunks."""


class ChainView(SimView):
    """``folded`` is called with each index and the chain up to it, snapshots included."""

    def __init__(self, disk: SimDisk, directory: Path, folded: Callable[[int, str], None]) -> None:
        self.chain = ""
        self._digest: ViewDigest | None = None
        self._folded = folded
        super().__init__(disk, directory)

    def apply(self, entries: Sequence[Entry]) -> None:
        due = next_digest_position(self._point.position)
        assert entries[-1].first_position <= due, "a digest point ends its batch"
        super().apply(entries)
        if self._point.position >= due:
            digest = int(self.chain, 16)
            self._digest = ViewDigest(self._point.index, self._point.position, digest)

    def fold(self, entry: Entry) -> None:
        step = hashlib.blake2b(self.chain.encode(), digest_size=8)
        step.update(f"{entry.index} {entry.term} {entry.first_position}".encode())
        for record in entry.records:
            step.update(f"{record.events} ".encode() + record.payload)
        self.chain = step.hexdigest()
        self._folded(entry.index, self.chain)

    def digest(self) -> ViewDigest | None:
        return self._digest

    def install_snapshot(self, path: Path) -> AppliedPoint:
        point = super().install_snapshot(path)
        self._folded(point.index, self.chain)
        return point

    def content(self) -> object:
        digest = None if self._digest is None else astuple(self._digest)
        return [self.chain, digest, "." * FILLER_CHARACTERS]

    def restore(self, content: object) -> None:
        assert isinstance(content, list)
        self.chain, digest, _ = content
        self._digest = None if digest is None else ViewDigest(*digest)
