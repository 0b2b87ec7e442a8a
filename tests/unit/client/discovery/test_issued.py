"""When a command was issued: which positions it carries, from its first attempt to its last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from google.protobuf.message import Message

from nextgen.client.discovery.nodes import DiscoveryNodes, Response
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    InvalidRequest,
    MetadataError,
    Refused,
    Unavailable,
)
from nextgen.kernel.limits.write import COMMAND_REPEATED_MS_MAX, ISSUED_POSITIONS_FRESH_MS
from protos.nextgen.v1 import discovery_service_pb2 as pb
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

TIMEOUT_MS = 5_000
Attempt = tuple[str, float, tuple[tuple[int, int], ...]]


def positions_of(request: Message) -> tuple[tuple[int, int], ...]:
    return tuple((each.shard_id, each.position) for each in request.issued)


class Cluster(DiscoveryNodes):
    """Two discovery nodes of a cluster that goes on by 100 positions with each attempt.

    ``errors`` are raised for the attempts, in order; what is left over is answered.
    """

    def __init__(self, *errors: MetadataError) -> None:
        super().__init__(["a:1", "b:1"], in_order=True)
        self.errors = list(errors)
        self.position = 1_000
        self.attempts: list[Attempt] = []
        self.reads = 0
        self.read_error: MetadataError | None = None
        self.read_s = 0.0
        self.before_answer: Callable[[], None] = lambda: None

    async def call_at(
        self,
        endpoint: str,
        method: str,
        request: Message,
        response_type: type[Response],
        *,
        timeout_ms: float,
    ) -> Response:
        if method == "GetPositions":
            self.reads += 1
            await asyncio.sleep(self.read_s)
            if self.read_error is not None:
                raise self.read_error
            return response_type(positions=[pb.ShardPosition(shard_id=1, position=self.position)])
        now = asyncio.get_running_loop().time()
        self.attempts.append((endpoint, now, positions_of(request)))
        self.position += 100
        if self.errors:
            raise self.errors.pop(0)
        return response_type()

    async def write(
        self, request: Message | None = None, *, timeout_ms: int = TIMEOUT_MS
    ) -> pb.WriteResponse:
        return await self.call(
            "DeleteTopic", request or delete(), pb.WriteResponse, timeout_ms=timeout_ms
        )

    @property
    def issued(self) -> list[tuple[tuple[int, int], ...]]:
        """What each attempt said of when its command was issued."""
        return [issued for _, _, issued in self.attempts]


def delete() -> pb.DeleteRequest:
    return pb.DeleteRequest(command_id=bytes(16), name="persistent://a/b/c")


@run_by(run_virtual)
async def test_every_attempt_says_how_far_the_shards_were_before_the_first() -> None:
    nodes = Cluster(ConnectionLost("gone"), DeadlineExceeded("no answer"))

    await nodes.write()

    assert nodes.issued == [((1, 1_000),)] * 3
    assert len({endpoint for endpoint, _, _ in nodes.attempts}) == 2


@run_by(run_virtual)
async def test_a_message_that_is_sent_again_later_says_what_it_said_at_first() -> None:
    """1. A command may have been carried out. 2. Its caller gives up, and comes back later."""
    nodes = Cluster(*[ConnectionLost("gone")] * 40)
    request = delete()
    with pytest.raises(ConnectionLost):
        await nodes.write(request)
    nodes.errors.clear()
    nodes.position = 9_000
    await asyncio.sleep(3_600)

    await nodes.write(request)

    assert set(nodes.issued) == {((1, 1_000),)}


@run_by(run_virtual)
async def test_what_was_carried_out_nowhere_is_issued_again() -> None:
    """Or its age would have it refused once its shard is back, though it was never carried out."""
    nodes = Cluster(Unavailable("no leader"))
    request = delete()

    await nodes.write(request)

    assert nodes.issued == [((1, 1_000),), ((1, 1_100),)]


@run_by(run_virtual)
async def test_a_message_that_certainly_was_not_carried_out_says_nothing_afterwards() -> None:
    nodes = Cluster(*[Unavailable("no leader")] * 60)
    request = delete()

    with pytest.raises(Unavailable):
        await nodes.write(request)

    assert positions_of(request) == ()


@run_by(run_virtual)
async def test_a_message_that_was_refused_keeps_what_it_says() -> None:
    nodes = Cluster(Refused("NOT_FOUND", "there is none"))
    request = delete()

    with pytest.raises(Refused):
        await nodes.write(request)

    assert positions_of(request) == ((1, 1_000),)


@pytest.mark.parametrize(("late_ms", "reads"), [(0, 1), (1, 2)])
@run_by(run_virtual)
async def test_positions_are_read_again_when_they_are_not_fresh(
    *, late_ms: int, reads: int
) -> None:
    nodes = Cluster()
    await nodes.write()
    await asyncio.sleep((ISSUED_POSITIONS_FRESH_MS + late_ms) / 1_000)

    await nodes.write()

    assert nodes.reads == reads


@run_by(run_virtual)
async def test_commands_that_begin_together_share_one_read() -> None:
    nodes = Cluster()
    nodes.read_s = 0.2

    await asyncio.gather(*(nodes.write() for _ in range(50)))

    assert nodes.reads == 1
    assert set(nodes.issued) == {((1, 1_000),)}


@run_by(run_virtual)
async def test_a_read_that_hangs_costs_each_command_its_own_time_and_no_other() -> None:
    nodes = Cluster()
    nodes.read_s = 3_600.0
    began = asyncio.get_running_loop().time()

    failures = await asyncio.gather(*(nodes.write() for _ in range(20)), return_exceptions=True)

    assert {type(failure) for failure in failures} == {Unavailable}
    assert asyncio.get_running_loop().time() - began <= TIMEOUT_MS / 1_000
    assert nodes.attempts == []
    await nodes.close()


@pytest.mark.parametrize(
    "error", [ConnectionLost("gone"), DeadlineExceeded("no answer"), Unavailable("no map")]
)
@run_by(run_virtual)
async def test_a_command_without_positions_is_not_sent_and_fails_definitely(
    *, error: MetadataError
) -> None:
    nodes = Cluster()
    nodes.read_error = error

    with pytest.raises(Unavailable):
        await nodes.write()

    assert nodes.attempts == []


@run_by(run_virtual)
async def test_a_node_of_an_earlier_release_gets_the_command_as_it_always_did() -> None:
    nodes = Cluster()
    nodes.read_error = InvalidRequest("method not served (gRPC status UNIMPLEMENTED)")

    await nodes.write()

    assert nodes.issued == [()]


@pytest.mark.parametrize(
    ("error", "repeated_s"),
    [(ConnectionLost("gone"), COMMAND_REPEATED_MS_MAX / 1_000), (Unavailable("no leader"), 300.0)],
)
@run_by(run_virtual)
async def test_a_command_is_repeated_for_a_bounded_time_once_it_may_have_been_carried_out(
    *, error: MetadataError, repeated_s: float
) -> None:
    """Its outcome is kept for longer than that. What happened nowhere may wait for as long as
    its caller does."""
    nodes = Cluster(*[error] * 10_000)

    with pytest.raises(type(error)):
        await nodes.write(timeout_ms=300_000)

    first_s, last_s = nodes.attempts[0][1], nodes.attempts[-1][1]
    assert repeated_s - 1.0 < last_s - first_s <= repeated_s


@run_by(run_virtual)
async def test_a_read_asks_for_no_positions() -> None:
    nodes = Cluster()

    with pytest.raises(AttributeError):
        # The fake answers writes only: it looks for what a read does not have.
        await nodes.call(
            "GetTopic", pb.GetObjectRequest(), pb.GetObjectResponse, timeout_ms=TIMEOUT_MS
        )

    assert nodes.reads == 0
