"""Limits of scalable topics: segments, buckets, subscriptions and consumers of one topic; their
client's limits."""

from __future__ import annotations

SEGMENTS_PER_TOPIC_MAX = 1_024
"""Segments of one scalable topic, sealed ones and those that an operation is making included.
A change rewrites the topic's row, and every watcher of the topic gets the whole list. With as many
subscriptions as there may be a change of the segments is one turn of the leader's event loop."""

MIGRATED_PARTITIONS_MAX = 256
"""Partitions of a classic topic that becomes scalable. It gets as many segments, each with all
partitions as its parents: the list grows with the square, and is in one record."""

BUCKETS_PER_SEGMENT_MAX = 1_024
"""Entry buckets of one segment: Pulsar's default for ``scalableTopicEntryBucketMaxPerSegment``."""

BUCKET_BUDGET = 4
"""Entry buckets that the segments of a new scalable topic share: Pulsar's default."""

DRAINED_UNITS_PER_MESSAGE_MAX = 500
"""Drained units that a broker reports in one message, and that are forwarded in one request: each
has two names, of some kilobytes together at most."""

DRAINED_UNITS_IN_FLIGHT_MAX = 1_000
"""Drained units that a broker has reported and that are not settled. The others wait at the broker,
so a manager that begins a term is not flooded."""

DRAINED_UNITS_WAITING_MAX = 50_000
"""Drained units of all brokers of one shard that wait until their home shards have noted them, some
500 bytes each. A broker that reports one more loses its connection, and reports again on the
next."""

SCALABLE_SUBSCRIPTIONS_MAX = 64
"""Subscriptions of one scalable topic: each may have a mark for each of its segments."""

SCALABLE_CONSUMERS_MAX = 1_024
"""Consumers registered with all subscriptions of one scalable topic: who has which segment is
decided anew with each change of the segments, in one record."""

LAYOUT_CHANGE_READY_MS = 30_000
"""How long a leader tries to have the children of an operation ready before it takes the operation
back: with no broker for them the topic could not change in another way either."""

SEGMENT_UNREACHABLE_MS = 1_000
"""A segment whose broker does not answer for this long moves: writers wait for the end of a parent.
After each move in vain it is twice as long, up to ``SEGMENT_UNREACHABLE_MS_MAX``."""

SEGMENT_UNREACHABLE_MS_MAX = 30_000
"""A broker that opens a segment with a long history needs more than ``SEGMENT_UNREACHABLE_MS``, and
a move makes the next one begin anew."""

SEGMENTS_AT_ONCE_MAX = 32
"""Segments of one topic of which brokers are asked something at one time, such as the cursors of a
new subscription: each may be opened by it."""

SCALABLE_TOPICS_AT_WORK_MAX = 1_024
"""Scalable topics of a shard whose changes are carried on at one time. Others wait in the view."""

PRUNE_LOOK_MS = 1_000
"""Between two looks of a shard at the index of its topics with segments to examine for pruning."""

PRUNE_TOPICS_PER_LOOK_MAX = 64
"""Topics whose sealed segments a shard examines in one look: each may have a unit opened, and
clients open units, too."""

PRUNE_TOPICS_AT_ONCE_MAX = 8
"""Of these topics, those that are examined at one time."""

PRUNE_EXAMINED_MS_MIN = 60_000
"""The shortest time after which a segment is examined again that some subscription at its broker
has not drained, or whose broker did not answer."""

PRUNE_EXAMINED_MS_MAX = 24 * 3_600 * 1_000
"""The longest time after which a drained segment is examined again: within it a retention that was
shortened takes effect. An idle segment is opened for it."""

SCALABLE_CONSUMER_NAME_BYTES_MAX = 255
"""UTF-8 bytes of a registered consumer's name, so that all of them fit into one record."""

# Growing and shrinking by themselves --------------------------------------------------------------

SEGMENT_LOAD_CHANGE = 0.25
"""The part of a recorded rate by which it has to move before it is recorded again: Pulsar's default
for ``scalableTopicLoadReportRateChangeThreshold``."""

SEGMENT_LOAD_REPORT_MS = 10_000
"""Between two measurements of a broker's segments: Pulsar's default for
``scalableTopicLoadReportIntervalSeconds``."""

SEGMENT_LOAD_REPORT_MS_MIN = 100
"""Shortest time between two measurements that may be set: it reads every open segment's counters.
"""

SEGMENT_LOAD_REPORT_MS_MAX = 3_600_000
"""Longest time between two measurements that may be set: an hour. A split comes after one."""

SEGMENT_LOADS_PER_REPORT_MAX = 2_000
"""Segments in one report of a broker, some 200 bytes each: it is one record of each shard. What is
left over comes with the next report."""

SEGMENT_LOADS_FORWARDING_MAX = 64
"""Reports of segments' loads that a shard's managers forward at a time. A broker repeats one that
is dropped."""

