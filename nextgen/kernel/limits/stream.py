"""Limits of streams: of readers of the event log (event streams, change streams, the exporter), and
of the exchange of requests."""

from __future__ import annotations

# Reading the log -------------------------------------------------------------------------------

EVENTS_PER_PAGE_MAX = 500
"""Events in one message of ``ReadEvents``: the fixed cost of a message is small by then."""

EVENTS_PAGE_BYTES_MAX = 256 * 1024
"""Bytes of events in one message of ``ReadEvents``; a single event may be larger. A reader that
stops reading costs as much memory."""

EVENTS_PER_SLICE = 125
"""Events read from the log at once for a reader: less than half a millisecond of the loop, so that
commits are not delayed. An entry is never read in part."""

EVENTS_SLICE_BYTES = 64 * 1024
"""The same, in bytes of the log."""

EVENTS_SILENT_SLICES_MAX = 64
"""Consecutive slices without enough matching events for a message; then a message is sent for its
position."""

KEY_PREFIX_BYTES_MAX = 2_048
"""A key prefix; no name is longer."""

EVENTS_IDLE_MS = 1_000
"""Interval at which a replica checks that it hears its leader, while a reader waits for events. A
partitioned replica ends the stream, and the reader uses another one."""

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
"""Watches on one stream: a discovery node's own and those of its clients."""

WATCH_STREAMS_PER_SHARD_MAX = 5_000
"""Streams to one replica of a shard: every broker manager and discovery node, and programs."""

WATCH_SUBSCRIBER_BYTES_MAX = 512
"""Bytes of a subscriber's id, which is a node's id and the part of the node."""

WATCH_NAMES_MAX = 10_000
"""Names in one watch; for more, a subscriber adds another watch."""

WATCH_BACKLOG_EVENTS_MAX = 4_096
"""Unsent events of one stream; beyond it the stream catches up from the log."""

WATCH_EVENTS_PER_UPDATE_MAX = 1_000
"""Events or items in one update; bounded in bytes by ``EVENTS_BATCH_BYTES_MAX`` besides."""

WATCH_PROGRESS_MS = 500
"""Interval of updates that carry only the stream's position."""

WATCH_STALLED_MS_MAX = 10_000
"""Longest wait of one update for its stream's flow control; then the stream is ended."""

WATCH_SILENCE_MS_MAX = 5_000
"""Ten progress updates: a subscriber without any update for this long moves to another replica."""

STREAM_CHANNEL_KEEPALIVE_MS = 5_000
"""Silence on a connection of change streams before it is pinged. While something is used that they
bring, their updates come more often, and a missing one ends its stream earlier."""

ASSIGNMENT_REST_MS = 10_000
"""Interval of updates to a subscriber of assignments that lets its lease rest, because nobody looks
anything up there."""

WATCH_REST_SILENCE_MS_MAX = 25_000
"""A leased watch that rests may be silent for this long: two and a half of its updates."""

WATCH_UPDATES_WAITING_MAX = 4_096
"""Unsent updates of one stream. Beyond it, requests on the stream are not read. One round makes at
most some two thousand updates."""

WATCH_OPEN_MS_MAX = 2_000
"""Time-out of a stream's first message."""

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
"""Watches that one read transaction of the view serves; then other streams have a turn."""

WATCH_SNAPSHOTS_OPEN_MAX = 4
"""Concurrent read transactions for snapshots, of the view's ``VIEW_READERS_MAX``: each takes a
thread."""

WATCH_SNAPSHOT_MS_MAX = 60_000
"""Longest read of the view for a snapshot: while it lasts, the view's write-ahead file grows."""

DECODED_EVENTS_KEPT_MAX = 4_096
"""Decoded events kept for the next reader of the same entries: one group commit, or a few."""

# Watches through discovery ----------------------------------------------------------------------

PUBLIC_WATCHES_BYTES_MAX = 256 * 1024 * 1024
"""Memory of one discovery node for public watches, ending ones included: of all that waits to be
read, and ``PUBLIC_WATCH_BYTES`` for each. 4,096 watches of which none is behind."""

PUBLIC_WATCH_BYTES = 64 * 1024
"""What a public watch counts for besides its queue: its call, its tasks, its buffers."""

PUBLIC_WATCH_QUEUE_UPDATES_MAX = 4_096
"""Updates that wait for one watcher to read; beyond it the watcher is ended as slow."""

