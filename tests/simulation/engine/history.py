"""The acknowledged writes, reads and errors of a simulated group so far, seen by its clients."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from nextgen.kernel.errors import JournalCorrupted
from nextgen.replication.journal.format import Identity
from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.journal.recovery import JournalState, recover
from nextgen.replication.ports import Commit, Entry, NodeId
from nextgen.replication.protocol.entry_codec import encode_records
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.node import DATA, GROUP

JOURNAL = DATA / f"group-{GROUP}" / "journal"


class Violation(AssertionError):
    """An invariant does not hold. The message is a sentence."""


def require(holds: bool, sentence: str) -> None:
    """Raise a ``Violation`` unless ``holds``."""
    if not holds:
        raise Violation(sentence)


@dataclass(frozen=True, slots=True)
class Fact:
    """What makes two log entries the same."""

    term: int
    first_position: int
    payload_checksum: int

    def is_of(self, entry: Entry) -> bool:
        """True if this is ``entry``, as listeners and readers get it."""
        same = (self.term, self.first_position) == (entry.term, entry.first_position)
        if not entry.records:
            return same  # What it holds is the group's own affair: a configuration, or nothing.
        return same and self.payload_checksum == zlib.crc32(encode_records(entry.records))

    @classmethod
    def of_journal(cls, entry: JournalEntry) -> Fact:
        return cls(entry.term, entry.first_position, zlib.crc32(entry.payload))


@dataclass(slots=True)
class History:
    """Shared by all invariants of a run."""

    committed: dict[int, Fact] = field(default_factory=dict)
    committed_index: int = 0
    payloads: dict[bytes, int] = field(default_factory=dict)
    """Every committed payload and the entry that holds it."""
    acked: dict[bytes, Commit] = field(default_factory=dict)
    acked_index: int = 0
    refused: dict[bytes, str] = field(default_factory=dict)
    """The writes that were refused for good, and by which error."""
    reads: int = 0
    leaders: dict[int, NodeId] = field(default_factory=dict)
    votes: dict[tuple[NodeId, int], NodeId] = field(default_factory=dict)
    """The vote of each node in a term, as far as a message of it left the node."""
    pre_votes: dict[tuple[NodeId, int], set[NodeId]] = field(default_factory=dict)
    """Who would vote for a node in a term, by what has been sent to it."""


def durable_state(disk: SimDisk, node_id: NodeId) -> JournalState | None:
    """Return what this disk would give back if the power went at this moment."""
    identity = Identity.of("simulation", node_id, GROUP)
    try:
        recovered = recover(disk.durable_copy(), JOURNAL, identity)
    except JournalCorrupted as error:
        raise Violation(f"a power cut at this moment would end {node_id}: {error}") from error
    return None if recovered is None else recovered.state


def holds_entry(state: JournalState | None, index: int, term: int) -> bool:
    """True if ``state`` has entry ``index`` of ``term``, in its log or behind its base."""
    if state is None:
        return False
    table = state.table
    if index <= table.base_index:
        return True
    return index <= table.last_index and table.term_of(index) == term


def check_end(history: History, applied: Mapping[NodeId, int]) -> None:
    """AnswerImpliesCommitted, at the end: each acknowledged write is where it was acknowledged."""
    for payload, commit in history.acked.items():
        require(
            history.payloads.get(payload) == commit.index,
            f"{payload[:20]!r} was acknowledged in entry {commit.index} and is lost",
        )
    last = max(history.committed, default=0)
    for node_id, index in applied.items():
        require(index == last, f"{node_id} has applied up to {index} of {last}")
    require(
        all(after == before + 1 for before, after in pairwise(sorted(history.committed))),
        "there is a hole in what was committed",
    )
