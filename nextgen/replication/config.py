"""Settings of the Raft groups of one process. The defaults are for a LAN and a busy interpreter."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.limits.cluster import JOURNAL_SEGMENT_BYTES, VIEW_LAG_MS_MAX
from nextgen.kernel.limits.snapshot import (
    PINNED_LOG_BYTES_MAX,
    SNAPSHOT_CHUNK_BYTES,
    SNAPSHOT_JOURNAL_BYTES,
    SNAPSHOT_PROGRESS_BYTES,
)


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Timers, windows and sizes. No field turns fsync off, and none ever will."""

    heartbeat_ms: int = 150
    """Interval of a leader's heartbeats; those of all groups travel together."""

    election_ms_min: int = 1_000
    """The least silence of a leader before an election. A shorter one would depose a busy
    leader."""

    election_ms_max: int = 1_500
    """The longest silence before an election; each replica draws its own at random."""

    first_election_ms_min: int = 400
    """Silence before the first election after a start; a live leader sends a heartbeat before
    that."""

    first_election_ms_max: int = 800
    """The same, at most."""

    fast_election_stagger_ms: int = 60
    """Time between candidates of successive rank once the leader's port refuses connections: a
    round of votes with two fsyncs ends before the next candidate tries."""

    fast_election_jitter_ms: int = 4
    """Added at random to every fast election."""

    fast_campaign_ms: int = 180
    """Time for a first campaign to succeed, which takes two syncs. Each further campaign has twice
    as long, up to ``election_ms_max``. Its participants refuse other candidates for that time."""

    fast_election_attempts_max: int = 10
    """Fast attempts before the normal silence applies again: without a majority they cannot
    succeed."""

    leader_contact_ms_max: int = 1_000
    """A leader that heard from no majority for this long steps down."""

    stall_ms_max: int = 1_000
    """A leader whose event loop or disk stalled for this long steps down."""

    view_stall_ms_max: int = 3_000
    """A leader whose view takes this long for one batch steps down, because it cannot answer in
    that time. A batch usually takes some milliseconds."""

    transfer_deadline_ms: int = 2_000
    """Deadline for a successor to catch up and take over."""

    stop_transfer_deadline_ms: int = 500
    """The same deadline while the process stops."""

    entries_in_flight_max: int = 4
    """Entries that a leader has appended and not committed: the second and later ones only when
    many records wait, see ``group_commit``. benchmarks/engine/raft_commit.py."""

    view_lag_ms_max: int = VIEW_LAG_MS_MAX
    """When a majority of views is older than this, the leader stops filling entries."""

    apply_delay_ms: int = 100
    """Delay between a commit and its fold into the view, unless a caller waits for the view or
    ``APPLY_AT_ONCE_EVENTS`` wait. Answers go out first, and successive commits share a
    transaction."""

    apply_retry_ms: int = 1_000
    """Pause between attempts to apply entries while the view's disk is full."""

    journal_segment_bytes: int = JOURNAL_SEGMENT_BYTES
    """One journal file. A smaller one than the largest entry is for tests only."""

    snapshot_journal_bytes: int = SNAPSHOT_JOURNAL_BYTES
    """The log is compacted when this much of it was written since the last time."""

    log_tail_entries: int = 4_096
    """Entries kept that the view has on disk, so that a replica that was away briefly needs no
    snapshot."""

    pinned_log_bytes_max: int = PINNED_LOG_BYTES_MAX
    """Log that only pins keep; beyond it the pin that keeps most is broken."""

    snapshot_chunk_bytes: int = SNAPSHOT_CHUNK_BYTES
    """One chunk of a snapshot on its way to a follower."""

    snapshot_progress_bytes: int = SNAPSHOT_PROGRESS_BYTES
    """Bytes of a snapshot that a follower receives between two syncs of its progress."""

    snapshot_chunk_deadline_ms: int = 30_000
    """A snapshot transfer ends when its follower was silent for this long."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ms * 3 < self.election_ms_min:
            raise ValueError("election_ms_min must be more than three heartbeats")
        if self.election_ms_max <= self.election_ms_min:
            raise ValueError("election_ms_max must be more than election_ms_min")
        if not 0 < self.fast_campaign_ms <= self.election_ms_max:
            raise ValueError("fast_campaign_ms must be at most election_ms_max")
        if self.first_election_ms_max <= self.first_election_ms_min:
            raise ValueError("first_election_ms_max must be more than first_election_ms_min")
        if self.leader_contact_ms_max <= self.heartbeat_ms * 3:
            raise ValueError("leader_contact_ms_max must be more than three heartbeats")
        if self.entries_in_flight_max < 1:
            raise ValueError("entries_in_flight_max must be at least 1")
        if not 0 < self.snapshot_chunk_bytes <= SNAPSHOT_CHUNK_BYTES:
            raise ValueError(f"snapshot_chunk_bytes must be 1 to {SNAPSHOT_CHUNK_BYTES}")
