"""Stock brokers over gRPC, whose sidecars the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from nextgen.client.model import BrokerState
from nextgen.client.transport.member_gate import MemberGate
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.inbound import CHALLENGE_PERIOD_MS
from nextgen.migration.adoption.ports import OpenTopic, OpenTopics, Outcome
from nextgen.migration.adoption.stock_brokers import StockBrokers
from nextgen.runtime.security.cluster_proof import ClusterCredentials, use_credentials
from protos.nextgen.v1 import stock_broker_pb2 as pb
from protos.nextgen.v1.stock_broker_pb2_grpc import (
    StockBrokerServiceServicer,
    add_StockBrokerServiceServicer_to_server,
)

EU = "persistent://acme/orders/eu"


class Sidecar(StockBrokerServiceServicer):
    """Answers; with a status it refuses everything."""

    def __init__(self, status: grpc.StatusCode | None = None) -> None:
        self._status = status

    async def _check(self, context: grpc.aio.ServicerContext) -> None:
        if self._status is not None:
            await context.abort(self._status, "no")

    async def GetStockBroker(
        self, request: pb.GetStockBrokerRequest, context: grpc.aio.ServicerContext
    ) -> pb.StockBroker:
        await self._check(context)
        return pb.StockBroker(broker="b1:8080", pulsar_version="5.0.0-M1")

    async def ListOpenTopics(
        self, request: pb.ListOpenTopicsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.OpenTopics]:
        await self._check(context)
        for number in range(2):
            topic = pb.OpenTopic(topic=f"{EU}-{number}", owned=True, bundle_owner="b2:8080")
            yield pb.OpenTopics(by_topic=True, topics=[topic])

    async def ClaimTopics(
        self, request: pb.ClaimTopicsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ClaimTopicsResponse:
        await self._check(context)
        claims = [
            pb.TopicClaim(topic=topic, rejection_code="NOT_FOUND", message="no such topic")
            for topic in request.topics
        ]
        return pb.ClaimTopicsResponse(claims=claims)

    async def CloseForeignTopics(
        self, request: pb.CloseForeignTopicsRequest, context: grpc.aio.ServicerContext
    ) -> pb.CloseForeignTopicsResponse:
        await self._check(context)
        return pb.CloseForeignTopicsResponse(closed=1, failed=2)


def broker(broker_id: str, endpoint: str, *, is_live: bool = True) -> BrokerState:
    return BrokerState(broker_id, "s-1", 1, is_live, "pulsar://b:6650", endpoint, "b:80", 100, "")


@asynccontextmanager
async def listening(
    sidecar: Sidecar | None, gates: Sequence[MemberGate] = ()
) -> AsyncIterator[str]:
    """Yield the address of a server, which is an embedded broker's without a sidecar."""
    server = grpc.aio.server(interceptors=gates)
    if sidecar is not None:
        add_StockBrokerServiceServicer_to_server(sidecar, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_questions_are_answered() -> None:
    async with listening(Sidecar()) as endpoint:
        brokers = StockBrokers([broker("stock-1", endpoint)])
        try:
            assert await brokers.open_topics("stock-1", "acme/orders") == OpenTopics(
                True,
                (OpenTopic(f"{EU}-0", True, "b2:8080"), OpenTopic(f"{EU}-1", True, "b2:8080")),
            )
            assert await brokers.claim("stock-1", [EU]) == [
                Outcome(EU, "", "NOT_FOUND", "no such topic")
            ]
            assert await brokers.close_foreign("stock-1", [EU]) == 2
        finally:
            await brokers.close()


async def test_topics_are_listed_however_long_ago_the_first_question_was() -> None:
    ours = ClusterCredentials("blue", b"0123456789abcdef", Path("/secret"))
    now_s = [0.0]
    use_credentials(ours)
    try:
        async with listening(Sidecar(), [MemberGate(ours, clock=lambda: now_s[0])]) as endpoint:
            brokers = StockBrokers([broker("stock-1", endpoint)])
            try:
                for _ in range(3):
                    assert len((await brokers.open_topics("stock-1", "acme/orders")).topics) == 2
                    now_s[0] += 2 * CHALLENGE_PERIOD_MS / 1_000
            finally:
                await brokers.close()
    finally:
        use_credentials(None)


async def test_only_live_stock_brokers_are_found() -> None:
    """Beside them an embedded one, one whose plug-in is away, and one that died."""
    away = Sidecar(grpc.StatusCode.UNAVAILABLE)
    async with (
        listening(Sidecar()) as stock,
        listening(None) as embedded,
        listening(away) as unplugged,
    ):
        brokers = StockBrokers(
            [
                broker("stock-1", stock),
                broker("broker-1", embedded),
                broker("stock-2", unplugged),
                broker("stock-3", stock, is_live=False),
                broker("stock-4", ""),
            ]
        )
        try:
            found = await brokers.found()
        finally:
            await brokers.close()

    assert {name: each.broker for name, each in found.items()} == {"stock-1": "b1:8080"}


@pytest.mark.parametrize(
    "status", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED]
)
async def test_who_is_no_operator_is_told_so(status: grpc.StatusCode) -> None:
    async with listening(Sidecar(status)) as endpoint:
        brokers = StockBrokers([broker("stock-1", endpoint)])
        try:
            with pytest.raises(MetadataError):
                await brokers.found()
            with pytest.raises(MetadataError):
                await brokers.open_topics("stock-1", "acme/orders")
        finally:
            await brokers.close()
