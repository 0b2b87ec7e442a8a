"""One stream to a home shard for all topic controllers of a node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE
from shards.adapters.shared_home_streams import SharedHomeStreams, StreamShare
from shards.ports import ShardWatching
from tests.support.shards.home_shards import CONTROLLERS, FakeHomes, FakeStream
from tests.support.simulated.virtual_time import run_virtual

LINGERS_S = ASSIGNMENT_TTL_MS / 1_000


class Heard:
    """A listener that counts its snapshots and keeps why it ended."""

    def __init__(self) -> None:
        self.snapshots = 0
        self.ended: list[Exception] = []

    def on_reset(self) -> None: ...

    def on_items(self, items: Any) -> None: ...

    def on_snapshot_complete(self, position: int) -> None:
        self.snapshots += 1

    def on_events(self, events: Any) -> None: ...

    def on_position(self, position: int) -> None: ...

    def on_ended(self, error: Exception) -> None:
        self.ended.append(error)


class World:
    """A home shard, and the streams that were opened to it."""

    def __init__(self) -> None:
        self.homes = FakeHomes(1)
        self.homes.create(KIND_NAMESPACE, "acme/orders")
        self.shared = SharedHomeStreams(self._open)
        self.streams: list[FakeStream] = []

    def _open(self, shard_id: int) -> ShardWatching:
        stream = self.homes.watch(shard_id, CONTROLLERS)
        assert isinstance(stream, FakeStream)
        self.streams.append(stream)
        return stream

    async def share(self) -> tuple[StreamShare, asyncio.Task[None]]:
        share = self.shared.share(1)
        holding = asyncio.create_task(share.run())
        await asyncio.sleep(0)
        return share, holding


def follow(share: StreamShare, listener: Heard) -> int:
    return share.add(listener, kinds=(KIND_NAMESPACE,), names=("acme/orders",), acknowledged=True)


async def give_up(holding: asyncio.Task[None]) -> None:
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


def test_controllers_share_a_stream_and_each_hears_its_own_watches() -> None:
    async def main() -> None:
        world = World()
        (one, _), (other, _) = await world.share(), await world.share()
        heard = Heard(), Heard()
        ids = follow(one, heard[0]), follow(other, heard[1])
        world.homes.deliver()

        assert len(world.streams) == 1
        assert len(set(ids)) == 2
        assert [each.snapshots for each in heard] == [1, 1]

    run_virtual(main)


def test_what_any_controller_withholds_is_not_acknowledged() -> None:
    async def main() -> None:
        world = World()
        (one, _), (other, _) = await world.share(), await world.share()
        ids = follow(one, Heard()), follow(other, Heard())
        one.withhold_with(lambda: ids[:1])
        other.withhold_with(lambda: ids[1:])

        assert set(world.streams[0].withheld()) == set(ids)

    run_virtual(main)


def test_a_deposed_controllers_watches_are_withheld_as_long_as_it_would_count() -> None:
    async def main() -> None:
        world = World()
        (one, holding), (other, _) = await world.share(), await world.share()
        heard = Heard()
        given_up, kept = follow(one, heard), follow(other, Heard())
        await give_up(holding)
        world.homes.deliver()
        await asyncio.sleep(0.9 * LINGERS_S)

        (stream,) = world.streams
        assert set(stream.withheld()) == {given_up}
        assert heard.snapshots == 0, "its listener is gone"

        await asyncio.sleep(0.2 * LINGERS_S)
        assert set(stream.withheld()) == set()
        assert set(stream.watches) == {kept}

    run_virtual(main)


def test_the_stream_ends_behind_its_last_share_and_another_one_begins() -> None:
    async def main() -> None:
        world = World()
        _, holding = await world.share()
        _, second = await world.share()
        await give_up(holding)
        await give_up(second)
        back, third = await world.share()
        await asyncio.sleep(2 * LINGERS_S)
        assert len(world.streams) == 1, "one that comes back in time finds the stream"
        follow(back, Heard())

        await give_up(third)
        await asyncio.sleep(2 * LINGERS_S)
        await world.share()
        assert len(world.streams) == 2

    run_virtual(main)


def test_a_watch_that_its_shard_ended_is_not_removed_again() -> None:
    async def main() -> None:
        world = World()
        share, _ = await world.share()
        heard = Heard()
        watch_id = follow(share, heard)
        (stream,) = world.streams
        stream.watches.pop(watch_id).listener.on_ended(Unavailable("it is elsewhere"))
        share.remove(watch_id)

        assert [type(each) for each in heard.ended] == [Unavailable]
        assert stream.removes == 0
        assert list(share.watch_ids) == []

    run_virtual(main)


def test_a_share_has_no_position_and_no_term_of_its_own() -> None:
    async def main() -> None:
        share, _ = await World().share()
        with pytest.raises(AssertionError):
            share.acknowledge_with(lambda position: position)
        with pytest.raises(AssertionError):
            share.complete_with(lambda: 1)

    run_virtual(main)
