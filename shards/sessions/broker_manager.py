"""The broker managers of one shard: they deliver assignments and metadata to its brokers.

Everything for a broker goes through one dense sequence per session: metadata, assignments,
releases, and later changes of the session's metadata (``metadata_watch``). The broker answers with
its sync position, a point in the sequence. One instance lives for one term of leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nextgen.kernel.errors import InvalidRequest, MetadataError, SessionExpired, Unavailable
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.limits.cluster import ASSIGNMENTS_PER_REQUEST_MAX
from nextgen.kernel.limits.placement import METADATA_USED_MS
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.runtime.telemetry import lookup_steps, tracing
from protos.nextgen.v1.broker_service_pb2 import Delivery
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, Item
from protos.nextgen.v1.shard_service_pb2 import (
    AssignRequest,
    AssignResponse,
    FollowRequest,
    FollowResponse,
    GrantCapacityRequest,
    GrantCapacityResponse,
    ObjectName,
    ReleaseRequest,
    ReleaseResponse,
    TopicAssignment,
)
from shards.domain import broker_session
from shards.domain.broker_session import GrantCapacity
from shards.domain.topic import Topic
from shards.ports import Clock, MetadataReader, SessionReports
from shards.sessions import assign_trace
from shards.sessions.broker_sessions import BrokerSessions
from shards.sessions.metadata_reads import MetadataReads
from shards.sessions.metadata_state import MetadataState, id_of
from shards.sessions.metadata_watch import MetadataWatch
from shards.sessions.session_hello import session_rejection
from shards.sessions.session_metadata import Sent, SessionMetadata, parent_id
from shards.sessions.session_soft_state import SessionSoftState
from shards.state.shard_state import ShardState
from shards.wire.inventory import item_message, topic_message

_READS_MAX = 3
"""Reads of one request at most: a read is repeated if a broker's report made it too old."""


