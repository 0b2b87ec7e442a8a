"""Limits of a cluster: names, requests, shards, groups and processes; each says unit and reason."""

from __future__ import annotations

# Names ---------------------------------------------------------------------------------------

NAME_PART_BYTES_MAX = 255
"""UTF-8 bytes of a tenant name, a namespace's local name. A file name's length on common
file systems, so that an export can use it as a folder."""

TOPIC_LOCAL_NAME_BYTES_MAX = 1_024
"""UTF-8 bytes of a topic's local name, partition suffix included."""

TOPIC_TEXT_CHARACTERS_MAX = 2_048
"""Characters of any spelling of a topic's name: domain, two parts, local name, and slack for
spellings longer than the canonical one. Longer text is refused unparsed."""

PARTITIONS_PER_TOPIC_MAX = 10_000
"""Partitions of one topic. Each is a unit of its own; more is a design error upstream."""

PROPERTIES_MAX = 64
"""Entries in a properties map."""

PROPERTY_KEY_BYTES_MAX = 255
"""UTF-8 bytes of a property key."""

PROPERTY_VALUE_BYTES_MAX = 4_096
"""UTF-8 bytes of a property value."""

PROPERTIES_BYTES_MAX = 16_384
"""Keys and values of one properties map together: metadata, not storage."""

# Commands and pages --------------------------------------------------------------------------

COMMAND_ID_BYTES = 16
"""A command id is a UUID's worth of random bytes, chosen by the client."""

TOPICS_PER_CREATE_MAX = 1_000
"""Topics in one create command: the batch size of the first Raft experiment (P2)."""

NAMES_PER_LOOKUP_MAX = 1_024
"""Names in one LookupStream message: beyond it latency grows and throughput does not."""

PAGE_ITEMS_MAX = 1_000
"""Items in one page of a listing."""

PAGE_ITEMS_DEFAULT = 100
"""Items in a page when the caller does not say."""

# Messages ------------------------------------------------------------------------------------

GRPC_MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""One gRPC message, either direction: gRPC's own default, stated and enforced."""

ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""One Raft entry. Group commit stops filling an entry before it."""

RECORD_BYTES_MAX = 2 * 1024 * 1024
"""One record, so that an entry always holds at least one."""

ENTRY_RECORDS_MAX = 2_000
"""Records in one Raft entry: bounds how long one apply transaction takes."""

PROPOSE_QUEUE_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of records that wait for an entry in one group; beyond it ``Overloaded``."""

VIEW_LAG_MS_MAX = 300
"""When a majority of views is older than this the leader stops taking entries for a while."""

# Slots ---------------------------------------------------------------------------------------

SLOT_COUNT = 16_384
"""Slots a key can hash to: the unit that moves between shards. A power of two."""

SHARDS_MAX = 4_096
"""Shards in one map: four slots each at the least."""

RING_POINTS_MAX = 65_536
"""Points on the placement ring. With more than 65 nodes each has fewer than its thousand points, so
that building a ring stays well under a second."""

# Broker agent --------------------------------------------------------------------------------

BROKER_TOMBSTONE_MS = 60_000
"""How long a broker remembers a released unit's next owner: beyond the life of any answer about
it."""

BROKER_TOMBSTONES_MAX = 100_000
"""Released units a broker remembers, some 400 bytes each; beyond it the oldest are forgotten."""

BROKER_CAPACITY_UNITS_MAX = 10_000_000
"""Units one broker may offer: a tenth of all topics the design is made for."""

BROKER_RECONNECT_BACKOFF_MS_MAX = 200
"""Pause between two attempts to reach the broker manager: a fraction of a session's life."""

BROKER_GREETING_MS_MAX = 2_000
"""Time-out of the broker manager's answer to a hello, which takes a commit."""

BROKER_GOODBYE_MS_MAX = 1_000
"""Time-out at a clean stop for the broker manager to receive the goodbye."""

BROKER_ARRIVALS_MAX = 16
"""Messages of the broker manager that wait to be applied; beyond it the stream's own flow
control holds the manager back."""

SERVES_NAMES_MAX = 4_096
"""Names in one Serves message: their answers stay below a gRPC message's size."""

# Process shell -------------------------------------------------------------------------------

SHUTDOWN_MS_MAX = 10_000
"""Time from the request to stop to the end of the process. Container runtimes send SIGKILL after
10 s; everything acknowledged is durable long before, so a late or hard end loses nothing."""

