"""Who may call what: a server behind the gate, over a connection as production has it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from structlog.testing import capture_logs

import protos.nextgen.v1
from nextgen.client.transport.channel import open_channel, wait_connected
from nextgen.client.transport.member_gate import Challenges, MemberGate
from nextgen.client.transport.node_calls import NODE_CALLS, OPEN_CALLS
from nextgen.client.transport.proving_channel import ProvingChannel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import MetadataError, Unauthenticated, Unavailable
from nextgen.kernel.limits.inbound import (
    CHALLENGE_KEPT_MS,
    CHALLENGE_PERIOD_MS,
    CHALLENGE_PROOFS_MAX,
)
from nextgen.runtime.security.cluster_proof import (
    PROOF_KEY,
    ClusterCredentials,
    Proof,
    credentials_in_use,
    use_credentials,
)
from nextgen.runtime.servers.grpc_server import new_server

OURS = ClusterCredentials("blue", b"0123456789abcdef", Path("/secret"))
DEADLINE_S = 10
EXCHANGE = "/nextgen.v1.ShardService/Exchange"
STATUS = "/nextgen.v1.ShardService/GetNodeStatus"


def served() -> dict[str, Any]:
    """Return every method of every service of ours, and of gRPC's that servers have, by path."""
    modules: list[Any] = [
        importlib.import_module(f"protos.nextgen.v1.{module.name}")
        for module in pkgutil.iter_modules(protos.nextgen.v1.__path__)
        if module.name.endswith("_pb2")
    ]
    return {
        f"/{service.full_name}/{method.name}": method
        for module in (*modules, health_pb2, reflection_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


@dataclass
class Clock:
    seconds: float = 1_000.0

    def __call__(self) -> float:
        return self.seconds


class EveryMethod(grpc.GenericRpcHandler):
    """Answers whatever is called with one message: its path."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        path = handler_call_details.method.encode()

        async def answer(_requests: Any, context: Any) -> None:
            await context.write(path)

        return grpc.stream_stream_rpc_method_handler(answer)


@asynccontextmanager
async def guarded(gate: MemberGate) -> AsyncIterator[str]:
    """Run a server behind the gate and yield its address."""
    server = new_server([], interceptors=[gate])
    server.server.add_generic_rpc_handlers((EveryMethod(),))
    port = await server.start("127.0.0.1", 0, "a test")
    yield f"127.0.0.1:{port}"
    await server.stop(grace_ms=0)


@asynccontextmanager
async def calling(endpoint: str, credentials: ClusterCredentials | None) -> AsyncIterator[Any]:
    """Yield a channel of this project's own, for a caller with these credentials."""
    before = credentials_in_use()
    use_credentials(credentials)
    channel = open_channel(endpoint)
    use_credentials(before)
    try:
        await wait_connected(channel, endpoint)
        yield channel
    finally:
        await channel.close()


async def stream(channel: Any, path: str, *, proof: bytes | None = None) -> bytes:
    """Begin a stream, say nothing, and return the first answer."""
    metadata = () if proof is None else ((PROOF_KEY, proof),)
    answers = [each async for each in channel.stream_stream(path)(timeout=5, metadata=metadata)]
    (answer,) = answers
    assert isinstance(answer, bytes)
    return answer


async def failure(channel: Any, path: str, *, proof: bytes | None = None) -> MetadataError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stream(channel, path, proof=proof)
    return error_of_rpc(raised.value)


async def challenge_of(endpoint: str) -> bytes:
    async with calling(endpoint, OURS) as channel:
        challenge = channel._challenge
    assert isinstance(challenge, bytes)
    return challenge


# Which methods ---------------------------------------------------------------------------------


def test_every_method_is_either_open_or_for_nodes():
    """A new method fails here until it is declared open or for members."""
    assert set(served()) == OPEN_CALLS | NODE_CALLS
    assert OPEN_CALLS.isdisjoint(NODE_CALLS)


@pytest.mark.parametrize("path", sorted(NODE_CALLS))
async def test_a_method_for_nodes_is_refused_without_proof_and_answered_with_it(path: str):
    async with guarded(MemberGate(OURS)) as endpoint:
        async with calling(endpoint, None) as stranger:
            refusal = await failure(stranger, path)
        async with calling(endpoint, OURS) as member:
            assert await stream(member, path) == path.encode()

    assert isinstance(refusal, Unauthenticated)
    assert str(refusal).startswith("this node needs the cluster secret")


async def test_an_open_method_is_answered_without_proof():
    async with guarded(MemberGate(OURS)) as endpoint, calling(endpoint, None) as stranger:
        for path in sorted(OPEN_CALLS - {"/nextgen.v1.PeerService/GetChallenge"}):
            if path.startswith("/nextgen"):
                assert await stream(stranger, path) == path.encode()


async def test_a_method_that_is_in_no_list_needs_proof():
    async with guarded(MemberGate(OURS)) as endpoint, calling(endpoint, None) as stranger:
        refusal = await failure(stranger, "/nextgen.v1.NewService/Anything")

    assert isinstance(refusal, Unauthenticated)


# Which proofs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        ClusterCredentials("blue", b"another secret..", Path("/secret")),
        ClusterCredentials("green", OURS.secret, Path("/secret")),
    ],
    ids=["another secret", "another cluster"],
)
async def test_a_caller_with_credentials_of_others_is_refused(other: ClusterCredentials):
    async with guarded(MemberGate(OURS)) as endpoint, calling(endpoint, other) as channel:
        refusal = await failure(channel, EXCHANGE)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(STATUS)(b"", timeout=DEADLINE_S)

    assert isinstance(refusal, Unauthenticated)
    assert "another one, or for another cluster" in str(refusal)
    assert "blue" not in str(refusal), "a stranger hears nothing of the cluster"
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("proof", [b"", b"x", b"x" * 64, b"x" * 4_096])
async def test_what_is_no_proof_is_refused(proof: bytes):
    async with guarded(MemberGate(OURS)) as endpoint, calling(endpoint, None) as stranger:
        assert isinstance(await failure(stranger, EXCHANGE, proof=proof), Unauthenticated)


