"""Changes of scalable topics that exist: their segments, and their subscriptions.

The shard answers when a change is done, or was refused. What a request that was broken off began
goes on; the same request joins it.
"""

from __future__ import annotations

from collections.abc import Sequence

from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.unit_calls import UnitCalls
from discovery.service.scalable.topics import Owners
from discovery.wire import parse_name
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.scalable import SCALABLE_SUBSCRIPTIONS_MAX
from nextgen.kernel.routing.names import (
    Domain,
    TopicName,
    parse_topic,
    scalable_name,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.broker_service_pb2 import TopicStats
from protos.nextgen.v1.inventory_pb2 import Topic
from protos.nextgen.v1.topic_admin_pb2 import GetStatsRequest

MIGRATE = "migrate"
_OPERATOR = "operator"
_MIGRATED = frozenset({Domain.PERSISTENT, Domain.TOPIC})


class LayoutService:
    """Carries out changes. Every method raises ``MetadataError`` kinds only.

    ``timeout_ms`` is the time until the caller's deadline.
    """

    def __init__(self, owners: Owners, inventory: InventoryService) -> None:
        self._owners = owners
        self._inventory = inventory
        self._calls = UnitCalls()

    async def update_layout(
        self, request: pb.UpdateLayoutRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Split a segment, merge two, give one other entry buckets, or migrate a classic topic.

        Raises:
            Refused: NOT_FOUND: no such topic or segment; NOT_ALLOWED: it cannot be, another
                operation is under way, or this one was taken back; LIMIT_EXCEEDED; INVALID_NAME;
                of a migration ALREADY_EXISTS: the topic is scalable, and IN_USE: classic clients
                are connected, and it is not forced.
        """
        name = parse_name(parse_topic, request.name)
        if request.kind == MIGRATE:
            return await self._migrate(name, request, timeout_ms)
        body = shard_pb.ChangeLayout(
            name=name.text,
            kind=request.kind,
            segments=request.segments,
            buckets=request.buckets,
            asked_by=_OPERATOR,
        )
        command = shard_pb.Command(command_id=request.command_id, change_layout=body)
        return await self._inventory.execute(name.routing_key, command, request, timeout_ms)

    async def _migrate(
        self, name: TopicName, request: pb.UpdateLayoutRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        if name.partition is not None or name.domain not in _MIGRATED:
            raise Refused(
                RejectionCode.INVALID_NAME, f"{name.text} is not the name of a persistent topic"
            )
        topic = scalable_name(name)
        await self._check_migratable(topic, timeout_ms, is_forced=request.force)
        spec = shard_pb.TopicSpec(name=topic.text, migrates=True)
        created = await self._inventory.create_topics(
            pb.CreateTopicsRequest(
                command_id=request.command_id,
                topics=[spec],
                issued=request.issued,
                consistency=request.consistency,
            ),
            timeout_ms,
        )
        (outcome,), (position,) = created.topics, created.positions
        if outcome.rejection_code:
            raise Refused(outcome.rejection_code, outcome.message)
        _, layout = await self._inventory.scalable_topic(topic, timeout_ms)
        return pb.WriteResponse(
            id=outcome.topic_id,
            version=layout.version,
            shard_id=position.shard_id,
            position=position.position,
            shard_map_version=created.shard_map_version,
        )

    async def _check_migratable(
        self, topic: TopicName, timeout_ms: int, *, is_forced: bool
    ) -> None:
        """Check the clients and the subscriptions of a classic topic that is to become ``topic``.

        What is scalable is not looked at: the shard tells what was migrated by this very request
        from what was before.
        """
        request = pb.GetObjectRequest(name=_classic(topic).text)
        item = (await self._inventory.get_topic(request, timeout_ms)).item
        found = await self._inventory.get_scalable_topic(
            pb.GetObjectRequest(name=topic.text), timeout_ms
        )
        has_ended = any(not each.legacy_topic_name for each in found.item.scalable_topic.segments)
        if has_ended or not item.HasField("topic"):
            return
        clients = 0
        names: set[str] = set()

        async def look(unit: TopicName) -> None:
            nonlocal clients
            stats: TopicStats = await self._owners.call(unit, GetStatsRequest())
            clients += _classic_clients(stats)
            names.update(each.name for each in stats.subscriptions if each.is_durable)

        await self._calls.each(_units(item.topic), look)
        if clients and not is_forced:
            raise Refused(
                RejectionCode.IN_USE,
                f"{item.name} has {clients} producers and consumers of classic clients",
            )
        if len(names) > SCALABLE_SUBSCRIPTIONS_MAX:
            raise Refused(
                RejectionCode.LIMIT_EXCEEDED,
                f"{item.name} has {len(names)} subscriptions, a scalable topic has at most "
                f"{SCALABLE_SUBSCRIPTIONS_MAX}",
            )

    async def create_subscription(
        self, request: pb.ScalableSubscriptionRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Create a subscription at the beginning of all active segments; one that exists stays.

        Raises:
            Refused: NOT_FOUND: no such topic; NOT_ALLOWED: it is being deleted, or there with
                another type, or no such type; LIMIT_EXCEEDED; INVALID_NAME.
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


def _classic(topic: TopicName) -> TopicName:
    return TopicName(Domain.PERSISTENT, topic.tenant, topic.namespace, topic.base_name)


def _units(topic: Topic) -> Sequence[TopicName]:
    name = parse_topic(topic.name)
    if not topic.partitions:
        return [name]
    return [name.of_partition(number) for number in range(topic.partitions)]


def _classic_clients(stats: TopicStats) -> int:
    if stats.HasField("classic_clients"):
        return stats.classic_clients
    return stats.producers + sum(each.consumers for each in stats.subscriptions)
