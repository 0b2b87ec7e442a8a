"""Removals of topics that Pulsar deleted, as requests to shards."""

from __future__ import annotations

import pytest

from brokers.adapters.cluster.stock_inventory import ShardTopicInventory
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment

TOPIC = parse_topic("persistent://acme/orders/eu")


class Shard:
    """Has one topic with two units, and answers its deletion with ``code``."""

    def __init__(self, topic_id: str = "t-1", code: str = "") -> None:
        self.topic_id = topic_id
        self.code = code
        self.deleted: list[pb.DeleteTopic] = []

    def shard_of_key(self, routing_key: str) -> int:
        assert routing_key == TOPIC.routing_key
        return 1

    async def call(
        self, shard_id: int, request: pb.ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> pb.ShardResponse:
        response = pb.ShardResponse()
        if request.HasField("topic_units"):
            response.topic_units.topic_id = self.topic_id
            units = [UnitAssignment(unit="p0", epoch=5, broker_id="b"), UnitAssignment(unit="p1")]
            response.topic_units.units.extend(units if self.topic_id else [])
        else:
            (command,) = request.execute.commands
            self.deleted.append(command.delete_topic)
            response.execute.results.add(rejection_code=self.code, message="why")
        return response


async def test_a_topic_is_removed_in_the_epochs_that_it_has() -> None:
    shard = Shard()

    assert await ShardTopicInventory(shard).remove(TOPIC)
    assert shard.deleted == [
        pb.DeleteTopic(
            name=TOPIC.text,
            force=True,
            is_checked=True,
            topic_id="t-1",
            ended=[pb.EndedUnit(unit="p0", epoch=5), pb.EndedUnit(unit="p1")],
        )
    ]


@pytest.mark.parametrize("shard", [Shard(topic_id=""), Shard(code="NOT_FOUND")])
async def test_a_topic_that_is_not_there_needs_no_removal(shard: Shard) -> None:
    assert not await ShardTopicInventory(shard).remove(TOPIC)


@pytest.mark.parametrize(("code", "kind"), [("STALE_EPOCH", Unavailable), ("IN_USE", Refused)])
async def test_what_keeps_a_topic_is_raised(code: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="why"):
        await ShardTopicInventory(Shard(code=code)).remove(TOPIC)
