"""Shards that change, lag behind and fail while they are listed."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate
from typing import Any

from nextgen.kernel.errors import NotLeader, PositionAhead, Unavailable
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item, Topic
from protos.nextgen.v1.shard_service_pb2 import ListRequest, ShardRequest, ShardResponse

PARENT = "acme/orders"


def topic(local: str) -> str:
    return f"persistent://{PARENT}/{local}"


class VersionedShard:
    """One shard's names at every position that it ever had; position 1 is the first."""

    def __init__(self, names: set[str]) -> None:
        self.versions = [set[str](), set(names)]

    @property
    def position(self) -> int:
        return len(self.versions) - 1

    def change(self, *, created: set[str] = frozenset(), deleted: set[str] = frozenset()) -> None:
        self.versions.append((self.versions[-1] | created) - deleted)

    def page(self, request: ListRequest, position: int, *, filters: bool) -> ShardResponse:
        beginning = topic(request.prefix) if filters else ""
        names = sorted(name for name in self.versions[position] if name.startswith(beginning))
        behind = names[bisect_right(names, request.after) :]
        response = ShardResponse(position=position)
        if request.count_only:
            response.list.counted.objects = response.list.counted.units = len(names)
            response.list.counted.position = position
            return response
        taken = _within(behind[: request.limit], request.bytes_max)
        if request.names_only:
            response.list.names.extend(taken)
            response.list.partitions.extend([0] * len(taken))
        else:
            response.list.items.extend(
                Item(kind=KIND_TOPIC, name=name, topic=Topic(name=name)) for name in taken
            )
        response.list.more_items = len(behind) > len(taken)
        return response


def _within(names: list[str], bytes_max: int) -> list[str]:
    """Return the first names that have at most ``bytes_max``, 0: any number; one at least."""
    sizes_bytes = list(accumulate(len(name.encode()) for name in names))
    return names[: max(1, bisect_right(sizes_bytes, bytes_max))] if bytes_max else names


class ChangingShards:
    """The ``Shards`` of a walk. Before each answer ``between`` runs; replicas lag at random."""

    def __init__(self, shards: dict[int, VersionedShard], chance: random.Random) -> None:
        self.shards = shards
        self.requests: list[ListRequest] = []
        self.filters = True
        self.between = lambda: None
        self.failures = 0.0
        self._chance = chance

    def shard_of_key(self, routing_key: str) -> int:
        raise NotImplementedError(routing_key)

    async def call(self, shard_id: int, request: ShardRequest, **_: Any) -> ShardResponse:
        self._prepare(shard_id, request)
        shard = self.shards[shard_id]
        return shard.page(request.list, shard.position, filters=self.filters)

    call_key = call

    async def call_any(self, shard_id: int, request: ShardRequest, **_: Any) -> ShardResponse:
        self._prepare(shard_id, request)
        shard = self.shards[shard_id]
        if request.list.min_position > shard.position:
            raise PositionAhead(request.list.min_position, shard.position, is_final=True)
        position = self._chance.randint(request.list.min_position, shard.position)
        return shard.page(request.list, position, filters=self.filters)

    def _prepare(self, shard_id: int, request: ShardRequest) -> None:
        self.between()
        if self._chance.random() < self.failures:
            raise self._chance.choice([NotLeader(shard_id, None), Unavailable("no quorum")])
        self.requests.append(request.list)


def shards_of(names: set[str], count: int, chance: random.Random) -> ChangingShards:
    spread: dict[int, set[str]] = {shard_id: set() for shard_id in range(1, count + 1)}
    for name in sorted(names):
        spread[chance.randint(1, count)].add(name)
    shards = {shard_id: VersionedShard(some) for shard_id, some in spread.items()}
    return ChangingShards(shards, chance)
