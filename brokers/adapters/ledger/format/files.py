"""Names and durable creation of a ledger's files.

A file's bytes are durable after ``sync`` of the file, its name after a sync of its directory.
Files that must never be seen half written are made under a temporary name, which contains the epoch
that made them. A later epoch's owner removes those that a crash leaves.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nextgen.kernel.events.generations import GENERATIONS_MAX, generation_of
from nextgen.storage.disk import DiskStorage, FileIdentity, Handle, SharedStorage

DISK = DiskStorage()
"""The storage of a ledger if its store gets no other."""

OnStep = Callable[[str], None]
"""Called with the name of each step after it was done, on the same thread. Tests use it to stop a
process between two steps."""

ENTRIES = "entries"
INDEX = "index"
STATE = "state"
TEMPORARY = "temporary-"
NAMES_LABEL = "ledger.names"
"""Name of the step that syncs a unit's directory: it makes claims, fences, seals and snapshots
durable."""

REMOVAL_LABEL = "ledger.removal"
"""Name of the step that syncs the directory of a unit whose topic is deleted."""

_REMOVED = "removed-"
"""Begins the name of the mark of a removed unit, which stands beside where its directory was. Its
length in bytes is the last generation of epochs in which nobody may claim the unit."""

MARK_LABEL = "ledger.removal_mark"
"""Name of the step that syncs the length of such a mark."""

_NAME = re.compile(
    r"(?P<mark>claim|fence|seal)-(?P<epoch>\d+)"
    r"|(?P<owner>\d+)-(?P<number>\d+)\.(?P<kind>entries|index|state)"
    r"|temporary-(?P<maker>\d+)-.*"
)
_ID = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX_CHARACTERS = 4


@dataclass(frozen=True, slots=True)
class Owner:
    """The identity of a writer, unique over processes and stores."""

    broker_id: str
    token: str
    now_ms: Callable[[], int]

    def describe(self) -> bytes:
        """Return the content of a claim or fence."""
        who = {"broker": self.broker_id, "token": self.token, "at_ms": self.now_ms()}
        return json.dumps(who).encode() + b"\n"


@dataclass(slots=True)
class Listing:
    """The content of a unit's directory at the moment of the listing."""

    claims: set[int] = field(default_factory=set)
    fences: set[int] = field(default_factory=set)
    seals: set[int] = field(default_factory=set)
    segments: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Epoch → numbers of its entries files, ascending; below, the same for state files."""
    states: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[str, int] = field(default_factory=dict)
    """Every file's name → the epoch that it belongs to."""

    @property
    def used_epoch(self) -> int:
        """The highest epoch with a file, 0 if there is none."""
        return max(self.epochs.values(), default=0)

    @property
    def sealed(self) -> list[int]:
        """Sealed epochs, ascending, without those whose claim was removed."""
        return sorted(self.seals & self.claims)

    @property
    def unsealed(self) -> list[int]:
        """Claimed epochs that are not sealed, ascending.

        Epochs are sealed in order. An unsealed claim below a seal was made too late: its maker saw
        the higher claim and never served, so it is left out.
        """
        highest = max(self.seals & self.claims, default=-1)
        return sorted(epoch for epoch in self.claims if epoch > highest)


