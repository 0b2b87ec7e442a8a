"""Limits of writes: how many a shard has under way and waiting, how long a command may be repeated,
and how long its first outcome is kept (ADR 0053)."""

from __future__ import annotations

WRITES_IN_FLIGHT_MAX = 2_048
"""Cost of the writes of a shard that are decided and not committed: two of the largest creates, or
256 single ones, which at 8,000 a second commit within 32 ms. Beyond it writes wait by tenant."""

WRITES_SENT_MAX = 1_024
"""Cost of the creates that one discovery process has sent to one shard and that are not answered:
one of the largest, or 114 single ones, 11,000 a second at 10 ms each. Beyond it they wait by
tenant. Sent writes wait in one queue, in the order of sending."""

WRITE_REQUEST_COST = 8
"""Fixed cost of a request, in topics: it takes about as long as eight further topics in it."""

WRITES_WAITING_PER_TENANT_MAX = 1_024
"""Requests of one tenant that wait at a shard; beyond it ``Overloaded``. Three tenants at this
bound leave room for others among the requests of one stream (``EXCHANGE_IN_FLIGHT_MAX``)."""

WRITES_WAITING_MAX = 16_384
"""Requests of all tenants that wait at a shard; beyond it ``Overloaded``. Some 2 KB each."""

WRITE_READ_MS_MAX = 100
"""A write that reads its parents in other shards counts as in flight for at most this long: a home
shard that does not answer must not delay the writes of others. A read takes 5 ms."""

WRITE_RETRY_MS_MIN = 50
"""Least pause before a refused write is retried: some commits."""

WRITE_RETRY_MS_MAX = 1_000
"""Longest pause before a refused write is retried: the backlog of one tenant is written by then."""

# Renamed topics ----------------------------------------------------------------------------

FORMER_NAMES_MAX = 8
"""Former names that lead to one topic: brokers and the topic's row have them all."""

RENAME_GRACE_MS = 3_600_000
"""A former name leads to its topic for so long unless the caller says otherwise: until clients
were configured anew."""

RENAME_GRACE_MS_MAX = 7 * 24 * 3_600_000
"""The longest time that a former name may lead to its topic: it is nobody else's meanwhile."""

FORMER_NAME_REST_MS = 60_000
"""A former name is given to nobody else for so long after it stopped leading to its topic: the next
leader's clock may be behind."""

PARENT_RENAME_TURN_MS = 2_000
"""Time after which a call that renames a namespace or tenant answers with its progress; the client
repeats the call. So no call about a namespace of millions outlives its deadline."""

TOPIC_RENAMES_IN_FLIGHT_MAX = 64
"""Topics that one such call renames at once: they share fsyncs, and leave the shards to others."""

TOPIC_RENAME_MS_MIN = 500
"""Time for one of them at the end of a call: as a topic of which a unit is being moved may take."""

PARENT_RENAME_PAUSE_MS = 100
"""Before a call tries again topics of which none could be renamed."""

REFILLS_MAX = 3
"""An old name that was empty when it was listed is not when it is deleted: so often in a row in one
call, and at one more it fails."""

KEPT_NAMES_SHOWN_MAX = 3
"""Topics named in the refusal of a rename: enough to see what they are."""

POINTERS_REMEMBERED_MAX = 10_000
"""Names of which a shard's leader remembers that requests were sent on, or that a topic was about
to get them: those of some seconds, a megabyte. Of others the topics' homes are asked once more."""

# Repetitions -------------------------------------------------------------------------------

COMMAND_REPEATED_MS_MAX = 60_000
"""The client library repeats a command for at most this long after the first attempt that may have
been executed. As long as the longest request: ``REQUEST_TIMEOUT_MAX_MS``."""

ISSUED_POSITIONS_FRESH_MS = 10_000
"""Highest age of a client's positions when it first sends a command with them: a writing client
makes one more request every ten seconds."""

OUTCOME_WINDOW_MS = 120_000
"""A leader keeps the outcome of a command for at least this long: an issued position may be 10 s
old at the first attempt, repetitions follow for 60 s, and the rest allows for the different clocks
of leader and client. It keeps it longer if fewer than ``OUTCOME_WINDOW_POSITIONS`` events
followed."""

OUTCOME_WINDOW_POSITIONS = 100_000
"""A command id is remembered at least until this many further events were applied in its shard. It
is the only rule of a log without orders to forget. Part of the fold: replicas with different
windows have different digests, so it changes with the format of the view only."""

OUTCOMES_MAX = 600_000
"""Outcomes remembered by one shard: 5,000 commands/s for ``OUTCOME_WINDOW_MS``, some 100 bytes
each. At the limit each new outcome replaces the oldest: the window gets shorter, and repetitions
behind it are refused. Part of the fold, as ``OUTCOME_WINDOW_POSITIONS``."""

OUTCOMES_WITHOUT_ORDERS_MAX = 200_000
"""The same in a log without orders to forget: earlier releases fold by this number."""

POSITION_FRESH_MS = 1_000
"""Highest age of a shard's position that a discovery node returns: one read per second and shard,
for any number of clients."""

POSITION_WAIT_MS = 300
"""A discovery node waits this long for silent shards, then returns the others' positions."""

POSITION_READ_TIMEOUT_MS = 2_000
"""Time-out of one read of a position, an election included."""

SHARD_STATES_CACHED_MAX = 16_384
"""Aggregates a shard leader keeps in memory beyond those in flight, per kind. Some 600 bytes each:
at most 10 MB of topics. Frequently used ones are not read from disk."""

NODE_STATES_CACHED_MAX = 65_536
"""The same of all shard leaders of a node together, some 40 MB of topics and as much of assigned
units: each has an equal part. So what a node keeps does not grow with the number of its shards."""
