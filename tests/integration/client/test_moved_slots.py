"""Routing while slots go from one shard to another: each shard is led by a fake server."""

import pytest

from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import ProposalLost, StaleShardMap
from nextgen.kernel.limits.cluster import ROUTER_RETRIES_MAX
from nextgen.kernel.limits.stream import MOVED_HOPS_MAX
from nextgen.kernel.routing.hashing import slot_of
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from tests.support.discovery.fake_cluster import StaticLink, full_update, shard_map
from tests.support.discovery.fake_shard_server import FakeShardServer

TIMEOUT_MS = 90_000


def lookup(*topics: str) -> pb.ShardRequest:
    return pb.ShardRequest(lookup=pb.ShardLookupRequest(topics=topics))


@pytest.fixture
async def two_shards():
    """Shards 1 and 2, each led by a server of its own, and a router that knows of no move."""
    servers = {shard_id: FakeShardServer(shard_id) for shard_id in (1, 2)}
    for server in servers.values():
        await server.start()
    link = StaticLink(full_update({each: server.endpoint for each, server in servers.items()}))
    pool = ExchangePool(lambda: link.view.shard_map_version)
    yield servers, link, ShardRouter(link, pool)
    await pool.stop()
    for server in servers.values():
        await server.stop()


def key_at(link, shard_id: int, taken: int = 0) -> str:
    keys = (f"t/n/x-{number}" for number in range(1_000))
    return [key for key in keys if link.view.shard_for_key(key) == shard_id][taken]


def gives_away(link, shard_id: int, to: int):
    """Return a hook of a shard that has released all its slots."""
    slots = link.view.slot_table.ranges_of(shard_id)

    async def refuse(_request):
        raise StaleShardMap("released", 1, moved_to=to, moved_slots=slots)

    return refuse


async def test_a_request_follows_its_slot_at_once_and_others_go_there_straight(two_shards):
    servers, link, router = two_shards
    first, second = key_at(link, 1), key_at(link, 1, 1)
    servers[1].hook = gives_away(link, 1, to=2)

    response = await router.call_key(first, lookup("x"), timeout_ms=TIMEOUT_MS)
    await router.call_key(second, lookup("y"), timeout_ms=TIMEOUT_MS)

    assert response.position == 10
    assert [len(servers[each].requests) for each in (1, 2)] == [1, 2]
    assert router.statistics.retries_total == 0, "a hop is no retry"
    assert router.shard_of_key(first) == router.shard_of_key(second) == 2


async def test_a_later_map_decides_again(two_shards):
    servers, link, router = two_shards
    key = key_at(link, 1)
    servers[1].hook = gives_away(link, 1, to=2)
    await router.call_key(key, lookup("x"), timeout_ms=TIMEOUT_MS)

    servers[1].hook = None
    link.push(ClusterUpdate(shard_map=shard_map({1: ["node-1"], 2: ["node-2"]}, version=2)))

    assert router.shard_of_key(key) == 1
    await router.call_key(key, lookup("x"), timeout_ms=TIMEOUT_MS)
    assert len(servers[1].requests) == 2


async def test_slots_that_were_taken_back_are_asked_for_where_the_map_has_them(two_shards):
    """The second shard refused the move, and the first one has the slots again. No map tells."""
    servers, link, router = two_shards
    key = key_at(link, 1)
    servers[1].hook = gives_away(link, 1, to=2)
    await router.call_key(key, lookup("x"), timeout_ms=TIMEOUT_MS)

    async def refuse(_request):
        servers[1].hook = None
        raise StaleShardMap("it was refused", 1)

    servers[2].hook = refuse
    await router.call_key(key, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert router.shard_of_key(key) == 1
    assert [len(servers[each].requests) for each in (1, 2)] == [2, 2]


async def test_shards_that_name_each_other_are_asked_a_few_times_only(two_shards):
    servers, link, router = two_shards
    for shard_id, other in ((1, 2), (2, 1)):

        async def refuse(_request, other=other):
            raise StaleShardMap("it is there", 1, moved_to=other, moved_slots=[(0, 16_383)])

        servers[shard_id].hook = refuse

    with pytest.raises(StaleShardMap):
        await router.call_key(key_at(link, 1), lookup("x"), timeout_ms=TIMEOUT_MS)

    asked = sum(len(server.requests) for server in servers.values())
    assert asked == 1 + MOVED_HOPS_MAX + ROUTER_RETRIES_MAX


async def test_a_request_to_one_shard_comes_back_to_be_grouped_again(two_shards):
    servers, link, router = two_shards
    key = key_at(link, 1)
    servers[1].hook = gives_away(link, 1, to=2)

    with pytest.raises(StaleShardMap):
        await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert [len(servers[each].requests) for each in (1, 2)] == [1, 0]
    assert router.shard_of_key(key) == 2


def creation(**fields) -> pb.ShardRequest:
    command = pb.Command(command_id=b"0123456789abcdef", create_tenant=pb.CreateTenant(name="t"))
    return pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command], **fields))