PUBLIC_WATCH_QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of the same. A snapshot fills half of it and then waits for its reader, so that later
events have room. Fifty thousand topics fit without a wait."""

PUBLIC_WATCH_PROGRESS_MS = 1_000
"""Interval of updates that carry only a watcher's positions, and of checks for watchers that do not
read, of up to ``PUBLIC_WATCH_PROGRESS_MAX`` watches. Beyond it they take turns."""

PUBLIC_WATCH_PROGRESS_MAX = 250
"""Watches that may be due at a time. An update takes some 0.1 ms of processor time: a thousand of
them each second cost commits a tenth of a core."""

CATCH_UPS_AT_ONCE_MAX = 64
"""Concurrent catch-ups of watchers at one discovery node, by snapshot or from the log: each has a
connection of its own and half a queue of memory."""

# Histories -------------------------------------------------------------------------------------

HISTORY_LINE_BYTES_MAX = 262_144
"""Bytes of one record of a history: an object's properties are its longest part."""

# Export ----------------------------------------------------------------------------------------

EXPORT_FILE_ROWS_MAX = 1_000_000
"""Events in one exported file, about 40 MB: a reader without an index scans all of it."""

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
"""Files in one manifest, which is rewritten with each file: 30 MB; at 128 MiB a file 12 TiB."""

EXPORT_PIN_TTL_MS = 86_400_000
"""Time-to-live of an exporter's pin: after a day without the exporter the log may be cut."""

EXPORT_PIN_RENEWED_MS = 60_000
"""Interval of renewals of the pin: exported events stay in the log this much longer than
necessary."""

EXPORT_SHARDS_LOOKED_FOR_MS = 30_000
"""Interval of checks for new shards, while following."""

EXPORT_LEASE_MS = 60_000
"""On object stores: the lease of a killed exporter blocks the next one for this long."""

EXPORT_LEASE_RENEWED_MS = 15_000
"""Interval of renewals of that lease: three may fail."""

HISTORY_FINDINGS_KEPT_MAX = 100
"""Findings of one kind that a verdict describes. All are counted."""

HISTORY_NAMED_MAX = 12
"""Operations or events that one finding names."""

# Metadata of brokers ---------------------------------------------------------------------------

METADATA_NAMES_WATCHED_MAX = 500_000
"""Names that one broker manager watches for its sessions, some 1 KB each. A unit that needs one
more is refused as ``NO_CAPACITY``, and assigned to a broker of another manager if there is one."""

METADATA_GATHER_MS = 200
"""Names are collected for this long and then watched together, so that single lookups, some dozens
a second, share a watch. Only effective writes to objects that were assigned in this time wait for
it, because the watch begins with a snapshot. Far less than ``ASSIGNMENT_TTL_MS``, for which a home
shard expects its readers to subscribe."""

METADATA_WATCH_NAMES_BYTES_MAX = 1024 * 1024
"""Names of one watch in bytes: a request is one gRPC message, and a name may have a kilobyte."""

METADATA_WATCH_NAMES_MIN = 1_000
"""A watch of brokers' metadata with fewer live names, or more dead than live ones, is *loose*: it
may be merged with others."""

METADATA_LOOSE_WATCHES_MAX = 16
"""Loose watches at one home shard; beyond it they are merged. As many watches may be without their
snapshot; further names are collected until one has it."""

METADATA_WATCH_RETRY_MS = 1_000
"""Pause before names are watched again whose watch ended, or a home shard is read again."""

METADATA_DELTAS_UNSYNCED_MAX = 2_000
"""Unsynced deliveries of a broker up to which each change is sent separately. Beyond it changes
wait, and only the last one of each object is sent."""

METADATA_EXISTENCE_CHECKS_PER_READ_MAX = 100
"""Objects whose existence one read of a home shard checks; each may have 16 KiB."""

RELEASED_UNITS_REMEMBERED_MAX = 10_000
"""Released units that one session remembers, so that a late report about them is ignored: those of
ten requests of the greatest size."""

HELD_OBJECTS_PER_MESSAGE_MAX = 500
"""Objects in one message of a broker's report of its holding: some milliseconds at either end."""

HELD_BYTES_PER_MESSAGE_MAX = 1024 * 1024
"""The same in bytes: names may have some hundred, and a topic any number of units."""

# The exchange of requests and answers (ADR 0013, 0089) --------------------------------------

