"""Limits of placement, capacity, drains, policies and permissions, each with unit and reason."""

from __future__ import annotations

from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS, BROKERS_MAX, WATCH_TTL_MARGIN_MS
from nextgen.kernel.limits.stream import WATCH_PROGRESS_MS

POLICIES_BYTES_MAX = 16_384
"""Policies of one object, serialised: as much as its properties, and sent to brokers with it."""

STORED_POLICIES_MAX = 64
"""Policies of one object that are stored for others and not enforced: Pulsar has some forty. Their
values share ``POLICIES_BYTES_MAX``."""

STORED_POLICY_NAME_BYTES_MAX = 64
"""UTF-8 bytes of the name of one: Pulsar's longest has 41."""

PERMISSIONS_PER_OBJECT_MAX = 4_000
"""Roles that one namespace or topic gives permissions to. Installations of Pulsar are known with
3,500 on one namespace."""

SUBSCRIPTION_PERMISSIONS_MAX = 4_000
"""Pairs of a subscription and a role in one namespace's permissions on subscriptions."""

NAMESPACE_POLICIES_BYTES_MAX = 262_144
"""Policies of a namespace that gives permissions, serialised: 4,000 roles of sixty bytes. Others
have ``POLICIES_BYTES_MAX``. All of it is in each change of the namespace's policies."""

PERMITTED_TOPIC_POLICIES_BYTES_MAX = 65_536
"""Policies of a topic that gives permissions, serialised: 1,000 roles of sixty bytes, as much as
those of a topic that lists shadows. Roles that many topics share are permitted by namespaces."""

PERMISSIONS_UNPACKED_MAX = 16
"""Policies of more than ``POLICIES_BYTES_MAX`` that a process keeps parsed, some two megabytes at
most each. The others are parsed at each use, which takes milliseconds."""

PLACEMENT_NAMES_MAX = 64
"""Brokers, zones or racks that one placement rule names."""

REASSIGN_UNITS_PER_SECOND = 500
"""Units of lost brokers that the whole cluster reassigns in a second, besides those that are looked
up: 10,000 units in 20 s. Each costs a commit's share, a delivery and an opening."""

LOST_UNITS_IN_FLIGHT_MAX = 256
"""Units of lost brokers that the shards of a node assign anew at a time: what the whole cluster
reassigns in half a second. At a rate that a machine keeps up with, some twenty are in flight."""

MOVED_UNITS_IN_FLIGHT_MAX = 4_000
"""Units of draining and shrinking brokers that the shards of a node move at a time, as many as one
of them alone. Each waits up to a second for caches to acknowledge it, so a drain at 1,000 units a
second has as many in flight."""

EVACUATION_LATE_MS = 100
"""A node whose event loop runs timers later than this evacuates one batch at a time: heartbeats of
brokers come as late, and a session ends after four of them."""

IDLE_LOOK_MS_MIN = 1_000
"""Least milliseconds between two searches of a broker for units without clients. With more than
1,000 units it is a millisecond for each: a unit costs 2 µs, so searches take 0.2 % of the time."""

IDLE_LOOK_MS = 30_000
"""Most milliseconds between two searches of a broker for units without clients, whatever their
number: a search of 50,000 units costs a tenth of a second, in small steps."""

IDLE_UNITS_PER_MESSAGE_MAX = 1_000
"""Idle units that a broker names at a time, some 150 bytes each. The others wait for the next
search: it is not urgent."""

BROKER_DRAIN_MS_MAX = 3_600_000
"""Longest that a broker may be set to wait at a stop until it is empty: an hour, which empties
50,000 units at 14 a second."""

REBALANCE_COOL_DOWN_MS = 600_000
"""Milliseconds for which a unit that a rebalance moved is not moved by another: its clients have
been disturbed once, and its weight at the new broker is known only after minutes."""

REBALANCE_MOVES_NAMED_MAX = 1_000
"""Moves named in one shard's answer, for people: some 150 bytes each."""

SETTINGS_MAX = 128
"""Settings that are overridden at a time: there are some thirty, and later releases have more."""

SETTING_TEXT_CHARACTERS_MAX = 32
"""Characters of a service-level setting's value: the longest number has some twenty."""

BALANCE_INTERVAL_SECONDS_MAX = 86_400
"""Longest time between two evaluations of the balance: a day. To have none, it is turned off."""

BALANCE_GRACE_SECONDS_MAX = 604_800
"""Longest time for which a unit that was moved is not moved again: a week, within which load has
its rhythm."""

