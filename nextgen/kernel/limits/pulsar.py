"""Limits of Pulsar's protocol, of lookups, ledgers, subscriptions and brokers.

Each has its unit and its reason.
"""

from __future__ import annotations

# Pulsar protocol -------------------------------------------------------------------------------

PULSAR_MESSAGE_BYTES_MAX = 5 * 1024 * 1024
"""Metadata and body of one SEND: the default of a stock broker, sent to clients in CONNECTED."""

PULSAR_FRAME_BYTES_MAX = PULSAR_MESSAGE_BYTES_MAX + 10 * 1024
"""One frame, its size field included: the largest message and a command, as in a stock broker."""

PULSAR_CONNECTIONS_MAX = 50_000
"""Clients connected to one port of one process: some 15 KB each while idle, and a file each."""

PULSAR_WRITE_PAUSE_BYTES = 1024 * 1024
"""Unsent bytes for a client; beyond it no further command of the client is read."""

PULSAR_WRITE_BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Unsent bytes for a client; beyond it the client is dropped. Room for several of the largest
answers, in addition to those in flight when the client stopped reading."""

PULSAR_KEEP_ALIVE_MS = 30_000
"""Interval of PINGs, and the longest silence: as in a stock broker."""

PULSAR_FEATURE_SETS_MAX = 64
"""Different sets of feature flags that connections share: each client release has one."""

PULSAR_BATCH_MESSAGES_MAX = 1_000_000
"""Messages in one batch that is taken apart: an item has at least six bytes, so a frame has no
room for more."""

PULSAR_REQUESTS_IN_FLIGHT_MAX = 65_536
"""Pending requests of one connection of our own tools; more is a bug of the tool."""

# Discovery over Pulsar -------------------------------------------------------------------------

TOPIC_LIST_BYTES_MAX = PULSAR_MESSAGE_BYTES_MAX - 64 * 1024
"""Names in the answer to a listing of a namespace over Pulsar's protocol: it is one frame, and
clients close the connection at a bigger one. Some 80,000 names of 60 bytes."""

DIRECTORY_READS_IN_FLIGHT_MAX = 8
"""Requests of one kind in flight to one shard; further ones share the next request."""

DIRECTORY_READS_PER_REQUEST_MAX = 100
"""Objects in one read: with 16 KiB of properties each they still fit into one answer. Larger ones,
such as namespaces with thousands of permissions, are read again in halves."""

DIRECTORY_CREATES_PER_REQUEST_MAX = 200
"""Topics in one create on demand: a record with the longest names stays far below its limit."""

GROUP_QUESTIONS_SHARED_MAX = 16
"""A tenant with more creates on demand waiting at a shard has requests of its own: a request waits
for a turn of each tenant that it names."""

DIRECTORY_NAMES_WAITING_MAX = 100_000
"""Names of one kind of request that wait for shards in one process; beyond it ``Overloaded``."""

DEFAULT_NAMESPACE_TTL_MS = 2_000
"""How long ``public/default`` is assumed to exist: a deleted one is created again after this."""

DISCOVERY_COMMANDS_WAITING_MAX = 50_000
"""Commands of all Pulsar and HTTP clients of one process that wait for shards, some 5 KB each: as
many as a stock broker lets wait. Beyond it they get a retryable error."""

DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX = 2_000
"""Pending commands of one connection; reading from it then pauses until half are answered. It is
twice the number of names in flight to a shard."""

DISCOVERY_LISTINGS_MAX = 16
"""Concurrent listings of namespaces in one process, each up to one frame and the names it is made
of."""

DISCOVERY_TENANT_LISTINGS_MAX = 8
"""Concurrent listings of one tenant's namespaces among them: others list theirs meanwhile."""

PARTITION_COUNT_TTL_MS = 2_000
"""How long a topic's number of partitions is cached: as long as an assignment without updates. Only
a deletion makes it wrong."""

