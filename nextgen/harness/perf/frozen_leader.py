"""Requests to a frozen leader, which it answers when it resumes. An answer must reflect its
successor's commits, or be a refusal."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from nextgen.client.transport.channel import close_channel, wait_connected, with_proofs
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import (
    GetRequest,
    ObjectName,
    ShardLookupRequest,
    ShardRequest,
    ShardResponse,
)

QUESTIONS_OF_EACH_KIND = 20
ANSWER_TIMEOUT_MS = 20_000

_EXCHANGE = "/nextgen.v1.ShardService/Exchange"


class FrozenLeader:
    """A stream that was opened before the leader froze. ``close`` it at the end.

    It is a plain channel, without the keepalive that would close it.
    """

    def __init__(self, endpoint: str, shard_id: int) -> None:
        self._shard_id = shard_id
        self._endpoint = endpoint
        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = with_proofs(grpc.aio.insecure_channel(endpoint, options=options))
        self._call: Any = None
        self._asked = 0

    async def connect(self, topic: str) -> None:
        """Open the stream with a first request for a topic.

        Raises:
            Unavailable: It is not answered.
        """
        await wait_connected(self._channel, self._endpoint)
        exchange: Any = self._channel.stream_stream(
            _EXCHANGE,
            request_serializer=ShardRequest.SerializeToString,
            response_deserializer=ShardResponse.FromString,
        )
        self._call = exchange()
        await self._call.write(self._get(topic))
        await self._answer()

    async def ask(self, topic: str) -> None:
        """Send requests about ``topic``, which exists; they wait in the leader's buffers."""
        for _ in range(QUESTIONS_OF_EACH_KIND):
            for request in (self._get(topic), self._lookup(topic)):
                await self._call.write(request)
                self._asked += 1

    async def verdicts(self) -> dict[str, int]:
        """Return how many answers had the topic, lacked it (stale), or were refusals.

        Raises:
            Unavailable: Some requests were not answered.
        """
        known = [_knows(await self._answer()) for _ in range(self._asked)]
        return {
            "fresh_answers": known.count(True),
            "stale_answers": known.count(False),
            "refused": known.count(None),
        }

    async def close(self) -> None:
        if self._call is not None:
            self._call.cancel()
        await close_channel(self._channel)

    async def _answer(self) -> ShardResponse:
        try:
            async with timeout(ANSWER_TIMEOUT_MS / 1000):
                answer = await self._call.read()
        except (TimeoutError, grpc.RpcError) as error:
            raise Unavailable(f"a frozen leader did not answer: {error!r}") from error
        if not isinstance(answer, ShardResponse):
            raise Unavailable("a frozen leader ended the stream")
        return answer

    def _get(self, topic: str) -> ShardRequest:
        names = [ObjectName(kind=KIND_TOPIC, name=topic)]
        return ShardRequest(shard_id=self._shard_id, get=GetRequest(names=names))

    def _lookup(self, topic: str) -> ShardRequest:
        return ShardRequest(shard_id=self._shard_id, lookup=ShardLookupRequest(topics=[topic]))


def _knows(answer: ShardResponse) -> bool | None:
    if answer.HasField("error"):
        return None
    if answer.HasField("get"):
        return all(item.HasField("topic") for item in answer.get.items)
    return all(one.rejection_code != RejectionCode.NOT_FOUND for one in answer.lookup.answers)
