"""Ports to other shards, over the router: broker managers, inventories, parents.

A shard that this process leads is called directly, see ``ShardRouter``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.router import ShardRouter
from nextgen.client.routing.shard_calls import send_grouped
from nextgen.client.transport.shared_channels import SharedChannels
from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import PAGE_BYTES_MAX, PROPERTIES_BYTES_MAX
from nextgen.kernel.limits.placement import (
    NAMESPACE_POLICIES_BYTES_MAX,
    PERMITTED_TOPIC_POLICIES_BYTES_MAX,
    POLICIES_BYTES_MAX,
)
from nextgen.kernel.limits.shadow import SOURCE_POLICIES_BYTES_MAX
from nextgen.kernel.limits.stream import STREAM_CHANNEL_KEEPALIVE_MS
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id, slot_of_id
from nextgen.kernel.routing.names import parse_topic
from nextgen.runtime.security.node_identity import NodeRole
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    LIFE_STATE_DELETING,
    Item,
    Kind,
)
from protos.nextgen.v1.shard_service_pb2 import (
    CONSISTENCY_EFFECTIVE,
    AdmitShadow,
    AssignRequest,
    AssignResponse,
    CloseParentGate,
    Command,
    CommandResult,
    ExecuteRequest,
    FollowRequest,
    FollowResponse,
    GetNameUseRequest,
    GetNameUseResponse,
    GetOutcomesRequest,
    GetOutcomesResponse,
    GetRequest,
    GrowShadows,
    ListRequest,
    MarkDrainedRequest,
    MarkDrainedResponse,
    ObjectName,
    PointName,
    RecordLoadsRequest,
    RecordLoadsResponse,
    ReleaseRequest,
    ReleaseResponse,
    ReopenParentGate,
    ShardRequest,
    ShardResponse,
    UnassignRequest,
    UnassignResponse,
    UnlistShadow,
)
from shards.adapters.shared_home_streams import SharedHomeStreams
from shards.domain.parent_gate import ParentKind
from shards.metrics import NodeMetrics
from shards.ports import GateAnswer, Parent, ShardWatching

OBJECT_BYTES_MAX: Mapping[Kind, int] = MappingProxyType(
    {
        kind: PROPERTIES_BYTES_MAX + policies_bytes_max + 2_048
        for kind, policies_bytes_max in (
            (KIND_TENANT, POLICIES_BYTES_MAX),
            (KIND_NAMESPACE, NAMESPACE_POLICIES_BYTES_MAX),
            (KIND_TOPIC, max(SOURCE_POLICIES_BYTES_MAX, PERMITTED_TOPIC_POLICIES_BYTES_MAX)),
        )
    }
)
"""The largest object of each kind: properties, policies, and names, ids and numbers. A request asks
for as many of the largest size as fit into an answer."""

_PARENT_TIMEOUT_MS = 3_000
"""Milliseconds for one step of a create or delete in another shard, with an election there."""


class RoutedBrokerManagers:
    """``BrokerManagers`` of all shards."""

    def __init__(self, router: ShardRouter, metrics: NodeMetrics) -> None:
        self._router = router
        self._metrics = metrics

    async def assign(self, request: AssignRequest, *, timeout_ms: int) -> AssignResponse:
        self._metrics.assign_requests.inc()
        response = await self._router.call_key(
            request.broker_id, ShardRequest(assign=request), timeout_ms=timeout_ms
        )
        _check_body(response, "assign")
        return response.assign

    async def release(self, request: ReleaseRequest, *, timeout_ms: int) -> ReleaseResponse:
        response = await self._router.call_key(
            request.broker_id, ShardRequest(release=request), timeout_ms=timeout_ms
        )
        _check_body(response, "release")
        return response.release

    async def follow(
        self, shard_id: int, request: FollowRequest, *, timeout_ms: int
    ) -> FollowResponse:
        response = await self._router.call(
            shard_id, ShardRequest(follow=request), timeout_ms=timeout_ms
        )
        _check_body(response, "follow")
        # The manager of a shard with a later leader is asked itself.
        led = [
            each
            for each in response.follow.idle
            if each.term >= self._router.leader_term(each.shard_id)
        ]
        return FollowResponse(follows=response.follow.follows, idle=led)


class RoutedTopicControllers:
    """``TopicControllers`` of all shards."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    async def unassign(
        self, shard_id: int, request: UnassignRequest, *, timeout_ms: int
    ) -> UnassignResponse:
        response = await self._router.call(
            shard_id, ShardRequest(unassign=request), timeout_ms=timeout_ms
        )
        _check_body(response, "unassign")
        return response.unassign

    async def record_loads(
        self, shard_id: int, request: RecordLoadsRequest, *, timeout_ms: int
    ) -> RecordLoadsResponse:
        response = await self._router.call(
            shard_id, ShardRequest(record_loads=request), timeout_ms=timeout_ms
        )
        _check_body(response, "record_loads")
        return response.record_loads

    async def mark_drained(
        self, shard_id: int, request: MarkDrainedRequest, *, timeout_ms: int
    ) -> MarkDrainedResponse:
        response = await self._router.call(
            shard_id, ShardRequest(mark_drained=request), timeout_ms=timeout_ms
        )
        _check_body(response, "mark_drained")
        return response.mark_drained