PARTITION_COUNTS_MAX = 100_000
"""Topics whose partitions are remembered, some 250 bytes each."""

FAST_PENDING_BYTES_MAX = 4_096
"""Bytes of an incomplete command that are kept for the next read: more than any lookup of the fast
path."""

DISCOVERY_WORKERS_MAX = 64
"""Processes that share one discovery node's Pulsar port. Each uses one core, so more would exceed
any machine."""

WORKER_REPORT_MS = 1_000
"""Interval of a worker's reports: counts since the last one are lost if it dies."""

WORKER_REPORT_BYTES_MAX = 1024 * 1024
"""One report of a worker; it grows with the number of shards, by some 40 bytes each."""

WORKER_ANSWER_MS_MAX = 500
"""Time-out of a worker's present numbers; afterwards its last report is used."""

WORKER_RESTART_PAUSE_MS_MIN = 200
"""Pause before an ended worker is started again; doubled each time it ends early."""

WORKER_RESTART_PAUSE_MS_MAX = 5_000
"""The longest pause before a worker is started again."""

WORKER_RUN_COUNTS_MS = 10_000
"""A worker that ran this long did not end early."""

OPEN_FILES_MAX = 262_144
"""Open files and connections that one process requests from the system: several times the
connections that it accepts, and little enough for the kernel's tables."""

HTTP_BODY_BYTES_MAX = 1_024
"""Body of a request to a probe: none of them reads one. The Admin REST has a limit of its own."""

BROKER_CHANNELS_MAX = 64
"""Brokers that one process keeps gRPC channels to for reading schemas, and as many for operations
on topics; the least recently used is closed."""

# Ledgers -------------------------------------------------------------------------------------

LEDGER_SEGMENT_BYTES = 64 * 1024 * 1024
"""Bytes of entries after which a topic begins its next segment. Retention drops whole segments, and
rebuilding a lost index reads at most one."""

LEDGER_ENTRY_BYTES_MAX = 16 * 1024 * 1024
"""Payload of one stored SEND: three times Pulsar's own limit, and a quarter of a segment."""

LEDGER_STATE_VALUE_BYTES_MAX = 16 * 1024 * 1024
"""One value beside the entries; the largest are cursors with very many holes."""

LEDGER_STATE_KEY_BYTES_MAX = 4_096
"""UTF-8 bytes of such a value's key: a subscription's name and a prefix."""

LEDGER_PENDING_PAUSE_BYTES = 8 * 1024 * 1024
"""Pending bytes of one ledger at which its producers should pause: some 20 ms of an ordinary
disk."""

LEDGER_PENDING_ENTRY_BYTES = 1_024
"""Memory of an entry beside its payload until it is durable. It counts as pending bytes, so that
small messages cannot pile up without limit."""

LEDGER_PENDING_BYTES_MAX = 256 * 1024 * 1024
"""Pending bytes of all ledgers of one process; producers pause at half of it, so that it is reached
only when the disk is stuck."""

PRODUCERS_REMEMBERED_MAX = 10_000
"""Producer names of one topic whose last sequence id is known. Some 50 bytes each: half a
megabyte at the head of every segment of such a topic."""

LEDGER_INDEX_BYTES = 64 * 1024
"""Bytes of entries between two points of a segment's index. A search for one entry reads as much,
and so does a successor of a segment that its owner left open: a millisecond or two."""

LEDGER_RESERVE_BYTES_MIN = 64 * 1024
"""Space first reserved for a segment. Writing into reserved space halves the time of an fsync
(benchmarks/brokers/ledger_append.py); an unused topic does not need much."""

LEDGER_RESERVE_BYTES_MAX = 4 * 1024 * 1024
"""Space reserved at a time for a growing segment: each time as much as it has, up to this."""

