"""Upper bounds of snapshots, of the log that is kept, and of all views of a process together."""

from __future__ import annotations

# Snapshots -------------------------------------------------------------------------------------

SNAPSHOT_JOURNAL_BYTES = 32 * 1024 * 1024
"""Log written before it is cut again behind what the view has on disk, which costs a few syncs. A
restart reads no more than this, the tail and the pinned log."""

LOG_TAIL_BYTES_MAX = 8 * 1024 * 1024
"""Log kept that the view has on disk, for followers that were away briefly, however large its
entries: sixty thousand creates. A view of a million topics is copied faster than more of them
are folded."""

LOG_REST_MS = 30_000
"""Time without a new entry after which the log is cut, however little was written: longer than
pauses of a load, and a few syncs for each shard that somebody wrote to."""

SNAPSHOTS_KEPT_MAX = 2
"""Complete snapshots of one replica: one that is being sent, and a newer one."""

VIEW_PACE_BYTES = 4 * 1024 * 1024
"""Bytes of a copied view that are written between two syncs: a concurrent sync of a journal waits
for no more than these."""

VIEW_CACHES_BYTES = 128 * 1024 * 1024
"""SQLite's memory of all connections of a process, beyond which page caches give up pages before
they take more: a node with 64 shards needs no more memory when their views have grown. The system
caches the files besides."""

# Their way to a follower -----------------------------------------------------------------------

SNAPSHOT_CHUNK_BYTES = 256 * 1024
"""One chunk of a snapshot on its way to a follower: handled in well under a millisecond, so that
entries on the same connection and loop do not wait for it."""

SNAPSHOT_CHUNKS_IN_FLIGHT_MAX = 4
"""Chunks of one transfer in flight: an entry may wait behind so many on the connection. More do not
make a transfer faster (benchmarks/engine/snapshot_transfer.py)."""

SNAPSHOT_CHUNKS_WAITING_MAX = 8
"""Chunks that one replica has received and not stored: one sender's, and a predecessor's."""

SNAPSHOT_TRANSFERS_MAX = 2
"""Snapshots that one process sends at a time, all groups together; the others wait. An emptied
node needs one of each group."""

SNAPSHOT_REWINDS_MAX = 64
"""Times that one transfer may restart at its receiver's offset; more is a bug or a broken disk."""

SNAPSHOT_RETRY_MS = 500
"""Pause after a transfer that failed although the receiver is connected."""

SNAPSHOT_FOLLOW_MS = 1_000
"""The log is kept for this long after a snapshot, until the follower has begun to replicate the
entries that were written meanwhile."""

SNAPSHOT_SILENCE_MS_MAX = 2_000
"""After this long without an answer a sender requests the receiver's progress."""

SNAPSHOT_ALIVE_MS = 1_000
"""Interval of signs of life of a receiver that checks and installs a snapshot."""

SNAPSHOT_PROGRESS_BYTES = 8 * 1024 * 1024
"""Received bytes between two syncs of the progress: a restart of the receiver repeats at most
these."""

# Log pins --------------------------------------------------------------------------------------

LOG_PINS_MAX = 256
"""Readers that pin one replica's log: streams of events and exporters. Far more than a cluster
has."""

PINNED_LOG_BYTES_MAX = 512 * 1024 * 1024
"""Log that only pins keep at one replica: twice the journal between two snapshots. Beyond it the
pin that keeps most is broken."""

LOG_CUT_SEGMENTS_MAX = 2
"""Journal files removed at a time: 5 ms each on ext4, during which appends wait."""

COPY_ROWS_MAX = 256
"""Rows in one answer, which become one record: taking them keeps the loops of both leaders busy for
some 8 ms. The last answer may have a few more: what one command changed is not divided."""

COPY_BYTES_MAX = 512 * 1024
"""Bytes of rows behind which an answer takes no more. With one row more, of a scalable topic of
many segments, the record stays below ``RECORD_BYTES_MAX``."""

COPY_LOOKED_AT = 20_000
"""Keys of the source that are looked at for one answer, most of them of other slots: some 15 ms, in
slices of 3 ms."""

RELEASE_KEYS_MAX = 200
"""States that have changed since they were copied when slots are released: reading them is a part
of the time for which nobody decides about the slots."""

RELEASE_EVENTS_MAX = 5_000
"""Events of the whole shard behind the copy when slots are released: reading them takes as long."""

QUIESCE_MS_MAX = 5_000
"""Time for what is under way in slots to end before they are released. Nothing new is begun in
them; if it has not ended then, it goes on, and the release is asked for again."""