class RoutedMetadata:
    """``MetadataReader`` over the inventories of all shards."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    async def read(
        self, names: Sequence[ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        wanted = {(name.kind, name.name): name for name in names}

        async def read(shard_id: int, group: list[tuple[Kind, str]]) -> list[Item]:
            parts = _answerable([wanted[each] for each in group])
            pages = await asyncio.gather(
                *(self._read_at(shard_id, part, timeout_ms, subscriber_id) for part in parts)
            )
            return [item for page in pages for item in page]

        routing_keys = {each: _routing_key(*each) for each in wanted}
        found = await send_grouped(self._router, routing_keys, read)
        return [found[name.kind, name.name] for name in names]

    async def _read_at(
        self, shard_id: int, names: Sequence[ObjectName], timeout_ms: int, subscriber_id: str
    ) -> Sequence[Item]:
        response = await self._router.call(
            shard_id,
            ShardRequest(get=GetRequest(names=names, subscriber_id=subscriber_id)),
            timeout_ms=timeout_ms,
        )
        _check_body(response, "get")
        if len(response.get.items) != len(names):
            raise InvalidRequest(f"{len(names)} names asked for, {len(response.get.items)} came")
        return response.get.items


class LinkedHomes:
    """``HomeShards`` by the shard map that the link keeps."""

    def __init__(self, link: ClusterLink, controllers_id: str) -> None:
        """``controllers_id``: the subscriber whose streams are shared by topic controllers."""
        self._link = link
        self._controllers_id = controllers_id
        self._channels = SharedChannels(
            NodeRole.SHARD_NODE, keepalive_ms=STREAM_CHANNEL_KEEPALIVE_MS
        )
        self._shared = SharedHomeStreams(lambda shard_id: self._open(shard_id, controllers_id))

    def home_of(self, kind: Kind, name: str, object_id: str = "") -> int:
        # By the map alone. A refusal may name a new owner that has not adopted the slot yet.
        table = self._link.view.map_table
        if table is None:
            raise Unavailable("no shard map is known here yet")
        if kind == KIND_TOPIC and is_id(object_id):
            return table.owners[slot_of_id(object_id)]
        return table.shard_for_key(_routing_key(kind, name))

    def manager_shard(self, broker_id: str) -> int:
        shard_id = self._link.view.shard_for_key(broker_id)
        if shard_id is None:
            raise Unavailable("no shard map is known here yet")
        return shard_id

    def note_leader(self, shard_id: int, term: int, node_id: str) -> None:
        self._link.learn_leader(shard_id, term, node_id)

    def watch(self, shard_id: int, subscriber_id: str) -> ShardWatching:
        if subscriber_id == self._controllers_id:
            return self._shared.share(shard_id)
        return self._open(shard_id, subscriber_id)

    def _open(self, shard_id: int, subscriber_id: str) -> ShardWatch:
        return ShardWatch(shard_id, subscriber_id, self._link, channels=self._channels)


class RoutedParents:
    """``ShadowDirectory`` over all shards of the map."""

    def __init__(self, router: ShardRouter, view: ClusterView) -> None:
        self._router = router
        self._view = view

    def shard_ids(self) -> Sequence[int]:
        if self._view.slot_table is None:
            raise Unavailable("no shard map is known here yet")
        return self._view.shard_ids

    async def read_parent(self, kind: ParentKind, name: str) -> Parent | None:
        wire_kind = KIND_TENANT if kind is ParentKind.TENANT else KIND_NAMESPACE
        request = ShardRequest(get=GetRequest(names=[ObjectName(kind=wire_kind, name=name)]))
        response = await self._router.call_key(name, request, timeout_ms=_PARENT_TIMEOUT_MS)
        _check_body(response, "get")
        item = response.get.items[0]
        match item.WhichOneof("value"):
            case "tenant":
                tenant = item.tenant
                return Parent(tenant.tenant_id, tenant.state == LIFE_STATE_DELETING)
            case "namespace":
                namespace = item.namespace
                return Parent(namespace.namespace_id, namespace.state == LIFE_STATE_DELETING)
        return None

    async def close_gate(
        self, shard_id: int, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> GateAnswer:
        command = Command(
            close_parent_gate=CloseParentGate(
                parent_kind=kind.value, parent_name=name, parent_id=parent_id, attempt=attempt
            )
        )
        return await self._execute(shard_id, command)

    async def reopen_gate(
        self, shard_id: int, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> GateAnswer:
        command = Command(
            reopen_parent_gate=ReopenParentGate(
                parent_kind=kind.value, parent_name=name, parent_id=parent_id, attempt=attempt
            )
        )
        return await self._execute(shard_id, command)

    async def admit_shadow(self, source: str, shard_id: int, partitions: int) -> Parent | Rejected:
        order = AdmitShadow(source=source, shard_id=shard_id, partitions=partitions)
        result = await self._execute_at_home(source, Command(admit_shadow=order))
        return _rejected(result) or Parent(result.id, False)

    async def unlist_shadow(self, source: str, shadow: str, shadow_id: str) -> Rejected | None:
        order = UnlistShadow(source=source, shadow=shadow, shadow_id=shadow_id)
        return _rejected(await self._execute_at_home(source, Command(unlist_shadow=order)))

    async def point_name(
        self, name: str, topic_id: str, *, effective: bool = False
    ) -> Rejected | None:
        request = _execution(Command(point_name=PointName(name=name, topic_id=topic_id)))
        if effective:
            request.execute.consistency = CONSISTENCY_EFFECTIVE
        slot = slot_of(parse_topic(name).routing_key)
        response = await self._router.call_slot(slot, request, timeout_ms=_PARENT_TIMEOUT_MS)
        return _rejected(_result(response))

    async def name_use(self, name: str, topic_id: str) -> GetNameUseResponse:
        request = ShardRequest(get_name_use=GetNameUseRequest(name=name, topic_id=topic_id))
        response = await self._router.call_slot(
            slot_of_id(topic_id), request, timeout_ms=_PARENT_TIMEOUT_MS
        )
        _check_body(response, "get_name_use")
        return response.get_name_use

    async def topic_id(self, name: str) -> str:
        wanted = GetRequest(names=[ObjectName(kind=KIND_TOPIC, name=name)])
        key = parse_topic(name).routing_key
        response = await self._router.call_key(
            key, ShardRequest(get=wanted), timeout_ms=_PARENT_TIMEOUT_MS
        )
        _check_body(response, "get")
        return response.get.items[0].topic.topic_id

    async def grow_shadows(
        self, shard_id: int, source: str, source_id: str, attempt: int, partitions: int
    ) -> GateAnswer:
        order = GrowShadows(
            source=source, source_id=source_id, attempt=attempt, partitions=partitions
        )
        return await self._execute(shard_id, Command(grow_shadows=order))

    async def shadows_of(self, shard_id: int, source: str, limit: int) -> Sequence[str]:
        wanted = ListRequest(kind=KIND_TOPIC, shadows_of=source, limit=limit)
        response = await self._router.call(
            shard_id, ShardRequest(list=wanted), timeout_ms=_PARENT_TIMEOUT_MS
        )
        _check_body(response, "list")
        return response.list.names

    async def outcomes(self, shard_id: int, request: GetOutcomesRequest) -> GetOutcomesResponse:
        response = await self._router.call(
            shard_id, ShardRequest(get_outcomes=request), timeout_ms=_PARENT_TIMEOUT_MS
        )
        _check_body(response, "get_outcomes")
        return response.get_outcomes

    async def _execute(self, shard_id: int, command: Command) -> GateAnswer:
        # Without a command id, but harmless to repeat: a gate closes once per attempt.
        response = await self._router.call(
            shard_id, _execution(command), timeout_ms=_PARENT_TIMEOUT_MS
        )
        return gate_answer(_result(response))

    async def _execute_at_home(self, topic: str, command: Command) -> CommandResult:
        key = parse_topic(topic).routing_key
        response = await self._router.call_key(
            key, _execution(command), timeout_ms=_PARENT_TIMEOUT_MS
        )
        return _result(response)


def _execution(command: Command) -> ShardRequest:
    return ShardRequest(execute=ExecuteRequest(commands=[command]))


def _result(response: ShardResponse) -> CommandResult:
    _check_body(response, "execute")
    return response.execute.results[0]


def gate_answer(result: CommandResult) -> GateAnswer:
    """Return what a shard answered to an order to a gate."""
    slots = tuple([(each.first, each.last) for each in result.gate_slots])
    return GateAnswer(_rejected(result), slots, result.gate_attempt)


def _rejected(result: CommandResult) -> Rejected | None:
    if not result.rejection_code:
        return None
    return Rejected(RejectionCode(result.rejection_code), result.message)


def _answerable(names: Sequence[ObjectName]) -> Iterator[Sequence[ObjectName]]:
    """Yield ``names`` in parts whose answers have ``PAGE_BYTES_MAX`` at most."""
    part: list[ObjectName] = []
    size_bytes = 0
    for name in names:
        size_bytes += OBJECT_BYTES_MAX[name.kind]
        if part and size_bytes > PAGE_BYTES_MAX:
            yield part
            part, size_bytes = [], OBJECT_BYTES_MAX[name.kind]
        part.append(name)
    if part:
        yield part


def _routing_key(kind: Kind, name: str) -> str:
    return parse_topic(name).routing_key if kind == KIND_TOPIC else name


def _check_body(response: ShardResponse, wanted: str) -> None:
    found = response.WhichOneof("body")
    if found != wanted:
        raise InvalidRequest(f"the answer has {found}, not {wanted}")
