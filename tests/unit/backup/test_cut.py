"""The cut of a backup: whatever goes on meanwhile, every object's parents are in it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from nextgen.backup.cut import Change, ShardTail, TailEvent, consistent_cut
from nextgen.backup.errors import CutNotFound
from nextgen.backup.objects import (
    EVENT_TYPES,
    Key,
    apply,
    id_as_parent,
    key_of,
    parents_of,
    tail_of,
    value_of,
)
from nextgen.client.log.wire import filled_events
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Item
from shards.domain.states import StateKind
from shards.wire.inventory import KINDS, item_message
from tests.support.shards.parent_chaos import ParentChaos
from tests.support.shards.world import ShardReplica, World, names_in, namespace_at

SEEDS = range(12)
STEPS = 40
BACKUPS = 8


def born(position: int, parent_id: str, *, needs: str = "", group: object = None) -> TailEvent:
    changes = [(Change.BORN, parent_id)] + ([(Change.NEEDED, needs)] if needs else [])
    return TailEvent(position, group or position, tuple(changes))


def event(position: int, change: Change, parent_id: str) -> TailEvent:
    return TailEvent(position, position, ((change, parent_id),))


def test_snapshots_that_fit_together_are_the_cut() -> None:
    shards = {1: ShardTail(10, {"t"}, set()), 2: ShardTail(20, {"n"}, {"t", "n"})}

    assert consistent_cut(shards) == {1: 10, 2: 20}


def test_a_shard_advances_to_the_parent_that_a_child_elsewhere_has() -> None:
    shards = {
        1: ShardTail(10, {"t"}, {"n"}),
        2: ShardTail(20, set(), set(), [event(21, Change.CLOSED, "x"), born(22, "n", needs="t")]),
    }

    assert consistent_cut(shards) == {1: 10, 2: 22}


def test_the_rest_of_a_record_comes_with_its_first_event() -> None:
    """A namespace is never without the policies that it was created with."""
    policies = TailEvent(23, "one", ())
    later = TailEvent(24, "other", ())
    shards = {
        1: ShardTail(10, {"t"}, {"n"}),
        2: ShardTail(20, set(), set(), [born(22, "n", needs="t", group="one"), policies, later]),
    }

    assert consistent_cut(shards) == {1: 10, 2: 23}


def test_a_shard_advances_to_where_the_children_of_a_deleted_parent_are_gone() -> None:
    shards = {
        1: ShardTail(10, {"t"}, {"n"}, [event(11, Change.CLOSED, "n")]),
        2: ShardTail(20, set(), set()),
    }

    assert consistent_cut(shards) == {1: 11, 2: 20}


def test_an_advance_brings_what_it_needs_in_turn() -> None:
    """The namespace of a child is in the tail of 2, and its tenant in that of 3."""
    shards = {
        1: ShardTail(10, set(), {"n"}),
        2: ShardTail(20, set(), set(), [born(21, "n", needs="t")]),
        3: ShardTail(30, set(), set(), [born(35, "t")]),
    }

    assert consistent_cut(shards) == {1: 10, 2: 21, 3: 35}


def test_a_parent_that_came_and_went_behind_the_snapshots_comes() -> None:
    """Its child is in a snapshot, so its creation is in the cut; its deletion need not be."""
    shards = {
        1: ShardTail(10, set(), {"n"}, [event(12, Change.CLOSED, "n")]),
        2: ShardTail(20, {"t"}, set(), [born(21, "n", needs="t"), event(25, Change.GONE, "n")]),
    }

    assert consistent_cut(shards) == {1: 10, 2: 21}


def test_a_shard_advances_to_the_source_of_a_shadow_elsewhere() -> None:
    shards = {
        1: ShardTail(10, {"n"}, {"n", "persistent://source"}),
        2: ShardTail(20, set(), set(), [born(21, "persistent://source", needs="n")]),
    }

    assert consistent_cut(shards) == {1: 10, 2: 21}


def test_a_shard_advances_to_where_the_shadows_of_a_deleted_source_are_gone() -> None:
    shards = {
        1: ShardTail(
            10,
            {"n"},
            {"n", "persistent://source"},
            [event(14, Change.CLOSED, "persistent://source")],
        ),
        2: ShardTail(20, set(), set()),
    }

    assert consistent_cut(shards) == {1: 14, 2: 20}


def test_a_shadow_whose_source_never_was_stays_as_it_is() -> None:
    shards = {1: ShardTail(10, {"n"}, {"n", "persistent://source"}), 2: ShardTail(20)}

    assert consistent_cut(shards) == {1: 10, 2: 20}


def test_tails_that_end_too_early_are_said_so() -> None:
    with pytest.raises(CutNotFound, match="n-1"):
        consistent_cut({1: ShardTail(10, set(), {"n-1"})})


# Under concurrent creates and deletes -----------------------------------------------------------


@dataclass
class Shot:
    """What a backup reads of one shard: a snapshot, and later how far its leader is."""

    position: int
    until: int = 0


def events_of(shard: ShardReplica) -> Iterator[Event]:
    for entry in shard.log.read(1, events_max=1_000_000, bytes_max=1 << 30):
        yield from filled_events(entry, shard.shard_id)


def folded(events: Sequence[Event], position: int) -> dict[Key, Item]:
    """Return the objects as of ``position``."""
    objects: dict[Key, Item] = {}
    for each in events:
        key = key_of(each)
        if key is not None and each.position <= position:
            apply(objects.setdefault(key, Item(kind=key[0], name=key[1])), each)
    return {key: item for key, item in objects.items() if item.WhichOneof("value")}


def names_as_parents(items: Iterable[Item]) -> set[str]:
    """Return ids and names by which others may need ``items``."""
    topics = {item.name for item in items if item.kind == KIND_TOPIC}
    return topics | {id_as_parent(item) for item in items} - {""}


def tail_behind(events: Sequence[Event], shot: Shot) -> ShardTail:
    items = list(folded(events, shot.position).values())
    behind = [
        each
        for each in events
        if shot.position < each.position <= shot.until and each.WhichOneof("payload") in EVENT_TYPES
    ]
    return ShardTail(
        shot.position,
        names_as_parents(items),
        {parent for item in items for parent in parents_of(item)},
        tail_of(behind),
    )


def orphans(events: dict[int, Sequence[Event]], cut: dict[int, int]) -> list[str]:
    items = [
        item
        for shard_id, position in cut.items()
        for item in folded(events[shard_id], position).values()
    ]
    parents = names_as_parents(items)
    return [item.name for item in items if not parents.issuperset(parents_of(item))]


class Busy:
    """A world in which tenants, namespaces and topics come and go, and leaders change."""

    def __init__(self, seed: int) -> None:
        self.world = World(shards=3)
        self.chaos = ParentChaos(self.world, seed)
        self.tenants = ("acme", "shop")
        self.namespaces = [
            namespace_at(self.world, shard_id, tenant)
            for tenant, shard_id in zip(self.tenants, (1, 3), strict=True)
        ]
        self.topics = [
            name
            for namespace in self.namespaces
            for shard_id in self.world.shards
            for name in itertools.islice(names_in(self.world, shard_id, namespace), 1)
        ]

    async def create_shadow(self, name: str, source: str) -> None:
        properties = {SHADOW_SOURCE_PROPERTY: source}
        spec = pb.TopicSpec(name=name, properties=properties)
        command = pb.Command(create_topics=pb.CreateTopics(topics=[spec]))
        await self.world.run(self.world.home_of_topic(name), command)

    async def pause(self, turns: int) -> None:
        for _turn in range(self.chaos.random.randrange(turns)):
            await asyncio.sleep(0)

    async def step(self) -> None:
        """Build a namespace up or tear it down, as far as others let that succeed."""
        draw, world = self.chaos.random, self.world
        kind = draw.randrange(10)
        namespace = draw.choice(self.namespaces)
        tenant = namespace.partition("/")[0]
        topics = [name for name in self.topics if f"//{namespace}/" in name]
        draw.shuffle(topics)
        await self.pause(10 * STEPS)
        with contextlib.suppress(MetadataError):
            if kind < 5:
                await world.create_tenant(tenant)
                await world.create_namespace(namespace)
                for name in topics[: draw.randrange(4)]:
                    await world.create_topic(name)
                for source, shadow in itertools.product(topics[:1], topics[1:]):
                    await self.create_shadow(f"{shadow}-shadow", source)
            elif kind < 9:
                for name in (*(f"{each}-shadow" for each in topics), *topics):
                    await world.delete_topic(name)
                await world.delete_namespace(namespace)
                if kind == 8:
                    await world.delete_tenant(tenant)
            else:
                world.shards[draw.choice(sorted(world.shards))].next_term()

    async def back_up(self) -> dict[int, Shot]:
        """Read the shards in any order, as a backup does: snapshots first, then positions."""
        await self.pause(8 * STEPS)
        span = 2 + 3 * STEPS * self.chaos.random.randrange(2)
        shards = list(self.world.shards.values())
        shots: dict[int, Shot] = {}
        self.chaos.random.shuffle(shards)
        for shard in shards:
            await self.pause(span)
            shots[shard.shard_id] = Shot(shard.log.commit_position)
        self.chaos.random.shuffle(shards)
        for shard in shards:
            await self.pause(60)
            shots[shard.shard_id].until = shard.log.commit_position
        return shots

    async def run(self) -> list[dict[int, Shot]]:
        for name in self.tenants:
            await self.world.create_tenant(name)
        for name in (*self.namespaces, *self.namespaces):
            await self.world.create_namespace(name)
        steps = [asyncio.ensure_future(self.step()) for _ in range(STEPS)]
        backups = [asyncio.ensure_future(self.back_up()) for _ in range(BACKUPS)]
        await asyncio.gather(*steps, *backups)
        await self.chaos.calm_down()
        return [each.result() for each in backups]


advanced: list[bool] = []
"""For each backup, whether its snapshots alone were no cut."""


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_object_in_the_cut_has_its_parents_whatever_goes_on(seed: int) -> None:
    busy = Busy(seed)
    backups = await busy.run()
    events = {shard_id: list(events_of(shard)) for shard_id, shard in busy.world.shards.items()}

    for shots in backups:
        tails = {shard_id: tail_behind(events[shard_id], shot) for shard_id, shot in shots.items()}
        cut = consistent_cut(tails)

        assert orphans(events, cut) == []
        for shard_id, shot in shots.items():
            assert shot.position <= cut[shard_id] <= shot.until, "no advance beyond what was read"
        advanced.append(bool(orphans(events, {key: shot.position for key, shot in shots.items()})))
    check_fold(busy.world, events)
    busy.world.close()
    if seed == SEEDS[-1] and len(advanced) == len(SEEDS) * BACKUPS:
        assert sum(advanced) > 4, "snapshots that fit together by themselves prove nothing"


def check_fold(world: World, events: dict[int, list[Event]]) -> None:
    """Check that the fold of a backup gives what the shard's own view has."""
    for shard_id, shard in world.shards.items():
        found = folded(events[shard_id], shard.log.commit_position)
        for (kind, name), item in found.items():
            state = shard.state.reads.load(KINDS[kind], [name])[name]
            expected = item_message(kind, name, state)
            assert value_of(item) == value_of(expected)
        topics = sum(kind == KIND_TOPIC for kind, _ in found)
        assert shard.state.reads.total(StateKind.TOPIC) == topics