class UnitDirectory:
    """One unit's directory on a ``storage``. Calls block, and ``OSError`` passes through."""

    __slots__ = ("_removed", "path", "storage")

    def __init__(self, root: Path, topic_id: str, unit: str, storage: SharedStorage = DISK) -> None:
        if not _ID.fullmatch(topic_id) or (unit and not _ID.fullmatch(unit)):
            raise ValueError(f"{topic_id!r} and {unit!r} name no unit")
        name = f"{topic_id}.{unit}" if unit else topic_id
        above = f"{root}/{topic_id[:_PREFIX_CHARACTERS]}"
        self.path = f"{above}/{name}"
        self._removed = f"{above}/{_REMOVED}{name}"
        self.storage = storage

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
        return self.storage.is_directory(self.path)

    def make(self) -> None:
        """Create the directory if it is missing. Its first claim needs a ``sync_above``."""
        self._make(self.path)

    def _make(self, path: str) -> None:
        missing = [path]
        while not self.storage.is_directory(_parent(missing[-1])):
            missing.append(_parent(missing[-1]))
        for path in reversed(missing):
            self.storage.make_directory(path)

    def remove(self, epoch: int, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Remove all files of epochs up to the end of the generation of ``epoch``, for good.

        The unit's topic is deleted. A unit that is claimed in a later generation stays whole: a
        restored cluster has the topic again (ADR 0092). The removal ends between two files when
        ``is_stopping``.

        A mark comes first, durably, and stays: it is what is left of the fences. An owner of before
        that has not heard of the removal could open an empty directory. Then the claims go,
        durably: without its own claim an owner acknowledges nothing (see ``is_fenced``), so nothing
        is acknowledged after entries are gone. An owner of a later generation that comes in between
        finds the mark, and does not take over what is being removed.
        """
        # A larger number than any real epoch ends all generations.
        generation = min(generation_of(epoch), GENERATIONS_MAX - 1)
        if self._is_claimed_after(generation):
            return
        self._mark_removed(generation)
        if not self.exists() or self._is_claimed_after(generation):
            return
        # Another broker may be removing it, too, and be further.
        with suppress(FileNotFoundError):
            self._drop_claims(generation)
        for name in self.storage.list_names(self.path):
            if is_stopping():
                return
            if generation_of(_epoch_of(name)) <= generation:
                self.storage.unlink(f"{self.path}/{name}")
        self.storage.remove_directory(self.path)

    @property
    def removed_generation(self) -> int | None:
        """The last generation in which nobody may claim the unit, as its topic is deleted; None if
        it is not. Only a restored cluster has the topic again, in a later generation."""
        try:
            mark = self.storage.open_to_read(self._removed)
        except FileNotFoundError:
            return None
        try:
            return self.storage.size(mark)
        finally:
            self.storage.close(mark)

    def drop_removed(self, generation: int) -> None:
        """Remove the claims that a removal up to ``generation`` has left, durably.

        Its mark may not be durable yet. Then a loss of power could bring some of the claims back.
        """
        if any(generation_of(epoch) <= generation for epoch in self.listing().claims):
            self._mark_removed(generation)
            self._drop_claims(generation)

    def _drop_claims(self, generation: int) -> None:
        for epoch in sorted(self.listing().claims):
            if generation_of(epoch) <= generation:
                self.storage.unlink(self.claim(epoch))
        self.sync(REMOVAL_LABEL)

    def _is_claimed_after(self, generation: int) -> bool:
        return generation_of(max(self.listing().claims, default=0)) > generation

    def _mark_removed(self, generation: int) -> None:
        if not self.storage.is_directory(self._above):
            self._make(self._above)
        # A file that is there may not be durable yet: an earlier removal was interrupted.
        mark = self.storage.open(self._removed, create=True)
        try:
            if generation:
                # One byte at an offset never shortens the file: of two removals at one time, the
                # one of the later generation decides. Generation 0 takes no data block.
                self.storage.pwrite(mark, b"\0", generation - 1)
                sync_file(self.storage, mark, label=MARK_LABEL)
        finally:
            self.storage.close(mark)
        self.sync_above()

    def sync_above(self) -> None:
        """Return once the directory itself is durable, up to the ledger directory."""
        for sync in self.syncs_above():
            sync()

    def syncs_above(self) -> tuple[Callable[[], None], ...]:
        """Return what ``sync_above`` does, in steps that may run at the same time."""
        sync, above = self.storage.sync_directory, self._above
        return (
            partial(sync, above, label="ledger.unit_name"),
            partial(sync, _parent(above), label="ledger.prefix_name"),
        )

    @property
    def _above(self) -> str:
        return _parent(self.path)

    def listing(self) -> Listing:
        """List the directory."""
        found = Listing()
        marks = {"claim": found.claims, "fence": found.fences, "seal": found.seals}
        numbered = {ENTRIES: found.segments, STATE: found.states}
        for name in self.storage.list_names(self.path):
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

    def sync(self, label: str = NAMES_LABEL) -> None:
        """Return once the names in the directory are durable."""
        self.storage.sync_directory(self.path, label=label)

    def claim_identity(self, epoch: int) -> FileIdentity | None:
        """Return an identity of the claim's file, which a recreated claim does not have; None if
        there is no claim."""
        return self.storage.identity(self.claim(epoch))

    def is_fenced(self, epoch: int, claim: FileIdentity) -> bool:
        """Whether ``epoch`` is fenced, so that it may acknowledge nothing more.

        A later owner that keeps no segment of an epoch removes its claim, durably, BEFORE it
        removes its fence. So a process that finds no fence and then its own claim is not fenced.
        """
        return self.storage.exists(self.fence(epoch)) or self.claim_identity(epoch) != claim


def _epoch_of(name: str) -> int:
    """Return the epoch that a file belongs to, 0 if it is none of a ledger's files."""
    match = _NAME.fullmatch(name)
    return 0 if match is None else int(match["epoch"] or match["owner"] or match["maker"])


def create_claim(storage: SharedStorage, path: str, content: bytes) -> bool:
    """Create the file, False if it exists. Its name is durable after a sync of its directory.

    The content is for people, and for the process that wrote it; it need not be durable. If it
    cannot be written, the file is removed, so that the caller may try again.
    """
    try:
        handle = storage.create(path)
    except FileExistsError:
        return False
    try:
        storage.pwrite(handle, content, 0)
    except OSError:
        storage.unlink(path)
        raise
    finally:
        storage.close(handle)
    return True


def create_fence(storage: SharedStorage, path: str, claim: str) -> None:
    """Create the fence unless it exists. Its name is durable after a sync of its directory.

    It is a hard link to the later owner's claim, which costs a tenth of a file of its own.
    """
    with suppress(FileExistsError):
        storage.link(claim, path)


def create_temporary(storage: SharedStorage, path: str) -> Handle:
    """Create an empty file under a temporary name, or truncate the existing one.

    The file is renamed after its bytes are synced.
    """
    handle = storage.open(path, create=True)
    if storage.size(handle):
        storage.truncate(handle, 0)
    return handle


def create_whole(storage: SharedStorage, temporary: str, content: bytes, *, label: str) -> None:
    """Create a file under its temporary name, and sync its bytes."""
    handle = create_temporary(storage, temporary)
    try:
        storage.pwrite(handle, content, 0)
        storage.sync(handle, label=label)
    except OSError:
        storage.unlink(temporary)
        raise
    finally:
        storage.close(handle)


def sync_file(storage: SharedStorage, handle: Handle, *, label: str) -> None:
    """Return when all bytes that were written to the file are on the medium.

    After a failed sync the kernel may regard bytes as written that are not, and a later sync would
    succeed without them. So the file's cached pages are dropped: a process that measures the file
    next reads the medium.
    """
    try:
        storage.sync(handle, label=label)
    except OSError:
        with suppress(OSError):
            storage.drop_cache(handle)
        raise


def read_file(storage: SharedStorage, path: str) -> bytes:
    """Return a small file's bytes."""
    handle = storage.open_to_read(path)
    try:
        return storage.pread(handle, storage.size(handle), 0)
    finally:
        storage.close(handle)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
