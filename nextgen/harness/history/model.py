"""The records of a history: requests and answers of clients, faults, and the log.

A history is recorded while a cluster is under load and judged afterwards. Each recording process
writes these values to a file through a ``nextgen.harness.history.record_file.Recorder``;
``nextgen.harness.history.record_file.load_history`` joins the files of one run.

**Time.** Every ``…_ns`` is a reading of CLOCK_MONOTONIC (``time.monotonic_ns()``) of the ONE
machine that all recording processes run on. Order between two operations is concluded from
these readings and from nothing else: an operation comes before another only if it had returned
when the other was invoked. Take ``invoked_ns`` BEFORE the request leaves and ``returned_ns`` AFTER
its answer came. Times of the cluster's own machines do not occur: their clocks are set wrong on
purpose.

**Outcomes.** A recorder must not guess. ``ok`` and ``refused`` are answers. ``failed`` is for
errors under ``nextgen.kernel.errors.Definite``: the checks require that the operation never takes
effect. Every other outcome is ``unknown``: the operation may have happened or may happen later, and
stays open for ever. A create of many topics that ended in a definite error is unknown for each of
them, because another shard may have created its part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

FORMAT_VERSION = 1
"""Version of the files. A reader refuses a later one; fields may be added without a new one."""

NO_VALUE: Mapping[str, object] = {}


class OperationKind(StrEnum):
    """The kind of a request. The comments have ``argument`` -> ``value`` of an ``ok``."""

    CREATE = "create"  # {properties, partitions} -> {id}
    DELETE = "delete"  # {} -> {id}
    SET_PROPERTIES = "set_properties"  # {properties, expected_version} -> {id, version}
    GET = "get"  # {} -> {id, version, properties, …}, or {} when there is none
    RENAME = "rename"  # Of a topic: {new_name} -> {id, version}
    SET_POLICIES = "set_policies"  # {policies, expected_version, expects_none} -> {id, version}
    GET_POLICIES = "get_policies"  # {} -> {policies, policies_version}
    # {node, fresh} -> {topic_id, epoch, broker_id, session_id}. ``node`` is the only discovery
    # process that was called; without it any may have answered. ``fresh``: linearizable.
    LOOKUP = "lookup"
    MOVE = "move"  # {target} -> as LOOKUP
    # Of a scalable topic: {kind, segments, buckets} -> {}, with the position of the new layout.
    CHANGE_LAYOUT = "change_layout"
    CREATE_SUBSCRIPTION = "create_subscription"  # {subscription, type} -> {}
    DELETE_SUBSCRIPTION = "delete_subscription"  # {subscription} -> {}


WRITES = frozenset(
    {
        OperationKind.CREATE,
        OperationKind.DELETE,
        OperationKind.SET_PROPERTIES,
        OperationKind.SET_POLICIES,
        OperationKind.RENAME,
    }
)
READS = frozenset({OperationKind.GET, OperationKind.GET_POLICIES})
"""A GET may record policies and policies_version too. Policies are a text that ``policies_text`` of
``history.log_events`` makes, "" for none; a version is the object's unless its name says else."""

OK = "ok"
UNKNOWN = "unknown"
REFUSED_PREFIX = "refused:"
FAILED_PREFIX = "failed:"


class ObjectKind(StrEnum):
    """The kind of object that a key names; ``object_kind`` derives it from the key's text."""

    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    ASSIGNMENT = "assignment"  # Only in watches: an assigned unit, by its canonical name.


def object_kind(key: str) -> ObjectKind:
    """Return what ``key`` names: ``tenant``, ``tenant/namespace`` or ``domain://…``."""
    if "/" not in key:
        return ObjectKind.TENANT
    return ObjectKind.TOPIC if "://" in key else ObjectKind.NAMESPACE


def refused(code: str) -> str:
    """Return the outcome of an operation that the rules refused."""
    return REFUSED_PREFIX + code


def failed(reason: str) -> str:
    """Return the outcome of an operation that ended in a definite error."""
    return FAILED_PREFIX + reason


