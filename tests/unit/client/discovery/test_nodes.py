"""Repetitions of one call: when they end."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from google.protobuf.message import Message

from nextgen.client.discovery.nodes import DiscoveryNodes, Response
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    MetadataError,
    OutcomeForgotten,
    Overloaded,
    Unavailable,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from tests.support.scenarios import run_by
from tests.support.simulated.process import SimProcess
from tests.support.simulated.virtual_time import run_virtual


class Refusing(DiscoveryNodes):
    """Nodes that answer every attempt with ``error``, and say how far the shards are."""

    def __init__(self, error: MetadataError) -> None:
        super().__init__(["a:1", "b:1"], in_order=True)
        self.error = error
        self.attempts: list[float] = []

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
            return response_type(positions=[pb.ShardPosition(shard_id=1, position=10)])
        self.attempts.append(asyncio.get_running_loop().time())
        raise self.error


async def delete(nodes: DiscoveryNodes) -> pb.WriteResponse:
    request = pb.DeleteRequest(command_id=bytes(16), name="persistent://a/b/c")
    return await nodes.call("DeleteTopic", request, pb.WriteResponse, timeout_ms=5_000)


@run_by(run_virtual)
async def test_a_program_that_slept_sends_nothing_when_its_time_is_over() -> None:
    """Its command may have been carried out, and the name may mean something else by now."""
    nodes = Refusing(Unavailable("no leader"))
    program = SimProcess("program")
    calling = asyncio.ensure_future(program.ask(lambda: delete(nodes)))
    await asyncio.sleep(0.3)
    program.freeze()
    attempts = len(nodes.attempts)
    await asyncio.sleep(3_600)

    program.thaw()

    with pytest.raises(Unavailable):
        await calling
    assert attempts > 1
    assert len(nodes.attempts) == attempts


@run_by(run_virtual)
async def test_attempts_go_on_until_the_time_is_nearly_over() -> None:
    nodes = Refusing(Unavailable("no leader"))
    began = asyncio.get_running_loop().time()

    with pytest.raises(Unavailable):
        await delete(nodes)

    assert 4.0 < nodes.attempts[-1] - began < 5.0


class Slowing(Refusing):
    """Nodes that refuse twice, and have no time to answer then."""

    async def call_at(
        self,
        endpoint: str,
        method: str,
        request: Message,
        response_type: type[Response],
        *,
        timeout_ms: float,
    ) -> Response:
        if len(self.attempts) == 2 and method != "GetPositions":
            await asyncio.sleep(timeout_ms / 1_000)
            self.error = DeadlineExceeded(f"no answer within {timeout_ms:.0f} ms")
        return await super().call_at(
            endpoint, method, request, response_type, timeout_ms=timeout_ms
        )


@run_by(run_virtual)
async def test_a_last_attempt_without_an_answer_names_the_refusal_before_it() -> None:
    nodes = Slowing(Unavailable("shard 1 is being restored"))

    with pytest.raises(DeadlineExceeded, match=r"no answer .* failed: shard 1 is being restored"):
        await delete(nodes)


@run_by(run_virtual)
async def test_attempts_are_as_far_apart_as_the_refusal_says() -> None:
    nodes = Refusing(Overloaded("too many requests", retry_after_ms=1_000))

    with pytest.raises(Overloaded):
        await delete(nodes)

    pauses = [after - before for before, after in itertools.pairwise(nodes.attempts)]
    assert pauses
    assert all(1.0 <= pause <= 1.51 for pause in pauses)


@pytest.mark.parametrize(
    ("error", "is_last"),
    [
        (ConnectionLost("gone"), True),
        (DeadlineExceeded("no answer"), True),
        (Unavailable("not connected"), False),
    ],
)
@run_by(run_virtual)
async def test_what_may_have_happened_is_not_sent_again_if_that_would_be_once_too_many(
    *, error: MetadataError, is_last: bool
) -> None:
    nodes = Refusing(error)
    request = pb.UnloadTopicsRequest(topics=["persistent://a/b/c"])

    with pytest.raises(type(error)):
        await nodes.call(
            "UnloadTopics",
            request,
            pb.UnloadTopicsResponse,
            timeout_ms=5_000,
            is_repeatable=False,
        )

    assert (len(nodes.attempts) == 1) is is_last


@run_by(run_virtual)
async def test_what_came_too_late_is_not_tried_elsewhere() -> None:
    nodes = Refusing(OutcomeForgotten("too late"))

    with pytest.raises(OutcomeForgotten):
        await delete(nodes)

    assert len(nodes.attempts) == 1
