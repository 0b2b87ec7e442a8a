"""``ShardService`` over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from nextgen.client.log.pins import answer_pin_log
from nextgen.client.wire.errors import abort, to_detail
from nextgen.kernel.errors import MetadataError
from nextgen.replication.host.verification import Verified
from nextgen.replication.ports import NodeId
from protos.nextgen.v1.event_bytes_pb2 import EventBatchBytes
from protos.nextgen.v1.shard_service_pb2 import (
    GetNodeStatusRequest,
    NodeStatus,
    PinLogRequest,
    PinLogResponse,
    ReadEventsRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    VerifyReplicaRequest,
    VerifyReplicaResponse,
    WatchShardRequest,
    WatchShardUpdate,
)
from shards.adapters.exchange_stream import ExchangeStream
from shards.adapters.watch_stream import WatchStream
from shards.metrics import NodeMetrics
from shards.node.event_stream import refusal, stream_events
from shards.node.request_dispatcher import RequestDispatcher

SERVICE_NAME = "nextgen.v1.ShardService"

Verify = Callable[[int, int], Awaitable[Verified]]
"""Verifies this node's replica of a shard, and takes its digest at a position."""

_Context = grpc.aio.ServicerContext


class ShardServicer:
    """Serves the replicas behind ``dispatcher``; ``status`` describes the node."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        status: Callable[[], NodeStatus],
        metrics: NodeMetrics,
        verify: Verify,
    ) -> None:
        self._dispatcher = dispatcher
        self._verify = verify
        self._status = status
        self._metrics = metrics

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with ``server``. Exchange takes bytes: one malformed request must not end
        the stream, as gRPC's own decoding would."""
        handlers = {
            "Exchange": grpc.stream_stream_rpc_method_handler(self._exchange),
            "Watch": grpc.stream_stream_rpc_method_handler(
                self._watch,
                request_deserializer=WatchShardRequest.FromString,
                response_serializer=WatchShardUpdate.SerializeToString,
            ),
            "ReadEvents": grpc.unary_stream_rpc_method_handler(
                self._read_events,
                request_deserializer=ReadEventsRequest.FromString,
                response_serializer=EventBatchBytes.SerializeToString,
            ),
            "PinLog": grpc.unary_unary_rpc_method_handler(
                self._pin_log,
                request_deserializer=PinLogRequest.FromString,
                response_serializer=PinLogResponse.SerializeToString,
            ),
            "GetNodeStatus": grpc.unary_unary_rpc_method_handler(
                self._get_node_status,
                request_deserializer=GetNodeStatusRequest.FromString,
                response_serializer=NodeStatus.SerializeToString,
            ),
            "TransferLeadership": grpc.unary_unary_rpc_method_handler(
                self._transfer_leadership,
                request_deserializer=TransferLeadershipRequest.FromString,
                response_serializer=TransferLeadershipResponse.SerializeToString,
            ),
            "VerifyReplica": grpc.unary_unary_rpc_method_handler(
                self._verify_replica,
                request_deserializer=VerifyReplicaRequest.FromString,
                response_serializer=VerifyReplicaResponse.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),)
        )

    async def _exchange(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await ExchangeStream(self._dispatcher, context, self._metrics).serve(requests)

    async def _watch(self, requests: AsyncIterator[WatchShardRequest], context: Any) -> None:
        await WatchStream(self._dispatcher.replica, context).serve(requests)

    async def _read_events(
        self, request: ReadEventsRequest, _context: Any
    ) -> AsyncIterator[EventBatchBytes]:
        try:
            replica = self._dispatcher.replica(request.shard_id)
            async with aclosing(stream_events(replica, request)) as batches:
                async for batch in batches:
                    yield batch
        except MetadataError as error:
            yield refusal(error)

    async def _pin_log(self, request: PinLogRequest, _context: Any) -> PinLogResponse:
        try:
            return await answer_pin_log(self._dispatcher.replica(request.shard_id).log, request)
        except MetadataError as error:
            return PinLogResponse(error=to_detail(error))

    async def _get_node_status(self, _request: GetNodeStatusRequest, _context: Any) -> NodeStatus:
        return self._status()

    async def _transfer_leadership(
        self, request: TransferLeadershipRequest, context: Any
    ) -> TransferLeadershipResponse:
        try:
            replica = self._dispatcher.replica(request.shard_id)
            replica.leading()
            await replica.log.transfer_leadership(NodeId(request.target))
        except MetadataError as error:
            await abort(context, error)
        return TransferLeadershipResponse()

    async def _verify_replica(
        self, request: VerifyReplicaRequest, _context: Any
    ) -> VerifyReplicaResponse:
        answer = VerifyReplicaResponse(shard_id=request.shard_id, node_id=self._status().node_id)
        try:
            found = await self._verify(request.shard_id, request.at_position)
        except MetadataError as error:
            answer.error.CopyFrom(to_detail(error))
            return answer
        answer.from_position = found.from_position
        answer.position = found.position
        answer.events_replayed = found.events_replayed
        answer.rebuilt_digest = found.rebuilt_digest
        answer.stored_digest = found.stored_digest
        answer.scanned_digest = found.scanned_digest
        if found.digest_at_position is not None:
            answer.covers_at_position = True
            answer.digest_at_position = found.digest_at_position
        return answer
