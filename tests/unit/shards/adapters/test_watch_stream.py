"""How a change stream over gRPC begins."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import StaleShardMap
from nextgen.kernel.limits.stream import WATCH_SUBSCRIBER_BYTES_MAX
from protos.nextgen.v1.shard_service_pb2 import WatchOpen, WatchShardRequest, WatchShardUpdate
from shards.adapters.watch_stream import WatchStream


class Context:
    """Keeps what the subscriber is sent."""

    def __init__(self) -> None:
        self.updates: list[WatchShardUpdate] = []

    async def write(self, update: WatchShardUpdate) -> None:
        self.updates.append(update)


def no_replica(shard_id: int):
    raise StaleShardMap(f"shard {shard_id} is not here")


@pytest.mark.parametrize(("excess", "reason"), [(0, "STALE_SHARD_MAP"), (1, "INVALID_REQUEST")])
async def test_watch_subscriber_bytes_max_name_a_subscriber_and_one_more_is_refused(excess, reason):
    # Given: an id whose characters have two bytes each, but for the last ones.
    subscriber_id = "\u00e9" * (WATCH_SUBSCRIBER_BYTES_MAX // 2) + "x" * excess
    context = Context()

    async def requests():
        yield WatchShardRequest(open=WatchOpen(shard_id=7, subscriber_id=subscriber_id))

    await WatchStream(no_replica, context).serve(requests())

    # Then: one that is accepted goes on to look for its shard.
    (update,) = context.updates
    assert update.error.reason == reason
