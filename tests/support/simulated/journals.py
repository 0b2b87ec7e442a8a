"""Journals on a simulated disk, and a runner that a test moves by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from nextgen.replication.journal.journal import Journal, JournalBroken
from nextgen.replication.journal.worker import InlineRunner, Runner
from nextgen.storage.disk import make_directory_durably
from tests.support.simulated.disk import SimDisk

DATA = Path("/data")
DIRECTORY = DATA / "journal" / "7"
SEGMENT_BYTES = 4096


class HeldRunner(InlineRunner):
    """Keeps submitted work until ``work`` is called: the disk is busy as long as you like."""

    def __init__(self) -> None:
        super().__init__()
        self.held: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[[], None]) -> None:
        self.held.append(work)

    def work(self) -> None:
        """Run what was submitted first."""
        self.held.popleft()()

    def close(self) -> None:
        super().close()
        self.held.clear()


def given_disk() -> SimDisk:
    disk = SimDisk()
    make_directory_durably(disk, DATA, label="setup")
    return disk


def open_journal(
    disk: SimDisk,
    *,
    runner: Runner | None = None,
    cluster_id: str = "test-cluster",
    group_id: int = 7,
    node_id: str = "node-1",
    unverified_if_new: int = 0,
    on_broken: Callable[[JournalBroken], None] | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    cache_bytes: int = 1024,
) -> Journal:
    return Journal.open(
        disk,
        DIRECTORY,
        cluster_id=cluster_id,
        group_id=group_id,
        node_id=node_id,
        unverified_if_new=unverified_if_new,
        runner=runner or InlineRunner(),
        on_broken=on_broken,
        segment_bytes=segment_bytes,
        cache_bytes=cache_bytes,
    )


def payload_of(index: int, size: int = 100) -> bytes:
    """A payload without zeros that says which entry it belongs to."""
    return f"entry {index} ".encode().ljust(size, b".")


def append_many(journal: Journal, count: int, *, term: int = 1, size: int = 100) -> None:
    """Append ``count`` entries of one event each."""
    for _ in range(count):
        journal.append(term, payload_of(journal.last_index + 1, size), 1)