class BrokerManager:
    """Sessions, deliveries and grants of one shard's brokers, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        metadata: MetadataReader,
        watch: MetadataWatch,
        reports: SessionReports,
        clock: Clock,
    ) -> None:
        self._state = state
        self._clock = clock
        self.metadata = watch
        self.sessions = BrokerSessions(shard_id, state, watch, reports, clock)
        self._reads = MetadataReads(metadata, watch.subscriber_id, clock)
        self._home_led_at = float("-inf")
        """When a home shard's new leader announced itself, the latest of them."""
        self._has_unreported = True
        watch.are_reported = self._are_reported

    def __repr__(self) -> str:
        return f"<BrokerManager {self.sessions!r}>"

    def start(self) -> None:
        """Take over the sessions that live in the log."""
        self.sessions.start()

    def take_over(self, is_here: Callable[[str], bool]) -> None:
        """Take over the sessions of brokers whose slots have come to this shard."""
        self._has_unreported = True
        self.sessions.take_over(is_here)

    def close(self, error: MetadataError) -> None:
        """Stop leading: all waiting callers fail with ``error``, brokers connect elsewhere."""
        self._reads.close(error)
        self.metadata.close()
        self.sessions.close(error)

    async def assign(self, request: AssignRequest) -> AssignResponse:
        """Deliver assignments, after the metadata that the session was not sent yet.

        ``prepared`` assignments are only announced: the broker does not own them. Returns when the
        broker's sync position covers the deliveries. May be repeated.

        Raises:
            SessionExpired: The session is not, or no longer, the broker's live one.
            Overloaded: The broker has too many deliveries that it has not synced.
            Refused: NO_CAPACITY: the broker would have more units than its capacity, or more
                metadata than can be followed. None of these was delivered.
            MetadataError: The metadata could not be read, or is of another namespace.
        """
        _check_batch(len(request.assignments) + len(request.prepared))
        coming = [*request.assignments, *request.prepared]
        session = await self._attached(request.broker_id, request.session_id)
        missing = _missing_parents(coming, session.metadata)
        assign_trace.mark_asked(coming, missing, session.metadata)
        session, items = await self._read_until_room(request, coming, missing)
        self._check_term(request)
        # From here to the last append there is no await: the sequence has no gaps or strangers.
        # Others may have sent the same metadata, or a later version, during the read.
        unsent = [
            item
            for item in self._latest(missing, items)
            if not session.metadata.has_parent(item.name, parent_id(item))
        ]
        session.check_room(len(unsent) + len(coming))
        self.metadata.check_room(
            session.metadata,
            parents=[item.name for item in unsent],
            topics=[each.topic.name for each in request.assignments],
        )
        for item in unsent:
            session.append(_metadata_delivery(item))
            sent, replaced = session.metadata.note_parent(item)
            assign_trace.note_trace(sent)
            self._hold(sent, replaced)
        if missing:
            _check_namespaces(coming, session.metadata)
        assign_trace.mark_arrived(coming, missing, session.metadata)
        sequence = session.sequence
        with tracing.span("deliver", assignments=len(coming)):
            trace_id = tracing.outgoing()
            watched = all(self.metadata.is_followed(each.topic.name) for each in coming)
            for assignment in request.prepared:
                self._bring_up_to_date(assignment)
                sequence = session.append(Delivery(prepare=assignment, trace_id=trace_id))
            for assignment in request.assignments:
                self._bring_up_to_date(assignment)
                sequence = session.append(Delivery(assign=assignment, trace_id=trace_id))
                held = session.metadata.note_assigned(assignment)
                if held is not None:
                    self.metadata.hold(held, assignment.topic)
            assign_trace.mark_received(sequence)
            lookup_steps.step(19, position=sequence)
            await session.wait_synced(sequence)
        return AssignResponse(sequence=sequence, synced=True, watched=watched)

    async def follow(self, request: FollowRequest) -> FollowResponse:
        """Follow the new leader of a home shard; return once every broker has reported its holding.

        From here on no broker gets an assignment or an object that came from an earlier leader of
        that shard: the new leader does not expect a watch for it.
        """
        self._note_leader(request)
        for session in self.sessions.unreported:
            await session.reported.wait()
        return FollowResponse(follows=self.metadata.follows(request.home_shard_id))

    def follow_idly(self, request: FollowRequest) -> bool:
        """Follow as ``follow`` does, if nothing has to be waited for.

        Return whether every broker has reported, and nothing of that shard is watched.
        """
        if self.sessions.unreported:
            return False
        self._note_leader(request)
        return not self.metadata.follows(request.home_shard_id)

    def _note_leader(self, request: FollowRequest) -> None:
        if self.metadata.note_leader(request.home_shard_id, request.term, request.node_id):
            self._home_led_at = self._clock.monotonic()

    async def release(self, request: ReleaseRequest) -> ReleaseResponse:
        """Release units at a broker; return once its sync position covers that.

        For an ``announced`` unit the broker only learns the next owner.

        Raises:
            SessionExpired: The session is over, and its assignments with it.
            Overloaded: The broker has too many deliveries that it has not synced.
        """
        count = len(request.releases) + len(request.announced)
        _check_batch(count)
        session = await self._attached(request.broker_id, request.session_id)
        session.check_room(count)
        sequence = session.sequence
        for release in request.announced:
            sequence = session.append(Delivery(moving=release))
        for release in request.releases:
            sequence = session.append(Delivery(release=release))
            topic = session.metadata.note_released(release)
            if topic is not None:
                self.metadata.leave(topic, sequence)
        await session.wait_synced(sequence)
        return ReleaseResponse(sequence=sequence, synced=True)

    async def grant(self, request: GrantCapacityRequest) -> GrantCapacityResponse:
        """Let the cluster manager lease out units of a session, in all at most its capacity.

        Raises:
            SessionExpired: The session is over.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        try:
            session = self.sessions.live(request.broker_id, request.session_id)
        except SessionExpired:
            # The cluster manager never revises this answer, so a deposed leader must not give it.
            await self._state.proposer.confirm()
            raise
        units = min(request.units, session.record.capacity_units)
        command = GrantCapacity(request.broker_id, request.session_id, units)
        state = self._state.reads.load_session(request.broker_id)
        decision = broker_session.decide(state, command)
        if isinstance(decision, Rejected):
            # It may rest on an end that is on its way, which this leader may not live to see.
            await self._state.proposer.confirm()
            raise session_rejection(decision)
        if decision.events:
            await self._state.proposer.propose(decision.events)
        else:
            await self._state.proposer.confirm()
        assert state is not None, "a grant was accepted for a broker that was never seen"
        return GrantCapacityResponse(units=max(units, state.granted_units))

    async def _read_until_room(
        self,
        request: AssignRequest,
        coming: Sequence[TopicAssignment],
        missing: Sequence[ObjectName],
    ) -> tuple[SessionSoftState, Sequence[Item]]:
        """Return the session once it has room, and the objects of ``missing`` that were read.

        No await follows the last check of either. A home shard expects the watch of a read object
        for a limited time, and its next leader does not expect it at all. So the object is read
        again after a wait or a change of leaders.
        """
        for _ in range(_READS_MAX):
            unread = [name for name in missing if not self._is_followed(name)]
            read = await self._reads.read(unread)
            session = self.sessions.live(request.broker_id, request.session_id)
            await session.wait_room(coming)
            used_from = self._clock.monotonic() - METADATA_USED_MS / 1000
            if read.asked_at >= max(used_from, self._home_led_at):
                return session, read.items
        raise Unavailable("what was read of tenants and namespaces is too old to be delivered")

    def _check_term(self, request: AssignRequest) -> None:
        """Return unless another leader followed the one that sent ``request``.

        Raises:
            Unavailable: The next leader of that shard has been here already.
        """
        if not request.assignments or not request.term:
            return
        shard_id = request.assignments[0].shard_id
        if request.term < (known := self.metadata.term_of(shard_id)):
            raise Unavailable(
                f"shard {shard_id} assigned in term {request.term}, it is led in term {known}"
            )

    def _are_reported(self) -> bool:
        """Return whether every broker has reported its holding; once True, always True.

        Only the sessions that this leader took over need a report.
        """
        if self._has_unreported:
            self._has_unreported = bool(self.sessions.unreported)
        return not self._has_unreported

    def _is_followed(self, name: ObjectName) -> bool:
        return self.metadata.known(name.name) is not None

    def _latest(self, wanted: Sequence[ObjectName], read: Iterable[Item]) -> list[Item]:
        """Return the object ``wanted``: the watch's version if it is later than ``read``."""
        items = {item.name: item for item in read}
        for name in wanted:
            followed = self.metadata.known(name.name)
            if followed is None:
                continue
            item = items.get(name.name)
            if item is None or _is_earlier(item, followed):
                items[name.name] = item_message(name.kind, name.name, followed)
        # An object that was deleted since is left out.
        return [items[name.name] for name in wanted if name.name in items]

    def _bring_up_to_date(self, assignment: TopicAssignment) -> None:
        """Update the topic in a delayed assignment to the version that the watch has meanwhile."""
        followed = self.metadata.known(assignment.topic.name)
        if (
            isinstance(followed, Topic)
            and followed.topic_id == assignment.topic.topic_id
            and followed.version > assignment.topic.version
        ):
            assignment.topic.CopyFrom(topic_message(followed))

    def _hold(self, sent: Sent, replaced: Sent | None) -> None:
        """Watch a tenant or namespace that was just added to a session's sequence."""
        if replaced is not None:
            self.metadata.drop(replaced)
        self.metadata.hold(sent)

    async def _attached(self, broker_id: str, session_id: str) -> SessionSoftState:
        """Return the live session when its broker has connected to this leader.

        Raises:
            SessionExpired: The session has ended. Callers never ask for it again, so this is raised
                only after leadership was confirmed.
        """
        try:
            return await self.sessions.attached(broker_id, session_id)
        except SessionExpired:
            await self._state.proposer.confirm()
            raise