TASK_RESTART_MS_MIN = 100
"""Pause before a failed background task is started again; doubled each time it fails early."""

TASK_RESTART_MS_MAX = 10_000
"""The longest such pause. A task that ran for this long did not fail early."""

GRPC_METADATA_BYTES_MAX = 16 * 1024
"""Headers or trailers of one call: an error detail with a reason and a hint, nothing bulky."""

GRPC_CONNECTION_STREAMS_MAX = 10_000
"""Calls in flight on one gRPC connection: bounds the memory that one peer takes."""

GRPC_CALLS_WAITING_MAX = GRPC_CONNECTION_STREAMS_MAX
"""Calls that a server received and has not begun: a connection may send all of its calls at once.
One beyond it is cut off, and its caller cannot know whether it was carried out."""

# Cluster manager -----------------------------------------------------------------------------

CLUSTER_NODES_MAX = 1_000
"""Shard and discovery nodes of one cluster: their addresses fit many times into one update."""

BROKERS_MAX = 4_096
"""Broker ids in the directory, live or not: a full update stays well below a gRPC message."""

JOIN_STREAMS_MAX = 8_192
"""Nodes connected to the cluster manager's leader: members, brokers and clients."""

JOIN_OUTBOX_UPDATES_MAX = 1_024
"""Updates that wait for one slow node; beyond it the connection is dropped, and the node gets
one full update instead when it is back."""

JOIN_SILENCE_MS = 4_000
"""Silence after which a node counts as disconnected: four missed heartbeats."""

JOIN_WRITE_MS_MAX = 4_000
"""One update to one node may wait in flow control this long; then the node is dropped."""

CAPACITY_LEASE_TTL_MS = 90_000
"""Life of a capacity lease: assignments continue for this long without a cluster manager."""

CAPACITY_GRANT_MS_MAX = 1_000
"""Time-out of one grant at a broker manager, retries included; afterwards the broker is left out
for now."""

CAPACITY_GRANTS_IN_FLIGHT_MAX = 64
"""Concurrent requests for grants; those of further brokers wait."""

# Failover ------------------------------------------------------------------------------------

ELECTION_WAIT_MS = 250
"""A replica without a leader holds a request for this long before it refuses it: an election after
a crash takes a tenth of a second, and a retry would come later."""

CHANNEL_KEEPALIVE_MS = 1_000
"""Silence on a gRPC connection with pending calls before a keep-alive ping, and the time-out of
that ping: a vanished host sends no RST and is given up after both."""

CHANNEL_PING_INTERVAL_MS_MIN = CHANNEL_KEEPALIVE_MS // 2
"""The server disconnects a peer that sends keep-alive pings more often."""

FOLLOWER_READ_WAIT_MS = 2_000
"""A replica waits this long for the position that a read names; then the caller tries another one.
A view that keeps up reaches it in milliseconds; one that installs a snapshot takes too long."""

SILENT_CONNECTION_MS = 400
"""A connection that was silent for this long is given up at once when its shard has another leader.
A leader that steps down in an orderly way answers within milliseconds."""

# Client and discovery ------------------------------------------------------------------------

ERROR_MESSAGE_CHARACTERS_MAX = 1_000
"""Characters of an error's message: trailing metadata has room for 8 KiB in all."""

ERROR_LINE_CHARACTERS_MAX = 4_000
"""Characters of the sentence with which a command fails: room for the end of a process' log. Text
of a file or a peer in it is cut at its end."""

CONNECT_TIMEOUT_MS = 1_000
"""Time-out of opening a connection to another process: beyond it the process counts as
unreachable."""

RECONNECT_PAUSE_MS = 50
"""Pause after a failed connect to an endpoint: a dead leader must not cost a connect per request,
and a restarted one must be found fast."""

REQUEST_TIMEOUT_DEFAULT_MS = 5_000
"""Time-out of a request without a time-out of its caller."""

REQUEST_TIMEOUT_MAX_MS = 60_000
"""The longest a request may wait inside this cluster."""

REQUEST_ANSWER_MARGIN_MS = 50
"""Of a caller's time a discovery node leaves so much for its answer to arrive."""

ROUTER_RETRIES_MAX = 5
"""Retries of one routed request, the first attempt not counted: the promised hard cap."""

MANAGER_HEARTBEAT_MS = 1_000
"""Interval of heartbeats to the cluster manager's leader."""

