"""A channel whose calls carry proof of the cluster secret.

Calls that need no proof pass unchanged, and so does every message of a stream: proofs go only into
the metadata with which a call begins. gRPC's own client interceptors would put a queue between the
caller and each message of a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import grpc.aio

from nextgen.client.transport.node_calls import GET_CHALLENGE, OPEN_CALLS
from nextgen.kernel.limits.inbound import CHALLENGE_KEPT_MS
from nextgen.runtime.security.cluster_proof import CHALLENGE_ENDED, PROOF_KEY, ClusterCredentials
from protos.nextgen.v1.peer_service_pb2 import GetChallengeRequest, GetChallengeResponse

_Metadata = tuple[tuple[str, str | bytes], ...]


class ProvingChannel(grpc.aio.Channel):
    """``channel`` with proofs.

    A stream's proof is for the challenge that ``learn_challenge`` fetched last. A unary call
    fetches a challenge by itself.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        credentials: ClusterCredentials,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._credentials = credentials
        self._clock = clock
        self._challenge = b""
        self._learned_at: float | None = None
        self._ask: Any = channel.unary_unary(
            GET_CHALLENGE,
            request_serializer=GetChallengeRequest.SerializeToString,
            response_deserializer=GetChallengeResponse.FromString,
        )

    async def learn_challenge(self, timeout_s: float | None = None) -> None:
        """Fetch the server's challenge. A server of an earlier release has none.

        Raises:
            grpc.RpcError: The server does not answer.
        """
        try:
            response: GetChallengeResponse = await self._ask(
                GetChallengeRequest(), timeout=timeout_s
            )
            self._challenge = response.challenge
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            self._challenge = b""
        self._learned_at = self._clock()

    # As grpc.aio.Channel ----------------------------------------------------------------------

    async def __aenter__(self) -> ProvingChannel:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._channel.__aexit__(*exception)

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def unary_unary(self, method: str, *arguments: Any, **named: Any) -> Any:
        call = self._channel.unary_unary(method, *arguments, **named)
        return call if method in OPEN_CALLS else self._proven_answer(method, call)

    def stream_unary(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._proven(method, self._channel.stream_unary(method, *arguments, **named))

    def unary_stream(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._proven(method, self._channel.unary_stream(method, *arguments, **named))

    def stream_stream(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._proven(method, self._channel.stream_stream(method, *arguments, **named))

    # Inside -----------------------------------------------------------------------------------

    def _proof(self, method: str) -> _Metadata:
        if not self._challenge:
            return ()
        return ((PROOF_KEY, self._credentials.prove(method, self._challenge)),)

    def _proven(self, method: str, call: Any) -> Any:
        if method in OPEN_CALLS:
            return call

        def begin(*arguments: Any, metadata: _Metadata = (), **named: Any) -> Any:
            return call(*arguments, metadata=(*metadata, *self._proof(method)), **named)

        return begin

    def _proven_answer(self, method: str, call: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def answer(request: Any, *, metadata: _Metadata = (), **named: Any) -> Any:
            timeout_s = named.get("timeout")
            now = self._clock()
            if self._learned_at is None or (now - self._learned_at) * 1_000 > CHALLENGE_KEPT_MS:
                await self.learn_challenge(timeout_s)
            proven = (*metadata, *self._proof(method))
            try:
                return await call(request, metadata=proven, **named)
            except grpc.aio.AioRpcError as error:
                if error.details() != CHALLENGE_ENDED:
                    raise
            # The process at the address was restarted; nothing was carried out.
            await self.learn_challenge(timeout_s)
            proven = (*metadata, *self._proof(method))
            return await call(request, metadata=proven, **named)

        return answer
