"""The stock brokers of a cluster, over their sidecars' gRPC. See ``ports.Brokers``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import grpc

from nextgen.client.model import BrokerState
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.limits.stream import PLUGIN_ANSWER_TIMEOUT_MS
from nextgen.migration.adoption.ports import OpenTopic, OpenTopics, Outcome
from nextgen.runtime.security.node_identity import NodeRole
from protos.nextgen.v1 import stock_broker_pb2 as pb
from protos.nextgen.v1.stock_broker_pb2_grpc import StockBrokerServiceStub

ANSWER_TIMEOUT_S = 10.0
_NO_OPERATOR = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_PLUGIN_TIMEOUT_S = PLUGIN_ANSWER_TIMEOUT_MS / 1_000 + ANSWER_TIMEOUT_S


class StockBrokers:
    """See ``Brokers``. ``brokers``: those of the cluster, of any kind, live. Close it."""

    def __init__(self, brokers: Sequence[BrokerState]) -> None:
        self._channels = {
            each.broker_id: open_channel(each.grpc, NodeRole.BROKER)
            for each in brokers
            if each.is_live and each.grpc
        }
        self._stubs = {
            broker_id: StockBrokerServiceStub(channel)
            for broker_id, channel in self._channels.items()
        }

    async def close(self) -> None:
        for channel in self._channels.values():
            await close_channel(channel)

    async def found(self) -> Mapping[str, pb.StockBroker]:
        """Return the stock brokers among them, by id.

        One that gives no answer is left out, like one without a session.

        Raises:
            MetadataError: The caller is no operator.
        """
        answers = await asyncio.gather(*map(self._ask, self._stubs.values()))
        return {
            broker_id: answer
            for broker_id, answer in zip(self._stubs, answers, strict=True)
            if answer is not None
        }

    async def _ask(self, stub: StockBrokerServiceStub) -> pb.StockBroker | None:
        try:
            answer: pb.StockBroker = await stub.GetStockBroker(
                pb.GetStockBrokerRequest(), timeout=ANSWER_TIMEOUT_S
            )
        except grpc.RpcError as error:
            if error.code() in _NO_OPERATOR:
                raise error_of_rpc(error) from error
            return None
        return answer

    async def open_topics(self, broker_id: str, namespace: str) -> OpenTopics:
        topics: list[OpenTopic] = []
        by_topic = False
        async with _translated():
            # A stream proves the secret for the challenge that its channel learned last, which ends
            # long before a large namespace is handed over.
            await wait_connected(self._channels[broker_id], broker_id)
            request = pb.ListOpenTopicsRequest(namespace=namespace)
            call = self._stubs[broker_id].ListOpenTopics(request, timeout=_PLUGIN_TIMEOUT_S)
            async for part in call:
                by_topic = part.by_topic
                topics += [
                    OpenTopic(each.topic, each.owned, each.bundle_owner) for each in part.topics
                ]
        return OpenTopics(by_topic, tuple(topics))

    async def claim(self, broker_id: str, topics: Sequence[str]) -> list[Outcome]:
        async with _translated():
            request = pb.ClaimTopicsRequest(topics=topics)
            answer = await self._stubs[broker_id].ClaimTopics(request, timeout=_PLUGIN_TIMEOUT_S)
        return [
            Outcome(each.topic, each.broker_id, each.rejection_code, each.message)
            for each in answer.claims
        ]

    async def close_foreign(self, broker_id: str, topics: Sequence[str]) -> int:
        async with _translated():
            request = pb.CloseForeignTopicsRequest(topics=topics)
            answer = await self._stubs[broker_id].CloseForeignTopics(
                request, timeout=_PLUGIN_TIMEOUT_S
            )
        return int(answer.failed)


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