MANAGER_SILENCE_MS_MAX = 4_000
"""The connection to the cluster manager is dead after this long without an update or an echo."""

LINK_OUTBOX_MESSAGES_MAX = 10_000
"""Messages that wait for the stream to the cluster manager; more than any node reports at once."""

ENDED_SESSIONS_MAX = 10_000
"""Broker sessions remembered as ended; far more than can still have cached answers."""

DISCOVERY_CACHE_ANSWERS_MAX = 1_000_000
"""Answers one discovery process keeps; about 300 bytes each (ADR 0156)."""

DISCOVERY_CACHE_ALIASES_MAX = 50_000
"""Other spellings of cached names that one discovery process keeps."""

RECENT_DELTAS_MAX = 10_000
"""Assignment changes per shard that a discovery process remembers, to judge late answers:
some seconds at the highest rate of assignments."""

LOOKUP_MESSAGES_IN_FLIGHT_MAX = 64
"""Messages of one LookupStream that wait for shards at a time; then reading stops."""

LOOKUP_BATCHES_IN_FLIGHT_MAX = 8
"""Lookup requests in flight to one shard; further lookups share the next one."""

LOOKUP_NAMES_IN_FLIGHT_MAX = 1_024
"""Names in flight from one discovery process to one shard. With more, a shard would work on
requests whose callers have given up when it is done."""

LOOKUP_WAIT_MS_MAX = 3_500
"""A name that could not be sent by then is refused. That is before a caller's usual deadline, so
the caller gets an answer and may retry. A burst of 10,000 first lookups is done in this time."""

LOOKUP_QUEUE_MS_MAX = 500
"""Names are sent in order while the oldest has waited for less. Beyond it more names arrive than
are answered, and the newest are sent first: their callers still wait."""

LOOKUP_NAMES_WAITING_MAX = 50_000
"""Names waiting for shards in one discovery process; beyond it lookups are refused."""

WATCH_TTL_MARGIN_MS = 500
"""Cached answers expire this much before the leader may assume it: the last update may have been
applied although its acknowledgement was lost."""

LOOKUP_STALENESS_MS_MAX = 1_500
"""Highest age of an answer from the cache: it was true at some moment in this time before the
lookup began. It is a time-to-live without ``WATCH_TTL_MARGIN_MS``, counted from the discovery
process's request to the shard. A lookup joins a request that was sent no longer ago than this."""

LIST_PAGE_BYTES_MAX = GRPC_MESSAGE_BYTES_MAX - 256 * 1024
"""Bytes of the items in one page of a listing, so that the page fits into one message."""

MOVES_PER_REQUEST_MAX = 1_000
"""Moves in one MoveTopics request."""

# Replication ---------------------------------------------------------------------------------

MESH_FRAME_BYTES_MAX = 8 * 1024 * 1024
"""One frame between two Raft processes: the largest entry, its envelope, and room to spare."""

MESH_WRITE_BUFFER_BYTES_MAX = 64 * 1024 * 1024
"""Unsent bytes for one peer; beyond it the connection is closed."""

MESH_CONNECTIONS_MAX = 1_024
"""Connections that a mesh listener keeps, those without a hello included."""

FOLLOWER_IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
"""Entry bytes sent to one follower of one group and not yet acknowledged: two full entries."""

# Members of a group ----------------------------------------------------------------------------

GROUP_MEMBERS_MAX = 16
"""Voters and learners of one group: no group needs more than seven voters, and a configuration
stays one small record."""

LEARNER_LAG_ENTRIES_MAX = 64
"""Entries a learner may be behind its leader and still become a voter: what is in flight under
full load, and far less than would make a commit that needs it wait."""

REMOVED_FOLLOWER_MS_MAX = 5_000
"""How long a leader sends entries to a removed member, so that it learns of its removal: a healthy
member needs a few round trips."""