LEDGER_STATE_ROLL_BYTES = 64 * 1024
"""A state file is rewritten when it has this size and is four times as long as its current values.
A successor reads all of it in some 2 ms. A cursor that changes ten times a second fills it in a
minute."""

LEDGER_WRITERS = 8
"""Threads that write and fsync, each for its share of the topics. So as many fsyncs run at a time,
and a topic that waits for the disk delays an eighth of the others."""

LEDGER_ROUND_TOPICS_MAX = 32
"""Topics that one thread writes and fsyncs before it acknowledges any of them: some 3 ms."""

LEDGER_ROUND_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one topic that are written and fsynced together."""

LEDGER_TAKEOVERS_AT_A_TIME = 8
"""Topics that one process opens at the same time; they wait for the disk, not for the processor."""

LEDGER_READS_AT_A_TIME = 4
"""Concurrent reads from the disk in one process; most reads find their bytes in memory."""

LEDGER_OPEN_FILES_MAX = 256
"""Files one process keeps open for appending, and as many for reading. A topic that is used
again opens them again, which takes microseconds."""

LEDGER_RECENT_BYTES_MAX = 64 * 1024 * 1024
"""Newest entries of all topics of one process that are kept in memory: a consumer that keeps up
reads from there. Some hundred milliseconds at a disk's full rate."""

LEDGER_INDEXES_MAX = 256
"""Indexes of full segments that one process keeps in memory, at most 120 KB each."""

PRODUCER_NAME_BYTES_MAX = 1_024
"""UTF-8 bytes of a producer's name: clients put host names and ids into it."""

# Subscriptions -------------------------------------------------------------------------------

SUBSCRIPTION_CONSUMERS_MAX = 1_000
"""Consumers of one subscription: choosing among them is proportional to their number."""

CONSUMER_PERMITS_MAX = 1_000_000
"""Permits of a consumer. Stock clients request 1,000; the permits of an Exclusive consumer also
bound what it may acknowledge in any order."""

CONSUMER_UNACKED_MAX = 50_000
"""Messages sent to one Shared or Key_Shared consumer and not acknowledged: Pulsar's default.
Beyond it the consumer gets no more until half of them are acknowledged."""

SUBSCRIPTION_UNACKED_MAX = 200_000
"""The same for all consumers of one subscription together: Pulsar's default."""

ACK_IDS_MAX = 10_000
"""Message ids in one ACK, some 70 ms of work, however many holes its cursor has. Stock clients
group 1,000 (``maxAcknowledgmentGroupSize`` of Java's), or all that an application acknowledges at
once: what its receiver queue held."""

ACK_SET_WORDS_MAX = 1_024
"""64-bit words that say which messages of a batch are open: batches of 65,536 messages, more
than fit into one frame with any content."""

ACK_WORDS_MAX = 50_000
"""Words in all ack sets of one ACK: as many as one cursor holds (``CURSOR_HOLES_MAX``). To reach it
a client would have to acknowledge parts of 50,000 batches, or of batches with three million
messages, within the 100 ms that stock clients group acknowledgements for."""

REDELIVER_IDS_MAX = 20_000
"""Message ids in one REDELIVER, some 100 ms of work. Java clients name 1,000 at most; C++ clients
name all whose acknowledgement is overdue, and beyond it their connection ends, which has all of
them sent again."""

MESSAGE_IDS_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of all message ids of one ACK or REDELIVER: ``REDELIVER_IDS_MAX`` of 60 bytes, and
``ACK_WORDS_MAX`` words of 11. Five megabytes of small words take 100 ms to parse and check."""

CURSOR_HOLES_PAUSE = 10_000
"""Acknowledged intervals and partial batches of one cursor at which no new messages are sent:
Pulsar's limit of what it stores. Acknowledging the open messages closes holes."""

CURSOR_HOLES_MAX = 50_000
"""The same number at which an acknowledgement that would add one is refused, so that a stored
cursor stays below some 500 KB and takes some 10 ms to write. A batch counts once for each 64 of its
messages."""