EXCHANGE_IN_FLIGHT_MAX = 4_096
"""Requests in flight on one connection between two of our processes."""

EXCHANGE_HOLD_MS = 20
"""A request to a shard node waits at most this long for the first answer to the message before it,
so that requests share messages. An idle shard answers within 3 ms."""

EXCHANGE_HOLD_BEHIND_SLOW_MS = 2
"""The same behind a message of requests that a shard may answer late, because they wait for more
than a commit: for brokers or subscribers."""

EXCHANGE_BATCH_REQUESTS_MAX = 32
"""Requests in one message, and answers. They are begun in one turn of a shard node's loop, at up to
a quarter of a millisecond each. With as many waiting, none waits any longer."""

EXCHANGE_BATCH_BYTES_MAX = 64 * 1024
"""Bytes of the requests or answers that share one message. A larger one is a message by itself."""

MOVED_HOPS_MAX = 3
"""How often a request follows its slot to another shard before it waits for a newer map: once for
each move that the map does not have yet. More are under way at one time hardly ever. A renamed
topic costs one of them at a node that does not know where its name leads."""

MOVED_NAMES_MAX = 100_000
"""Names of renamed topics of which a node remembers where they lead, some 20 MB of memory. Those
that were not heard of for the longest time cost a hop again."""

# Stock brokers ----------------------------------------------------------------------------------

PLUGIN_LINE_BYTES_MAX = 1024 * 1024
"""One message, its end included: the loads of a thousand topics with long names. A longer one is
no message, and ends the connection."""

PLUGIN_LOOKUPS_MAX = 10_000
"""Lookups of one stock broker under way; one more is refused and repeated by its client. As many as
a broker gets at once when another one with this many connected topics dies."""

PLUGIN_UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that the plug-in has not read yet: the assignments of half a million topics. Beyond, the
plug-in is regarded as lost."""

PLUGIN_SILENCE_MS_MAX = 3_000
"""Silence after which a stock broker is regarded as dead: that of any broker session. The plug-in
sends every 500 ms, so a pause of its garbage collector may last two seconds."""

PLUGIN_PROMPT_MS_MAX = 600
"""Silence after which the sidecar waits for a plug-in's confirmation of what is usually reported
without it. The plug-in sends every 500 ms."""

PLUGIN_RETRY_MS = 200
"""Pause before the socket of a broker that does not run is tried again."""

PLUGIN_CONFIRM_MS_MAX = 10_000
"""Longest time in which a plug-in confirms what it was sent. Behind it the broker is regarded as
lost: who waits for its sync position waits for others of its topics too."""

PLUGIN_OBEYS_MS = 10_000
"""Time for which a stock broker may have a topic open that is not assigned to it: two reports of
it, and the closing of a ledger. A topic of an earlier session is looked up in that time."""

PLUGIN_OPEN_TOPICS_MAX = 1_000_000
"""Open topics of one stock broker that the sidecar knows of, some 200 bytes each. A broker that
reports more has lost its way."""

PLUGIN_TOPICS_NAMED_MAX = 3
"""Topics that one line of a log names: the rest is a number."""

PLUGIN_REMOVALS_MAX = 10_000
"""Topics that Pulsar deleted and that are still to be removed from the inventory: those of a
namespace that is deleted. More of them stay in the inventory, and a line of the log says so."""

PLUGIN_REMOVALS_AT_ONCE = 8
"""Of these, removed at a time: some hundred a second. Each costs two requests to a shard."""

PLUGIN_REMOVAL_ATTEMPTS_MAX = 25
"""Attempts to remove such a topic, some ten seconds with an election in between. Later Pulsar may
have another topic of its name."""

PLUGIN_FAULT_REPEATED_MS = 60_000
"""Interval at which a reason that lasts is logged again. It counts at each attempt."""

NODE_ID_LOST_MS = 1_000
"""Pause of a sidecar whose session was ended by its manager, before it begins another one: until
then it has heard whether another process uses its node id."""
HANDOVER_TOPICS_MAX = 1_000
"""Topics that one request claims or closes at a stock broker: a broker closes as many in a second
or two, and an answer with long names stays below ``GRPC_MESSAGE_BYTES_MAX``."""

PLUGIN_ANSWER_TIMEOUT_MS = 60_000
"""How long a plug-in may take to name its open topics, or to close some: Pulsar's own time-out for
unloading a bundle."""
