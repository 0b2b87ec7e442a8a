"""Changes of scalable topics that exist: their segments, and their subscriptions.

The shard answers when a change is done, or was refused. What a request that was broken off began
goes on; the same request joins it.
"""

from __future__ import annotations

from discovery.service.admin.inventory import InventoryService
from discovery.wire import parse_name
from nextgen.kernel.routing.names import TopicName, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb

_OPERATOR = "operator"


class LayoutService:
    """Carries out changes. Every method raises ``MetadataError`` kinds only.

    ``timeout_ms`` is the time until the caller's deadline.
    """

    def __init__(self, inventory: InventoryService) -> None:
        self._inventory = inventory

    async def update_layout(
        self, request: pb.UpdateLayoutRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Split a segment, merge two, or give one other entry buckets.

        Raises:
            Refused: NOT_FOUND: no such topic or segment; NOT_ALLOWED: it cannot be, another
                operation is under way, or this one was taken back; LIMIT_EXCEEDED; INVALID_NAME.
        """
        name = parse_name(parse_topic, request.name)
        body = shard_pb.ChangeLayout(
            name=name.text,
            kind=request.kind,
            segments=request.segments,
            buckets=request.buckets,
            asked_by=_OPERATOR,
        )
        command = shard_pb.Command(command_id=request.command_id, change_layout=body)
        return await self._inventory.execute(name.routing_key, command, request, timeout_ms)

    async def create_subscription(
        self, request: pb.ScalableSubscriptionRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Create a subscription at the beginning of all active segments; one that exists stays.

        Raises:
            Refused: NOT_FOUND: no such topic; NOT_ALLOWED: it is being deleted, or no such type;
                LIMIT_EXCEEDED; INVALID_NAME.
        """
        name = parse_name(parse_topic, request.name)
        body = shard_pb.CreateScalableSubscription(
            name=name.text, subscription=request.subscription, type=request.type
        )
        command = shard_pb.Command(create_scalable_subscription=body)
        return await self._execute(name, command, request, timeout_ms)

    async def delete_subscription(
        self, request: pb.ScalableSubscriptionRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Delete a subscription from all segments, and end its consumers' registrations.

        Raises:
            Refused: NOT_FOUND: no such topic or subscription.
        """
        name = parse_name(parse_topic, request.name)
        body = shard_pb.DeleteScalableSubscription(
            name=name.text, subscription=request.subscription
        )
        command = shard_pb.Command(delete_scalable_subscription=body)
        return await self._execute(name, command, request, timeout_ms)

    async def seek_subscription(
        self, request: pb.ScalableSubscriptionRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Set a subscription to a publish time in all segments, or to their ends.

        Raises:
            Refused: NOT_FOUND: no such topic or subscription; NOT_ALLOWED: it has no cursors, or is
                being deleted.
        """
        name = parse_name(parse_topic, request.name)
        body = shard_pb.SeekScalableSubscription(
            name=name.text,
            subscription=request.subscription,
            seek_to_ms=request.seek_to_ms,
            skips_all=request.skips_all,
        )
        command = shard_pb.Command(seek_scalable_subscription=body)
        return await self._execute(name, command, request, timeout_ms)

    async def _execute(
        self,
        name: TopicName,
        command: shard_pb.Command,
        request: pb.ScalableSubscriptionRequest,
        timeout_ms: int,
    ) -> pb.WriteResponse:
        command.command_id = request.command_id
        return await self._inventory.execute(name.routing_key, command, request, timeout_ms)