async def test_a_command_that_may_have_happened_says_where_it_was_issued(two_shards):
    """The first shard lost the answer, then gave the slot away."""
    servers, link, router = two_shards
    key = key_at(link, 1)
    await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)
    await router.call(2, lookup("x"), timeout_ms=TIMEOUT_MS)
    release = gives_away(link, 1, to=2)

    async def lose(_request):
        servers[1].hook = release
        raise ProposalLost("the leader was deposed")

    servers[1].hook = lose

    await router.call_key(key, creation(), timeout_ms=TIMEOUT_MS)

    sent = servers[2].requests[-1].execute
    issued = [(each.shard_id, each.position) for each in sent.issued]
    assert (sent.issued_position, issued) == (0, [(1, 10)])
    assert sent.commands[0].command_id == b"0123456789abcdef"


async def test_a_command_that_certainly_did_not_happen_is_issued_at_its_shard(two_shards):
    servers, link, router = two_shards
    key = key_at(link, 1)
    await router.call(2, lookup("x"), timeout_ms=TIMEOUT_MS)
    servers[1].hook = gives_away(link, 1, to=2)

    await router.call_key(key, creation(), timeout_ms=TIMEOUT_MS)

    sent = servers[2].requests[-1].execute
    assert (sent.issued_position, [*sent.issued]) == (10, [])


async def test_positions_that_the_caller_names_go_along_to_every_shard(two_shards):
    servers, link, router = two_shards
    key = key_at(link, 1)
    servers[1].hook = gives_away(link, 1, to=2)
    issued = [pb.IssuedAt(shard_id=1, position=7), pb.IssuedAt(shard_id=2, position=8)]

    await router.call_key(key, creation(issued=issued), timeout_ms=TIMEOUT_MS)

    for shard_id, position in ((1, 7), (2, 8)):
        sent = servers[shard_id].requests[-1].execute
        assert (sent.issued_position, [*sent.issued]) == (position, issued)


def points(key: str, slot: int):
    """Return a hook of a shard that has a pointer to the topic called ``key``."""

    async def refuse(_request):
        raise StaleShardMap("it was renamed", moved_names={key: slot})

    return refuse


def slot_at(link, shard_id: int) -> int:
    return link.view.slot_table.slots_of(shard_id)[0]


async def test_a_request_by_the_name_of_a_renamed_topic_goes_to_its_home(two_shards):
    servers, link, router = two_shards
    key, other = key_at(link, 1), key_at(link, 1, 1)
    servers[1].hook = points(key, slot_at(link, 2))

    response = await router.call_key(key, lookup("x"), timeout_ms=TIMEOUT_MS)
    await router.call_key(key, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert response.position == 10
    assert [len(servers[each].requests) for each in (1, 2)] == [1, 2], "the second goes straight"
    assert router.statistics.retries_total == 0
    assert (router.shard_of_key(key), router.shard_of_key(other)) == (2, 1)


async def test_a_name_that_is_not_found_where_it_led_is_asked_of_its_own_shard(two_shards):
    servers, link, router = two_shards
    key = key_at(link, 1)
    link.view.learn_names({key: slot_at(link, 2)})
    servers[2].hook = points(key, slot_of(key))

    response = await router.call_key(key, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert response.position == 10
    assert [len(servers[each].requests) for each in (1, 2)] == [1, 1]
    assert not link.view.is_moved(key)


async def test_a_request_about_many_names_comes_back_if_one_leads_elsewhere(two_shards):
    servers, link, router = two_shards
    key = key_at(link, 1)
    servers[1].hook = points(key, slot_at(link, 2))

    with pytest.raises(StaleShardMap):
        await router.call(1, lookup("x", "y"), timeout_ms=TIMEOUT_MS)

    assert len(servers[1].requests) == 1
    assert router.shard_of_key(key) == 2


async def test_a_request_to_a_slot_goes_to_the_shard_that_has_it(two_shards):
    servers, link, router = two_shards

    await router.call_slot(slot_at(link, 2), lookup("x"), timeout_ms=TIMEOUT_MS)

    assert [len(servers[each].requests) for each in (1, 2)] == [0, 1]
