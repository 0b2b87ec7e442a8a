"""One channel for the streams to one process, and what ends it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from nextgen.client.transport import shared_channels
from nextgen.client.transport.shared_channels import SharedChannels
from nextgen.kernel.errors import NotLeader, Unavailable
from nextgen.runtime.security.node_identity import NodeRole


class FakeChannels:
    """Stand for gRPC's: numbers in the order in which they were opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[int] = []
        self.keepalive_ms = 0

    def open(self, endpoint: str, serves: NodeRole | None, *, keepalive_ms: int) -> int:
        self.keepalive_ms = keepalive_ms
        self.opened.append(endpoint)
        return len(self.opened)

    async def close(self, channel: int) -> None:
        self.closed.append(channel)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeChannels:
    channels = FakeChannels()
    monkeypatch.setattr(shared_channels, "open_channel", channels.open)
    monkeypatch.setattr(shared_channels, "close_channel", channels.close)
    return channels


async def test_streams_to_one_process_share_a_channel_until_the_last_leaves(
    fake: FakeChannels,
) -> None:
    channels = SharedChannels(keepalive_ms=7)
    async with AsyncExitStack() as streams:
        used = [await streams.enter_async_context(channels.to(each)) for each in ("a", "b", "a")]
        assert used == [1, 2, 1]
        assert fake.keepalive_ms == 7
        async with channels.to("a"):
            pass
        assert fake.closed == []
        assert "a" in repr(channels)
    assert sorted(fake.closed) == [1, 2]

    async with channels.to("a") as again:
        assert again == 3


async def test_a_channel_that_a_stream_found_broken_is_given_to_no_further_stream(
    fake: FakeChannels,
) -> None:
    channels = SharedChannels()
    async with channels.to("a") as kept:
        with pytest.raises(Unavailable):
            async with channels.to("a"):
                raise Unavailable("silent")
        async with channels.to("a") as fresh:
            assert (kept, fresh) == (1, 2)
            assert fake.closed == []
        assert fake.closed == [2]
        # It ended after the other had taken its place: that one stays.
        async with channels.to("a") as later:
            assert later == 3
    assert fake.closed == [2, 3, 1]


@pytest.mark.parametrize("error", [NotLeader(1, None), asyncio.CancelledError()], ids=repr)
async def test_a_leader_elsewhere_and_a_cancellation_leave_the_channel_as_it_is(
    fake: FakeChannels, error: BaseException
) -> None:
    channels = SharedChannels()
    async with channels.to("a"):
        with pytest.raises(type(error)):
            async with channels.to("a"):
                raise error
        async with channels.to("a") as same:
            assert same == 1
    assert fake.closed == [1]
