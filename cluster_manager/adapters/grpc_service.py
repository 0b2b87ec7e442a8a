"""``ClusterService`` over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import structlog

from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.replica import ClusterManager
from nextgen.client.log.wire import replica_status
from nextgen.client.transport.role_gate import check_caller, roles_of_kind
from nextgen.client.wire.errors import abort, to_detail
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest, MetadataError
from nextgen.kernel.limits.cluster import JOIN_SILENCE_MS, JOIN_WRITE_MS_MAX
from nextgen.tasks.background import join
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import cluster_service_pb2_grpc as cluster_grpc

LEASE_MS_MAX = 5_000
"""Time-out of a ``LeaseCapacity`` call: grants at broker managers, then a commit."""

CHANGE_REPLICAS_MS_MAX = 3_000
"""Time-out of a call that changes replicas, quotas or the configuration: a commit, and a round trip
that confirms leadership."""

Context = grpc.aio.ServicerContext[Any, Any]

_logger = structlog.get_logger(__name__)


class ClusterServicer(cluster_grpc.ClusterServiceServicer):
    """Passes calls to the ``ClusterManager``, and its answers back."""

    def __init__(self, manager: ClusterManager) -> None:
        self._manager = manager

    async def Join(self, request_iterator: Any, context: Context) -> None:
        """Serve one node's stream until either side ends it."""
        try:
            hello = await _first_message(context)
            check_caller(context, roles_of_kind(hello.kind), hello.node_id)
            connection = await self._manager.join(hello)
        except MetadataError as error:
            await _write(context, self._error_update(error))
            return
        try:
            await self._converse(connection, context)
        finally:
            self._manager.leave(connection)

    async def LeaseCapacity(
        self, request: cluster_pb.LeaseCapacityRequest, context: Context
    ) -> cluster_pb.LeaseCapacityResponse:
        try:
            async with timeout(LEASE_MS_MAX / 1_000):
                return await self._manager.lease_capacity(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            await abort(context, DeadlineExceeded(f"no commit within {LEASE_MS_MAX} ms"))

    async def GetCapacity(
        self, request: cluster_pb.GetCapacityRequest, context: Context
    ) -> cluster_pb.GetCapacityResponse:
        try:
            async with timeout(LEASE_MS_MAX / 1_000):
                return await self._manager.capacity()
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            await abort(context, DeadlineExceeded(f"no commit within {LEASE_MS_MAX} ms"))

    async def ChangeReplicas(
        self, request: cluster_pb.ChangeReplicasRequest, context: Context
    ) -> cluster_pb.ChangeReplicasResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.change_replicas(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def SetQuotas(
        self, request: cluster_pb.SetQuotasRequest, context: Context
    ) -> cluster_pb.SetQuotasResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.set_quotas(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def GetQuotas(
        self, request: cluster_pb.GetQuotasRequest, context: Context
    ) -> cluster_pb.GetQuotasResponse:
        try:
            return await self._manager.quotas()
        except MetadataError as error:
            await abort(context, error)

    async def SetConfiguration(
        self, request: cluster_pb.SetConfigurationRequest, context: Context
    ) -> cluster_pb.SetConfigurationResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.set_configuration(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def SetNodeState(
        self, request: cluster_pb.SetNodeStateRequest, context: Context
    ) -> cluster_pb.SetNodeStateResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.set_node_state(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def GetReplicaPlan(
        self, request: cluster_pb.GetReplicaPlanRequest, context: Context
    ) -> cluster_pb.ReplicaPlan:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.replica_plan()
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def BalanceReplicas(
        self, request: cluster_pb.BalanceReplicasRequest, context: Context
    ) -> cluster_pb.ReplicaPlan:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.balance_replicas(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def ExcludeNode(
        self, request: cluster_pb.ExcludeNodeRequest, context: Context
    ) -> cluster_pb.ExcludeNodeResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.exclude_node(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def GetConfiguration(
        self, request: cluster_pb.GetConfigurationRequest, context: Context
    ) -> cluster_pb.GetConfigurationResponse:
        try:
            return await self._manager.configuration()
        except MetadataError as error:
            await abort(context, error)

    async def PlanSlots(
        self, request: cluster_pb.PlanSlotsRequest, context: Context
    ) -> cluster_pb.PlanSlotsResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.plan_slots(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def GetPlans(
        self, request: cluster_pb.GetPlansRequest, context: Context
    ) -> cluster_pb.GetPlansResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.plans(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def StopPlan(
        self, request: cluster_pb.StopPlanRequest, context: Context
    ) -> cluster_pb.StopPlanResponse:
        try:
            async with timeout(CHANGE_REPLICAS_MS_MAX / 1_000):
                return await self._manager.stop_plan(request)
        except MetadataError as error:
            await abort(context, error)
        except TimeoutError:
            late = DeadlineExceeded(f"no commit within {CHANGE_REPLICAS_MS_MAX} ms")
            await abort(context, late)

    async def GetClusterState(
        self, request: cluster_pb.GetClusterStateRequest, context: Context
    ) -> cluster_pb.ClusterUpdate:
        try:
            return await self._manager.cluster_state()
        except MetadataError as error:
            await abort(context, error)

    async def GetManagerStatus(
        self, request: cluster_pb.GetManagerStatusRequest, context: Context
    ) -> cluster_pb.ReplicaStatus:
        return replica_status(self._manager.status(), self._manager.node_id)

    async def _converse(self, connection: NodeConnection, context: Context) -> None:
        reading = join(self._read_messages(connection, context))
        writing = join(_write_updates(connection, context))
        ending = join(connection.wait_ended())
        tasks = (reading, writing, ending)
        has_left = True
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            has_left = not connection.has_ended
        finally:
            connection.end(None)
            reading.cancel()
            ending.cancel()
            # Do not cancel the write: gRPC would keep it pending, and accept no other.
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                # A bug of this process must not look like a node that disconnected.
                raise outcome
        if connection.error is not None:
            await _write(context, self._error_update(connection.error))
        elif not has_left:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "silent, slow or replaced")

    async def _read_messages(self, connection: NodeConnection, context: Context) -> None:
        """Handle the node's messages until it ends the stream or sends an invalid one."""
        while True:
            try:
                message = await _read(context)
                if message is None:
                    return
                self._manager.receive(connection, message)
            except MetadataError as error:
                _logger.info("node refused", node=connection.node_id, why=str(error))
                connection.end(error)
                return

    def _error_update(self, error: MetadataError) -> cluster_pb.ClusterUpdate:
        return cluster_pb.ClusterUpdate(error=to_detail(error))


async def _first_message(context: Context) -> cluster_pb.Hello:
    try:
        async with timeout(JOIN_SILENCE_MS / 1_000):
            message = await _read(context)
    except TimeoutError:
        raise InvalidRequest(f"no hello within {JOIN_SILENCE_MS} ms") from None
    if message is None or not message.HasField("hello"):
        raise InvalidRequest("the first message on a Join stream is a hello")
    return message.hello


async def _read(context: Context) -> cluster_pb.NodeMessage | None:
    """Return the node's next message, None at the end of its stream.

    Raises:
        InvalidRequest: The bytes are not a message: see ``MalformedRequests``.
    """
    try:
        message = await context.read()
    except grpc.aio.BaseError:
        return None
    return message if isinstance(message, cluster_pb.NodeMessage) else None


async def _write_updates(connection: NodeConnection, context: Context) -> None:
    """Send updates until the stream ends or the node stops reading."""
    while True:
        update = await connection.next_update()
        if update is None or not await _write(context, update):
            return


async def _write(context: Context, update: cluster_pb.ClusterUpdate) -> bool:
    """Send one update; return whether it was written within ``JOIN_WRITE_MS_MAX``."""
    try:
        async with timeout(JOIN_WRITE_MS_MAX / 1_000):
            await context.write(update)
    except (TimeoutError, grpc.aio.BaseError):
        return False
    return True
