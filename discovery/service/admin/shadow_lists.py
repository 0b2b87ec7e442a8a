"""The lists of shadows that sources get as a policy: may these topics be listed?

The source's shard checks how a list is written. Whether the listed topics are shadows of the source
is known to their own shards: it is checked here, for those that the source has not listed yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from discovery.ports import Shards
from discovery.service.admin.deadline import Deadline, all_of
from nextgen.client.routing.shard_calls import send_grouped
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.shadow import SHADOWS_PER_READ
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import shadow_source_of
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item


class ShadowLists:
    """Reads the topics of lists at their shards."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def check(self, source: str, names: Sequence[str], deadline: Deadline) -> None:
        """Check that ``names``, canonical, are shadows of the topic ``source``.

        Raises:
            Refused: NOT_ALLOWED, with the first that is not.
            MetadataError: A shard did not answer.
        """

        async def read(shard_id: int, group: Sequence[str]) -> list[Item]:
            return await self._read(shard_id, group, deadline)

        routing_keys = {name: parse_topic(name).routing_key for name in names}
        found = await send_grouped(self._shards, routing_keys, read, joined=all_of)
        for name in names:
            if why := _why_not(source, name, found.get(name, Item())):
                raise Refused(RejectionCode.NOT_ALLOWED, f"shadow_topics has {name}, {why}")

    async def _read(self, shard_id: int, names: Sequence[str], deadline: Deadline) -> list[Item]:
        items: list[Item] = []
        for start in range(0, len(names), SHADOWS_PER_READ):
            part = names[start : start + SHADOWS_PER_READ]
            items += await self._read_part(shard_id, part, deadline)
        return items

    async def _read_part(
        self, shard_id: int, names: Iterable[str], deadline: Deadline
    ) -> Sequence[Item]:
        wanted = [shard_pb.ObjectName(kind=KIND_TOPIC, name=name) for name in names]
        request = shard_pb.ShardRequest(get=shard_pb.GetRequest(names=wanted))
        answer = await self._shards.call(shard_id, request, timeout_ms=deadline.remaining_ms())
        return answer.get.items


def _why_not(source: str, name: str, item: Item) -> str:
    """Return why a topic is no shadow of ``source``, "" if it is one."""
    if name == source:
        return "which is the topic itself"
    if not item.HasField("topic"):
        return "which does not exist"
    its_source = shadow_source_of(item.topic.properties)
    if not its_source:
        return "which is no shadow: it was created without a source"
    return "" if its_source == source else f"which is a shadow of {its_source}"