APPLY_BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Entry bytes folded in one transaction of a view."""

APPLY_AT_ONCE_EVENTS = 512
"""Committed events that are folded at once: a transaction costs little beside so many."""

VIEW_TURN_WAIT_MS = 50
"""How long a batch waits for the thread that folds all views of a process, before another one."""

ENTRIES_PER_MESSAGE_MAX = 4_096
"""Entries sent, folded or read at a time, however small: each costs some bytes and work."""

READ_REQUESTS_MAX = 65_536
"""Reads of one group that wait for a confirmation of leadership; beyond it ``Overloaded``."""

# Shard flows: sessions, leases, assignments ---------------------------------------------------

SESSION_TTL_MS = 3_000
"""Silence after which a broker session ends: four heartbeats, so that three may be late."""

SESSION_RESUME_MS = 150
"""Time for a broker whose stream broke to reconnect to the same broker manager; then its session
ends. A broker dials at once and after 20, 40 and 80 ms; on loopback it is back in under 20. Stock
clients of a dead broker look up again after 0.1, 0.3 and 0.7 s: the second lookup finds the next
owner."""

SESSION_RETURN_MS = 1_500
"""Time for a broker to connect to a new broker manager that every node knows; then its session
ends. On loopback it takes 200 ms; a broker that is paused for a second keeps its session. Stock
clients of a dead broker look up again after about 3 s, then after about 6: an election and this
time are over before the first. It is shorter than the least age of a leadership that is moved to
spread leaders, so that spreading does not start a dead broker's time again."""

SESSION_HEARTBEAT_MS = 750
"""Interval of a broker's heartbeats."""

SESSIONS_PER_SHARD_MAX = 4_096
"""Live broker sessions in one broker manager: more brokers than any Pulsar cluster has today."""

DELIVERIES_UNACKED_MAX = 200_000
"""Deliveries of one session that its broker has not synced, some 500 bytes each. Beyond it new
assignments are refused as overload: the broker is stuck or far too slow."""

DELIVERIES_PER_MESSAGE_MAX = 1_000
"""Deliveries in one message to a broker; at some hundred bytes each far below a message's size."""

DELIVERIES_BYTES_MAX = 1024 * 1024
"""Deliveries in one message to a broker, in bytes: topics may carry 16 KiB of properties."""

SESSION_METADATA_MAX = 200_000
"""Tenants and namespaces in one session. One more is refused as ``NO_CAPACITY``: dropping another
one would leave its broker with a policy that is no longer updated."""

ASSIGN_TIMEOUT_MS = 5_000
"""Time-out from a committed assignment to the broker's sync: longer than the session of a dead
broker lives, so that the session's end answers first."""

ASSIGNMENTS_PER_REQUEST_MAX = 1_000
"""Assignments in one request to a broker manager, and moves in one request to a controller."""

UNITS_IN_FLIGHT_MAX = 50_000
"""Units being assigned in one shard at one time; beyond it ``Overloaded``."""

UNITS_SYNCED_MAX = 500_000
"""Units of one shard that are remembered as synced, some 200 bytes each. A forgotten one costs
one repeated assign request at its next lookup."""

LEASE_WAIT_MS = 1_500
"""A lookup waits this long for a capacity lease: leases are requested when a shard gets a leader,
and the first lookups after a failover arrive at the same moment."""

LEASE_RETRY_MS = 1_000
"""Pause between attempts to reach a cluster manager for leases while there is none."""

ASSIGNMENT_TTL_MS = 2_000
"""How long a subscriber may use assignments after the last update's arrival."""

ASSIGNMENT_UPDATE_MS = 500
"""Interval of updates to a subscriber without changes: a quarter of the time-to-live."""

ASSIGNMENT_CREATIONS_MS = 100
"""Creations of topics wait this long to share one update of the assignments, at a subscriber that
remembers absences. For as long, a lookup there may still be answered that the topic is absent."""

ASSIGNMENT_SUBSCRIBERS_MAX = 256
"""Leased watches of one shard: one for each discovery node that answers from memory."""

EVENTS_BATCH_BYTES_MAX = 1024 * 1024
"""Bytes of events in one message of a stream, or read from the journal at once for one."""

REQUEST_TIMEOUT_MS_DEFAULT = 5_000
"""Deadline of a request that names none."""

REQUEST_TIMEOUT_MS_MAX = 60_000
"""Longest deadline that is honoured, because a waiting request holds memory."""

# Shard state ---------------------------------------------------------------------------------

COMMANDS_PER_EXECUTE_MAX = 1_000
"""Commands in one ``ExecuteRequest``: as many as topics in a create."""

TOPICS_PER_EXECUTE_MAX = 2 * TOPICS_PER_CREATE_MAX
"""Topics in all creates of one ``ExecuteRequest``: they are parsed and decided without a pause, in
some 20 ms. A request of the greatest size had room for a hundred thousand."""

