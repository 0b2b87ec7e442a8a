"""The inventory's topics that Pulsar deletes, by requests to their shards."""

from __future__ import annotations

import secrets

from nextgen.client.routing.shard_calls import Shards, call_home
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES, REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import shard_service_pb2 as pb


class ShardTopicInventory:
    """See ``TopicInventory``."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def remove(self, name: TopicName) -> bool:
        """See ``TopicInventory.remove``."""
        asked = pb.ShardRequest(topic_units=pb.TopicUnitsRequest(name=name.text))
        found = (await self._call(name, asked)).topic_units
        if not found.topic_id:
            return False
        # Pulsar has no topic of this name: nobody acknowledges anything in these epochs any more.
        ended = [pb.EndedUnit(unit=each.unit, epoch=each.epoch) for each in found.units]
        body = pb.DeleteTopic(
            name=name.text, force=True, is_checked=True, topic_id=found.topic_id, ended=ended
        )
        command = pb.Command(command_id=secrets.token_bytes(COMMAND_ID_BYTES), delete_topic=body)
        answer = await self._call(
            name, pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
        )
        (result,) = answer.execute.results
        if result.rejection_code == RejectionCode.STALE_EPOCH:
            raise Unavailable(f"{name.text} was assigned meanwhile: {result.message}")
        if result.rejection_code == RejectionCode.NOT_FOUND:
            return False
        if result.rejection_code:
            raise Refused(result.rejection_code, result.message)
        return True

    async def _call(self, name: TopicName, request: pb.ShardRequest) -> pb.ShardResponse:
        return await call_home(
            self._shards, name.routing_key, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
        )
