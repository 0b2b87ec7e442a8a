"""``StockBrokerService`` over gRPC: the steps that hand a namespace over at one stock broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import grpc.aio

from brokers.service.sidecar.handover import Handover
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.limits.stream import HANDOVER_TOPICS_MAX
from nextgen.kernel.routing.names import InvalidName, parse_namespace
from protos.nextgen.v1 import stock_broker_pb2 as wire
from protos.nextgen.v1.stock_broker_pb2_grpc import StockBrokerServiceServicer

_Context = grpc.aio.ServicerContext[Any, Any]


class StockBrokerServicer(StockBrokerServiceServicer):
    """Answers from the sidecar's ``Handover``."""

    def __init__(self, handover: Handover) -> None:
        self._handover = handover

    async def GetStockBroker(
        self, request: wire.GetStockBrokerRequest, context: _Context
    ) -> wire.StockBroker:
        try:
            greeting = self._handover.greeting
        except MetadataError as error:
            await abort(context, error)
        return wire.StockBroker(broker=greeting.broker, pulsar_version=greeting.version)

    async def ListOpenTopics(
        self, request: wire.ListOpenTopicsRequest, context: _Context
    ) -> AsyncIterator[wire.OpenTopics]:
        try:
            namespace = parse_namespace(request.namespace).text
            async with aclosing(self._handover.open_topics(namespace)) as parts:
                async for part in parts:
                    yield wire.OpenTopics(
                        by_topic=part.by_topic,
                        topics=[
                            wire.OpenTopic(
                                topic=each.topic,
                                owned=each.is_owned,
                                bundle_owner=each.bundle_owner,
                            )
                            for each in part.topics
                        ],
                    )
        except InvalidName as error:
            await abort(context, InvalidRequest(str(error)))
        except MetadataError as error:
            await abort(context, error)

    async def ClaimTopics(
        self, request: wire.ClaimTopicsRequest, context: _Context
    ) -> wire.ClaimTopicsResponse:
        try:
            claims = await self._handover.claim(_bounded(request.topics))
        except InvalidName as error:
            await abort(context, InvalidRequest(str(error)))
        except MetadataError as error:
            await abort(context, error)
        return wire.ClaimTopicsResponse(
            claims=[
                wire.TopicClaim(
                    topic=claim.topic,
                    broker_id=claim.broker_id,
                    rejection_code=claim.rejection_code,
                    message=claim.message,
                )
                for claim in claims
            ]
        )

    async def CloseForeignTopics(
        self, request: wire.CloseForeignTopicsRequest, context: _Context
    ) -> wire.CloseForeignTopicsResponse:
        try:
            done = await self._handover.close_foreign(_bounded(request.topics))
        except MetadataError as error:
            await abort(context, error)
        return wire.CloseForeignTopicsResponse(
            closed=done.closed, kept=done.kept, failed=done.failed
        )


def _bounded(topics: Sequence[str]) -> Sequence[str]:
    if len(topics) > HANDOVER_TOPICS_MAX:
        raise InvalidRequest(f"{len(topics)} topics, at most {HANDOVER_TOPICS_MAX}")
    return topics