BALANCE_MOVES_PER_MINUTE_MAX = 600_000
"""Moves that a balance may be set to make in a minute, of the whole cluster: as many as a drain."""

IDLE_UNLOAD_SECONDS_MAX = 31_622_400
"""Longest time without clients after which a unit leaves its broker: a year of 366 days."""

DRAIN_UNITS_PER_SECOND = 100
"""Default rate of a drain: units that leave the broker per second, over the whole cluster."""

DRAIN_UNITS_PER_SECOND_MAX = 10_000
"""Highest rate of units that a shard moves in a second."""

PREPARE_MS_MAX = 2_000
"""A move is refused if its target is not ready by then: the unit stays where it is, because such a
slow broker would keep its clients waiting."""

ANNOUNCE_MS_MAX = 500
"""Longest wait for an owner to acknowledge the announcement of a move. The announcement only helps
its clients, and a broker that hangs must not delay moves away from it."""

TAKE_OVER_MS_MAX = 1_000
"""The target fences an owner that has not released the unit by then: it hangs, or its manager has
no leader."""

EPOCH_JUMP_MAX = 1_000_000
"""Epochs by which a unit may jump because its ledger knows a later one than the shard: more than a
lost month of moving it every three seconds. A larger number is damage or a mistake; accepting it
could use up all epochs of the unit."""

HIGHER_EPOCH_ASKED_MS = 1_000
"""Time between two requests of a broker for a higher epoch of one unit."""

PREPARED_MS_MAX = 30_000
"""How long a broker remembers prepared and announced units. A move takes a second."""

PREPARED_UNITS_MAX = 10_000
"""Prepared units that a broker remembers, and as many announced ones: some hundred bytes each."""

HANDOVERS_IN_FLIGHT_MAX = 1
"""Units of a shard that one broker hands to another at a time. A takeover is some eight fsyncs, one
after the other, and each unit's clients wait for the concurrent ones, also of other shards."""

HANDOVER_PAUSE_MS_MAX = 100
"""Longest pause after such a group: as long as the group took, unless it waited for a hung process.
"""

PREPARES_PER_REQUEST_MAX = 16
"""Units that are prepared together: as many as are handed over within some 300 ms. The target reads
some 64 KB for each while it serves others."""

COMPARED_MAX = 4
"""Brokers named in the log by a placement decision, the chosen one included: each takes some 30
bytes of every stored assignment."""

EQUAL_USE_PERMILLE = 50
"""Two brokers whose used units by capacity differ by at most this part of the larger count as
equal, and their load reports decide. Half of the allowed difference between brokers (a tenth),
because the reports are seconds old and all shards follow them at once."""

LOAD_DIFFERENCE_PERMILLE = 100
"""Smaller differences of reported units or load are ignored: they vary by this much anyway."""

SPREAD_COST_PERMILLE = 100
"""Partitions of one topic spread, without a rule, over brokers that are by at most this part of
their capacity fuller than the emptiest."""

SESSIONS_STARTED_MAX = 5
"""Sessions that a broker may begin within ``QUARANTINE_WINDOW_MS``. Each costs its units a move: a
broker that crashes after every start would repeatedly get topics and lose them."""

QUARANTINE_WINDOW_MS = 60_000
"""Milliseconds in which the starts of a broker are counted. A crash is followed by a start within
10 s; operators do not restart a broker six times a minute."""

QUARANTINE_MS = 60_000
"""Milliseconds for which a broker in quarantine gets no units."""

LEASE_UNUSED_MS = 300_000
"""Milliseconds for which a shard keeps unused leased units. Load that recurs every few minutes
finds them, and returned units serve other shards long before the daily rhythm changes."""

LOOKUP_WINDOWS_KEPT_MAX = 60
"""Windows of lookups that a discovery process keeps to report again: an hour without a cluster
manager."""

LOOKUP_WINDOW_LATE_MS_MAX = 3_600_000
"""A window that began longer ago is not recorded: no meter keeps one for that long. A process
without a report for twice this time is forgotten."""

LOOKUP_WINDOW_AHEAD_MS_MAX = 60_000
"""How far a discovery node's clock may be ahead of the cluster manager's."""

LOOKUPS_PER_WINDOW_MAX = 1_000_000_000
"""Lookups of one process in a minute: more than ten times what its cache can answer."""

LOOKUP_PROCESSES_MAX = 4_096
"""Discovery processes that reported windows within some hours, restarts included."""

LOOKUP_PROCESS_BYTES_MAX = 64
"""A process's name in a window: its number, and when it began."""