CURSOR_WRITE_DELAY_MS = 100
"""Longest delay before acknowledgements without a waiting client are stored: stock clients group
them for as long. Messages whose acknowledgement a dying broker loses are delivered once more."""

CURSOR_CLOSE_MS_MAX = 2_000
"""How long closing a topic waits for one cursor to be stored: enough for a slow disk."""

DISPATCH_ENTRIES_MAX = 500
"""Entries that one subscription sends in a turn: some milliseconds."""

DISPATCH_BYTES_MAX = 1024 * 1024
"""Bytes in such a turn, except for a single larger entry."""

ROUND_ROBIN_ENTRIES = 20
"""Entries a Shared consumer gets before the next has its turn, as in Pulsar: fewer, larger
writes and still an even spread."""

REPLAY_ENTRIES_PAUSE = 20_000
"""Entries of a subscription that were read and wait for their key's consumer or for redelivery; at
this number no further ones are read. Pulsar's look-ahead for Key_Shared."""

DELAYED_ENTRIES_MAX = 100_000
"""Delayed entries of one subscription that are not due, some 100 bytes each. Beyond it reading
pauses, and later entries wait as well."""

DELAYED_DUE_PER_TURN_MAX = 5_000
"""Delayed entries of one subscription that become ready in one turn, some 20 ms; further due ones
follow in the next turn."""

REDELIVERY_COUNTS_MAX = 100_000
"""Entries of one subscription whose redeliveries are counted. Beyond it the oldest count from 0
again: a dead letter policy acts late, but memory is bounded."""

CHUNK_OWNERS_MAX = 10_000
"""Chunked messages of one subscription that are partly sent; their consumers are remembered for the
remaining chunks."""

CHUNK_UUID_CHARACTERS_MAX = 2_048
"""Characters of the common id of a message's chunks: a producer's name and a number. Chunks with a
longer id are dispatched like whole messages."""

STICKY_RANGES_MAX = 1_024
"""Hash ranges that one STICKY consumer may request: as many as a segment of a scalable topic may
have entry buckets, all of which each of its consumers states."""

KEY_POINTS_PER_CONSUMER = 100
"""Points of one consumer on the ring of hashes, as in Pulsar: keys spread within some percent."""

SEEK_RECONNECT_MS_MAX = 60_000
"""How long a non-durable subscription outlives a seek, which disconnects its consumers: more
than the longest pause between a stock client's attempts."""

# Embedded broker -------------------------------------------------------------------------------

SEQUENCE_IDS_SKIPPED = 1 << 32
"""Distance between the last stored sequence id of a producer with a broker-made name and its next
id after a reconnect: more than any client has in flight."""

PRODUCERS_PER_TOPIC_MAX = 10_000
"""Producers connected to one topic unit, some 2 KB each; those that wait for it count."""

SUBSCRIPTIONS_PER_TOPIC_MAX = 5_000
"""Subscriptions of one topic unit, durable or not: each is notified of every append. Twenty shadow
topics carry 100,000."""

SUBSCRIPTIONS_PER_TURN = 200
"""Subscriptions of a topic that are restored, woken or closed in one turn of the loop, some 10 ms.
Other topics' clients have their turns in between."""

SUBSCRIPTION_NAME_BYTES_MAX = 1_024
"""UTF-8 bytes of a subscription's name: as a topic's local name."""

SUBSCRIPTION_PROPERTIES_MAX = 64
"""Properties of a subscription: as many as a topic has. In memory a small one takes fifty times its
bytes."""

SUBSCRIPTION_PROPERTIES_BYTES_MAX = 16 * 1024
"""UTF-8 bytes of a subscription's properties, which are stored with every cursor: as a topic's."""

CONSUMER_NAME_BYTES_MAX = 4_096
"""UTF-8 bytes of a consumer's name: as a producer's."""

