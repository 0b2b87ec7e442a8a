"""The ports of a shard: the interfaces that it needs from outside itself.

The replicated log is a port of its own: ``nextgen.replication.ports``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nextgen.client.changes.shard_watch import WatchListener
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.governance.service_settings import ServiceSettings
from nextgen.kernel.routing.names import TopicName
from nextgen.kernel.scalable.segments import SegmentEnd
from protos.nextgen.v1.cluster_service_pb2 import LeaseCapacityRequest, LeaseCapacityResponse
from protos.nextgen.v1.events_pb2 import BrokerRecorded, LoadReport
from protos.nextgen.v1.inventory_pb2 import Item, Kind
from protos.nextgen.v1.shard_service_pb2 import (
    AssignRequest,
    AssignResponse,
    FollowRequest,
    FollowResponse,
    GetNameUseResponse,
    GetOutcomesRequest,
    GetOutcomesResponse,
    MarkDrainedRequest,
    MarkDrainedResponse,
    ObjectName,
    RecordLoadsRequest,
    RecordLoadsResponse,
    ReleaseRequest,
    ReleaseResponse,
    UnassignRequest,
    UnassignResponse,
)
from shards.domain.parent_gate import ParentKind
from shards.domain.scalable.retention import SegmentUsage
from shards.domain.scalable.vocabulary import SubscriptionType
from shards.domain.slots.events import SlotRanges

AssignAhead = Callable[[Sequence[TopicName], str], None]
"""Begins to assign units that are about to be looked up, to the broker with this id if it may have
them. Call it in the step of the loop that proposed what the units need."""


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time, from the shell. ``monotonic`` is in seconds and never goes back."""

    def monotonic(self) -> float: ...

    def wall_ms(self) -> int:
        """Return Unix milliseconds. For display only: nothing is ordered by it."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` once, on the loop, when ``monotonic`` has reached ``when``."""
        ...


class BrokerDirectory(Protocol):
    """Every broker session that the cluster manager has pushed. Soft: as fresh as the push.

    A record has whether the broker is ``draining`` and until when it is in quarantine
    (``quarantined_until_ms``, Unix time): in both cases it gets no units.
    """

    def live(self) -> Sequence[BrokerRecorded]:
        """Return the live sessions, one per broker at most."""
        ...

    def session(self, session_id: str) -> BrokerRecorded | None:
        """Return the live session with this id."""
        ...

    def broker(self, broker_id: str) -> BrokerRecorded | None:
        """Return the live session of this broker."""
        ...

    def known_ids(self) -> Collection[str]:
        """Return the ids of all brokers that the cluster ever had, alive or not."""
        ...

    def has_ended(self, broker_id: str, session_id: str) -> bool:
        """Return whether this session is known to have ended. An unknown one may be too new."""
        ...

    def load(self, session_id: str) -> LoadReport | None:
        """Return the last reported load of a live session; None if there is no report.

        At most a minute old while the broker, its manager and the cluster manager work. Listeners
        are not called for a new report.
        """
        ...

    def settings(self) -> ServiceSettings:
        """Return the service-level settings. Read them at each evaluation: they change."""
        ...

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each change of a session or of the settings; returns a function
        that unsubscribes."""
        ...


class Quotas(Protocol):
    """The quotas that the cluster manager has pushed. Soft: as fresh as the push."""

    def of_broker(self, broker_id: str) -> int | None:
        """Return how many units of the broker may be leased out, None if it has no quota."""
        ...

    def of_tenant(self, tenant: str) -> int | None:
        """Return how many units the tenant may have assigned, None if it has no quota."""
        ...


class BrokerManagers(Protocol):
    """The broker managers of all shards, reached through the leader of each broker's shard.

    ``assign`` and ``release`` answer when the broker's sync position covers the request.

    Raises:
        SessionExpired: The session ended; it never returns.
        MetadataError: Anything else on the way; every call may be repeated.
    """

    async def assign(self, request: AssignRequest, *, timeout_ms: int) -> AssignResponse: ...

    async def release(self, request: ReleaseRequest, *, timeout_ms: int) -> ReleaseResponse: ...

    async def follow(
        self, shard_id: int, request: FollowRequest, *, timeout_ms: int
    ) -> FollowResponse:
        """Have the broker manager of a shard follow the new leader of a home shard."""
        ...


class TopicControllers(Protocol):
    """The topic controllers of all shards, each reached through its shard's leader."""

    async def record_loads(
        self, shard_id: int, request: RecordLoadsRequest, *, timeout_ms: int
    ) -> RecordLoadsResponse:
        """Record the loads of segments of one shard's topics. May be repeated.

        Raises:
            MetadataError: The shard could not be reached, or is of an earlier release.
        """
        ...

    async def unassign(
        self, shard_id: int, request: UnassignRequest, *, timeout_ms: int
    ) -> UnassignResponse:
        """End the assignments of units of one shard. May be repeated.

        Raises:
            MetadataError: The shard could not be reached.
        """
        ...

    async def mark_drained(
        self, shard_id: int, request: MarkDrainedRequest, *, timeout_ms: int
    ) -> MarkDrainedResponse:
        """Note that subscriptions have acknowledged everything in sealed segments of one shard's
        topics. May be repeated.

        Raises:
            MetadataError: The shard could not be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class SegmentUnit:
    """A segment of a scalable topic at the broker to which one assignment gives it.

    ``endpoint`` is the broker's host:port for gRPC.
    """

    name: str
    topic_id: str
    unit: str
    epoch: int
    endpoint: str


class SealedUnit(NamedTuple):
    """What a segment's broker answers when it has ended."""

    end: SegmentEnd
    stored_bytes: int
    subscriptions: Sequence[str]
    """The durable ones that it has there."""