NAMESPACES_WATCHED_MAX = 2_000
"""Namespaces whose rules one topic controller keeps, with their tenants: some 2 KB each, and two
names in a watch at their home shards. The rules of other namespaces are read when needed."""

RULES_READ_MS = 3_000
"""Time-out of reading the rules of tenants and namespaces at their home shards, an election there
included."""

RULES_ATTEMPT_MS = 1_000
"""Time-out of one attempt of that read, so that its result is still fresh enough to be used."""

READ_ROUND_MS = 50
"""A read of tenants and namespaces waits this long at most for the one of the same node before it
to come back, so that all who ask meanwhile are answered by one; twice as long for each further one
in flight. A home shard that is slow or absent has five of them in a second, whatever waits."""

LEASE_EXPIRY_MARGIN_MS = 10_000
"""Milliseconds beyond a lease's life after which units of a silent shard are freed: more than the
drift between two clocks, and than a delayed answer stays valid."""

LOAD_REPORT_MS_MIN = 5_000
"""Least milliseconds between two load reports of a broker: faster changes are noise."""

LOAD_REPORT_MS_MAX = 60_000
"""Milliseconds after which load is reported even without a change, so that later subscribers and
new leaders of the cluster manager learn it."""

LOAD_EVENT_MS_MIN = 60_000
"""Milliseconds between two events that record a session's load: for analysis a minute is fine,
and 1,000 brokers cost the log 17 events a second at most."""

LEADERS_GATHERED_MS = 20
"""Leaders of shards that are reported so soon after others are pushed together. The first one is
pushed at once. A thousand shards that elect at the same time would otherwise be as many updates to
each node, and fill its outbox."""

LOADS_GATHERED_MS = 1_000
"""Milliseconds for which the cluster manager gathers loads before it pushes them to all shard
nodes in one message: 1,000 brokers that report every 5 s would be 200 messages a second to each."""

LOADS_PER_UPDATE_MAX = 100
"""Brokers whose load travels in one message: with their busiest units half a megabyte."""

BUSIEST_UNITS_MAX = 50
"""The busiest units, named in a load report. They decide where load goes; the others are
similar."""

LOAD_NAME_BYTES_MAX = 1_024
"""Bytes of a unit's name in a load report; a name has fewer, see ``names``."""

LOAD_COUNT_MAX = 1_000_000_000
"""Largest valid number of topics, clients or connections of a broker."""

LOAD_RATE_MAX = 1e12
"""Largest valid rate of a broker, in messages or bytes a second: a terabyte."""

LOAD_CORES_MAX = 4_096
"""Largest valid number of cores of a broker: no machine has more."""

LOAD_BYTES_MAX = 2**50
"""Largest valid number of bytes of memory: a pebibyte, more than any machine has."""

BALANCE_REPORT_AGE_MS_MAX = 3 * LOAD_REPORT_MS_MAX
"""A broker whose last load report is older takes no part in a balance. Brokers report each minute,
so two reports in a row were lost, or its manager has no leader."""

BALANCE_REPORT_AHEAD_MS_MAX = 60_000
"""How far a broker's clock may be ahead in a load report that counts for a balance: as far as a
discovery node's in its windows."""

BALANCE_ROUND_LAG_MS = 3_000
"""Time behind the end of a round after which it is planned: a heartbeat of half a second, a second
of gathering at the cluster manager, and as much again for the way and for clocks that differ."""

BALANCE_SETTLE_MS = 2 * LOAD_REPORT_MS_MIN
"""A broker's report shows moves if it was measured so long behind them: rates are those of the last
``LOAD_REPORT_MS_MIN``, and a handover may take as long again."""

REFUSAL_REMEMBERED_MS = 1_000
"""A broker whose manager refused a unit for lack of room gets no unit for this long, until it has
released one or the lease reflects its free units."""

REFUSALS_REMEMBERED_MAX = 10_000
"""Sessions that refused: one for each broker of the largest cluster."""

ACKNOWLEDGEMENTS_KEPT_MAX = 16_384
"""Remembered intervals of acknowledgements of closed units, some hundred bytes each, for an auditor
that reconnects. Intervals of open units are not counted."""

ACKNOWLEDGEMENT_WATCHERS_MAX = 4
"""Auditors of one broker: each report costs it a millisecond per 10,000 open units."""

ACKNOWLEDGEMENT_REPORT_MS = 1_000
"""Interval of reports to an auditor; a killed broker loses what it has not reported."""

ACKNOWLEDGEMENT_INTERVALS_PER_REPORT_MAX = 2_000
"""Intervals in one message: some 500 KB."""

