"""One channel to each process, shared by the streams to it.

A connection without messages is pinged, and each ping wakes threads of gRPC at both ends. With a
stream for each of 64 shards that was most of what an idle discovery process did (ADR 0128).

A channel that a stream found broken is given to no further stream: gRPC would make the next one
wait for its reconnect. Streams that are on it keep it until they end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.kernel.errors import NotLeader
from nextgen.kernel.limits.cluster import CHANNEL_KEEPALIVE_MS
from nextgen.runtime.security.node_identity import NodeRole


class _SharedChannel:
    __slots__ = ("channel", "users")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.users = 0


class SharedChannels:
    """The channels of one owner, by endpoint. Owned by one event loop.

    ``serves`` and ``keepalive_ms`` as in ``open_channel``.
    """

    def __init__(
        self, serves: NodeRole | None = None, *, keepalive_ms: int = CHANNEL_KEEPALIVE_MS
    ) -> None:
        self._serves = serves
        self._keepalive_ms = keepalive_ms
        self._channels: dict[str, _SharedChannel] = {}

    def __repr__(self) -> str:
        return f"<SharedChannels endpoints={sorted(self._channels)}>"

    @asynccontextmanager
    async def to(self, endpoint: str) -> AsyncIterator[grpc.aio.Channel]:
        """Yield the channel to ``endpoint`` (host:port). It is closed when nobody uses it.

        A body that raises has found it broken, unless a leader elsewhere or a cancellation ended
        the body.
        """
        shared = self._channels.get(endpoint)
        if shared is None:
            channel = open_channel(endpoint, self._serves, keepalive_ms=self._keepalive_ms)
            shared = self._channels[endpoint] = _SharedChannel(channel)
        shared.users += 1
        try:
            yield shared.channel
        except NotLeader:
            raise
        except Exception:
            self._give_to_nobody(endpoint, shared)
            raise
        finally:
            shared.users -= 1
            if not shared.users:
                self._give_to_nobody(endpoint, shared)
                await close_channel(shared.channel)

    def _give_to_nobody(self, endpoint: str, shared: _SharedChannel) -> None:
        if self._channels.get(endpoint) is shared:
            del self._channels[endpoint]