@dataclass(frozen=True, slots=True)
class Run:
    """One record for each run, in any of its files: its scope, and how to repeat it.

    ``scopes`` are prefixes of keys. Within them EVERY writer is recorded, so an effect that no
    operation explains is a phantom; keys outside of them belong to others. A Pulsar client that
    opens a topic may create it: record that as a CREATE with an unknown outcome.
    """

    run_id: str
    began_ns: int
    ended_ns: int
    seed: int = 0
    scopes: tuple[str, ...] = ()
    replay: str = ""
    """The command that repeats the run's schedule."""
    is_log_complete: bool = True
    """Whether the ``LogEvent`` records are all events of every shard from position 1 on."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request of one client, and its answer.

    Write it twice: as ``UNKNOWN`` without ``returned_ns`` BEFORE the request leaves, and again with
    its answer. The later record of a (client, op_id) replaces the earlier, so requests in flight
    when a recording process dies are open instead of missing.

    A batch is one operation for each of its topics, all with the times of the batch. Do not record
    reads with a ``min_position``, which are not promised to be linearizable.
    """

    client: str
    """Unique in the run. A client may have several operations in flight."""
    op_id: int
    """Unique for the client."""
    kind: OperationKind
    key: str
    """Canonical name, as it is in the log: ``persistent://tenant/namespace/topic``. Of a topic that
    is renamed any of its names: none of them is ever another topic's in the same run, and all lead
    to the topic until the run is judged."""
    invoked_ns: int
    returned_ns: int | None = None
    """When the call returned, also with an error."""
    outcome: str = UNKNOWN
    """``OK``, ``UNKNOWN``, ``refused(code)`` or ``failed(reason)``."""
    argument: Mapping[str, object] = field(default_factory=lambda: NO_VALUE)
    value: Mapping[str, object] = field(default_factory=lambda: NO_VALUE)
    command_id: str = ""
    """Hexadecimal digits of the id in the log (``LogEvent.causation_id``); "" if it is not known,
    as for a create of several topics, which has another id in each shard."""
    shard: int = 0
    """Shard and position in the answer of an ok write; 0 if the answer had none."""
    position: int = 0

    @property
    def is_ok(self) -> bool:
        return self.outcome == OK

    @property
    def is_unknown(self) -> bool:
        return self.outcome == UNKNOWN

    @property
    def is_failed(self) -> bool:
        return self.outcome.startswith(FAILED_PREFIX)

    @property
    def refusal(self) -> str:
        """The code it was refused with, "" if it was not refused."""
        prefix = REFUSED_PREFIX
        return self.outcome[len(prefix) :] if self.outcome.startswith(prefix) else ""

    @property
    def may_have_happened(self) -> bool:
        return self.outcome in (OK, UNKNOWN)

    @property
    def name(self) -> str:
        """The operation's name in findings."""
        return f"{self.client}#{self.op_id}"


@dataclass(frozen=True, slots=True)
class Publish:
    """One message that a producer sent. Written twice, like an ``Operation``.

    A message is identified by (topic, producer, sequence): the client sets the sequence id.
    """

    topic: str
    """Canonical name, partition included."""
    producer: str
    sequence: int
    sent_ns: int
    acked_ns: int | None = None
    """None: never acknowledged, whether stored or not."""
    ledger: int = -1
    """Ledger of the message id in the acknowledgement; -1 for a duplicate."""
    entry: int = -1
    batch_index: int = -1
    epoch: int = 0
    """Epoch of the acknowledging owner: ``ledger >> 20`` (ADR 0023); 0 if it is not known."""
    topic_id: str = ""
    """Needed only if the topic is deleted and created again during the run: epochs begin anew."""
    segment: str = ""
    """Of a scalable topic: canonical name of the segment that acknowledged it. Epochs and ledgers
    are its own."""

    @property
    def name(self) -> str:
        return f"{self.producer}#{self.sequence} of {self.topic}"

    @property
    def unit(self) -> str:
        """What an owner acknowledged it for."""
        return self.segment or self.topic


@dataclass(frozen=True, slots=True)
class Received:
    """One received message; records of a consumer are in order of arrival.

    A member of a group that keeps the order of keys, as those of a scalable topic's stream do,
    records ``subscription`` and ``key``, and writes the record BEFORE it acknowledges the message.
    """

    consumer: str
    topic: str
    producer: str
    sequence: int
    ledger: int
    entry: int
    batch_index: int = -1
    received_ns: int = 0
    subscription: str = ""
    """The group that the consumer is a member of; "" if it consumes alone."""
    key: str = ""
    """The message's key; "" if it has none, or if the group does not keep the order of keys."""
    segment: str = ""
    """Of a scalable topic: canonical name of the segment that it came from."""


@dataclass(frozen=True, slots=True)
class Drained:
    """``consumer`` has read all of ``topic`` from its first message on, after the load, on a
    cluster without faults. Only messages that such a consumer missed or got twice count as errors:
    a consumer that was connected during faults may get unacknowledged messages again.

    With ``subscription`` its members together have: ``consumer`` is "". They may have got messages
    more than once, and none may be missing.
    """

    consumer: str
    topic: str
    subscription: str = ""


@dataclass(frozen=True, slots=True)
class WatchOpened:
    """A watch begins, or resumes. All records of one watcher go to ONE file, in order.

    ``from_position`` 0: a snapshot follows. With ``without_snapshot`` the watch begins at the
    present position instead, which the watcher does not know, so events before the first one do
    not count as missed. A watcher that resumes on a new stream from its last position writes
    nothing.
    """

    watcher: str
    shard: int
    watch: int
    kinds: tuple[str, ...]
    """``ObjectKind`` values."""
    prefix: str = ""
    names: tuple[str, ...] = ()
    from_position: int = 0
    without_snapshot: bool = False
    from_beginning: bool = False
    """Whether it reads from the first event on, so that it must get every event of the log."""


