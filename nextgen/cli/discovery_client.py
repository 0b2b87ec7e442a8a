"""Calls to any discovery node: tries the next one when a node does not answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from nextgen.client.channel import close_channel, open_channel
from nextgen.client.errors_wire import error_of_rpc
from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused, Unavailable
from nextgen.kernel.limits import COMMAND_ID_BYTES
from protos.nextgen.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

ATTEMPT_TIMEOUT_MS = 5_000
CALL_TIMEOUT_MS = 15_000
PAUSE_MS_MIN = 50
PAUSE_MS_MAX = 500


def new_command_id() -> bytes:
    """Return an id that makes a write safe to repeat."""
    return secrets.token_bytes(COMMAND_ID_BYTES)


class DiscoveryClient:
    """Unary calls with retries over several discovery nodes. Use it as a context manager.

    Every request must be safe to repeat: a read, or a write with its command id set.
    """

    def __init__(self, endpoints: Sequence[str], *, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        assert endpoints, "a client needs the address of a discovery node"
        self.endpoints = tuple(endpoints)
        self._timeout_ms = timeout_ms
        self._channels = {endpoint: open_channel(endpoint) for endpoint in self.endpoints}
        self._stubs: dict[str, Any] = {
            endpoint: DiscoveryServiceStub(channel) for endpoint, channel in self._channels.items()
        }
        self._next = 0

    async def __aenter__(self) -> DiscoveryClient:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await asyncio.gather(*map(close_channel, self._channels.values()))

    def channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to one of the endpoints, for streams."""
        return self._channels[endpoint]

    async def call(self, method: str, request: Any) -> Any:
        """Return the answer to ``request`` from whichever node gives one.

        Raises:
            Refused, InvalidRequest: An answer, and a final one.
            MetadataError: The last failure, when the time is over.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        pause_ms = PAUSE_MS_MIN
        while True:
            endpoint = self.endpoints[self._next % len(self.endpoints)]
            try:
                return await self.call_at(endpoint, method, request)
            except (Refused, InvalidRequest):
                raise
            except MetadataError as error:
                self._next += 1
                if asyncio.get_running_loop().time() + pause_ms / 1000 > deadline:
                    raise _with_endpoints(error, self.endpoints) from error
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    async def call_at(
        self, endpoint: str, method: str, request: Any, *, timeout_ms: int = ATTEMPT_TIMEOUT_MS
    ) -> Any:
        """Return the answer of one node; no retries.

        Raises:
            MetadataError: What went wrong.
        """
        try:
            return await getattr(self._stubs[endpoint], method)(request, timeout=timeout_ms / 1000)
        except grpc.RpcError as error:
            raise error_of_rpc(error) from error


def _with_endpoints(error: MetadataError, endpoints: Sequence[str]) -> MetadataError:
    if isinstance(error, Unavailable):
        return Unavailable(f"no discovery node at {', '.join(endpoints)} could help: {error}")
    return error