AUTO_SCALE_NUMBER_MAX = 2**31 - 1
"""Counts and seconds of a policy of automatic splits and merges, as in Pulsar's Java classes: 68
years. Times that are computed from them stay within what clocks and events hold."""

AUTO_SCALE_TICK_MS = 60_000
"""Between two looks at topics of namespaces whose policies are not watched, and before a refused
operation is tried again: Pulsar's default for ``scalableTopicAutoScaleIntervalSeconds``."""

AUTO_SCALE_TICK_MS_MIN = 1_000
"""Shortest such time that may be set: each tick may read policies at their home shards."""

AUTO_SCALE_TICK_MS_MAX = 3_600_000
"""Longest such time that may be set: an hour, after which a change of policies must have effect."""

AUTO_SCALE_CLOCK_LEAP_MS = 60_000
"""How far a recorded time may be ahead of a leader's clock. One that is further ahead comes from a
clock that leapt, and does not count."""

# Liveness of consumers ---------------------------------------------------------------------------

SCALABLE_CONSUMER_GRACE_MS = 60_000
"""Time for which a registered consumer without a connection keeps its segments: Pulsar's default
for ``scalableTopicConsumerSessionGracePeriodSeconds``."""

SEGMENT_HANDOVER_MS_MAX = 10_000
"""Time for which the new consumer of a segment waits for the former one to disconnect, which may
hear of the assignments later. A stock client gives up a request after 30 s."""

SEGMENT_LOOK_MS = 5_000
"""Between two looks at a sealed segment that its consumer has read to the end and not acknowledged
to the end. Usually it is drained, and nobody's, some milliseconds after it was sealed."""

SEGMENT_LOOK_MS_MAX = 60_000
"""Between two looks at one that has more to deliver: pauses double up to it."""

SEGMENT_LOOKS_MAX = 16
"""Sealed segments that a process asks about at a time; others wait their turn."""

SEGMENT_STALL_MS = 10_000
"""Time without a delivery or an acknowledgement after which such a segment is given to its consumer
anew. Shorter: applications that take long for a message get more of them twice."""

SEGMENT_STALL_MS_MAX = 3_600_000
"""The longest such time: for one consumer and segment it doubles each time."""

SCALABLE_NODE_SILENCE_MS = 15_000
"""Silence of a node after which its consumers count as without a connection: three renewals."""

SCALABLE_ATTACH_RENEWAL_MS = 5_000
"""Between two renewals of a node at a shard in which it has consumers."""

CONSUMERS_PER_ATTACH_MAX = 1_000
"""Consumers in one request that attaches or detaches them."""

CONSUMER_SESSIONS_MAX = 40_000
"""Registered consumers whose clients are connected to one process; beyond it a client is refused
and tries another node."""

CONSUMER_SESSIONS_PER_CONNECTION_MAX = 10_000
"""Registered consumers on one connection: a client has one for each of its scalable topics."""

ATTACHED_CONSUMERS_MAX = 200_000
"""Consumers that are attached in one shard, at some 600 bytes each."""

# The client ------------------------------------------------------------------------------------

LAYOUT_SEGMENTS_MAX = 16_384
"""Segments in a layout or an assignment that a client takes. Sixteen times what this project's
server makes; a stock server has no limit."""

SESSION_RETRY_MS_MIN = 100
"""First pause before a session with a server is opened again: the client specification's."""

SESSION_RETRY_MS_MAX = 30_000
"""The longest pause between attempts to open a session: the client specification's."""

DELETED_AFTER_ANSWERS = 5
"""Answers "not found" in a row after which a topic is taken for deleted. A server gives this answer
to passing failures, too; five take three seconds."""

SEGMENT_ATTEMPTS_MAX = 10
"""Times that a message is sent to a segment that turns out to be gone, before its sending fails:
the client specification's."""

SEGMENT_RETRY_STEP_MS = 100
"""Pause after the first of these attempts, and how much longer each following one is."""

SEGMENT_RETRY_MS_MAX = 500
"""The longest pause between these attempts."""

ST_BATCH_MESSAGES_MAX = 1_000
"""Messages in one batch, as in stock clients."""

ST_BATCH_BYTES_MAX = 128 * 1024
"""Bytes of messages in one batch, as in stock clients; a bigger message is a batch of its own."""

ST_BATCHES_IN_FLIGHT_MAX = 64
"""Batches of one segment that wait for their receipts; further messages join later batches."""