NAMES_PER_GET_MAX = 1_000
"""Names in one ``GetRequest``: one page."""

PAGE_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of items in one page or answer: half a message, so that several shards' fit one."""

UNITS_PER_RECORD_MAX = 1_000
"""Units unassigned by one record when a topic goes: with the longest names half a record."""

SHARD_PENDING_RECORDS_MAX = 20_000
"""Records a shard leader holds until its own view has applied them; beyond it ``Overloaded``."""

PARENT_READS_IN_FLIGHT_MAX = 32
"""Parents that one create reads at the same time at their home shards."""

PARENT_READ_ATTEMPTS_MAX = 5
"""Times a create reads a parent again because its gate changed meanwhile."""

DELETION_ATTEMPTS_PER_TERM_MAX = 2**32
"""Deletion attempts of one leader: a term and a counter of this size make one number."""

# Journal and view store ----------------------------------------------------------------------

JOURNAL_SEGMENT_BYTES = 8 * 1024 * 1024
"""One preallocated journal file: room for the largest entry twice, and the unit that is cut."""

JOURNAL_CACHE_BYTES = 2 * 1024 * 1024
"""Newest payloads that one journal keeps in memory, for views and followers that keep up."""

JOURNAL_PENDING_BYTES_MAX = 128 * 1024 * 1024
"""Bytes one journal holds that are not on disk yet. Reached only when the disk is full or
stuck: the propose queue and the entries in flight are far below it."""

JOURNAL_RETRY_MS = 500
"""Time between two attempts to write when the disk is full."""

JOURNAL_THREADS_MAX = 8
"""Threads that write the journals of one process: one while the disk is quick, more while it makes
groups wait. A disk does not sync more files at a time any faster."""

JOURNAL_OPEN_SEGMENTS_MAX = 8
"""Segments one journal keeps open for reading old entries: file descriptors are few."""

VIEW_CHECKPOINT_PAGES = 4_000
"""Pages (4 KiB) the view's write-ahead file gathers before they move into the database:
fewer random writes than SQLite's 1,000, and still only 16 MB."""

VIEW_CACHE_KIB = 4_096
"""SQLite's page cache per connection of a view. More of it would fill only with views of more
topics, and a node's memory would grow with them (ADR 0195)."""

VIEW_BUSY_TIMEOUT_MS = 5_000
"""How long a connection of a view waits for a lock. There is one writer, so only a foreign process
that opens the file causes a wait."""

VIEW_READERS_MAX = 8
"""Read transactions that one view has open at a time; more wait for one of them to end."""

# Digests of views ----------------------------------------------------------------------------

DIGEST_POSITIONS = 4_096
"""Events between two digests of a view that replicas compare: 0.4 s at 10,000 events a second. Each
ends a batch of the fold and stores one row, so a lower value would slow down replicas that catch
up."""

DIGESTS_KEPT = 64
"""Digests a view stores and a leader remembers per member: a follower may be some 260,000 events
behind its leader, more than a leader lets views lag, and is compared all the same."""

VERIFY_PAGE_ENTRIES = 256
"""Log entries read at a time, on the event loop, to rebuild a view beside the one in use."""

VERIFY_PAGE_BYTES = 512 * 1024
"""The same, in bytes: about a millisecond, unless one entry is larger."""

DIGEST_SCAN_ROWS = 256
"""Rows hashed at a time when a whole view is scanned: about 0.2 ms of the interpreter."""

# What other processes say of themselves --------------------------------------------------------

STORED_INTEGER_MAX = 2**63 - 1
"""The largest integer a view's table holds. Messages can hold larger numbers: those are refused on
arrival, because an event with one would stop every replica that folds it."""

NODE_ID_BYTES_MAX = 255
"""UTF-8 bytes of a node id or broker id: a file name's length, as for the parts of a name."""

ADDRESS_BYTES_MAX = 512
"""UTF-8 bytes of an address, URL or zone that a process reports of itself: a host name has at most
253. They are stored, and sent to every node in every full update."""

TRACE_ID_CHARACTERS_MAX = 256
"""Characters of a trace id: it is repeated in diagnostics. Common schemes use 32."""

DISK_RESERVE_BYTES = 64 * 1024 * 1024
"""Free disk below which a leader accepts no proposals: room for its queue, for the view to fold
that, and for one more journal file. So the view does not lag and reads continue."""
