"""The link to the cluster manager: what waits while the stream takes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from nextgen.client.cluster import link as cluster_link
from nextgen.client.cluster.link import ClusterLink
from nextgen.kernel.limits.cluster import LINK_OUTBOX_MESSAGES_MAX
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, Hello, NodeHeartbeat, NodeMessage
from tests.support.simulated.virtual_time import run_virtual


class SilentChannel:
    """A manager whose leader answers the hello and reads nothing behind it."""

    def stream_stream(self, _method: str, **_codecs: Any) -> Any:
        return lambda: _Call()


class _Call:
    def __init__(self) -> None:
        self._updates = [ClusterUpdate()]
        self._written = 0

    async def write(self, _message: NodeMessage) -> None:
        self._written += 1
        if self._written > 1:
            await asyncio.Event().wait()

    async def read(self) -> ClusterUpdate:
        if self._updates:
            return self._updates.pop()
        await asyncio.Event().wait()
        raise AssertionError

    def cancel(self) -> None:
        """Nothing to close."""


async def _close(_channel: SilentChannel) -> None:
    """Nothing to close."""


async def _connected(_channel: SilentChannel, _endpoint: str) -> None:
    """It always is."""


def test_link_outbox_messages_max_wait_for_the_stream_and_one_more_is_dropped(monkeypatch) -> None:
    monkeypatch.setattr(cluster_link, "open_channel", lambda *_: SilentChannel())
    monkeypatch.setattr(cluster_link, "wait_connected", _connected)
    monkeypatch.setattr(cluster_link, "close_channel", _close)

    async def main() -> None:
        # Given: a stream that stands, and one message that it does not take.
        link = ClusterLink(["manager:1"], Hello())
        await link.start()
        await link.wait_connected()
        message = NodeMessage(heartbeat=NodeHeartbeat(sequence=1))
        assert link.send(message)
        await asyncio.sleep(0)

        # When
        sent = [link.send(message) for _ in range(LINK_OUTBOX_MESSAGES_MAX)]
        one_more = link.send(message)
        await link.stop()

        # Then
        assert all(sent)
        assert not one_more

    run_virtual(main)
