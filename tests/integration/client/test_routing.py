"""Routing against fake shard servers: leaders that change, hang, die and come back."""

import asyncio

import pytest

from nextgen.client.routing import router as routing
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Indefinite,
    InvalidRequest,
    NotLeader,
    Overloaded,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.limits.cluster import ROUTER_RETRIES_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import NodeRegistered
from tests.support.discovery.fake_cluster import StaticLink, full_update, shard_map
from tests.support.discovery.fake_shard_server import FakeShardServer

TIMEOUT_MS = 90_000
FAST_S_MAX = 30
"""What took longer has waited for ``TIMEOUT_MS``; a slow machine alone does not take so long."""


@pytest.fixture
async def servers():
    """Two nodes with replicas of shard 1; the first leads."""
    servers = [FakeShardServer(1), FakeShardServer(1)]
    for server in servers:
        await server.start()
    servers[1].leads = set()
    yield servers
    for server in servers:
        await server.stop()


@pytest.fixture
async def link(servers):
    link = StaticLink(full_update({1: servers[0].endpoint}))
    link.push(
        ClusterUpdate(
            shard_map=shard_map({1: ["a", "b"]}, version=2),
            nodes=[
                NodeRegistered(node_id="a", grpc=servers[0].endpoint),
                NodeRegistered(node_id="b", grpc=servers[1].endpoint),
            ],
        )
    )
    return link


@pytest.fixture
async def router(link):
    pool = ExchangePool(lambda: link.view.shard_map_version)
    yield ShardRouter(link, pool)
    await pool.stop()


def lookup(*topics: str) -> pb.ShardRequest:
    return pb.ShardRequest(lookup=pb.ShardLookupRequest(topics=topics))


def take_over(servers, leader: int) -> None:
    for number, server in enumerate(servers):
        server.leads = {1} if number == leader else set()


async def test_a_request_goes_to_the_leader_without_retries(servers, router):
    response = await router.call_key("t/n/x", lookup("x"), timeout_ms=TIMEOUT_MS)

    assert response.position == 10
    assert len(servers[0].requests) == 1
    assert router.statistics.retries[0] == 1
    assert router.statistics.retries_quantile(0.99) == 0


async def test_a_hint_is_followed_at_once(servers, router):
    take_over(servers, 1)
    servers[0].leader_hint = servers[1].endpoint

    await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert router.statistics.retries[1] == 1


async def test_the_directory_may_be_wrong_and_nobody_corrects_it(servers, router):
    """The cluster manager is down and the leader died: a replica knows who leads."""
    take_over(servers, 1)
    await servers[0].stop()

    response = await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert response.position == 10
    assert router.statistics.retries_total <= 2


async def test_it_waits_for_the_new_leader_to_be_pushed(servers, link, router, monkeypatch):
    """1. The leader dies. 2. An election takes a while. 3. The new leader is pushed."""
    waits_ms = (*routing._LEADER_WAIT_MS[:1], *(TIMEOUT_MS,) * (ROUTER_RETRIES_MAX - 1))
    monkeypatch.setattr(routing, "_LEADER_WAIT_MS", waits_ms)  # It would ask again by itself.
    servers[1].leader_hint = servers[0].endpoint
    await servers[0].stop()
    calling = asyncio.create_task(router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS))
    await servers[1].wait_requests(1)

    take_over(servers, 1)
    link.push_leader(1, 2, servers[1].endpoint)
    async with timeout(FAST_S_MAX):
        await calling


async def test_no_leader_at_all_waits_until_the_deadline(router, link):
    empty = StaticLink(ClusterUpdate(shard_map=shard_map({1: ["a"]})))
    lonely = ShardRouter(empty, router._pool)

    with pytest.raises(Unavailable, match="no leader"):
        await lonely.call(1, lookup("x"), timeout_ms=100)


async def test_a_leader_that_froze_is_left_when_another_is_pushed(servers, link, router):
    async def never(_request):
        await asyncio.Event().wait()

    servers[0].hook = never
    calling = asyncio.create_task(router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS))
    await servers[0].wait_requests(1)

    take_over(servers, 1)
    link.push_leader(1, 2, servers[1].endpoint)

    async with timeout(FAST_S_MAX):
        await calling
    assert router.statistics.retries[1] == 1


async def test_a_command_that_may_have_happened_is_not_repeated_unless_idempotent(servers, router):
    async def never(_request):
        await asyncio.Event().wait()

    servers[0].hook = never
    calling = asyncio.create_task(
        router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS, idempotent=False)
    )
    await servers[0].wait_requests(1)

    await servers[0].stop()

    with pytest.raises(ConnectionLost):
        await calling
    assert servers[1].requests == []


async def test_definite_trouble_behind_an_indefinite_attempt_stays_indefinite(servers, router):
    async def lose_connection_then_refuse(_request):
        await asyncio.Event().wait()

    servers[0].hook = lose_connection_then_refuse
    calling = asyncio.create_task(router.call(1, lookup("x"), timeout_ms=3_000))
    await servers[0].wait_requests(1)
    await servers[0].stop()
    await servers[1].stop()

    with pytest.raises(Indefinite) as caught:
        await calling
    assert type(caught.value) in {DeadlineExceeded, ConnectionLost}


