"""A namespace over HTTP, listed by real shards whose leaders change while it is read."""

from __future__ import annotations

import asyncio
import random

import pytest

from discovery.service.admin import listing
from nextgen.kernel.errors import NotLeader, Unavailable
from protos.nextgen.v1.shard_service_pb2 import ShardRequest
from tests.support.discovery.rest_world import RestWorld, rest_world
from tests.support.shards.world import create_topics

NAMESPACE = "acme/orders"
LASTING = [f"persistent://{NAMESPACE}/t-{number:03}" for number in range(300)]
PASSING = [f"persistent://{NAMESPACE}/t-{number:03}-passing" for number in range(0, 300, 5)]
BATCH_ITEMS = 20


@pytest.fixture
async def rest(monkeypatch):
    monkeypatch.setattr(listing, "PAGE_ITEMS_MAX", BATCH_ITEMS)
    monkeypatch.setattr(listing, "_RETRY_PAUSE_MS", 0)
    async with rest_world() as world:
        await world.world.create_tenant("acme")
        await world.world.create_namespace(NAMESPACE)
        await create(world, LASTING + PASSING)
        yield world


async def create(rest: RestWorld, names: list[str]) -> None:
    for shard in rest.world.shards.values():
        own = [name for name in names if rest.world.home_of_topic(name) is shard]
        result = await rest.world.run(shard, create_topics(own))
        assert not result.rejection_code


@pytest.mark.parametrize("seed", range(3))
async def test_a_namespace_is_streamed_once_while_leaders_change_and_topics_go(rest, seed):
    chance = random.Random(seed)
    passing = list(PASSING)
    listings = []
    one_at_a_time = asyncio.Lock()

    async def change(request: ShardRequest) -> None:
        if not request.HasField("list"):
            return
        async with one_at_a_time:
            listings.append(request.shard_id)
            if passing and chance.random() < 0.5:
                await rest.world.delete_topic(passing.pop(chance.randrange(len(passing))))
            if chance.random() < 0.4:
                rest.world.shards[request.shard_id].next_term()
                raise chance.choice([NotLeader(request.shard_id, None), Unavailable("no leader")])

    rest.shards.before_answer = change
    status, names = await rest.get(f"/admin/v2/namespaces/{NAMESPACE}/topics")

    assert status == 200
    assert names == sorted(names)
    assert [name for name in names if not name.endswith("-passing")] == LASTING
    assert set(names) <= {*LASTING, *PASSING}
    assert len(listings) > len(LASTING) // BATCH_ITEMS