AUDIT_EPOCHS_PER_UNIT_MAX = 8
"""The latest epochs of a unit whose owners and times an auditor remembers."""

AUDIT_LOG_GRACE_MS = 5_000
"""Time after which an auditor reads a log once more before it reports an epoch as missing from
it."""

NAMESPACES_COUNTED_MAX = 10_000
"""Namespaces with a bound for which a shard keeps its count of topics, some 100 bytes each."""

EFFECTIVE_WAITS_MAX = 4_096
"""Writes of a shard that are committed and wait until they are effective: as many as the requests
of one stream between two processes. Each costs a check when a subscriber has acknowledged."""

EFFECTIVE_MANAGER_MS = 5_000
"""Effective writes wait this long for a broker manager that is silent or down: meanwhile its
successor is elected, its brokers reconnect and report their holdings, and it subscribes to these.
They wait as long for a manager that has read an object but not subscribed to it yet, and for one
that has not reconnected to a new leader of the home shard."""

FOLLOW_REQUESTS_MAX = 8
"""Concurrent requests of a new leader to broker managers. The largest map has thousands of them,
and after a restart every shard has a new leader. All must answer in any case, so queueing costs
nothing."""

EFFECTIVE_READERS_MAX = 200_000
"""Names that broker managers got, or topic controllers have read, and do not watch yet: those of
some seconds of lookups, far more than a shard assigns. Names in requests under way are not counted.
Beyond it the oldest is forgotten, and every effective write waits as long as that expectation would
have lasted."""

RULES_FRESH_MS = ASSIGNMENT_TTL_MS - WATCH_PROGRESS_MS - WATCH_TTL_MARGIN_MS
"""Namespaces from a stream are used for this long after its last message. Effective writes wait for
a silent subscriber for one time-to-live: its last acknowledgement may be as old as the interval of
two messages on the stream, and may have been on its way for as long as the margin."""

METADATA_USED_MS = ASSIGNMENT_TTL_MS - WATCH_TTL_MARGIN_MS
"""Tenants and namespaces are used for this long after their read was requested: their home shard
makes effective writes wait for the reader's subscription for at least one time-to-live."""

CAPACITY_RESERVE_PERCENT = 10
"""Part of each lease that is reserved for tenants below their share: ten new tenants get their
default shares even if one tenant borrows all the rest. The reserve is unused without such tenants,
so it is small."""

CAPACITY_SHARE_PERCENT_DEFAULT = 1
"""A tenant's share of the units leased to a shard unless its policy ``capacity_share_percent`` says
another: 500 topics of a broker's 50,000, more than nearly every tenant has."""

SHARE_CLAIMS_MAX = 32
"""Tenants whose shares are being set at the same time: their claims are properties of one
namespace, which may have twice as many. Shares fit a reserve of ten per cent, so few are set."""

SHARE_CLAIM_MS_MAX = 60_000
"""After this long another process may end the claim of a share that was never set: longer than any
request may take, so the claiming process has died or lost the answer. Wrong clocks only delay
that."""

SHARE_RETRY_MS = 1_000
"""A lookup that was refused with SHARE_EXCEEDED is retried after this: its shard requested more
capacity twice without success, and requests it again then (``LEASE_RETRY_MS``)."""

QUOTA_TENANTS_MAX = BROKERS_MAX
"""Tenants with a quota, the largest ones: others are too small to displace any tenant."""

QUOTA_NAMES_BYTES_MAX = 1024 * 1024
"""Bytes of all names in one set of quotas: with their units they fit a record, and a full update
beside everything else in it. 4,096 brokers and as many tenants of 100 bytes each do."""

QUOTA_SOURCE_BYTES_MAX = 128
"""Bytes of the digest of the source of quotas: SHA-512 in hexadecimal digits."""

QUOTA_UNITS_MAX = 1_000_000_000
"""Units of one quota: ten times all topics that the design is made for."""

QUOTA_FILE_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of a quota file: all possible names, each escaped and on a line of its own."""

DELETED_UNITS_RECOVERED_MAX = 10_000
"""Units without an owner whose messages a new leader has removed once more, as its predecessor may
not have. A topic has no more partitions. Of earlier topics messages may be left."""

FORCED_DELETION_EVENTS_MAX = 5_000
"""Events at the end of the log in which a new leader looks for forced deletions of the last
moments: two seconds of creates at full rate. It is read once a term, and only if a topic is to be
created on demand in the first moments of the term."""

FORCED_DELETIONS_REMEMBERED_MAX = 10_000
"""Names whose deletion was forced a moment ago, of one shard. The oldest are forgotten first: they
may be created on demand early."""

SLOT_MOVE_ROWS_MAX = 50_000
"""Rows that one move of a plan takes along, by estimate: a few seconds of copying, so that a stop
loses little. A single slot may have more."""

SLOT_ROW_BYTES = 500
"""Bytes of disk for which a row of moving slots counts, in the log and in the view together, when a
plan is compared with the room on a node's disk."""