async def test_retries_stop_at_the_hard_cap(servers, router):
    async def overloaded(_request):
        raise Overloaded("the queue is full")

    servers[0].hook = overloaded

    with pytest.raises(Overloaded):
        await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert len(servers[0].requests) == ROUTER_RETRIES_MAX + 1
    assert router.statistics.retries[ROUTER_RETRIES_MAX] == 1
    assert router.statistics.failures == 1


async def test_a_malformed_request_is_not_retried(servers, router):
    async def refuse(_request):
        raise InvalidRequest("no body")

    servers[0].hook = refuse

    with pytest.raises(InvalidRequest):
        await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)
    assert len(servers[0].requests) == 1


async def test_a_stale_map_waits_for_the_next_one_and_routes_again(servers, link, router):
    async def stale_until_version_3(request):
        if request.shard_map_version < 3:
            raise StaleShardMap("slot moved", 3)

    servers[0].hook = stale_until_version_3
    calling = asyncio.create_task(router.call_key("t/n/x", lookup("x"), timeout_ms=TIMEOUT_MS))
    await servers[0].wait_requests(1)

    link.push(ClusterUpdate(shard_map=shard_map({1: ["a", "b"]}, version=3)))

    async with timeout(FAST_S_MAX):
        await calling
    versions = [request.shard_map_version for request in servers[0].requests]
    assert (set(versions[:-1]), versions[-1]) == ({2}, 3)


async def test_any_replica_answers_when_one_is_dead(servers, router):
    async def answer(_request):
        return pb.ShardResponse(position=44)

    servers[1].hook = answer
    await servers[0].stop()

    for _ in range(4):
        response = await router.call_any(1, lookup("x"), timeout_ms=TIMEOUT_MS)
        assert response.position == 44


async def test_a_replica_that_does_not_know_its_slots_yet_is_passed_over(servers, router):
    """It joined, or lost its disk, and its view begins with nothing."""

    async def knows_nothing(_request):
        raise StaleShardMap("shard 1 does not have slot 7", 2)

    async def answer(_request):
        return pb.ShardResponse(position=44)

    servers[0].hook = knows_nothing
    servers[1].hook = answer

    for _ in range(8):
        response = await router.call_any(1, lookup("x"), timeout_ms=TIMEOUT_MS)
        assert response.position == 44


async def test_a_map_that_moves_no_slot_disturbs_no_request(servers, link, router):
    """Versions come while requests are under way; each is answered at the first attempt."""
    released = asyncio.Event()

    async def wait(_request):
        await released.wait()

    servers[0].hook = wait
    calling = [
        asyncio.create_task(router.call_key("t/n/x", lookup("x"), timeout_ms=TIMEOUT_MS))
        for _ in range(10)
    ]
    await servers[0].wait_requests(10)
    later = shard_map({1: ["a", "b"]})
    for later.version in range(3, 30):
        link.push(ClusterUpdate(shard_map=later))
    released.set()

    await asyncio.gather(*calling)

    assert len(servers[0].requests) == 10
    assert servers[1].requests == []
    assert router.statistics.retries_total == 0


async def test_a_shard_led_here_takes_the_shortcut(servers, link):
    async def local(request):
        return pb.ShardResponse(position=request.shard_id)

    pool = ExchangePool(lambda: 1)
    router = ShardRouter(link, pool, lambda shard_id: local if shard_id == 1 else None)

    response = await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert response.position == 1
    assert servers[0].requests == []


async def test_a_local_leader_that_steps_down_is_left(servers, link):
    led = {1}

    async def local(_request):
        led.clear()
        raise NotLeader(1, servers[0].endpoint)

    pool = ExchangePool(lambda: 1)
    router = ShardRouter(link, pool, lambda shard_id: local if shard_id in led else None)

    response = await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)

    assert response.position == 10
    await pool.stop()


async def test_every_repetition_of_a_command_says_how_far_the_shard_was_at_the_first(
    servers, link, router
):
    """1. The shard is at position 10. 2. A command is sent and its leader dies. 3. It is sent to
    the next one, where the shard is further."""

    async def far(_request):
        return pb.ShardResponse(position=99)

    command = pb.Command(command_id=bytes(16))
    await router.call(1, lookup("x"), timeout_ms=TIMEOUT_MS)
    servers[1].hook = far
    servers[1].leads = {1}
    await servers[0].stop()

    request = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
    await router.call(1, request, timeout_ms=TIMEOUT_MS)
    later = pb.ShardRequest(execute=pb.ExecuteRequest(commands=[command]))
    await router.call(1, later, timeout_ms=TIMEOUT_MS)

    issued = [each.execute.issued_position for each in servers[1].requests]
    assert issued == [10, 99]
