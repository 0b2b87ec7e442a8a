"""Limits of what reads the event log: readers, change streams, the exporter."""

from __future__ import annotations

# Reading the log -------------------------------------------------------------------------------

EVENTS_PER_PAGE_MAX = 500
"""Events in one message of ``ReadEvents``: what a message costs besides is little by then."""

EVENTS_PAGE_BYTES_MAX = 256 * 1024
"""Bytes of events in one message of ``ReadEvents``; a single event may be larger. Also what is kept
in memory for a reader that stopped reading."""

EVENTS_PER_SLICE = 125
"""Events read from the log at once for a reader: less than half a millisecond of a loop on which a
commit takes several turns. An entry is never read in part."""

EVENTS_SLICE_BYTES = 64 * 1024
"""The same, in bytes of the log."""

EVENTS_SILENT_SLICES_MAX = 64
"""Slices in a row in which a filter found too little for a message; then one is sent all the same,
to say how far the reading is."""

KEY_PREFIX_BYTES_MAX = 2_048
"""A key prefix; no name is longer."""

EVENTS_IDLE_MS = 1_000
"""Between two looks of a replica whether it still hears its leader, while a reader waits for
events: one that was cut off sends its readers elsewhere."""

LOG_READERS_MAX = 64
"""Named readers of one replica's log: exporters, checkers. All of them together fit into one sector
or two of the file that remembers them."""

LOG_READER_ID_BYTES_MAX = 128
"""A named reader's name."""

LOG_READER_TTL_MS_MAX = 7 * 24 * 3_600_000
"""A named reader may be away for a week; its pin breaks before if it keeps too much."""

POSITION_MAX = 2**63 - 1
"""A position that fits into every column and message."""

# Change streams --------------------------------------------------------------------------------

WATCHES_PER_STREAM_MAX = 20_000
"""Watches on one stream: a discovery node's own, and those of its clients."""

WATCH_STREAMS_PER_SHARD_MAX = 5_000
"""Streams to one replica of a shard: every broker manager and discovery node, and programs."""

WATCH_SUBSCRIBER_BYTES_MAX = 512
"""Bytes of a subscriber's id, which is a node's id and the part of the node."""

WATCH_NAMES_MAX = 10_000
"""Names in one watch; for more, a subscriber adds another watch."""

WATCH_BACKLOG_EVENTS_MAX = 4_096
"""Events that wait for one stream to take them; beyond it the stream catches up from the log."""

WATCH_EVENTS_PER_UPDATE_MAX = 1_000
"""Events or items in one update; bounded in bytes by ``EVENTS_BATCH_BYTES_MAX`` besides."""

WATCH_PROGRESS_MS = 500
"""Between two updates that only say how far the stream is."""

WATCH_STALLED_MS_MAX = 10_000
"""Longest wait of one update for its stream's flow control; then the stream is ended."""

WATCH_SILENCE_MS_MAX = 5_000
"""Ten progress updates: a subscriber without any update for this long moves to another replica."""

WATCH_UPDATES_WAITING_MAX = 4_096
"""Unsent updates of one stream. Beyond it, requests on the stream are not read. One round makes at
most some two thousand updates."""

WATCH_OPEN_MS_MAX = 2_000
"""From a stream's beginning to its first message."""

WATCH_HUB_EVENTS_MAX = 20_000
"""Committed events that wait to be matched; beyond it every stream catches up from the log."""

WATCH_EVENTS_PER_SLICE = 200
"""Events matched, or read again from the log, before commits get a turn: some two milliseconds."""

WATCH_CATCH_UP_BYTES = 256 * 1024
"""The same, in bytes of the log, so that large events make no large pause."""

WATCH_JOINING_MAX = 1_000
"""Watches of one stream that catch up together; each takes an update of its own meanwhile."""

WATCH_SNAPSHOT_ITEMS_PER_PAGE = 500
"""Items read from the view at a time, on a worker thread: a few milliseconds."""

WATCH_SNAPSHOTS_PER_READ_MAX = 256
"""Watches that one look at the view serves: then others have a turn."""

WATCH_SNAPSHOTS_OPEN_MAX = 4
"""Looks at one view at a time, of the ``VIEW_READERS_MAX`` that it has: each is a thread's work."""

WATCH_SNAPSHOT_MS_MAX = 60_000
"""Longest read of the view for a snapshot: while it lasts, the view's write-ahead file grows."""

DECODED_EVENTS_KEPT_MAX = 4_096
"""Decoded events kept for the next reader of the same entries: one group commit, or a few."""

# Watches through discovery ----------------------------------------------------------------------

PUBLIC_WATCHERS_MAX = 1_000
"""Watches through one discovery node, those that are ending included: each is a stream."""