BROKER_LISTINGS_MAX = 16
"""Concurrent listings of namespaces in one broker, each up to one frame and the names it is made
of; as in discovery (``DISCOVERY_LISTINGS_MAX``)."""

HANDLES_PER_CONNECTION_MAX = 50_000
"""Producers of one connection, and as many consumers: clients with 20,000 topics exist."""

CONNECTION_REQUESTS_MAX = 10_000
"""Pending requests of one connection; beyond it no further command of it is read."""

CONNECTION_PENDING_BYTES_MAX = 16 * 1024 * 1024
"""Payload of one connection that is not stored yet, with ``LEDGER_PENDING_ENTRY_BYTES`` for each
message. Beyond it no further command of the connection is read until half of that is stored. Three
of the largest messages."""

TOPICS_OPENING_MAX = 64
"""Topics that one broker opens at a time: each takes several fsyncs, which share the disk."""

TOPICS_RELOCATING_MAX = 32
"""Topics of an ended session that are looked up at the same time."""

TOPIC_FAILURES_REMEMBERED_MAX = 10_000
"""Topics that a broker remembers as fenced, damaged or impossible to open, some 200 bytes each. The
next client of a forgotten one causes another attempt."""

TOPIC_DRAIN_MS_MAX = 200
"""A closing topic waits this long for its pending appends: a few group fsyncs. Clients repeat
messages that are not answered by then."""

TOPIC_IDLE_MS_MAX = 10 * 60 * 1_000
"""A topic's ledger is closed after this long without producers and consumers; the next client opens
it again. Its assignment stays."""

TOPIC_UPKEEP_MS = 1_000
"""Interval of checks for open topics that are idle, have too much backlog or can be trimmed."""

UPKEEP_CLOSED_MS = 600_000
"""Interval at which a closed topic is opened to drop messages by their age, while any are left that
time will drop: space is freed late by so much where no client is."""

UPKEEP_OPENED_MAX = 20
"""Closed topics that are opened for that in one check: with one check a second, 50,000 topics take
three quarters of an hour, and clients' openings are not held up."""

TOPIC_TRIM_MS = 30_000
"""Interval of attempts to drop segments that a topic need not keep."""

LIVENESS_CHECK_MS = 5_000
"""Time for a client to answer PING when another client requests its producer's name: as in a stock
broker."""

CLOSED_HANDLE_MS = 30_000
"""After the broker closed a producer or consumer, its client may still name it for this long: a
keep-alive interval, as in a stock broker."""

SCHEMA_BYTES_MAX = 256 * 1024
"""One version of a schema as it is stored, its name and properties included."""

SCHEMA_COMPARISONS_MAX = 20_000
"""Steps in comparing two schemas, some 50 ms: a pair of types, a wrapping, or sixteen names that
are looked up. Unions of thousands of branches take more, and are refused as too large."""

SCHEMA_CHECK_STEPS_MAX = 400_000
"""Steps in comparing one schema with all versions that it must be compatible with: a third of a
second to one second, in turns of one comparison. Parsing the versions costs a step for each
``SCHEMA_BYTES_PER_STEP``. 256 versions of a record with a few hundred fields stay below it."""

SCHEMA_BYTES_PER_STEP = 64
"""Bytes of a schema that are parsed in the time of one step of a comparison."""

SCHEMA_VERSIONS_MAX = 256
"""Versions of one topic's schema, all kept in memory while it is open."""

SCHEMA_VERSIONS_BYTES_MAX = 8 * 1024 * 1024
"""The same in bytes as they are stored. An open topic holds about twice as much: 256 of the largest
versions, 64 MiB, took 138 MB of memory. A topic that has more keeps them, and gets no new one."""

CHUNK_SEARCH_MS = 60_000
"""After this long a producer no longer continues a chunked message: stock clients give a SEND up
after half of it."""

