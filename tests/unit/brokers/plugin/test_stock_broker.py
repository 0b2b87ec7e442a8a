"""``StockBrokerService``: what a caller may ask for, and what a sidecar answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpc
import pytest

from brokers.adapters.broker_service.stock_broker import StockBrokerServicer
from brokers.ports.plugin import ForeignClosed, OpenTopic, OpenTopics, PluginGreeting
from brokers.service.sidecar.handover import TopicClaim
from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.limits.stream import HANDOVER_TOPICS_MAX
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import stock_broker_pb2 as pb

EU = "persistent://acme/orders/eu"


class FakeHandover:
    """Answers, or is without a plug-in."""

    def __init__(self, error: MetadataError | None = None) -> None:
        self._error = error

    @property
    def greeting(self) -> PluginGreeting:
        self._check()
        return PluginGreeting("b1:8080", "pulsar://b1:6650", "5.0.0-M1")

    async def open_topics(self, namespace: str) -> AsyncGenerator[OpenTopics]:
        self._check()
        assert namespace == "acme/orders"
        yield OpenTopics(1, True, (OpenTopic(EU, False, "b2:8080"),), is_last=False)
        yield OpenTopics(1, True, (), is_last=True)

    async def claim(self, topics: Sequence[str]) -> list[TopicClaim]:
        self._check()
        return [TopicClaim(parse_topic(topic).text, "stock-1") for topic in topics]

    async def close_foreign(self, topics: Sequence[str]) -> ForeignClosed:
        self._check()
        return ForeignClosed(1, len(topics), 0, 0)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


class Aborted(Exception):
    pass


class Context:
    """What a call ended with."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    async def abort(self, code: grpc.StatusCode, *_details: Any) -> None:
        self.code = code
        raise Aborted


async def call(servicer: StockBrokerServicer, method: str, request: Any) -> Any:
    """Return the answer, all of a stream's, or the status that the call was aborted with."""
    context = Context()
    try:
        answer = getattr(servicer, method)(request, context)
        if hasattr(answer, "__aiter__"):
            return [part async for part in answer]
        return await answer
    except Aborted:
        return context.code


@pytest.fixture
def servicer() -> StockBrokerServicer:
    return StockBrokerServicer(FakeHandover())  # type: ignore[arg-type]


async def test_each_question_is_answered(servicer: StockBrokerServicer) -> None:
    assert await call(servicer, "GetStockBroker", pb.GetStockBrokerRequest()) == pb.StockBroker(
        broker="b1:8080", pulsar_version="5.0.0-M1"
    )
    listing = pb.ListOpenTopicsRequest(namespace="acme/orders")
    assert await call(servicer, "ListOpenTopics", listing) == [
        pb.OpenTopics(by_topic=True, topics=[pb.OpenTopic(topic=EU, bundle_owner="b2:8080")]),
        pb.OpenTopics(by_topic=True),
    ]
    claim = pb.ClaimTopicsRequest(topics=[EU])
    assert await call(servicer, "ClaimTopics", claim) == pb.ClaimTopicsResponse(
        claims=[pb.TopicClaim(topic=EU, broker_id="stock-1")]
    )
    close = pb.CloseForeignTopicsRequest(topics=[EU])
    assert await call(servicer, "CloseForeignTopics", close) == pb.CloseForeignTopicsResponse(
        closed=1
    )


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("ClaimTopics", pb.ClaimTopicsRequest),
        ("CloseForeignTopics", pb.CloseForeignTopicsRequest),
    ],
)
async def test_handover_topics_max(
    servicer: StockBrokerServicer, method: str, request_type: Any
) -> None:
    largest = request_type(topics=[EU] * HANDOVER_TOPICS_MAX)
    larger = request_type(topics=[EU] * (HANDOVER_TOPICS_MAX + 1))

    assert not isinstance(await call(servicer, method, largest), grpc.StatusCode)
    assert await call(servicer, method, larger) is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_is_no_name_is_refused(servicer: StockBrokerServicer) -> None:
    for method, request in (
        ("ListOpenTopics", pb.ListOpenTopicsRequest(namespace="acme")),
        ("ClaimTopics", pb.ClaimTopicsRequest(topics=["persistent://acme"])),
    ):
        assert await call(servicer, method, request) is grpc.StatusCode.INVALID_ARGUMENT


async def test_without_a_plugin_nothing_is_answered() -> None:
    servicer = StockBrokerServicer(FakeHandover(Unavailable("no plug-in")))  # type: ignore[arg-type]
    for method, request in (
        ("GetStockBroker", pb.GetStockBrokerRequest()),
        ("ListOpenTopics", pb.ListOpenTopicsRequest(namespace="acme/orders")),
        ("ClaimTopics", pb.ClaimTopicsRequest(topics=[EU])),
        ("CloseForeignTopics", pb.CloseForeignTopicsRequest(topics=[EU])),
    ):
        assert await call(servicer, method, request) is grpc.StatusCode.UNAVAILABLE