PUBLIC_WATCH_QUEUE_UPDATES_MAX = 4_096
"""Updates that wait for one watcher to read; beyond it the watcher is ended as slow."""

PUBLIC_WATCH_QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of the same. A snapshot fills half of it and waits then for its reader, so that what
happens meanwhile has room: fifty thousand topics are taken from the shard at its own speed."""

PUBLIC_WATCH_PROGRESS_MS = 1_000
"""Between two updates to a watcher that only say how far it is; also between two looks for
watchers that take nothing."""

CATCH_UPS_AT_ONCE_MAX = 64
"""Snapshots and resumptions from far behind, read for watchers at a time by one discovery node:
each has a connection of its own, and half a queue of memory."""

# Histories -------------------------------------------------------------------------------------

HISTORY_LINE_BYTES_MAX = 262_144
"""One record of a history: properties of an object are the longest that is in one."""

# Export ----------------------------------------------------------------------------------------

EXPORT_FILE_ROWS_MAX = 1_000_000
"""Events in one exported file: about 40 MB, and what a reader without an index looks through."""

EXPORT_FILE_AGE_MS = 300_000
"""While following, a file is closed this long after its first event arrived. A lower value makes
the export more recent and its files smaller. A quiet shard makes no files."""

EXPORT_ROW_GROUP_ROWS = 65_536
"""Rows of one row group. Smaller ones compress worse, larger ones take memory."""

EXPORT_BATCH_EVENTS = 8_192
"""Events that wait to become columns, of each shard; columns take a fraction of their memory."""

EXPORT_PAGES_WAITING = 2
"""Pages of the log read ahead of the writer, of each shard."""

EXPORT_FILES_MAX = 100_000
"""Files in one manifest, which is written anew with each: 30 MB, at 128 MiB a file 12 TiB."""

EXPORT_PIN_TTL_MS = 86_400_000
"""An exporter that stays away for a day lets the log be cut behind it."""

EXPORT_PIN_RENEWED_MS = 60_000
"""Between two renewals of the pin: events that were exported meanwhile stay in the log this much
longer than necessary."""

EXPORT_SHARDS_LOOKED_FOR_MS = 30_000
"""Between two looks for shards that were added, while following."""

EXPORT_LEASE_MS = 60_000
"""On object stores: the lease of a killed exporter blocks the next one for this long."""

EXPORT_LEASE_RENEWED_MS = 15_000
"""Between two renewals of that lease: three may fail."""

HISTORY_FINDINGS_KEPT_MAX = 100
"""Findings of one kind that a verdict describes. All are counted."""

HISTORY_NAMED_MAX = 12
"""Operations or events that one finding names."""

# Metadata of brokers ---------------------------------------------------------------------------

METADATA_NAMES_WATCHED_MAX = 500_000
"""Names that one broker manager watches for its sessions, some 1 KB each. What needs one more is
refused as ``NO_CAPACITY``, and assigned to a broker of another manager if there is one."""

METADATA_GATHER_MS = 200
"""Names are collected for this long and then watched together, so that lookups one by one, some
dozens a second, share a watch too. Only effective writes to objects that were assigned in this time
wait for it, because the watch begins with a snapshot. Far less than ``ASSIGNMENT_TTL_MS``, for
which a home shard expects its readers to subscribe."""

METADATA_WATCH_NAMES_BYTES_MAX = 1024 * 1024
"""Names of one watch in bytes: a request is one gRPC message, and a name may have a kilobyte."""

METADATA_WATCH_NAMES_MIN = 1_000
"""A watch of brokers' metadata with fewer live names, or more dead than live ones, is loose."""

METADATA_LOOSE_WATCHES_MAX = 16
"""Loose watches at one home shard; beyond it they are put together. So many may also be without
their snapshot; further names gather until one has it."""

METADATA_WATCH_RETRY_MS = 1_000
"""Pause before names are watched again whose watch ended, or a home shard is read again."""

METADATA_DELTAS_UNSYNCED_MAX = 2_000
"""Deliveries that a broker has not synced, up to which each change is sent by itself. Beyond it
the changes wait and only the last of each object is sent."""

METADATA_EXISTENCE_CHECKS_PER_READ_MAX = 100
"""Objects whose existence one read of a home shard checks; each may have 16 KiB."""

RELEASED_UNITS_REMEMBERED_MAX = 10_000
"""Units remembered as released by one session, so that a late report about them is ignored:
those on their way during one request, ten requests of the greatest size."""

HELD_OBJECTS_PER_MESSAGE_MAX = 500
"""Objects in one message of a broker that says what it holds: some milliseconds at either end."""

HELD_BYTES_PER_MESSAGE_MAX = 1024 * 1024
"""The same in bytes: names may have some hundred, and a topic any number of units."""