class SegmentBrokers(Protocol):
    """The brokers that serve segments. Every call may be repeated, and changes nothing then.

    Raises:
        Refused: The broker refuses. STALE_EPOCH: it does not have the unit in this epoch.
        MetadataError: The broker was not reached, or its answer is missing.
    """

    async def ready(
        self, unit: SegmentUnit, subscriptions: Sequence[str], *, timeout_ms: int
    ) -> None:
        """Open the unit and have the cursors of ``subscriptions``; new ones at its beginning."""
        ...

    async def seal(self, unit: SegmentUnit, *, timeout_ms: int) -> SealedUnit:
        """End the unit for ever: nothing is published to it, in no later epoch either."""
        ...

    async def usage(self, unit: SegmentUnit, *, timeout_ms: int) -> SegmentUsage:
        """Return who needs the messages of a sealed segment still, and how long they are kept."""
        ...

    async def subscriptions(
        self, unit: SegmentUnit, *, timeout_ms: int
    ) -> Mapping[str, SubscriptionType]:
        """Return the durable subscriptions of a unit, also those that clients have made by
        themselves, with what they are of a scalable topic: a QUEUE if consumers share the messages,
        else a STREAM."""
        ...

    async def seek(
        self, unit: SegmentUnit, subscription: str, to_ms: int | None, *, timeout_ms: int
    ) -> None:
        """Set a cursor to the first message published at or after ``to_ms``; None: to the end."""
        ...

    async def drop(self, unit: SegmentUnit, subscription: str, *, timeout_ms: int) -> None:
        """Have no cursor of ``subscription``; consumers that are connected are closed."""
        ...

    async def remove(self, unit: SegmentUnit, *, timeout_ms: int) -> None:
        """Remove the unit's messages, in all epochs up to its own. Any broker can do it."""
        ...


class CapacitySource(Protocol):
    """The cluster manager's capacity ledger."""

    async def lease_capacity(self, request: LeaseCapacityRequest) -> LeaseCapacityResponse:
        """Request, renew or return this shard's leases.

        Raises:
            MetadataError: No cluster manager leads, or it refused.
        """
        ...


