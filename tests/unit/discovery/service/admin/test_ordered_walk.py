"""Walks over fake shards that change, lag behind and fail while they are walked."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from discovery.service.admin import ordered_walk
from discovery.service.admin.ordered_walk import OrderedWalk
from nextgen.kernel.errors import NotLeader, Unavailable
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX, SLOT_COUNT
from nextgen.kernel.limits.listing import LIST_WALK_BYTES_MAX
from nextgen.kernel.routing.hashing import hash64
from nextgen.kernel.routing.slots import slots_digest
from protos.nextgen.v1.inventory_pb2 import KIND_TENANT, KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import ListRequest, ShardRequest, ShardResponse
from tests.support.discovery.changing_shards import (
    PARENT,
    ChangingShards,
    VersionedShard,
    shards_of,
    topic,
)

TIMEOUT_MS = 1_000


def walk_of(shards: ChangingShards, *, batch_items: int = 10, **listing: Any) -> OrderedWalk:
    request = ListRequest(kind=KIND_TOPIC, parent=PARENT, names_only=True)
    request.MergeFrom(ListRequest(**listing))
    return OrderedWalk(shards, sorted(shards.shards), request, batch_items=batch_items)


async def walked(walk: OrderedWalk) -> list[str]:
    names: list[str] = []
    while True:
        try:
            batch = await walk.next_batch(TIMEOUT_MS)
        except (NotLeader, Unavailable):
            continue
        if not batch:
            return names
        names += [name for name, _, _ in batch]


@pytest.mark.parametrize("seed", range(12))
async def test_names_that_stay_are_listed_once_whatever_changes_lags_or_fails(seed):
    chance = random.Random(seed)
    lasting = {topic(f"{number:03}") for number in range(0, 400, 2)}
    passing = [topic(f"{number:03}") for number in range(1, 400, 2)]
    present = set(chance.sample(passing, 100))
    shards = shards_of(lasting | present, chance.randint(1, 5), chance)
    shards.failures = 0.3

    def change() -> None:
        name = chance.choice(passing)
        for shard in shards.shards.values():
            if name in shard.versions[-1]:
                shard.change(deleted={name})
                return
        chance.choice(list(shards.shards.values())).change(created={name})

    shards.between = change
    names = await walked(walk_of(shards, batch_items=chance.randint(1, 60)))

    assert names == sorted(names)
    assert Counter(names).most_common(1)[0][1] == 1
    assert lasting <= set(names) <= lasting | set(passing)


@pytest.mark.parametrize("names_only", [True, False])
async def test_a_name_that_one_shard_got_from_another_meanwhile_is_listed_once(names_only):
    """A topic was renamed to a name that another shard had until then, and had listed."""
    homes = {1: VersionedShard({topic("a"), topic("b")}), 2: VersionedShard({topic("b")})}
    walk = walk_of(ChangingShards(homes, random.Random(1)), names_only=names_only)

    assert await walked(walk) == [topic("a"), topic("b")]


@pytest.mark.parametrize("count", [1, 2, 7])
async def test_a_walk_goes_on_from_a_name_and_positions(count):
    chance = random.Random(count)
    names = {topic(f"{number:03}") for number in range(300)}
    shards = shards_of(names, count, chance)
    listed: list[str] = []
    after, positions = "", {}
    while True:
        walk = OrderedWalk(
            shards,
            sorted(shards.shards),
            ListRequest(kind=KIND_TOPIC, parent=PARENT, names_only=True),
            batch_items=20,
            after=after,
            positions=positions,
        )
        batch = await walk.next_batch(TIMEOUT_MS)
        listed += [name for name, _, _ in batch]
        if walk.is_done:
            break
        after, positions = batch[-1][0], walk.positions

    assert listed == sorted(names)


async def test_a_walk_begins_at_leaders_and_goes_on_behind_the_position_it_began_at():
    shards = shards_of({topic(f"{number:03}") for number in range(100)}, 1, random.Random(1))
    shards.shards[1].change(created={topic("x")})
    first = shards.shards[1].position
    shards.between = lambda: shards.shards[1].change(created={topic("y")})

    walk = walk_of(shards)
    await walked(walk)

    assert [request.min_position for request in shards.requests][:2] == [0, first + 1]
    assert {request.min_position for request in shards.requests[1:]} == {first + 1}
    assert walk.positions == {1: first + 1}


@pytest.mark.parametrize("filters", [True, False])
async def test_only_names_with_the_prefix_are_listed_also_by_an_older_release(filters):
    names = {topic(f"{number:03}") for number in range(300)}
    shards = shards_of(names, 3, random.Random(5))
    shards.filters = filters

    listed = await walked(walk_of(shards, prefix="12"))

    assert listed == [topic(f"{number}") for number in range(120, 130)]


async def test_objects_are_given_unless_only_names_are_wanted():
    shards = shards_of({topic("a"), topic("b")}, 2, random.Random(2))
    listing = ListRequest(kind=KIND_TOPIC, parent=PARENT)

    walk = OrderedWalk(shards, [1, 2], listing, batch_items=10)
    batch = await walk.next_batch(TIMEOUT_MS)

    assert [item.topic.name for _, _, item in batch if item] == [topic("a"), topic("b")]


@pytest.mark.parametrize("count", [3, 16])
async def test_a_page_of_page_items_max_takes_one_request_of_each_shard_and_little_more(count):
    names = {topic(f"{number:05}") for number in range(5_000)}
    shards = shards_of(names, count, random.Random(count))

    batch = await walk_of(shards, batch_items=PAGE_ITEMS_MAX).next_batch(TIMEOUT_MS)

    assert len(batch) >= PAGE_ITEMS_MAX
    assert len(shards.requests) == count
    assert sum(request.limit for request in shards.requests) < 2 * PAGE_ITEMS_MAX


@pytest.mark.parametrize("count", [1, 3, 4_096])
def test_all_shards_together_may_answer_with_half_of_list_walk_bytes_max(count):
    shards = shards_of(set(), count, random.Random(1))
    walk = walk_of(shards)

    assert 0 <= LIST_WALK_BYTES_MAX // 2 - count * walk._request.bytes_max < count


@pytest.mark.parametrize("count", [2, 5])
async def test_list_walk_bytes_max_are_held_although_one_shards_long_names_come_last(
    monkeypatch, count
):
    """The names of the last shard stay until all others were taken."""
    bytes_max = 64 * 1024
    monkeypatch.setattr(ordered_walk, "LIST_WALK_BYTES_MAX", bytes_max)
    early = {
        shard_id: VersionedShard({topic(f"{number:05}-{shard_id}") for number in range(2_000)})
        for shard_id in range(1, count)
    }
    late = VersionedShard({topic(f"x{number:05}-{'x' * 1_000}") for number in range(300)})
    shards = ChangingShards({**early, count: late}, random.Random(3))
    walk = walk_of(shards, batch_items=PAGE_ITEMS_MAX)

    listed, held_bytes = 0, []
    while batch := await walk.next_batch(TIMEOUT_MS):
        listed += len(batch)
        entries = [entry for cursor in walk._cursors for entry in cursor.entries]
        held_bytes.append(sum(len(name) for name, _, _ in [*entries, *batch]))

    assert listed == 2_000 * (count - 1) + 300
    assert bytes_max // 4 < max(held_bytes) <= bytes_max


async def test_a_shard_that_has_more_and_names_nothing_is_in_trouble():
    class Silent(ChangingShards):
        async def call(self, shard_id: int, request: ShardRequest, **_: Any) -> ShardResponse:
            response = ShardResponse(position=1)
            response.list.more_items = True
            return response

    shards = Silent({1: VersionedShard(set())}, random.Random(1))

    with pytest.raises(Unavailable, match="names none"):
        await walk_of(shards, kind=KIND_TENANT).next_batch(TIMEOUT_MS)


class MovingShards:
    """Shards whose slots, in eight groups, go from one to another while they are listed."""

    def __init__(self, names: set[str], chance: random.Random) -> None:
        self.names = sorted(names)
        self.owners: list[int | None] = [chance.randint(1, 3) for _ in range(GROUPS)]
        self.answers = 0
        self.moves_left = 60
        self._chance = chance

    async def call(self, shard_id: int, request: ShardRequest, **_: Any) -> ShardResponse:
        self.answers += 1
        if self.moves_left and self._chance.random() < 0.5:
            self._move()
        wanted = request.list
        found = [
            name
            for name in self.names
            if name > wanted.after and self.owners[hash64(name) % GROUPS] == shard_id
        ]
        page = found[: wanted.limit]
        response = ShardResponse(position=1)
        response.list.names.extend(page)
        response.list.partitions.extend([0] * len(page))
        response.list.more_items = len(page) < len(found)
        owned = [group for group in range(GROUPS) if self.owners[group] == shard_id]
        width = SLOT_COUNT // GROUPS
        response.list.slots_digest = slots_digest(
            (group * width, (group + 1) * width - 1) for group in owned
        )
        return response

    call_any = call_key = call

    def shard_of_key(self, routing_key: str) -> int:
        raise NotImplementedError(routing_key)

    def _move(self) -> None:
        """Let a slot leave its shard, or one that has left arrive."""
        self.moves_left -= 1
        if None in self.owners:
            self.owners[self.owners.index(None)] = self._chance.randint(1, 3)
        elif self.moves_left:
            self.owners[self._chance.randrange(GROUPS)] = None


GROUPS = 8


@pytest.mark.parametrize("seed", range(12))
async def test_every_name_is_listed_once_while_slots_move(seed, monkeypatch):
    monkeypatch.setattr(ordered_walk, "_RESTART_PAUSE_S", 0)
    names = {topic(f"{number:03}") for number in range(150)}
    shards = MovingShards(names, random.Random(seed))
    request = ListRequest(kind=KIND_TOPIC, parent=PARENT, names_only=True)
    walk = OrderedWalk(shards, [1, 2, 3], request, batch_items=12)

    assert await walked(walk) == sorted(names)
    assert shards.moves_left < 60


async def test_a_listing_ends_while_a_slot_is_nowhere_for_ever(monkeypatch):
    monkeypatch.setattr(ordered_walk, "_RESTART_PAUSE_S", 0)
    shards = MovingShards({topic("a")}, random.Random(1))
    shards.owners[0], shards.moves_left = None, 0
    request = ListRequest(kind=KIND_TOPIC, parent=PARENT, names_only=True)

    with pytest.raises(Unavailable):
        await OrderedWalk(shards, [1, 2, 3], request, batch_items=12).next_batch(TIMEOUT_MS)

    assert shards.answers <= 3 * (ordered_walk._RESTARTS_MAX + 2)
