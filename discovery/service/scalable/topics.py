"""What operators do to scalable topics: in the inventory, and at the brokers of their segments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.unit_calls import UnitCalls
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import Domain, SegmentDescriptor, TopicName, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.broker_service_pb2 import TopicStats
from protos.nextgen.v1.inventory_pb2 import Topic
from protos.nextgen.v1.layouts_pb2 import ScalableTopic, TopicSegment
from protos.nextgen.v1.shard_service_pb2 import TopicSpec
from protos.nextgen.v1.topic_admin_pb2 import GetStatsRequest


class Owners(Protocol):
    """The brokers of topics: ``TopicOwners``."""

    async def call(self, name: TopicName, request: Any) -> Any: ...


class ScalableTopics:
    """Carries out requests about scalable topics. Raises ``MetadataError`` kinds only."""

    def __init__(self, owners: Owners, inventory: InventoryService) -> None:
        self._owners = owners
        self._inventory = inventory
        self._calls = UnitCalls()

    async def create(
        self, name: TopicName, segments: int, properties: Mapping[str, str], timeout_ms: int
    ) -> None:
        """Create a scalable topic of ``segments`` segments of equal ranges.

        Raises:
            Refused: As the shard decides: ALREADY_EXISTS, also if there is a classic topic of this
                name; PARENT_NOT_FOUND ...
        """
        spec = TopicSpec(name=name.text, segments=segments, properties=properties)
        request = pb.CreateTopicsRequest(topics=[spec])
        (outcome,) = (await self._inventory.create_topics(request, timeout_ms)).topics
        if outcome.rejection_code:
            raise Refused(outcome.rejection_code, outcome.message)

    async def get(self, name: TopicName, timeout_ms: int) -> tuple[Topic, ScalableTopic]:
        """Return a scalable topic and its layout.

        Raises:
            Refused: NOT_FOUND.
        """
        return await self._inventory.scalable_topic(name, timeout_ms)

    async def delete(self, name: TopicName, timeout_ms: int, *, is_forced: bool) -> None:
        """Delete a topic with all its segments.

        Raises:
            Refused: NOT_FOUND; IN_USE: as ``InventoryService.delete_topic`` says.
        """
        request = pb.DeleteRequest(name=name.text, force=is_forced)
        await self._inventory.delete_topic(request, timeout_ms)

    async def brokers(self, name: TopicName, timeout_ms: int) -> dict[str, str]:
        """Return the brokers that serve segments now, by the names of the segments."""
        units = await self._inventory.units(name, timeout_ms)
        return {each.name: each.broker_id for each in units if each.broker_id}

    async def segment_stats(self, segment: TopicName) -> TopicStats:
        """Return the statistics of one segment; an idle one is assigned first.

        Raises:
            Refused: NOT_FOUND, the layout does not list it any more.
            MetadataError: Its broker gave no answer.
        """
        stats: TopicStats = await self._owners.call(segment, GetStatsRequest())
        return stats

    async def stats(
        self, name: TopicName, segments: Sequence[TopicSegment]
    ) -> AsyncGenerator[tuple[TopicSegment, TopicStats | None]]:
        """Yield each of a topic's segments with its statistics, None if its broker gives none.

        Idle segments are assigned first. Close the generator.

        Raises:
            Unavailable: As ``UnitCalls.in_order``.
        """

        async def ask(unit: TopicName) -> TopicStats:
            try:
                return await self.segment_stats(unit)
            except MetadataError:
                return TopicStats()

        units = [name_of(name, each) for each in segments]
        answers = self._calls.in_order(units, ask)
        async with aclosing(answers):
            for segment in segments:
                _, stats = await anext(answers)
                yield segment, stats if stats.topic else None


def name_of(topic: TopicName, segment: TopicSegment) -> TopicName:
    """Return the name under which one of a topic's segments is served."""
    if segment.legacy_topic_name:
        return parse_topic(segment.legacy_topic_name)
    descriptor = SegmentDescriptor(segment.hash_start, segment.hash_end, segment.segment_id)
    return TopicName(
        Domain.SEGMENT, topic.tenant, topic.namespace, topic.base_name, segment=descriptor
    )


def segment_of(layout: ScalableTopic, segment_id: int) -> TopicSegment:
    """Return one segment of a layout.

    Raises:
        Refused: NOT_FOUND, there is none of this id.
    """
    for each in layout.segments:
        if each.segment_id == segment_id:
            return each
    raise Refused(RejectionCode.NOT_FOUND, f"{layout.name} has no segment {segment_id}")