CHECKPOINT_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of a checkpoint: some 100 for each of ``LAYOUT_SEGMENTS_MAX`` segments."""

LAYOUT_WATCHES_MAX = 40_000
"""Watches of layouts by the clients of one process, some 5 KB each; beyond it a client is refused
and tries another node."""

LAYOUT_WATCHES_PER_CONNECTION_MAX = 10_000
"""Watches of layouts on one connection: a client has one for each of its scalable topics."""

LAYOUT_WATCH_ATTEMPTS_MAX = 5
"""Attempts to begin a watch of a layout. If the shard answers none of them, the client gets the
error."""

LAYOUT_WATCH_RETRY_MS = 200
"""Pause between two of them: an election takes a tenth of a second, or a second or two."""

LAYOUT_READ_MS_MAX = 5_000
"""Time for the first snapshot of a layout, an election included."""

LAYOUT_LOADS_MAX = 200
"""Layouts that a process begins to follow at a time: a shard has them read within a second. The
others wait, without a limit in time: their clients have one."""

LAYOUT_WAKES_AT_ONCE_MAX = 16
"""Watchers and consumers of one layout that a change wakes in one turn of the event loop. Each is
sent up to ``SEGMENTS_PER_TOPIC_MAX`` segments, which takes a millisecond or two."""

NAMESPACE_WATCHES_BYTES_MAX = 128 * 1024 * 1024
"""Memory for the watches of namespaces' scalable topics in one process, without the lists. Beyond
it a client is refused and tries another node."""

NAMESPACE_WATCH_BYTES = 8 * 1024
"""What such a watch counts for besides its filter: its task, its place at a list."""

NAMESPACE_WATCHES_PER_CONNECTION_MAX = 1_000
"""Such watches on one connection: a client has one for each consumer of a whole namespace."""

NAMESPACE_WATCH_ATTEMPTS_MAX = 5
"""Attempts to begin such a watch for a client that has no list yet. If none succeeds, it gets the
error."""

NAMESPACE_CHANGES_GATHERED_MS = 50
"""How long changes of a namespace are gathered into one update: as a stock broker does."""

NAMESPACE_NAMES_PER_TURN = 1_000
"""Names that are put into an update before other work of the event loop has its turn: well below a
millisecond."""

ST_MEMORY_BYTES_DEFAULT = 64 * 1024 * 1024
"""Bytes of messages of one client that wait to be stored, as in stock clients."""

ST_MEMORY_PER_MESSAGE_BYTES = 512
"""What a waiting message counts in addition to its payload, so that small ones are bounded."""

ST_OPERATION_TIMEOUT_MS_DEFAULT = 30_000
"""Time-out of creating a producer or consumer, and of a request, as in stock clients."""

ST_SEND_TIMEOUT_MS_DEFAULT = 30_000
"""How long a message may wait to be stored, as in stock clients."""

ST_RECEIVER_QUEUE_DEFAULT = 1_000
"""Messages of one segment that are received ahead, as in stock clients."""

ST_RECEIVER_QUEUE_MAX = 100_000
"""The most messages of one segment that may be received ahead."""

ST_LOOKUP_REDIRECTS_MAX = 20
"""Redirections of one lookup, as in stock clients."""

ST_CONSUMERS_OPENING_MAX = 16
"""Segments of one consumer that are subscribed at the same time: each takes two requests."""

ST_NAMESPACE_TOPICS_MAX = 10_000
"""Topics that one consumer of a namespace consumes: as many as one connection may watch at this
project's servers."""

ST_TOPICS_OPENING_MAX = 16
"""Topics of a namespace whose consumers are made at the same time."""

ST_UNACKNOWLEDGED_ENTRIES_MAX = 100_000
"""Delivered and unacknowledged entries of one segment; beyond it no more messages are requested."""

ST_ACKNOWLEDGEMENTS_PER_COMMAND_MAX = 1_000
"""Entries in one ACK; further ones go into the next."""

ST_CONNECTIONS_PER_BROKER_MAX = 64
"""Connections of one client to one broker. A broker has room for some ten thousand, of all its
clients."""

ST_AVRO_DEPTH_MAX = 64
"""Types inside each other in an Avro definition: fastavro reads each by a call inside another one,
on a stack that has room for some thousand."""

ST_SCHEMA_VERSIONS_MAX = 1_000
"""Versions of schemas, over all segments, that a consumer keeps to read messages by; then it asks
the broker again for the one that it used last the longest ago."""

ST_SCHEMA_ATTEMPTS_MAX = 5
"""Answers "not found" in a row after which a version of a schema counts as lost: as for topics,
servers give this answer to passing failures, too."""

ST_DEAD_LETTERS_AT_ONCE_MAX = 100
"""Messages that a consumer forwards to its topic of dead letters at a time: they wait in memory
until they are stored. The others wait unacknowledged."""

ST_CHUNKED_MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Payload of a message in chunks: producers and consumers have it in memory as a whole."""

ST_CHUNKS_PER_MESSAGE_MAX = 1_000
"""Chunks of one message: each is an entry with metadata of its own."""

ST_CHUNKS_HELD_BYTES_MAX = 2 * ST_CHUNKED_MESSAGE_BYTES_MAX
"""Bytes of incomplete messages that a consumer has of one segment. Beyond it the oldest one is
given up, and comes again."""

ST_CHUNKS_INCOMPLETE_MS = 30_000
"""Time without a further chunk after which a message counts as given up by its producer: a split of
its segment made the producer begin it again, and consumers of the children wait until everything in
the parent is acknowledged. Stock clients take a minute."""
