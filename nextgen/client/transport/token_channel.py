"""A channel whose calls carry the token of this process's client, where clients are asked for it.

The token is read when a call begins: see ``client_token``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from nextgen.client.transport.node_calls import CLIENT_CALLS
from nextgen.runtime.security.authentication.header import HEADER

_Metadata = tuple[tuple[str, str | bytes], ...]


class TokenChannel(grpc.aio.Channel):
    """``channel`` with tokens, which ``token`` returns; empty: without one."""

    def __init__(self, channel: grpc.aio.Channel, token: Callable[[], str]) -> None:
        self._channel = channel
        self._token = token

    # As grpc.aio.Channel ----------------------------------------------------------------------

    async def __aenter__(self) -> TokenChannel:
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
        return self._with_token(method, self._channel.unary_unary(method, *arguments, **named))

    def stream_unary(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._with_token(method, self._channel.stream_unary(method, *arguments, **named))

    def unary_stream(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._with_token(method, self._channel.unary_stream(method, *arguments, **named))

    def stream_stream(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._with_token(method, self._channel.stream_stream(method, *arguments, **named))

    # Inside -----------------------------------------------------------------------------------

    def _with_token(self, method: str, call: Any) -> Any:
        if method not in CLIENT_CALLS:
            return call

        def begin(*arguments: Any, metadata: _Metadata | None = None, **named: Any) -> Any:
            token = self._token()
            proof = ((HEADER, f"Bearer {token}"),) if token else ()
            return call(*arguments, metadata=(*(metadata or ()), *proof), **named)

        return begin
