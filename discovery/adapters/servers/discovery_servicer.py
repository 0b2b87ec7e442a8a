"""``DiscoveryService`` over gRPC: a table from method to service, deadlines and errors.

Lookups stay bytes on their way in and out: see ``discovery.wire.encoded_answer``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
import structlog
from google.protobuf.message import Message

from discovery.adapters.servers.call_access import (
    Needs,
    needs_of_call,
    needs_of_watch,
    reads_policies,
    without_policies,
)
from discovery.adapters.servers.lookup_stream import LookupStreamCall
from discovery.adapters.servers.permitted_lookups import answer_permitted
from discovery.adapters.servers.public_watch_call import serve_watch
from discovery.domain.watch_scope import WatchedKind
from discovery.service.admin.evacuations import EvacuationService
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.admin.moves import MoveService
from discovery.service.admin.policies import PoliciesService
from discovery.service.admin.positions import PositionService
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.lookup import LookupService
from discovery.service.scalable.layouts import LayoutService
from discovery.service.status import StatusService
from discovery.service.tenancy.parent_renames import ParentRenames
from discovery.service.watches.registry import AnyWatch, WatchRegistry
from nextgen.client.transport.caller import OPERATOR, caller
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import DeadlineExceeded, Forbidden, InvalidRequest, MetadataError
from nextgen.kernel.limits.cluster import (
    REQUEST_ANSWER_MARGIN_MS,
    REQUEST_TIMEOUT_DEFAULT_MS,
    REQUEST_TIMEOUT_MAX_MS,
)
from nextgen.runtime.security.authorization.authorizer import Access, Authorizer
from nextgen.runtime.telemetry import tracing
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb

SERVICE_NAME = "nextgen.v1.DiscoveryService"

_WATCHES = {
    "WatchTenants": WatchedKind.TENANTS,
    "WatchNamespaces": WatchedKind.NAMESPACES,
    "WatchTopics": WatchedKind.TOPICS,
    "WatchAssignments": WatchedKind.ASSIGNMENTS,
}

Work = Callable[[Any, int], Awaitable[Message]]
"""Executes a request within a time-out in milliseconds."""

OpenWatch = Callable[[pb.WatchRequest], AnyWatch]

WatchNeeds = Callable[[pb.WatchRequest], Needs]
"""Returns what a watch needs to be allowed."""

_logger = structlog.get_logger(__name__)


class DiscoveryServicer:
    """Serves the whole of ``DiscoveryService``. Register ``handlers()`` with a server."""

    def __init__(
        self,
        lookups: LookupService,
        inventory: InventoryService,
        parent_renames: ParentRenames,
        layouts: LayoutService,
        listing: ListingService,
        policies: PoliciesService,
        evacuations: EvacuationService,
        moves: MoveService,
        positions: PositionService,
        status: StatusService,
        watches: WatchRegistry,
        counters: DiscoveryCounters,
        shard_map_version: Callable[[], int],
        authorizer: Authorizer | None = None,
    ) -> None:
        """``authorizer``: decides what clients may do; None: everybody may do everything."""
        self._authorizer = authorizer
        self._watches = watches
        self._lookups = lookups
        self._inventory = inventory
        self._parent_renames = parent_renames
        self._layouts = layouts
        self._listing = listing
        self._policies = policies
        self._evacuations = evacuations
        self._moves = moves
        self._positions = positions
        self._status = status
        self._counters = counters
        self._shard_map_version = shard_map_version
        self._streams: set[LookupStreamCall] = set()
        self._is_draining = False

    def drain(self) -> None:
        """End every stream once all requests that were read are answered."""
        self._is_draining = True
        self._watches.drain()
        for stream in self._streams:
            stream.drain()

    def handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return the handlers of all methods."""
        inventory, listing, status = self._inventory, self._listing, self._status
        layouts, renames = self._layouts, self._parent_renames
        subscription = pb.ScalableSubscriptionRequest
        unary: dict[str, tuple[type[Message], Work]] = {
            "CreateTenant": (pb.CreateTenantRequest, inventory.create_tenant),
            "SetTenantProperties": (pb.SetPropertiesRequest, inventory.set_tenant_properties),
            "DeleteTenant": (pb.DeleteRequest, inventory.delete_tenant),
            "GetTenant": (pb.GetObjectRequest, inventory.get_tenant),
            "ListTenants": (pb.ListObjectsRequest, listing.list_tenants),
            "CreateNamespace": (pb.CreateNamespaceRequest, inventory.create_namespace),
            "SetNamespaceProperties": (pb.SetPropertiesRequest, inventory.set_namespace_properties),
            "DeleteNamespace": (pb.DeleteRequest, inventory.delete_namespace),
            "GetNamespace": (pb.GetObjectRequest, inventory.get_namespace),
            "ListNamespaces": (pb.ListObjectsRequest, listing.list_namespaces),
            "CreateTopics": (pb.CreateTopicsRequest, inventory.create_topics),
            "SetTopicProperties": (pb.SetPropertiesRequest, inventory.set_topic_properties),
            "DeleteTopic": (pb.DeleteRequest, inventory.delete_topic),
            "RenameTopic": (pb.RenameTopicRequest, inventory.rename_topic),
            "RenameNamespace": (pb.RenameParentRequest, renames.rename_namespace),
            "RenameTenant": (pb.RenameParentRequest, renames.rename_tenant),
            "UpdateLayout": (pb.UpdateLayoutRequest, layouts.update_layout),
            "CreateScalableSubscription": (subscription, layouts.create_subscription),
            "DeleteScalableSubscription": (subscription, layouts.delete_subscription),
            "SeekScalableSubscription": (subscription, layouts.seek_subscription),
            "UpdatePartitions": (pb.UpdatePartitionsRequest, inventory.update_partitions),
            "GetTopic": (pb.GetObjectRequest, inventory.get_topic),
            "GetScalableTopic": (pb.GetObjectRequest, inventory.get_scalable_topic),
            "ListTopics": (pb.ListObjectsRequest, listing.list_topics),
            "CountTopics": (pb.CountTopicsRequest, listing.count_topics),
            "MoveTopics": (pb.MoveTopicsRequest, self._moves.move_topics),
            "UnloadTopics": (pb.UnloadTopicsRequest, self._moves.unload_topics),
            "SetPolicies": (pb.SetPoliciesRequest, self._policies.set_policies),
            "GetPolicies": (pb.GetPoliciesRequest, self._policies.get_policies),
            "DrainBroker": (shard_pb.DrainRequest, self._evacuations.drain_broker),
            "SetBrokerCapacity": (shard_pb.SetCapacityRequest, self._evacuations.set_capacity),
            "Rebalance": (shard_pb.RebalanceRequest, self._evacuations.rebalance),
            "CountUnits": (shard_pb.UnitCountRequest, self._evacuations.count_units),
            "GetPositions": (pb.GetPositionsRequest, self._positions.positions),
            "GetCluster": (pb.GetClusterRequest, status.cluster),
            "GetCounters": (pb.GetCountersRequest, status.counters),
        }
        handlers: dict[str, Any] = {
            method: grpc.unary_unary_rpc_method_handler(
                self._unary(method, work),
                request_deserializer=request_type.FromString,
                response_serializer=lambda response: response.SerializeToString(),
            )
            for method, (request_type, work) in unary.items()
        }
        # Without serializers these get and give bytes.
        handlers["Lookup"] = grpc.unary_unary_rpc_method_handler(self._lookup)
        handlers["LookupStream"] = grpc.stream_stream_rpc_method_handler(self._lookup_stream)
        openings: dict[str, tuple[OpenWatch, WatchNeeds]] = {
            method: (partial(self._watches.open, kind), partial(needs_of_watch, kind))
            for method, kind in _WATCHES.items()
        }
        openings["WatchShardMap"] = (
            self._watches.open_shard_map,
            partial(needs_of_call, "WatchShardMap"),
        )
        for method, opening in openings.items():
            handlers[method] = grpc.unary_stream_rpc_method_handler(
                self._watch(*opening), request_deserializer=pb.WatchRequest.FromString
            )
        return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)

    async def _lookup(self, data: bytes, context: Any) -> bytes:
        try:
            if tracing.active is None:
                return await self._looked_up(data, _timeout_ms(context))
            with tracing.span("discovery.Lookup", _traceparent(context)):
                return await self._looked_up(data, _timeout_ms(context))
        except MetadataError as error:
            await abort(context, error, shard_map_version=self._shard_map_version())

    async def _looked_up(self, data: bytes, timeout_ms: int) -> bytes:
        access = self._session()
        if access is None:
            return await self._lookups.answer(data, timeout_ms)
        try:
            return await answer_permitted(self._lookups, access, data, timeout_ms)
        finally:
            access.close()

    async def _lookup_stream(self, _requests: Any, context: Any) -> None:
        access = self._session()
        stream = LookupStreamCall(self._lookups, context, access)
        self._streams.add(stream)
        self._counters.streams_open += 1
        try:
            if not self._is_draining:
                await stream.run()
        finally:
            self._counters.streams_open -= 1
            self._streams.discard(stream)
            if access is not None:
                access.close()

    def _watch(
        self, open_watch: OpenWatch, needs_of: WatchNeeds
    ) -> Callable[[pb.WatchRequest, Any], Awaitable[None]]:
        async def handle(request: pb.WatchRequest, context: Any) -> None:
            watch: AnyWatch | None = None
            taken_back: list[Forbidden] = []

            def revoked(reason: str) -> None:
                taken_back.append(Forbidden(f"a permission in use was taken back: {reason}"))
                if watch is not None:
                    watch.fail(taken_back[0])

            access = self._session(revoked)
            try:
                try:
                    if access is not None:
                        await keep_all(access, needs_of(request))
                    if taken_back:
                        raise taken_back[0]
                    watch = open_watch(request)
                except MetadataError as error:
                    if isinstance(error, InvalidRequest):
                        self._counters.requests_invalid += 1
                    await abort(context, error, shard_map_version=self._shard_map_version())
                try:
                    await serve_watch(watch, context)
                finally:
                    await self._watches.close(watch)
            finally:
                if access is not None:
                    access.close()

        return handle

    def _session(self, on_revoked: Callable[[str], None] = lambda _: None) -> Access | None:
        """Return what the caller may do; None: everything."""
        principal = caller()
        if self._authorizer is None or principal is OPERATOR:
            return None
        return self._authorizer.session(principal, on_revoked)

    async def _authorize(self, method: str, request: Any) -> None:
        """Return if the caller may make this call.

        Raises:
            Forbidden: It may not.
            Unavailable: Permissions cannot be read at the moment.
            InvalidRequest: See ``needs_of_call``.
        """
        principal = caller()
        if self._authorizer is not None and principal is not OPERATOR:
            for need in needs_of_call(method, request):
                await self._authorizer.check(principal, *need)

    async def _conceal(self, method: str, request: Any, answer: Message) -> None:
        """Take policies out of an answer whose caller may not read them."""
        principal = caller()
        if self._authorizer is None or principal is OPERATOR:
            return
        need = reads_policies(method, request)
        if need is not None:
            try:
                await self._authorizer.check(principal, *need)
            except MetadataError:
                without_policies(answer)

    def _unary(self, method: str, work: Work) -> Callable[[Any, Any], Awaitable[Message]]:
        name = f"discovery.{method}"

        async def traced(request: Any, context: Any) -> Message:
            if tracing.active is None:
                return await handle(request, context)
            with tracing.span(name, _traceparent(context)):
                return await handle(request, context)

        async def handle(request: Any, context: Any) -> Message:
            try:
                await self._authorize(method, request)
                answer = await work(request, _timeout_ms(context))
                await self._conceal(method, request, answer)
                return answer
            except MetadataError as error:
                if isinstance(error, InvalidRequest):
                    self._counters.requests_invalid += 1
                await abort(context, error, shard_map_version=self._shard_map_version())
            except Exception as error:
                # Indefinite: this is a bug of ours, and the progress of the request is unknown.
                _logger.exception("a request failed", method=method)
                failure = DeadlineExceeded(f"{method} failed: {error!r}")
                await abort(context, failure, shard_map_version=self._shard_map_version())

        return traced


async def keep_all(access: Access, needs: Needs) -> None:
    """Keep what a call goes on using: all of it is allowed when this returns.

    Raises:
        Forbidden: Something of it is not.
        Unavailable: Permissions cannot be read at the moment.
    """
    for need in needs:
        await access.check(*need)
        access.keep(*need)


def _traceparent(context: Any) -> str:
    """Return the traceparent in the caller's metadata, "" without one."""
    for key, value in context.invocation_metadata() or ():
        if key == tracing.METADATA_KEY and isinstance(value, str):
            return value
    return ""


def _timeout_ms(context: Any) -> int:
    """Return the time until the caller's deadline, within our own bounds."""
    remaining = context.time_remaining()
    if remaining is None:
        return REQUEST_TIMEOUT_DEFAULT_MS
    return max(1, min(int(remaining * 1_000) - REQUEST_ANSWER_MARGIN_MS, REQUEST_TIMEOUT_MAX_MS))