def _check_batch(count: int) -> None:
    if not 0 < count <= ASSIGNMENTS_PER_REQUEST_MAX:
        raise InvalidRequest(
            f"{count} units in one request, 1 to {ASSIGNMENTS_PER_REQUEST_MAX} are allowed"
        )


def _missing_parents(
    assignments: Iterable[TopicAssignment], metadata: SessionMetadata
) -> list[ObjectName]:
    """Return the tenants and namespaces that the session does not have, each once, tenants first.

    A namespace that was deleted and created again is another, and so may be its tenant.
    """
    tenants: dict[str, None] = {}
    namespaces: dict[str, None] = {}
    for assignment in assignments:
        try:
            name = parse_topic(assignment.name)
        except InvalidName as error:
            raise InvalidRequest(str(error)) from error
        if not metadata.has_parent(name.namespace_text, assignment.topic.namespace_id):
            namespaces[name.namespace_text] = None
            tenants[name.tenant] = None
        elif not metadata.has_parent(name.tenant):
            tenants[name.tenant] = None
    return [
        *(ObjectName(kind=KIND_TENANT, name=tenant) for tenant in tenants),
        *(ObjectName(kind=KIND_NAMESPACE, name=namespace) for namespace in namespaces),
    ]


def _check_namespaces(assignments: Iterable[TopicAssignment], metadata: SessionMetadata) -> None:
    """Return if every topic's own namespace is in the sequence.

    Raises:
        Unavailable: It was deleted, or created again, during the read: repeat the request.
    """
    for assignment in assignments:
        name = parse_topic(assignment.name)
        if not metadata.has_parent(name.namespace_text, assignment.topic.namespace_id):
            raise Unavailable(
                f"topic {assignment.name} belongs to another namespace "
                f"{name.namespace_text} than the one there is"
            )


def _is_earlier(item: Item, known: MetadataState) -> bool:
    """Return whether ``item`` is the same object as ``known`` in an earlier version."""
    version = item.tenant.version if item.kind == KIND_TENANT else item.namespace.version
    return parent_id(item) == id_of(known) and version < known.version


def _metadata_delivery(item: Item) -> Delivery:
    if item.HasField("tenant"):
        return Delivery(tenant=item.tenant)
    return Delivery(namespace=item.namespace)
