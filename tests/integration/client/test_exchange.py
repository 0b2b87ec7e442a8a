"""The exchange against a real gRPC server in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nextgen.client.routing.exchange import ExchangePool, NotConnected
from nextgen.client.transport.member_gate import MemberGate
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    NotLeader,
    Overloaded,
    Unauthenticated,
)
from nextgen.kernel.limits.stream import EXCHANGE_BATCH_REQUESTS_MAX, EXCHANGE_IN_FLIGHT_MAX
from nextgen.runtime.security.cluster_proof import (
    ClusterCredentials,
    credentials_in_use,
    use_credentials,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.discovery.fake_shard_server import FakeShardServer

TIMEOUT_MS = 90_000
FAST_S_MAX = 30
"""What took longer has waited for ``TIMEOUT_MS``; a slow machine alone does not take so long."""

LOST_STATUS_MAX = 5
"""Attempts to read the status of a refused call."""

GIVEN_UP = 20
"""Requests, of a megabyte each: more of them than any window or buffer takes in."""


@pytest.fixture
async def server():
    server = FakeShardServer(1)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def pool():
    pool = ExchangePool(lambda: 7)
    yield pool
    await pool.stop()


class UnreadServer(FakeShardServer):
    """Accepts streams and reads nothing of them until ``reads`` is set."""

    def __init__(self, *shard_ids: int) -> None:
        super().__init__(*shard_ids)
        self.reads = asyncio.Event()

    async def Exchange(self, request_iterator: AsyncIterator[pb.ShardRequest], context: Any):
        await self.reads.wait()
        await super().Exchange(request_iterator, context)


def lookup(*topics: str, shard_id: int = 1) -> pb.ShardRequest:
    return pb.ShardRequest(shard_id=shard_id, lookup=pb.ShardLookupRequest(topics=topics))


def create(name: str) -> pb.ShardRequest:
    body = pb.CreateTopics(topics=[pb.TopicSpec(name=name)])
    command = pb.Command(command_id=name.encode().ljust(16), create_topics=body)
    return pb.ShardRequest(shard_id=1, execute=pb.ExecuteRequest(commands=[command]))


async def test_many_requests_share_one_stream_and_get_their_own_answers(server, pool):
    names = [f"persistent://t/n/x{number}" for number in range(500)]
    for name in names:
        server.shards[1].assign(name, "broker-1", "session-1")

    responses = await asyncio.gather(
        *(pool.request(server.endpoint, lookup(name), timeout_ms=TIMEOUT_MS) for name in names)
    )

    assert [response.lookup.answers[0].topic for response in responses] == names
    assert {request.shard_map_version for request in server.requests} == {7}
    assert repr(pool) == "<ExchangePool connections=1 in_flight=0>"


async def test_requests_behind_one_without_an_answer_share_messages_in_their_order(server, pool):
    server.takes_batches = True
    release = asyncio.Event()

    async def wait(_request):
        await release.wait()

    await pool.request(server.endpoint, create("first"), timeout_ms=TIMEOUT_MS)
    server.hook = wait
    ahead = asyncio.create_task(
        pool.request(server.endpoint, create("ahead"), timeout_ms=TIMEOUT_MS)
    )
    await server.wait_requests(2)
    names = [f"t{number}" for number in range(EXCHANGE_BATCH_REQUESTS_MAX)]
    others = [
        asyncio.create_task(pool.request(server.endpoint, create(name), timeout_ms=TIMEOUT_MS))
        for name in names
    ]
    await server.wait_requests(2 + len(names))
    release.set()
    await asyncio.gather(ahead, *others)

    assert server.requests_per_message == [1, 1, len(names)]
    sent = [each.execute.commands[0].create_topics.topics[0].name for each in server.requests]
    assert sent == ["first", "ahead", *names]


async def test_a_node_of_an_earlier_release_gets_one_request_in_each_message(server, pool):
    await asyncio.gather(
        *(
            pool.request(server.endpoint, create(f"t{number}"), timeout_ms=TIMEOUT_MS)
            for number in range(100)
        )
    )

    assert len(server.requests) == 100
    assert not any(request.batch for request in server.requests)


async def test_a_stream_that_breaks_fails_all_requests_of_a_message_indefinitely(server, pool):
    """They may have been carried out: their callers repeat them with the same command ids."""
    server.takes_batches = True
    await pool.request(server.endpoint, create("first"), timeout_ms=TIMEOUT_MS)

    async def never(_request):
        await asyncio.Event().wait()

    server.hook = never
    waiting = [
        asyncio.create_task(pool.request(server.endpoint, create(name), timeout_ms=TIMEOUT_MS))
        for name in ("a", "b", "c")
    ]
    await server.wait_requests(4)
    async with timeout(FAST_S_MAX):
        await server.stop()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert server.requests_per_message == [1, 3]
    assert {type(outcome) for outcome in outcomes} == {ConnectionLost}


async def test_first_answer_of_an_earlier_release_is_skipped(server, pool):
    response = await pool.request(
        server.endpoint,
        pb.ShardRequest(shard_id=1, assign=pb.AssignRequest(broker_id="broker-1")),
        timeout_ms=TIMEOUT_MS,
    )

    assert not response.more
    assert response.assign.synced


async def test_an_error_in_the_answer_is_raised(server, pool):
    server.leader_hint = "127.0.0.1:1"

    with pytest.raises(NotLeader) as caught:
        await pool.request(server.endpoint, lookup("x", shard_id=2), timeout_ms=TIMEOUT_MS)

    assert caught.value.leader_hint == "127.0.0.1:1"


async def test_nobody_at_the_endpoint_is_definite_and_fast(server, pool):
    await server.stop()

    async with timeout(FAST_S_MAX):
        for _ in range(2):
            with pytest.raises(NotConnected):
                await pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS)


async def test_a_peer_that_dies_fails_what_waits_at_once_and_indefinitely(server, pool):
    async def never(_request):
        await asyncio.Event().wait()

    server.hook = never
    waiting = [
        asyncio.create_task(pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS))
        for _ in range(10)
    ]
    await server.wait_requests(10)

    async with timeout(FAST_S_MAX):
        await server.stop()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {ConnectionLost}


async def test_a_peer_that_comes_back_is_reached_again(server, pool):
    await pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS)
    port = server.port
    await server.stop()
    with pytest.raises((NotConnected, ConnectionLost)):
        await pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS)

    await server.start(port)
    async with timeout(FAST_S_MAX):
        while True:
            try:
                response = await pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS)
                break
            except (NotConnected, ConnectionLost):
                await asyncio.sleep(0.02)

    assert response.lookup.answers[0].rejection_code == "NOT_FOUND"


async def test_no_answer_in_time_is_indefinite_and_leaves_nothing_behind(server, pool):
    async def never(_request):
        await asyncio.Event().wait()

    await pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS)
    server.hook = never

    with pytest.raises(DeadlineExceeded):
        await pool.request(server.endpoint, lookup("x"), timeout_ms=50)

    assert "in_flight=0" in repr(pool)


async def test_requests_without_a_waiter_are_not_sent_to_a_slow_peer(pool):
    server = UnreadServer(1)
    await server.start()
    large = lookup("x" * 1_000_000)
    try:
        for _ in range(GIVEN_UP):
            with pytest.raises(DeadlineExceeded):
                await pool.request(server.endpoint, large, timeout_ms=50)

        server.reads.set()
        await pool.request(server.endpoint, lookup("y"), timeout_ms=TIMEOUT_MS)
    finally:
        await server.stop()

    # What was handed to gRPC before it was given up is on its way.
    assert len(server.requests) - 1 < GIVEN_UP // 2


async def test_one_more_than_may_be_in_flight_is_refused(server, pool, monkeypatch):
    release = asyncio.Event()

    async def wait(_request):
        await release.wait()

    server.hook = wait
    first = asyncio.create_task(pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS))
    await server.wait_requests(1)
    others = [
        asyncio.create_task(pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS))
        for _ in range(EXCHANGE_IN_FLIGHT_MAX - 1)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    with pytest.raises(Overloaded):
        await pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS)

    release.set()
    assert len(await asyncio.gather(first, *others)) == EXCHANGE_IN_FLIGHT_MAX


async def test_a_deposed_leader_that_froze_is_given_up(server, pool):
    async def never(_request):
        await asyncio.Event().wait()

    server.hook = never
    waiting = asyncio.create_task(pool.request(server.endpoint, lookup("x"), timeout_ms=TIMEOUT_MS))
    await server.wait_requests(1)

    pool.abandon(1, leader="127.0.0.1:1")

    async with timeout(FAST_S_MAX):
        with pytest.raises(ConnectionLost):
            await waiting


OURS = ClusterCredentials("c", b"0123456789abcdef", Path("/secret"))


@pytest.fixture
async def guarded():
    server = FakeShardServer(1)
    server.gate = MemberGate(OURS)
    await server.start()
    before = credentials_in_use()
    yield server
    use_credentials(before)
    await server.stop()


async def test_a_request_to_a_node_that_wants_proof_fails_for_good_without_it(guarded, pool):
    use_credentials(None)

    async def request() -> None:
        for _ in range(LOST_STATUS_MAX):
            # grpc.aio loses the server's status if it writes just when the call ends.
            with contextlib.suppress(ConnectionLost):
                await pool.request(guarded.endpoint, lookup("t"), timeout_ms=TIMEOUT_MS)

    with pytest.raises(Unauthenticated, match="this node needs the cluster secret"):
        await request()

    assert guarded.requests == []


async def test_requests_of_a_member_are_answered_over_a_stream_that_was_proven_once(guarded, pool):
    use_credentials(OURS)

    for number in range(3):
        guarded.shards[1].assign(f"t{number}", "broker-1", "session-1")
        response = await pool.request(guarded.endpoint, lookup(f"t{number}"), timeout_ms=TIMEOUT_MS)
        assert response.lookup.answers[0].broker_id == "broker-1"

    assert repr(pool) == "<ExchangePool connections=1 in_flight=0>"
