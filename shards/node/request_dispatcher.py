"""Takes the requests of ``Exchange`` to the shard they are for, and errors back.

Knows no rules: it finds the replica, keeps the deadline and names what went wrong.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import structlog

from nextgen.client.cluster.view import ClusterView
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import (
    DeadlineExceeded,
    InvalidRequest,
    MetadataError,
    NotLeader,
    StaleShardMap,
)
from nextgen.kernel.limits.cluster import (
    ELECTION_WAIT_MS,
    REQUEST_TIMEOUT_MS_DEFAULT,
    REQUEST_TIMEOUT_MS_MAX,
    TRACE_ID_CHARACTERS_MAX,
)
from nextgen.kernel.limits.placement import SLOT_ADOPTION_WAIT_MS
from nextgen.runtime.telemetry import lookup_steps, tracing
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import (
    CONSISTENCY_EFFECTIVE,
    Consistency,
    DetachConsumersResponse,
    ExecuteRequest,
    IdleManager,
    MarkDrainedResponse,
    MoveResponse,
    RecordLoadsResponse,
    ShardLookupResponse,
    ShardRequest,
    ShardResponse,
    UnassignResponse,
)
from shards.node.asked_names import carried_out
from shards.node.replica import Replica
from shards.projections.slot_refusal import SlotsComing
from shards.scalable.settled_commands import settle_all
from shards.state.shard_slots import ShardSlots

_ANSWERED_STEPS: Mapping[str | None, int] = {"lookup": 22, "assign": 21}

_CarryOut = Callable[[Replica, ShardRequest, int], Awaitable[ShardResponse]]

_logger = structlog.get_logger(__name__)


class RequestDispatcher:
    """Answers requests to the shards of this node. ``replicas`` is the node's own, by shard id."""

    def __init__(self, replicas: Mapping[int, Replica], view: ClusterView) -> None:
        self._replicas = replicas
        self._view = view

    async def answer(
        self,
        request: ShardRequest,
        *,
        waited_ms: float = 0.0,
    ) -> ShardResponse:
        """Return the answer to ``request``; an error is in it, never raised.

        ``waited_ms`` passed since it arrived. A request past its deadline is not begun: its caller
        has given up.
        """
        timeout_ms = request.timeout_ms or REQUEST_TIMEOUT_MS_DEFAULT
        timeout_ms = min(timeout_ms, REQUEST_TIMEOUT_MS_MAX)
        left_ms = round(timeout_ms - waited_ms)
        try:
            if left_ms <= 0:
                raise TimeoutError
            async with timeout(left_ms / 1000):
                response = await self.carry_out(request, left_ms)
        except TimeoutError:
            late = DeadlineExceeded(f"shard {request.shard_id} had {timeout_ms} ms to answer")
            response = self._failed(late)
        except MetadataError as error:
            response = self._failed(error)
        except Exception as error:
            # A bug in one handler must not end the stream that other requests share.
            _logger.exception("request failed", shard=request.shard_id, trace=request.trace_id)
            response = self._failed(DeadlineExceeded(f"shard {request.shard_id} broke: {error!r}"))
        response.request_id = request.request_id
        response.shard_map_version = self._view.shard_map_version
        return response

    def read_ahead(self, requests: Iterable[ShardRequest]) -> None:
        """Read at once what requests will look up that begin in this turn of the loop."""
        by_shard: dict[int, list[ExecuteRequest]] = {}
        for request in requests:
            if request.HasField("execute"):
                by_shard.setdefault(request.shard_id, []).append(request.execute)
        for shard_id, executes in by_shard.items():
            replica = self._replicas.get(shard_id)
            if len(executes) == 1 or replica is None or replica.leader is None:
                continue
            try:
                replica.leader.inventory.read_ahead(executes)
            except MetadataError:
                pass  # Each request finds it out, and answers it, by itself.
            except Exception:
                _logger.exception("reading ahead failed", shard=shard_id)

    def local(self, shard_id: int) -> Callable[[ShardRequest], Awaitable[ShardResponse]] | None:
        """Return the short cut to a shard that this node leads: see ``ShardRouter``."""
        replica = self._replicas.get(shard_id)
        if replica is None or replica.leader is None:
            return None
        return self._answer_locally

    def replica(self, shard_id: int) -> Replica:
        """Return this node's replica of a shard.

        Raises:
            StaleShardMap: The map has no such shard.
            NotLeader: It has, elsewhere.
        """
        replica = self._replicas.get(shard_id)
        if replica is not None:
            return replica
        if shard_id in self._view.placements:
            raise NotLeader(shard_id, self._view.leader_endpoint(shard_id))
        raise StaleShardMap(
            f"there is no shard {shard_id} in map {self._view.shard_map_version}",
            self._view.shard_map_version,
        )

    async def carry_out(self, request: ShardRequest, timeout_ms: int) -> ShardResponse:
        """Return the answer to ``request``.

        Raises:
            MetadataError: Why there is none.
        """
        if tracing.active is None:
            return await self._carry_out(request, timeout_ms)
        name = f"shard.{request.WhichOneof('body')}"
        with tracing.span(name, request.trace_id, shard=request.shard_id):
            _mark_begun(request)
            response = await self._carry_out(request, timeout_ms)
            _mark_answered(request)
            return response

    async def _carry_out(self, request: ShardRequest, timeout_ms: int) -> ShardResponse:
        replica = self.replica(request.shard_id)
        body = request.WhichOneof("body")
        carry_out = _BODIES.get(body)
        if carry_out is None:
            raise InvalidRequest(f"a shard does not know requests of this kind ({body})")
        if len(request.trace_id) > TRACE_ID_CHARACTERS_MAX:
            raise InvalidRequest(f"a trace id has at most {TRACE_ID_CHARACTERS_MAX} characters")
        if replica.is_between_leaders and _needs_leader(request):
            await replica.wait_elected(min(timeout_ms, ELECTION_WAIT_MS))
        try:
            response = await _carry_out_named(carry_out, replica, request, timeout_ms)
        except SlotsComing:
            # Nothing was carried out. The shard that had the slot decides nothing about it already,
            # if this one is about to adopt it.
            wait_ms = min(timeout_ms, SLOT_ADOPTION_WAIT_MS)
            if replica.leader is None or not await _slots_came(replica.leader.state.slots, wait_ms):
                raise
            response = await _carry_out_named(carry_out, replica, request, timeout_ms)
        if body == "follow":
            response.follow.idle.extend(self._idle_managers(request))
        return response

    def _idle_managers(self, request: ShardRequest) -> Iterator[IdleManager]:
        """Have the managers of the other shards led here follow too; yield those that are idle.

        A new leader asks the managers of all shards: this spares it a request to most of them.
        """
        for shard_id, replica in self._replicas.items():
            leader = replica.leader
            if shard_id == request.shard_id or leader is None or leader.state.term.is_over:
                continue
            if leader.brokers.follow_idly(request.follow):
                yield IdleManager(shard_id=shard_id, term=leader.term)

    async def _answer_locally(self, request: ShardRequest) -> ShardResponse:
        return await self.carry_out(request, request.timeout_ms)

    def _failed(self, error: MetadataError) -> ShardResponse:
        version = self._view.shard_map_version
        return ShardResponse(error=to_detail(error, shard_map_version=version))