CHUNK_SEARCH_BYTES_MAX = 256 * 1024 * 1024
"""Bytes that a search for a producer's stored chunks of an incomplete message reads at most."""

VOLATILE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that a non-persistent topic keeps for slow consumers; older messages are dropped. Three of
the largest messages fit."""

VOLATILE_BYTES_TOTAL_MAX = 256 * 1024 * 1024
"""The same for all such topics of a broker together; beyond it each keeps its newest message."""

TOPIC_STATS_NAMES_MAX = 1_000
"""Topics in one answer with statistics."""

# Operations on topics ------------------------------------------------------------------------

TOPIC_RATES_MS = 10_000
"""Between two measurements of the rates of a topic, its producers and its consumers. A stock broker
measures once a minute."""

CLIENT_VERSION_CHARACTERS_MAX = 64
"""Characters of a client's version that are kept with its connection, to be shown in statistics."""

TOPIC_ADMIN_ROWS_MAX = 10_000
"""Producers and consumers in one answer with statistics, some 300 bytes each; the rest is only
counted."""

TOPIC_ADMIN_ROWS_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of the rows in one answer: names have up to 4 KB, and an answer is one gRPC message."""

TOPIC_ADMIN_RANGES_MAX = 1_000
"""Acknowledged intervals of one cursor in an answer with internal statistics: the first of them."""

TOPIC_ADMIN_ALL_RANGES_MAX = 10_000
"""Acknowledged intervals of all cursors in one answer, some 15 ms of work. With more than
``TOPIC_ADMIN_ALL_RANGES_MAX / TOPIC_ADMIN_RANGES_MAX`` cursors each has an equal share."""

TOPIC_ADMIN_PAYLOAD_BYTES_MAX = 3 * 1024 * 1024
"""Bytes of a stored message in one answer, which is one gRPC message; the rest is read by further
requests. A message of a client has up to 5 MB."""

BACKLOG_ANALYSIS_ENTRIES_MAX = 10_000
"""Entries that one analysis of a backlog reads, as in a stock broker's configuration."""

BACKLOG_ANALYSIS_MS_MAX = 3_000
"""How long one analysis reads: less than its caller waits."""

BACKLOG_ANALYSIS_CHUNK_ENTRIES = 200
"""Entries that an analysis reads at once; other topics of the broker are served in between."""

BACKLOG_ANALYSIS_CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes that an analysis reads at once, at least one entry."""

TOPIC_TERMINATION_MS_MAX = 2_000
"""How long a termination waits for earlier messages of the topic to be stored: enough for a slow
disk, and less than its caller waits."""

TOPIC_OWNER_LOOKUPS_MAX = 4
"""Lookups for one operation on a topic: the first, and three more if the broker no longer has the
topic. Moves take milliseconds, so a topic that moved four times meanwhile is in trouble."""

TOPIC_OWNER_RETRY_MS = 100
"""Pause before the owner of a topic is looked up again for the same operation."""

TOPIC_ADMIN_RETRY_AFTER_MS = 1_000
"""When a caller may sensibly repeat an operation whose owner could not be reached: a lost broker's
topics are assigned again by then."""

ENDED_UNIT_PAUSE_MS = 1_000
"""How long clients of a unit are refused after its owner gave it up for a deletion. The deletion
takes milliseconds; if it is given up, the first client behind this pause has the unit assigned in a
later epoch."""

FORCED_DELETION_PAUSE_MS = 2_000
"""How long a name is not created on demand after its deletion was forced. Its clients, who connect
again at once, would create it anew before they or their operators notice. Not shorter than any
discovery node's answers about the deleted topic may be old."""

TOPIC_DELETION_ATTEMPTS_MAX = 5
"""Attempts of one deletion, each with the units as they are then. A unit that was assigned anew
since its owner gave it up needs another."""

TOPIC_DELETION_OWNERS_MAX = 32
"""Owners of a topic's partitions that one deletion asks at the same time."""
