"""Drains go to the broker's shard; rebalances and counts to all of them, and are put together."""

from __future__ import annotations

import pytest

from discovery.service.admin.evacuations import EvacuationService
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.errors import (
    ConnectionLost,
    InvalidRequest,
    MetadataError,
    NotLeader,
    Refused,
    Unavailable,
)
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.placement import REBALANCE_MOVES_NAMED_MAX
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import BrokerRecorded, ShardMapChanged, ShardPlacement
from protos.nextgen.v1.shard_service_pb2 import (
    BrokerUnits,
    DrainRequest,
    DrainResponse,
    PlannedMove,
    RebalanceRequest,
    RebalanceResponse,
    ShardRequest,
    ShardResponse,
    UnitCountRequest,
    UnitCountResponse,
)


class FakeShards:
    """Three shards; ``answers`` has what each says, ``errors`` what goes wrong with it."""

    def __init__(self) -> None:
        self.answers: dict[int, ShardResponse] = {}
        self.errors: dict[int, MetadataError] = {}
        self.keys: list[str] = []
        self.asked: list[int] = []

    async def call(self, shard_id, request, *, timeout_ms, idempotent=True) -> ShardResponse:
        self.asked.append(shard_id)
        if shard_id in self.errors:
            raise self.errors[shard_id]
        return self.answers[shard_id]

    async def call_key(self, routing_key, request, *, timeout_ms, idempotent=True):
        self.keys.append(routing_key)
        if 0 in self.errors:
            raise self.errors[0]
        record = BrokerRecorded(broker_id=request.drain.broker_id, draining=not request.drain.undo)
        return ShardResponse(drain=DrainResponse(broker=record))


class Cluster:
    def __init__(self, shards: int) -> None:
        self.view = ClusterView()
        if shards:
            table = initial_table(range(1, shards + 1))
            placements = [ShardPlacement(shard_id=each) for each in range(1, shards + 1)]
            shard_map = ShardMapChanged(version=1, slot_owners=table.to_bytes(), shards=placements)
            self.view.apply(ClusterUpdate(shard_map=shard_map))


@pytest.fixture
def shards() -> FakeShards:
    return FakeShards()


@pytest.fixture
def service(shards) -> EvacuationService:
    return EvacuationService(shards, Cluster(3))


def counted(*brokers: BrokerUnits, under_way: int = 0, evacuating: int = 0) -> ShardResponse:
    counts = UnitCountResponse(brokers=brokers, under_way=under_way, evacuating=evacuating)
    return ShardResponse(unit_count=counts)


async def test_a_drain_is_asked_of_the_shard_that_has_the_brokers_manager(service, shards):
    answer = await service.drain_broker(DrainRequest(broker_id="broker-7"), 1_000)

    assert answer.broker.draining
    assert shards.keys == ["broker-7"]


async def test_a_drain_that_is_refused_says_why(service, shards):
    shards.errors[0] = Refused("NOT_ALLOWED", "broker b is the last that may be given units")

    with pytest.raises(Refused, match="is the last"):
        await service.drain_broker(DrainRequest(broker_id="b"), 1_000)


async def test_a_broker_id_that_is_none_goes_to_no_shard(service, shards):
    await service.drain_broker(DrainRequest(broker_id="b" * NODE_ID_BYTES_MAX), 1_000)
    for broker_id in ("", "b" * (NODE_ID_BYTES_MAX + 1)):
        with pytest.raises(InvalidRequest):
            await service.drain_broker(DrainRequest(broker_id=broker_id), 1_000)
    assert len(shards.keys) == 1


async def test_units_are_summed_over_the_shards_session_by_session(service, shards):
    old = BrokerUnits(broker_id="a", session_id="s-1", units=5)
    new = BrokerUnits(broker_id="a", session_id="s-2", units=7, load_permille=300)
    shards.answers = {
        1: counted(old, new, under_way=5, evacuating=4),
        2: counted(new),
        3: counted(
            BrokerUnits(broker_id="b", session_id="s-3", units=1), under_way=2, evacuating=2
        ),
    }

    answer = await service.count_units(UnitCountRequest(), 1_000)

    assert [(each.broker_id, each.session_id, each.units) for each in answer.brokers] == [
        ("a", "s-1", 5),
        ("a", "s-2", 14),
        ("b", "s-3", 1),
    ]
    assert answer.brokers[1].load_permille == 300
    assert (answer.under_way, answer.evacuating) == (7, 6)


async def test_a_rebalance_is_asked_of_all_shards_and_its_plans_are_put_together(service, shards):
    def planned(moves: int, reason: str) -> ShardResponse:
        names = [PlannedMove(name=f"t-{number}") for number in range(moves)]
        before = [BrokerUnits(broker_id="a", session_id="s", units=moves)]
        return ShardResponse(
            rebalance=RebalanceResponse(
                moves=names,
                count=moves,
                before=before,
                after=before,
                reason=reason,
                under_way=2,
                evacuating=1,
            )
        )

    shards.answers = {1: planned(600, "uneven"), 2: planned(600, "uneven"), 3: planned(0, "even")}

    answer = await service.rebalance(RebalanceRequest(), 1_000)

    assert sorted(shards.asked) == [1, 2, 3]
    assert (answer.count, len(answer.moves)) == (1_200, REBALANCE_MOVES_NAMED_MAX)
    assert [each.units for each in answer.before] == [1_200]
    assert answer.reason == "uneven; even"
    assert (answer.under_way, answer.evacuating) == (6, 3)


async def test_of_several_failures_the_indefinite_one_is_raised(service, shards):
    """A shard may have begun: whoever is told "it did not happen" would not look."""
    shards.answers = {1: counted()}
    shards.errors = {2: NotLeader(2), 3: ConnectionLost("gone")}

    with pytest.raises(ConnectionLost):
        await service.count_units(UnitCountRequest(), 1_000)


async def test_without_a_shard_map_nothing_is_asked(shards):
    with pytest.raises(Unavailable):
        await EvacuationService(shards, Cluster(0)).count_units(UnitCountRequest(), 1_000)


async def test_each_shard_gets_a_request_of_its_own(service, shards):
    """The router writes shard and deadline into what it is given."""
    seen: list[ShardRequest] = []

    async def call(shard_id, request, *, timeout_ms, idempotent=True):
        request.shard_id = shard_id
        seen.append(request)
        return counted()

    shards.call = call

    await service.count_units(UnitCountRequest(), 1_000)

    assert sorted(request.shard_id for request in seen) == [1, 2, 3]