async def test_a_proof_that_was_overheard_counts_neither_again_nor_for_another_method():
    async with guarded(MemberGate(OURS)) as endpoint, calling(endpoint, None) as eavesdropper:
        proof = OURS.prove(EXCHANGE, await challenge_of(endpoint))

        assert isinstance(await failure(eavesdropper, STATUS, proof=proof), Unauthenticated)
        assert await stream(eavesdropper, EXCHANGE, proof=proof) == EXCHANGE.encode()
        again = await failure(eavesdropper, EXCHANGE, proof=proof)

    assert isinstance(again, Unavailable)


async def test_a_proof_for_one_process_does_not_count_at_another():
    async with guarded(MemberGate(OURS)) as here, guarded(MemberGate(OURS)) as there:
        proof = OURS.prove(EXCHANGE, await challenge_of(here))
        async with calling(there, None) as eavesdropper:
            refusal = await failure(eavesdropper, EXCHANGE, proof=proof)

    assert isinstance(refusal, Unavailable)


async def test_nothing_of_a_refused_call_is_read_or_carried_out():
    began = []

    class Noting(EveryMethod):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            async def answer(_request: bytes, _context: Any) -> bytes:
                began.append(handler_call_details.method)
                return b""

            return grpc.unary_unary_rpc_method_handler(answer, began.append)

    server = new_server([], interceptors=[MemberGate(OURS)])
    server.server.add_generic_rpc_handlers((Noting(),))
    endpoint = f"127.0.0.1:{await server.start('127.0.0.1', 0, 'a test')}"
    async with calling(endpoint, None) as stranger:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stranger.unary_unary(STATUS)(b"x" * 1_000_000, timeout=DEADLINE_S)
    await server.stop(grace_ms=0)

    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert began == []


# A secret is introduced ------------------------------------------------------------------------


async def test_without_a_secret_everybody_is_let_in():
    async with guarded(MemberGate(None)) as endpoint:
        for credentials in (None, OURS):
            async with calling(endpoint, credentials) as channel:
                assert await stream(channel, EXCHANGE) == EXCHANGE.encode()


async def test_a_server_of_an_earlier_release_is_called_without_proof():
    server = new_server([])
    methods = {"Exchange": EveryMethod().service(_Details(EXCHANGE))}
    server.server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("nextgen.v1.ShardService", methods),)
    )
    endpoint = f"127.0.0.1:{await server.start('127.0.0.1', 0, 'a test')}"
    async with calling(endpoint, OURS) as channel:
        assert await stream(channel, EXCHANGE) == EXCHANGE.encode()
    await server.stop(grace_ms=0)


