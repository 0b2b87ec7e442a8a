"""Gives the new partitions of a topic the durable subscriptions of its first partition.

    grown ─▶ was partition 0 ever served? ─▶ its subscriptions ─▶ created on each new partition
                   ╰─ no: it has none                                at the earliest message

So a subscription misses nothing that is published to a new partition before its consumer finds the
partition (ADR 0077). What exists stays as it is: a repetition finishes what was broken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from discovery.ports import Shards
from discovery.service.admin.deadline import all_of
from discovery.service.admin.topic_deletion import Owners
from nextgen.client.routing.topic_creation import Created
from nextgen.kernel.errors import ConnectionLost, Definite, Refused, ServedElsewhere
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.rest import TOPIC_UNITS_CALLED_MAX
from nextgen.kernel.routing.names import Domain, TopicName, parse_topic
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC


class GrownTopics:
    """Copies subscriptions to partitions. Raises ``MetadataError`` kinds only.

    Without ``owners`` nothing is copied. ``created`` is called for shadows, which have grown with
    their source.
    """

    def __init__(self, shards: Shards, owners: Owners | None, created: Created) -> None:
        self._shards = shards
        self._owners = owners
        self._created = created

    async def copy_subscriptions(
        self, name: TopicName, partitions: Iterable[int], timeout_ms: int
    ) -> None:
        """Create the durable subscriptions of partition 0 where ``partitions`` do not have them.

        Those of a topic of stock brokers are created by Pulsar, as it gets the partitions there.
        ``TOPIC_UNITS_CALLED_MAX`` partitions at a time; idle ones are assigned.

        Raises:
            Refused: NOT_FOUND: the topic was deleted meanwhile.
            ConnectionLost: Some may have been created: repeat it.
            Indefinite: Others; as after ``ConnectionLost``.
        """
        numbers = [number for number in partitions if number]
        owners = self._owners
        if owners is None or not numbers or name.domain is Domain.NON_PERSISTENT:
            return
        try:
            first = name.of_partition(0)
            if not await self._was_served(first, timeout_ms):
                return
            stats = await owners.call(first, admin_pb.GetInternalStatsRequest())
            turns = asyncio.Semaphore(TOPIC_UNITS_CALLED_MAX)
            await all_of(
                [
                    _create_all(owners, turns, name.of_partition(number), stats.cursors)
                    for number in numbers
                ]
            )
        except ServedElsewhere:
            return
        except Definite as error:
            if isinstance(error, Refused) and error.code == RejectionCode.NOT_FOUND:
                raise
            # The topic has grown: a definite error would have the caller issue the command anew.
            why = f"not all partitions of {name.text} have its subscriptions yet: {error}"
            raise ConnectionLost(why) from error

    async def copy_all(
        self, source: TopicName, partitions: range, shard_ids: Sequence[int], timeout_ms: int
    ) -> None:
        """Copy the subscriptions of a topic, and those of each shadow of it in these shards.

        A shadow that was deleted meanwhile is passed over.

        Raises:
            Refused, ConnectionLost, Indefinite: As ``copy_subscriptions``.
        """
        await self.copy_subscriptions(source, partitions, timeout_ms)
        if self._owners is None:
            return
        for shard_id in shard_ids:
            for shadow in await self._shadows_in(shard_id, source, timeout_ms):
                try:
                    await self.copy_subscriptions(parse_topic(shadow), partitions, timeout_ms)
                except Refused as error:
                    if error.code != RejectionCode.NOT_FOUND:
                        raise

    async def _shadows_in(self, shard_id: int, source: TopicName, timeout_ms: int) -> list[str]:
        """Return the shadows of a topic that live in one shard. Their partitions, as far as they
        are remembered here, are forgotten."""
        names: list[str] = []
        more = True
        while more:
            wanted = shard_pb.ListRequest(
                kind=KIND_TOPIC,
                shadows_of=source.base_text,
                after=names[-1] if names else "",
                limit=PAGE_ITEMS_MAX,
            )
            request = shard_pb.ShardRequest(list=wanted)
            try:
                response = await self._shards.call(shard_id, request, timeout_ms=timeout_ms)
            except Definite as error:
                # The topic has grown: see ``copy_subscriptions``.
                why = f"the shadows of {source.text} in shard {shard_id} are not known: {error}"
                raise ConnectionLost(why) from error
            page = response.list
            self._created(shard_id, response.position, page.names)
            names += page.names
            more = page.more_items
        return names

    async def _was_served(self, unit: TopicName, timeout_ms: int) -> bool:
        """Return whether a partition was ever assigned; without that it has no subscriptions."""
        request = shard_pb.ShardRequest(topic_units=shard_pb.TopicUnitsRequest(name=unit.base_text))
        response = await self._shards.call_key(unit.routing_key, request, timeout_ms=timeout_ms)
        return any(each.unit == unit.unit.text for each in response.topic_units.units)


async def _create_all(
    owners: Owners,
    turns: asyncio.Semaphore,
    unit: TopicName,
    cursors: Sequence[admin_pb.CursorStats],
) -> None:
    async with turns:
        for cursor in cursors:
            place = admin_pb.TopicPlace(earliest=admin_pb.Earliest())
            request = admin_pb.CreateSubscriptionRequest(
                subscription=cursor.subscription, start=place, properties=cursor.properties
            )
            try:
                await owners.call(unit, request)
            except Refused as error:
                if error.code != RejectionCode.ALREADY_EXISTS:
                    raise