SLOT_MOVE_SLOTS_MAX = 1_024
"""Slots that one move of a plan takes along, however few rows they have. The ring scatters them,
and a release counts units range by range while the slots stand still."""

SLOT_MOVE_RANGES_MAX = 8_192
"""Ranges of slots in one move: as many as there can be, for slots are 16,384."""

SLOT_MOVES_AT_ONCE = 8
"""Moves of a plan under way at a time: each is two shards that copy and commit more than usual."""

SLOT_MOVES_KEPT = 1_000
"""Finished moves that the cluster manager remembers, to show them and to answer late reports."""

SLOT_PLANS_KEPT = 100
"""Plans that the cluster manager remembers, to show them."""

SLOT_MOVE_REASON_CHARACTERS_MAX = 1_000
"""Characters of the reason why a move or a plan was stopped or refused. Longer ones are cut."""

SLOT_REQUEST_ID_CHARACTERS_MAX = 64
"""Characters of the id by which a repeated request finds its plan."""

SLOT_ADOPTION_WAIT_MS = 250
"""A shard holds a request for slots that are on their way to it for this long: they are decided
about nowhere between the release by the other shard and their adoption, for two commits and a
round trip."""

SLOT_MOVE_STALLED_MS = 600_000
"""Time without a report of a move that has not been adopted, after which it is taken back: far more
than an election, a restart or a snapshot takes."""

SHARD_SIZE_WAIT_MS = 15_000
"""Time for which a new leader of the cluster manager waits for the size of a shard before it moves
slots of it: leaders report sizes when they reconnect, and every ``SHARD_SIZES_MS``."""

SHARD_SIZES_MS = 10_000
"""Between two reports of the sizes of the shards that a node leads."""

SHARD_FULL_MS = 300_000
"""Time for which a shard has to be too full before it is split by itself: a load that comes and
goes in minutes is none to copy half a shard for."""

SHARD_IDLE_FULLNESS = 0.4
"""Part of a shard's limits below which it is idle: two such shards fit into one, and half of a full
shard is none."""

SHARD_IDLE_MS = 3_600_000
"""Time for which two shards have to be idle before they are merged by themselves."""

SHARD_PLAN_PAUSE_MS = 600_000
"""Time from one plan that was made by itself to the next: sizes are known again by then."""

SHARD_PLAN_FAILED_PAUSE_MS = 3_600_000
"""The same behind a plan that was stopped: what stopped it takes an operator."""

SHARD_SIZE_STALE_MS = 60_000
"""A size that was reported earlier is not known any more: six reports are missing."""

SHARD_TOPICS_SETTING_MAX = 1_000_000_000
"""Topics of a shard beyond which no setting says that it is split: ten times all topics that the
design is made for."""

SHARD_COMMANDS_SETTING_MAX = 1_000_000
"""The same in commands a second: twenty times what a shard's leader decides."""

REPLICA_TRANSFERS_PER_NODE_MAX = 2
"""Replicas that one node receives or sends at a time when they are placed by themselves: each may
be a whole snapshot of a shard, and the node serves its other shards meanwhile."""

REPLICA_TRANSFERS_MAX = 4
"""Replicas that join at a time in a cluster when they are placed by themselves: so a plan that is
stopped has little under way."""

REPLICA_CHANGES_MAX = 8
"""Changes of placements that one plan begins: each is an event, and is sent to every node."""

PLACEMENT_PAUSE_MS = 1_000
"""Time between two plans of where replicas should be; one of 1,000 shards takes a tenth of it."""

NODES_SETTLE_MS = 5_000
"""Replicas are evened out when no shard node came, went or changed its state for this long: of
several nodes that are added together the first would get what the others then take from it."""

NODE_LOST_SECONDS = 600
"""Silence of a shard node after which it counts as lost by default: a restart, a new kernel or a
moved disk takes less, and a copy of its replicas that nobody needs costs its peers more."""

NODE_LOST_SECONDS_MAX = 7 * 24 * 3_600
"""The longest silence of a shard node that the setting allows before it counts as lost."""