@dataclass(frozen=True, slots=True)
class WatchReset:
    """The watch got a reset: its state is void. A snapshot follows."""

    watcher: str
    shard: int
    watch: int


@dataclass(frozen=True, slots=True)
class SnapshotItem:
    """One item of a watch's snapshot.

    ``state`` of a tenant, namespace or topic: {id, version, properties}; of an assignment:
    {topic_id, epoch, broker_id, session_id}.
    """

    watcher: str
    shard: int
    watch: int
    kind: str
    key: str
    state: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """The items before this record are all objects that existed at ``position``."""

    watcher: str
    shard: int
    watch: int
    position: int


@dataclass(frozen=True, slots=True)
class Observation:
    """One event that a watch was sent. ``type``: the payload's field name, topic_created, …"""

    watcher: str
    shard: int
    watch: int
    position: int
    type: str
    key: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class WatchProgress:
    """Everything up to ``position`` that concerns the watch was delivered before this record.

    Write at least one, for the last position that the watch got. Without it the checks expect
    nothing behind the last event that the watch saw.
    """

    watcher: str
    shard: int
    watch: int
    position: int


ORDER_POSITION_BITS = 48


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event of a shard's log, from position 1 on, in order. Read the log LAST, after every
    recorded read has returned: then no read may have seen an event that the log does not have.

    ``nextgen.harness.history.log_events.log_event_of`` makes it of an event as the wire has it.
    """

    shard: int
    position: int
    term: int
    type: str
    """Name of the payload's field: topic_created, topic_assigned, …"""
    key: str = ""
    """The name that the event is about: tenant, namespace, topic, canonical name of a unit,
    broker id; "" for events about no name."""
    id: str = ""
    """Id of the tenant, namespace or topic; of a unit its topic's; "" where the event has none."""
    unit: str = ""
    epoch: int = 0
    broker_id: str = ""
    session_id: str = ""
    reason: str = ""
    causation_id: str = ""
    """Hexadecimal digits; "" for the cluster's own decisions."""
    properties: Mapping[str, str] = field(default_factory=dict)
    policies: str = ""
    """All policies of a policy_set, as a text that can be compared."""
    policies_version: int = 0
    used_epoch: int = 0
    """Set for an assignment that skipped epochs: owners unknown to the log have used this one."""
    facts: Mapping[str, object] = field(default_factory=lambda: NO_VALUE)
    """What else an event says about a scalable topic, a rename or a move: see
    ``topic_facts`` and ``scalable_facts`` of ``log_events``."""
    leg: int = 0
    """Which leg of its slot's history it is in, 0 of a slot that never moved: see ``log_fold``."""

    @property
    def name(self) -> str:
        """The event's name in findings, unique over all shards."""
        return f"{self.shard}:{self.position}"

    @property
    def order(self) -> int:
        """A number that grows with each event about the same key, in whichever shards they are."""
        return order_of(self.leg, self.position)


def order_of(leg: int, position: int) -> int:
    """Return the order of what is at ``position`` in a leg of a slot's history."""
    return (leg << ORDER_POSITION_BITS) + position


@dataclass(frozen=True, slots=True)
class FinalItem:
    """One object as listed from the leader after the load."""

    key: str
    id: str
    version: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FinalListing:
    """The ``FinalItem`` records have every key that begins with ``prefix``: other keys do not
    exist."""

    prefix: str


@dataclass(frozen=True, slots=True)
class ViewHash:
    """Digest of one replica's view at a position, after the load."""

    shard: int
    node: str
    position: int
    digest: str


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault. Written when it has ended.

    ``kind``: kill, pause, partition, slow_disk, full_disk, clock, restart_all, transfer, move,
    unload, drain. ``shards``: those that the target led when it began, () for all; recovery is
    measured there.
    """

    kind: str
    target: str
    began_ns: int
    ended_ns: int
    detail: str = ""
    shards: tuple[int, ...] = ()


Record = (
    Run
    | Operation
    | Publish
    | Received
    | Drained
    | WatchOpened
    | WatchReset
    | SnapshotItem
    | WatchSnapshot
    | Observation
    | WatchProgress
    | LogEvent
    | FinalItem
    | FinalListing
    | ViewHash
    | Fault
)
WatchRecord = WatchOpened | WatchReset | SnapshotItem | WatchSnapshot | Observation | WatchProgress


@dataclass(frozen=True, slots=True)
class History:
    """All records of one run. ``log`` by shard and position; ``watch_records`` in the order in
    which each watcher wrote them; the rest in any order."""

    run: Run
    operations: Sequence[Operation] = ()
    publishes: Sequence[Publish] = ()
    received: Sequence[Received] = ()
    drained: Sequence[Drained] = ()
    watch_records: Sequence[WatchRecord] = ()
    log: Sequence[LogEvent] = ()
    final_items: Sequence[FinalItem] = ()
    final_listings: Sequence[FinalListing] = ()
    view_hashes: Sequence[ViewHash] = ()
    faults: Sequence[Fault] = ()
