"""Calls to discovery nodes with protobuf messages."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

import grpc.aio
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES
from nextgen.runtime.security.tls_refusal import TlsRefused
from protos.nextgen.v1 import discovery_service_pb2

ATTEMPT_TIMEOUT_MS = 5_000
CALL_TIMEOUT_MS = 15_000

_UNREACHABLE = re.compile(r"failed to connect to all addresses; .*: (.+?) \(gRPC status \w+\)")
"""gRPC's sentence about addresses at which no process listens, and its reason."""

_METHODS = discovery_service_pb2.DESCRIPTOR.services_by_name["DiscoveryService"].methods_by_name


def new_command_id() -> bytes:
    """Return an id that makes a write safe to repeat."""
    return secrets.token_bytes(COMMAND_ID_BYTES)


class DiscoveryClient:
    """``DiscoveryNodes`` by method name. The first endpoint is used first. A context manager.

    Requests are safe to repeat: reads, and writes with a command id. Exceptions are marked.
    """

    def __init__(self, endpoints: Sequence[str], *, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        self.endpoints = tuple(endpoints)
        self._timeout_ms = timeout_ms
        self._nodes = DiscoveryNodes(endpoints, in_order=True)

    async def __aenter__(self) -> DiscoveryClient:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._nodes.close()

    def channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to one of the endpoints, for streams."""
        return self._nodes.channel_to(endpoint)

    async def call(self, method: str, request: Message, *, is_repeatable: bool = True) -> Any:
        """Return the answer to ``request`` from the first node that gives one, with retries.

        Unless it ``is_repeatable``, it is not sent again when it may have been executed.

        Raises:
            Refused, InvalidRequest: A node's final answer.
            TlsRefused: Each node refuses the TLS of this process, or that it has none.
            MetadataError: The last failure, when the time is over.
        """
        try:
            return await self._nodes.call(
                method,
                request,
                _response_type(method),
                timeout_ms=self._timeout_ms,
                is_repeatable=is_repeatable,
            )
        except TlsRefused:
            raise
        except Unavailable as error:
            nodes = ", ".join(self.endpoints)
            if unreachable := _UNREACHABLE.search(str(error)):
                raise Unavailable(f"nothing answers at {nodes}: {unreachable[1]}") from error
            raise Unavailable(f"no discovery node at {nodes} could help: {error}") from error

    async def call_at(
        self, endpoint: str, method: str, request: Message, *, timeout_ms: int = ATTEMPT_TIMEOUT_MS
    ) -> Any:
        """Return the answer of one node; no retries.

        Raises:
            MetadataError: The error of the call.
        """
        return await self._nodes.call_at(
            endpoint, method, request, _response_type(method), timeout_ms=timeout_ms
        )


def _response_type(method: str) -> type[Message]:
    return GetMessageClass(_METHODS[method].output_type)
