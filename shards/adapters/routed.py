"""Other shards, reached through the router: broker managers, inventories, parents.

A shard that this process leads is called directly, see ``ShardRouter``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nextgen.client.cluster_view import ClusterView
from nextgen.client.routing import ShardRouter
from nextgen.kernel.decider import Rejected, RejectionCode
from nextgen.kernel.errors import InvalidRequest, Unavailable
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    LIFE_STATE_DELETING,
    Item,
)
from protos.nextgen.v1.shard_service_pb2 import (
    AssignRequest,
    AssignResponse,
    CloseParentGate,
    Command,
    ExecuteRequest,
    GetRequest,
    ObjectName,
    ReleaseRequest,
    ReleaseResponse,
    ReopenParentGate,
    ShardRequest,
    ShardResponse,
)
from shards.domain.parent_gate import ParentKind
from shards.ports import Parent

_PARENT_TIMEOUT_MS = 3_000
"""One step of a create or delete that concerns another shard, an election there included."""


class RoutedBrokerManagers:
    """``BrokerManagers`` of all shards."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    async def assign(self, request: AssignRequest, *, timeout_ms: int) -> AssignResponse:
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


class RoutedMetadata:
    """``MetadataReader`` over the inventories of all shards."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    async def read(self, names: Sequence[ObjectName], *, timeout_ms: int) -> Sequence[Item]:
        by_shard: dict[int, list[ObjectName]] = {}
        for name in names:
            by_shard.setdefault(self._router.shard_of_key(name.name), []).append(name)
        pages = await asyncio.gather(
            *(self._read_at(group, timeout_ms) for group in by_shard.values())
        )
        found = {(item.kind, item.name): item for page in pages for item in page}
        return [found[name.kind, name.name] for name in names]

    async def _read_at(self, names: Sequence[ObjectName], timeout_ms: int) -> Sequence[Item]:
        response = await self._router.call_key(
            names[0].name, ShardRequest(get=GetRequest(names=names)), timeout_ms=timeout_ms
        )
        _check_body(response, "get")
        if len(response.get.items) != len(names):
            raise InvalidRequest(f"{len(names)} names asked for, {len(response.get.items)} came")
        return response.get.items


class RoutedParents:
    """``ParentDirectory`` over all shards of the map."""

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
    ) -> Rejected | None:
        command = Command(
            close_parent_gate=CloseParentGate(
                parent_kind=kind.value, parent_name=name, parent_id=parent_id, attempt=attempt
            )
        )
        return await self._execute(shard_id, command)

    async def reopen_gate(
        self, shard_id: int, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> Rejected | None:
        command = Command(
            reopen_parent_gate=ReopenParentGate(
                parent_kind=kind.value, parent_name=name, parent_id=parent_id, attempt=attempt
            )
        )
        return await self._execute(shard_id, command)

    async def _execute(self, shard_id: int, command: Command) -> Rejected | None:
        request = ShardRequest(execute=ExecuteRequest(commands=[command]))
        # Without a command id, and still harmless to repeat: a gate closes once per attempt.
        response = await self._router.call(shard_id, request, timeout_ms=_PARENT_TIMEOUT_MS)
        _check_body(response, "execute")
        result = response.execute.results[0]
        if not result.rejection_code:
            return None
        return Rejected(RejectionCode(result.rejection_code), result.message)


def _check_body(response: ShardResponse, wanted: str) -> None:
    found = response.WhichOneof("body")
    if found != wanted:
        raise InvalidRequest(f"the answer has {found}, not {wanted}")