async def test_until_proof_is_required_everybody_is_let_in_and_those_without_are_counted():
    strangers = [None, ClusterCredentials("blue", b"the secret before", Path("/old"))]
    with capture_logs() as lines:
        async with guarded(MemberGate(OURS, is_required=False)) as endpoint:
            for credentials in (*strangers, OURS):
                async with calling(endpoint, credentials) as channel:
                    assert await stream(channel, EXCHANGE) == EXCHANGE.encode()

    assert [line["outcome"] for line in lines] == ["taken", "taken"]
    assert lines[0]["method"] == EXCHANGE


# Time ------------------------------------------------------------------------------------------


def taken(challenges: Challenges, challenge: bytes, number: int = 0) -> bool:
    return challenges.take(Proof(challenge, number.to_bytes(16)))


def test_challenge_period_ms_is_how_long_one_is_given_and_it_counts_for_one_more():
    clock = Clock()
    challenges = Challenges(clock)
    first = challenges.present()
    clock.seconds += (CHALLENGE_PERIOD_MS - 1) / 1_000
    assert challenges.present() == first

    clock.seconds += 0.001
    second = challenges.present()
    assert second != first
    assert taken(challenges, first)

    clock.seconds += CHALLENGE_PERIOD_MS / 1_000
    assert not taken(challenges, first, 1)
    assert taken(challenges, second)


def test_no_challenge_survives_a_pause_of_two_periods():
    clock = Clock()
    challenges = Challenges(clock)
    first = challenges.present()

    clock.seconds += 2 * CHALLENGE_PERIOD_MS / 1_000

    assert not taken(challenges, first)


def test_challenge_proofs_max_is_accepted_and_one_more_is_of_the_next_challenge():
    challenges = Challenges(Clock())
    first = challenges.present()

    for number in range(CHALLENGE_PROOFS_MAX - 1):
        assert taken(challenges, first, number)
    assert challenges.present() == first
    assert taken(challenges, first, CHALLENGE_PROOFS_MAX - 1)
    second = challenges.present()
    assert second != first
    assert not taken(challenges, first, 0), "still remembered"
    for number in range(CHALLENGE_PROOFS_MAX):
        assert taken(challenges, second, number)
    assert not taken(challenges, first, CHALLENGE_PROOFS_MAX), "no longer taken"


async def test_a_call_whose_challenge_has_ended_gets_another_and_is_made_again():
    clock = Clock()
    gate = MemberGate(OURS, clock=clock)
    async with guarded(gate) as endpoint, calling(endpoint, OURS) as channel:
        assert await channel.unary_unary(STATUS)(b"", timeout=DEADLINE_S) == STATUS.encode()
        clock.seconds += 2 * CHALLENGE_PERIOD_MS / 1_000

        assert await channel.unary_unary(STATUS)(b"", timeout=DEADLINE_S) == STATUS.encode()


async def test_challenge_kept_ms_is_how_long_a_client_keeps_one_and_no_more():
    clock = Clock()
    async with guarded(MemberGate(OURS)) as endpoint:
        plain = grpc.aio.insecure_channel(endpoint)
        async with ProvingChannel(plain, OURS, clock) as channel:
            await channel.unary_unary(STATUS)(b"", timeout=DEADLINE_S)
            clock.seconds += CHALLENGE_KEPT_MS / 1_000
            await channel.unary_unary(STATUS)(b"", timeout=DEADLINE_S)
            assert channel._learned_at == 1_000.0

            clock.seconds += 0.001
            await channel.unary_unary(STATUS)(b"", timeout=DEADLINE_S)
            assert channel._learned_at == clock.seconds


async def test_a_refused_call_leaves_a_line_with_method_and_address_and_without_the_secret():
    with capture_logs() as lines:
        async with guarded(MemberGate(OURS)) as endpoint, calling(endpoint, None) as stranger:
            await failure(stranger, EXCHANGE)

    (line,) = lines
    assert (line["outcome"], line["method"]) == ("refused", EXCHANGE)
    assert line["peer"].startswith("ipv4:127.0.0.1:")
    assert "0123456789abcdef" not in str(line)


@dataclass
class _Details(grpc.HandlerCallDetails):
    method: str
    invocation_metadata: Any = ()