async def _carry_out_named(
    carry_out: _CarryOut, replica: Replica, request: ShardRequest, timeout_ms: int
) -> ShardResponse:
    """Carry out a request under the present names of its topics; answer under those asked for."""
    leader = replica.leader
    if leader is None:
        return await carry_out(replica, request, timeout_ms)
    return await carried_out(
        request,
        leader.state.names,
        leader.inventory.pointers,
        lambda admitted: carry_out(replica, admitted, timeout_ms),
    )


async def _slots_came(slots: ShardSlots, wait_ms: float) -> bool:
    """Return True at the next change of a shard's slots, False if there is none in time."""
    owned = slots.owned()
    try:
        async with timeout(wait_ms / 1000):
            while slots.owned() is owned:
                await slots.changed.wait()
    except TimeoutError:
        return False
    return True


def _mark_begun(request: ShardRequest) -> None:
    """Mark in the trace of a lookup that a controller or a broker manager received its request."""
    body = request.WhichOneof("body")
    if body == "lookup":
        lookup_steps.step(10)
    elif body == "assign" and request.assign.assignments:
        shard_id = request.assign.assignments[0].shard_id
        lookup_steps.step(11, **lookup_steps.references(shard_id, request.assign.session_id))


def _mark_answered(request: ShardRequest) -> None:
    body = request.WhichOneof("body")
    if body in _ANSWERED_STEPS:
        lookup_steps.step(_ANSWERED_STEPS[body])


