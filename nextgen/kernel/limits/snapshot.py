"""Upper bounds of snapshots and of the log that is kept."""

from __future__ import annotations

# Snapshots -------------------------------------------------------------------------------------

SNAPSHOT_JOURNAL_BYTES = 256 * 1024 * 1024
"""Journal written between two snapshots of a view: a restart reads no more than this and what is
pinned, and a view of some hundred MB is not copied more often than it is rewritten."""

SNAPSHOT_TAIL_BYTES_MAX = 64 * 1024 * 1024
"""Log kept behind a snapshot for followers that were away briefly, however large its entries."""

SNAPSHOTS_KEPT_MAX = 2
"""Complete snapshots of one replica: the newest, and an older one while it is being sent."""

VIEW_PACE_BYTES = 4 * 1024 * 1024
"""Bytes of a copied view that are written between two syncs: a journal's sync that comes in
between waits for no more than these."""

# Their way to a follower -----------------------------------------------------------------------

SNAPSHOT_CHUNK_BYTES = 256 * 1024
"""One chunk of a snapshot on its way to a follower: handled in well under a millisecond, so that
entries on the same connection and loop do not wait for it."""

SNAPSHOT_CHUNKS_IN_FLIGHT_MAX = 4
"""Chunks of one transfer that are not answered yet: what an entry may find before it on the
connection. More do not make a transfer faster (benchmarks/snapshot_transfer.py)."""

SNAPSHOT_CHUNKS_WAITING_MAX = 8
"""Chunks that one replica has received and not stored: one sender's, and a predecessor's."""

SNAPSHOT_TRANSFERS_MAX = 2
"""Snapshots that one process sends at a time, all groups together; the others wait. An emptied
node needs one of each group."""

SNAPSHOT_REWINDS_MAX = 64
"""Times that one transfer goes back to where its receiver is; beyond it something is wrong."""

SNAPSHOT_RETRY_MS = 500
"""After a transfer that failed while the receiver was there."""

SNAPSHOT_FOLLOW_MS = 1_000
"""The log is kept for this long after a snapshot, until the follower has begun to replicate the
entries that were written meanwhile."""

SNAPSHOT_SILENCE_MS_MAX = 2_000
"""After this long without an answer a sender requests the receiver's progress."""

SNAPSHOT_ALIVE_MS = 1_000
"""Between the signs of life of a receiver that checks and installs what it has received."""

SNAPSHOT_PROGRESS_BYTES = 8 * 1024 * 1024
"""Received bytes between two that are noted durably: what a restart of the receiver repeats."""

# Log pins --------------------------------------------------------------------------------------

LOG_PINS_MAX = 256
"""Readers that pin one replica's log: streams of events, exporters. Far more than there are."""

PINNED_LOG_BYTES_MAX = 512 * 1024 * 1024
"""Log that one replica keeps for pins alone, beyond what it keeps anyway: two more times what is
written between two snapshots. Beyond it the pin that keeps most is broken."""

LOG_CUT_SEGMENTS_MAX = 2
"""Journal files removed at a time: 5 ms each on ext4, during which appends wait."""