class MetadataReader(Protocol):
    """The inventories of all shards, read at the leader of each name's home shard."""

    async def read(
        self, names: Sequence[ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        """Return the objects in the order of ``names``; an absent one has no value.

        ``subscriber_id`` names a reader that will watch the objects with acknowledgements: from the
        read on, effective writes wait for it, for a limited time.

        Raises:
            MetadataError: A home shard could not be reached.
        """
        ...


class ShardWatching(Protocol):
    """One stream of changes from one shard; ``client.changes.shard_watch.ShardWatch`` is one."""

    @property
    def heard_at(self) -> float:
        """When the shard last sent anything, in ``Clock.monotonic`` seconds."""
        ...

    def is_caught_up(self, watch_id: int) -> bool:
        """Return whether a watch has every event that the shard sent up to ``heard_at``."""
        ...

    def add(
        self,
        listener: WatchListener,
        *,
        kinds: Sequence[Kind],
        names: Sequence[str] = (),
        from_position: int = 0,
        acknowledged: bool = False,
    ) -> int:
        """Watch ``names``; with ``from_position`` 0 a snapshot comes first. Returns a watch id.

        Effective writes wait until an ``acknowledged`` watch has acknowledged them.
        """
        ...

    def acknowledge_with(self, in_effect: Callable[[int], int]) -> None:
        """Acknowledge up to the position that ``in_effect`` returns.

        Its argument is the position up to which acknowledged watches received their events.
        Without ``in_effect`` what is received is acknowledged.
        """
        ...

    def withhold_with(self, withheld: Callable[[], Collection[int]]) -> None:
        """Acknowledge nothing for the watches whose ids ``withheld`` returns."""
        ...

    def complete_with(self, complete_term: Callable[[], int]) -> None:
        """Send what ``complete_term`` returns with each acknowledgement; see ``WatchRenew``."""
        ...

    def acknowledge(self) -> None:
        """Acknowledge again: more of what was received has taken effect."""
        ...

    def remove(self, watch_id: int) -> None: ...

    async def run(self) -> None:
        """Follow the shard until cancelled."""
        ...


class HomeShards(Protocol):
    """Where metadata has its home, and how its changes are followed there."""

    def home_of(self, kind: Kind, name: str, object_id: str = "") -> int:
        """Return the shard whose inventory has the object of this name.

        A topic may have been renamed: the shard of one is known by its id, if that is given.

        Raises:
            Unavailable: There is no shard map yet.
        """
        ...

    def manager_shard(self, broker_id: str) -> int:
        """Return the shard whose leader manages the broker.

        Raises:
            Unavailable: There is no shard map yet.
        """
        ...

    def note_leader(self, shard_id: int, term: int, node_id: str) -> None:
        """Note a shard's leader, known from the leader itself: streams to the shard go there."""
        ...

    def watch(self, shard_id: int, subscriber_id: str) -> ShardWatching:
        """Return a stream to that shard's leader; ``run`` starts it."""
        ...


class SessionReports(Protocol):
    """A broker manager's reports of its live sessions to the cluster manager."""

    def report(self, session: BrokerRecorded) -> None:
        """Send the report if there is a connection; the caller repeats all reports after a
        reconnect."""
        ...

    def report_load(self, broker_id: str, session_id: str, load: LoadReport) -> None:
        """Send a session's load; as with ``report``, it may be lost."""
        ...

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """What became of an order to the gate of a parent in one shard.

    ``rejected`` is None if it was carried out; ``slots`` are those that the shard had then.
    ``attempt`` is the latest that the gate knows, 0 at a shard of a release whose slots never move.
    """

    rejected: Rejected | None = None
    slots: SlotRanges = ()
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Parent:
    """A tenant, namespace or source of shadows as read at its home shard."""

    parent_id: str
    is_deleting: bool


class ParentDirectory(Protocol):
    """Parents and their gates in all shards, each reached through the shard's leader.

    ``close_gate`` and ``reopen_gate`` send the command of the same name without a command id;
    both may be repeated.

    Raises:
        MetadataError: A shard could not be reached, or its answer did not arrive.
    """

    def shard_ids(self) -> Sequence[int]:
        """Return all shards of the map, this one included.

        Raises:
            Unavailable: There is no shard map yet.
        """
        ...

    async def read_parent(self, kind: ParentKind, name: str) -> Parent | None:
        """Return the parent, read at its home shard's leader (linearizable); None if absent."""
        ...

    async def close_gate(
        self, shard_id: int, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> GateAnswer:
        """Close the gate in one shard; NOT_EMPTY if that shard has children of the parent."""
        ...

    async def reopen_gate(
        self, shard_id: int, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> GateAnswer:
        """Abandon the attempt in one shard."""
        ...


class FormerShards(Protocol):
    """Shards that slots of this one came from."""

    async def outcomes(self, shard_id: int, request: GetOutcomesRequest) -> GetOutcomesResponse:
        """Ask a shard for first outcomes of commands. Raises ``MetadataError``."""
        ...


class ShadowDirectory(ParentDirectory, FormerShards, Protocol):
    """Sources and their shadows in all shards, besides what ``ParentDirectory`` has.

    The orders are sent without a command id, and may be repeated.
    """

    async def admit_shadow(self, source: str, shard_id: int, partitions: int) -> Parent | Rejected:
        """Have the home shard of a source record that ``shard_id`` is about to have shadows of it,
        one with ``partitions``; return the source, or why it can have no such shadow."""
        ...

    async def unlist_shadow(self, source: str, shadow: str, shadow_id: str) -> Rejected | None:
        """Have the home shard of a source take a shadow out of those that it feeds."""
        ...

    async def point_name(
        self, name: str, topic_id: str, *, effective: bool = False
    ) -> Rejected | None:
        """Have the shard of a name keep it for a topic; return why it is another's, if it is.

        ``effective``: once nobody takes the name for absent any more.
        """
        ...

    async def name_use(self, name: str, topic_id: str) -> GetNameUseResponse:
        """Return what the home of a topic uses a name for."""
        ...

    async def topic_id(self, name: str) -> str:
        """Return the id of a topic, read at its home shard's leader; "" if it is absent."""
        ...

    async def grow_shadows(
        self, shard_id: int, source: str, source_id: str, attempt: int, partitions: int
    ) -> GateAnswer:
        """Give all shadows of a source in one shard ``partitions``."""
        ...

    async def shadows_of(self, shard_id: int, source: str, limit: int) -> Sequence[str]:
        """Return names of shadows of a source in one shard (linearizable), at most ``limit``."""
        ...