def _needs_leader(request: ShardRequest) -> bool:
    body = request.WhichOneof("body")
    if body == "get":
        return not request.get.min_position
    if body == "list":
        return not request.list.min_position
    return True


async def _execute(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    leader.metrics.commands.inc(len(request.execute.commands))
    if request.execute.consistency not in Consistency.values():
        raise InvalidRequest(f"consistency {request.execute.consistency} is not known here")
    await leader.scalable.adopt_unknown(request.execute, leader.inventory.known_commands)
    response = await leader.inventory.execute(request.execute, trace_id=request.trace_id)
    await settle_all(leader.scalable, request.execute, response)
    if request.execute.consistency == CONSISTENCY_EFFECTIVE:
        began = time.monotonic()
        await leader.inventory.renaming.make_known(request.execute, response)
        await leader.effective.wait_all(request.execute, response)
        leader.metrics.effective_latency.observe(time.monotonic() - began)
    return ShardResponse(execute=response, position=leader.state.position)


async def _get_outcomes(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    response = await replica.leading().inventory.first_outcomes(request.get_outcomes)
    return ShardResponse(get_outcomes=response)


async def _use_topics(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.inventory.use_topics(request.use_topics)
    return ShardResponse(use_topics=response, position=leader.state.position)


async def _bulk_create(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.inventory.create_in_bulk(request.bulk_create)
    return ShardResponse(bulk_create=response, position=leader.state.position)


async def _cut(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    del request
    return ShardResponse(cut=await replica.leading().inventory.restoration.cut())


async def _mark_restore(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    marked = await leader.inventory.restoration.mark(request.mark_restore)
    leader.scalable.look_again()
    return ShardResponse(mark_restore=marked)


async def _restore(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.inventory.restoration.restore(request.restore)
    return ShardResponse(restore=response, position=leader.state.position)


async def _get(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    if not request.get.min_position:
        leader = replica.leading()
        if request.get.subscriber_id:
            # Before the read: changes from here on wait for the reader.
            names = [(each.kind, each.name) for each in request.get.names]
            leader.effective.expect_reader(names, request.get.subscriber_id)
    response = await replica.reader.get(request.get)
    return ShardResponse(get=response, position=replica.reader.position)


async def _list(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    if not request.list.min_position:
        replica.leading()
    response = await replica.reader.list(request.list)
    return ShardResponse(list=response, position=replica.reader.position)


async def _lookup(replica: Replica, request: ShardRequest, timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    started = time.monotonic()
    seconds = leader.metrics.lookups_failed
    try:
        answers = await leader.topics.lookup(
            request.lookup.topics,
            timeout_ms=timeout_ms,
            used=request.lookup.used,
            preferred_broker_id=request.lookup.preferred_broker_id,
        )
        seconds = leader.metrics.lookups_answered
    finally:
        seconds.observe(time.monotonic() - started)
    return ShardResponse(
        lookup=ShardLookupResponse(answers=answers), position=leader.state.position
    )


async def _assign(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.brokers.assign(request.assign)
    return ShardResponse(assign=response)


async def _follow(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    return ShardResponse(follow=await replica.leading().brokers.follow(request.follow))


async def _release(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.brokers.release(request.release)
    return ShardResponse(release=response)


async def _grant(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.brokers.grant(request.grant)
    return ShardResponse(grant=response, position=leader.state.position)


async def _move(replica: Replica, request: ShardRequest, timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    answers = await leader.mover.move(request.move.moves, timeout_ms=timeout_ms)
    return ShardResponse(move=MoveResponse(answers=answers), position=leader.state.position)


async def _unassign(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    wanted = request.unassign
    outcomes = await leader.unassigner.unassign(wanted.units, wanted.reason)
    return ShardResponse(
        unassign=UnassignResponse(outcomes=outcomes), position=leader.state.position
    )


async def _mark_drained(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    settled = await leader.drained_marks.mark(request.mark_drained.marks)
    return ShardResponse(
        mark_drained=MarkDrainedResponse(settled=settled), position=leader.state.position
    )


async def _record_loads(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    recorded = await leader.segment_loads.record(request.record_loads.samples)
    return ShardResponse(
        record_loads=RecordLoadsResponse(recorded=recorded), position=leader.state.position
    )


async def _attach_consumers(
    replica: Replica, request: ShardRequest, _timeout_ms: int
) -> ShardResponse:
    leader = replica.leading()
    response = leader.consumers.attach(request.attach_consumers)
    return ShardResponse(attach_consumers=response, position=leader.state.position)


async def _detach_consumers(
    replica: Replica, request: ShardRequest, _timeout_ms: int
) -> ShardResponse:
    leader = replica.leading()
    leader.consumers.detach(request.detach_consumers)
    return ShardResponse(detach_consumers=DetachConsumersResponse(), position=leader.state.position)


async def _drain(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.drains.drain(request.drain)
    return ShardResponse(drain=response, position=leader.state.position)


async def _set_capacity(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.drains.set_capacity(request.set_capacity)
    return ShardResponse(set_capacity=response, position=leader.state.position)


async def _unit_count(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.rebalancer.count(request.unit_count)
    return ShardResponse(unit_count=response, position=leader.state.position)


async def _topic_units(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.inventory.units_of_topic(request.topic_units.name)
    return ShardResponse(topic_units=response, position=leader.state.position)


async def _rebalance(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.rebalancer.answer(request.rebalance)
    return ShardResponse(rebalance=response, position=leader.state.position)


async def _copy_slots(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.slot_source.copy(request.copy_slots)
    return ShardResponse(copy_slots=response, position=leader.state.position)


async def _release_slots(
    replica: Replica, request: ShardRequest, _timeout_ms: int
) -> ShardResponse:
    leader = replica.leading()
    response = await leader.slot_source.release(request.release_slots)
    return ShardResponse(release_slots=response, position=leader.state.position)


async def _get_name_use(replica: Replica, request: ShardRequest, _timeout_ms: int) -> ShardResponse:
    leader = replica.leading()
    response = await leader.inventory.renaming.use(request.get_name_use)
    return ShardResponse(get_name_use=response, position=leader.state.position)


_BODIES: dict[str | None, _CarryOut] = {
    "execute": _execute,
    "get_outcomes": _get_outcomes,
    "get_name_use": _get_name_use,
    "use_topics": _use_topics,
    "bulk_create": _bulk_create,
    "cut": _cut,
    "mark_restore": _mark_restore,
    "restore": _restore,
    "follow": _follow,
    "get": _get,
    "list": _list,
    "lookup": _lookup,
    "assign": _assign,
    "release": _release,
    "grant": _grant,
    "move": _move,
    "unassign": _unassign,
    "drain": _drain,
    "set_capacity": _set_capacity,
    "unit_count": _unit_count,
    "topic_units": _topic_units,
    "rebalance": _rebalance,
    "mark_drained": _mark_drained,
    "record_loads": _record_loads,
    "attach_consumers": _attach_consumers,
    "detach_consumers": _detach_consumers,
    "copy_slots": _copy_slots,
    "release_slots": _release_slots,
}
