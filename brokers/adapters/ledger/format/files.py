"""Names and durable creation of a ledger's files.

A file's bytes are durable after ``fsync`` of the file, its name after ``fsync`` of its directory.
Files that must never be seen half written are made under a temporary name, which says the epoch
that made them: whatever a crash leaves of them is removed by a later epoch's owner.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from brokers.ports.ledger import StorageFailed

OnStep = Callable[[str], None]
"""Called with the name of each step that was just done, on the thread that did it: tests stop
a process between two of them."""

ENTRIES = "entries"
INDEX = "index"
STATE = "state"
TEMPORARY = "temporary-"
ClaimIdentity = tuple[int, int]
"""Inode and time of a claim: a claim that was removed and made again is another one."""

_NAME = re.compile(
    r"(?P<mark>claim|fence|seal)-(?P<epoch>\d+)"
    r"|(?P<owner>\d+)-(?P<number>\d+)\.(?P<kind>entries|index|state)"
    r"|temporary-(?P<maker>\d+)-.*"
)
_ID = re.compile(r"[A-Za-z0-9_-]+")
_OPEN = os.O_RDWR | os.O_CLOEXEC
_PREFIX_CHARACTERS = 4
_PIECE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes: an identity that no other process, and no other store in it, has."""

    broker_id: str
    token: str
    now_ms: Callable[[], int]

    def describe(self) -> bytes:
        """Return what a claim or fence says."""
        who = {"broker": self.broker_id, "token": self.token, "at_ms": self.now_ms()}
        return json.dumps(who).encode() + b"\n"


@dataclass(slots=True)
class Listing:
    """What a unit's directory held when it was looked at."""

    claims: set[int] = field(default_factory=set)
    fences: set[int] = field(default_factory=set)
    seals: set[int] = field(default_factory=set)
    segments: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Epoch → numbers of its entries files, ascending; so of its state files."""
    states: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[str, int] = field(default_factory=dict)
    """File name → the epoch that it belongs to, all files."""

    @property
    def used_epoch(self) -> int:
        """The highest epoch that has left anything, 0 if none has."""
        return max(self.epochs.values(), default=0)

    @property
    def sealed(self) -> list[int]:
        """Epochs whose end is known, ascending; those whose claim was removed count no more."""
        return sorted(self.seals & self.claims)

    @property
    def unsealed(self) -> list[int]:
        """Claimed epochs whose end is open, ascending.

        Epochs are sealed in order. A claim below a seal that has none itself came too late: its
        maker saw the higher claim and never served.
        """
        highest = max(self.seals & self.claims, default=-1)
        return sorted(epoch for epoch in self.claims if epoch > highest)


class UnitDirectory:
    """One unit's directory. Calls block; ``OSError`` goes through."""

    __slots__ = ("path",)

    def __init__(self, root: Path, topic_id: str, unit: str) -> None:
        if not _ID.fullmatch(topic_id) or (unit and not _ID.fullmatch(unit)):
            raise ValueError(f"{topic_id!r} and {unit!r} name no unit")
        name = f"{topic_id}.{unit}" if unit else topic_id
        self.path = f"{root}/{topic_id[:_PREFIX_CHARACTERS]}/{name}"

    def claim(self, epoch: int) -> str:
        return f"{self.path}/claim-{epoch}"

    def fence(self, epoch: int) -> str:
        return f"{self.path}/fence-{epoch}"

    def seal(self, epoch: int) -> str:
        return f"{self.path}/seal-{epoch}"

    def numbered(self, epoch: int, number: int, kind: str) -> str:
        return f"{self.path}/{epoch}-{number}.{kind}"

    def temporary(self, epoch: int, name: str) -> str:
        return f"{self.path}/{TEMPORARY}{epoch}-{name}"

    def exists(self) -> bool:
        return os.path.isdir(self.path)

    def make(self) -> None:
        """Make the directory unless it is there. The first claim in it takes ``sync_above``."""
        os.makedirs(self.path, 0o700, exist_ok=True)

    def sync_above(self) -> None:
        """Return once the directory itself is durable, up to the ledger directory."""
        above = os.path.dirname(self.path)
        sync_directory(above)
        sync_directory(os.path.dirname(above))

    def listing(self) -> Listing:
        """Look at what is there."""
        found = Listing()
        marks = {"claim": found.claims, "fence": found.fences, "seal": found.seals}
        numbered = {ENTRIES: found.segments, STATE: found.states}
        for name in os.listdir(self.path):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            mark, marked, owner, number, kind, maker = match.groups()
            epoch = found.epochs[name] = int(marked or owner or maker)
            if mark:
                marks[mark].add(epoch)
            elif kind in numbered:
                numbered[kind][epoch].append(int(number))
        for numbers in (*found.segments.values(), *found.states.values()):
            numbers.sort()
        return found

    def sync(self) -> None:
        """Return once the names in the directory are durable."""
        sync_directory(self.path)

    def claim_identity(self, epoch: int) -> ClaimIdentity | None:
        """Return what tells the claim from one that is made again, None if there is none."""
        try:
            status = os.stat(self.claim(epoch))
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def is_fenced(self, epoch: int, claim: ClaimIdentity) -> bool:
        """Whether ``epoch`` may acknowledge nothing more.

        A later owner that has nothing left of an epoch removes its claim, durably, BEFORE it
        removes its fence. So whoever finds no fence, and then its own claim, is not fenced.
        """
        return os.access(self.fence(epoch), os.F_OK) or self.claim_identity(epoch) != claim


def create_claim(path: str, content: bytes) -> bool:
    """Make the file, False if it exists. Its name is durable when its directory was synced.

    The content is for people, and for the process that wrote it; nothing rests on its being
    durable. If it cannot be written the file is not there, so that its maker may try again.
    """
    try:
        handle = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        write_all(handle, content, 0)
    except OSError:
        remove(path)
        raise
    finally:
        os.close(handle)
    return True


def create_fence(path: str, claim: str) -> None:
    """Make the fence unless it exists. Its name is durable when its directory was synced.

    It is another name of the claim that it is made for, which costs a tenth of a file of its own.
    """
    with suppress(FileExistsError):
        os.link(claim, path)


def create_temporary(path: str) -> int:
    """Make an empty file under a temporary name, or empty the one that is there.

    It gets its own name when its bytes are synced.
    """
    return os.open(path, _OPEN | os.O_CREAT | os.O_TRUNC, 0o600)


def create_whole(temporary: str, content: bytes) -> int:
    """Make a file under its temporary name, its bytes synced; return its handle."""
    handle = create_temporary(temporary)
    try:
        write_all(handle, content, 0)
        os.fsync(handle)
    except OSError:
        os.close(handle)
        remove(temporary)
        raise
    return handle


def write_all(handle: int, content: bytes, offset: int) -> None:
    """Write all of it or raise; then any part may be there."""
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, offset)
        if not written:
            raise StorageFailed("the disk takes no bytes")
        view = view[written:]
        offset += written


def read_file(path: str) -> bytes:
    """Return a small file's bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(handle, _PIECE_BYTES)]
        while len(pieces[-1]) == _PIECE_BYTES:
            pieces.append(os.read(handle, _PIECE_BYTES))
    finally:
        os.close(handle)
    return b"".join(pieces)


def remove(path: str) -> None:
    """Remove a file; one that is missing is fine."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def sync_directory(path: str) -> None:
    """Return once the names in ``path`` are durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
