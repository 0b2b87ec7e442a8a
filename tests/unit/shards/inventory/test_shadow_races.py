"""Sources and shadows under any interleaving, and with a crash at each step.

No source goes while a shadow of it is there, no shadow comes behind its source, and a source never
has a partition that one of its shadows lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence

import pytest

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY, shadow_source_of
from nextgen.replication.ports import Entry
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.topic import TopicCreated, TopicDeleted, TopicPartitionsGrown
from shards.wire.event import DomainEvent, decode_events
from tests.support.shards.parent_chaos import ParentChaos
from tests.support.shards.world import World, names_in, namespace_at

SEEDS = (*range(30), 49, 300)
STEPS = 40
SHARDS = 3


class Broken:
    """Watches every commit of every shard, and keeps what breaks a rule of shadows."""

    def __init__(self, world: World) -> None:
        self.found: list[str] = []
        self._topics: dict[str, TopicCreated] = {}
        self._partitions: dict[str, int] = {}
        for shard in world.shards.values():
            shard.log.on_commit(self._check)

    def _check(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for record in entry.records:
                for event in decode_events(DecidedCommand.FromString(record.payload)):
                    self._check_event(event)

    def _check_event(self, event: DomainEvent) -> None:
        if isinstance(event, TopicCreated):
            self._topics[event.name] = event
            self._partitions[event.name] = event.partitions
            source = shadow_source_of(dict(event.properties))
            if source and source not in self._topics:
                self.found.append(f"{event.name} came without its source")
            if event.partitions < self._partitions.get(source, 0):
                self.found.append(f"{event.name} came with too few partitions")
        elif isinstance(event, TopicDeleted):
            del self._topics[event.name]
            del self._partitions[event.name]
            if shadows := self._shadows(event.name):
                self.found.append(f"{event.name} went, {shadows} were there")
        elif isinstance(event, TopicPartitionsGrown):
            self._partitions[event.name] = event.partitions
            for name in self._shadows(event.name):
                if self._partitions[name] < event.partitions:
                    self.found.append(f"{event.name} grew before {name}")

    def _shadows(self, source: str) -> list[str]:
        return [
            name
            for name, created in self._topics.items()
            if shadow_source_of(dict(created.properties)) == source
        ]


async def make_world() -> tuple[World, str, list[str]]:
    """Return shards, the name of a source in shard 1, and names of shadows, one in each shard."""
    world = World(shards=SHARDS)
    for shard in world.shards.values():
        await shard.state.proposer.confirm()
    await world.create_tenant("acme")
    namespace = namespace_at(world, 1, "acme")
    await world.create_namespace(namespace)
    source, in_first = itertools.islice(names_in(world, 1, namespace), 2)
    others = [next(names_in(world, number, namespace)) for number in range(2, SHARDS + 1)]
    return world, source, [in_first, *others]


async def create(
    world: World, name: str, partitions: int, source: str = "", command_id: bytes = b""
) -> pb.TopicOutcome:
    properties = {SHADOW_SOURCE_PROPERTY: source} if source else {}
    spec = pb.TopicSpec(name=name, partitions=partitions, properties=properties)
    command = pb.Command(command_id=command_id, create_topics=pb.CreateTopics(topics=[spec]))
    (outcome,) = (await world.run(world.home_of_topic(name), command)).topics
    return outcome


async def grow(world: World, name: str, partitions: int, command_id: bytes = b"") -> str:
    body = pb.GrowTopic(name=name, partitions=partitions)
    command = pb.Command(command_id=command_id, grow_topic=body)
    return (await world.run(world.home_of_topic(name), command)).rejection_code


def partitions_of(world: World, name: str) -> int | None:
    topic = world.home_of_topic(name).state.reads.load_topic(name)
    return None if topic is None else topic.partitions


async def settle(world: World, source: str, shadows: Sequence[str]) -> None:
    """End what is half done as clients would, and check that nothing stays shut."""
    if partitions_of(world, source) is None:
        await create(world, source, 2)
    wanted = max(partitions_of(world, name) or 1 for name in (source, *shadows))
    assert await grow(world, source, wanted) in ("", "FEWER_PARTITIONS")
    # A growth that was broken off is ended by the first that is created, which differs then.
    outcome = await create(world, shadows[0], partitions_of(world, source) or 0, source)
    assert outcome.rejection_code in ("", "ALREADY_EXISTS", "PARTITIONS_DIFFER")
    for name in shadows:
        if partitions_of(world, name) is None:
            outcome = await create(world, name, partitions_of(world, source) or 0, source)
            assert not outcome.rejection_code, f"{name}: {outcome.message}"
    assert await grow(world, source, 9) == ""
    assert {partitions_of(world, name) for name in (source, *shadows)} == {9}
    assert (await world.delete_topic(source)).rejection_code == "NOT_EMPTY"
    for name in shadows:
        assert not (await world.delete_topic(name)).rejection_code
    assert not (await world.delete_topic(source)).rejection_code
    assert (await create(world, shadows[0], 2, source)).rejection_code == "PARENT_NOT_FOUND"


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_shadow_has_its_source_whatever_happens(seed: int) -> None:
    world, source, shadows = await make_world()
    chaos = ParentChaos(world, seed)
    world.before_close = world.before_reopen = chaos.delay
    broken = Broken(world)

    async def attempt() -> None:
        name = chaos.random.choice(shadows)
        kind = chaos.random.randrange(12)
        for _turn in range(chaos.random.randrange(8 * STEPS)):
            await asyncio.sleep(0)
        with contextlib.suppress(MetadataError):
            if kind < 4:
                partitions = partitions_of(world, source) or 2
                await create(world, name, chaos.random.choice((partitions, 2)), source)
            elif kind < 6:
                await world.delete_topic(name)
            elif kind < 8:
                await world.delete_topic(source)
            elif kind < 9:
                await grow(world, source, chaos.random.randrange(2, 6))
            elif kind < 10 or chaos.random.random() < 0.5:
                await create(world, source, 2)
            else:
                world.shards[chaos.random.choice(sorted(world.shards))].next_term()

    await create(world, source, 2)
    await asyncio.wait([asyncio.ensure_future(attempt()) for _ in range(STEPS)])
    world.before_close = world.before_reopen = None
    await chaos.calm_down()

    assert broken.found == []
    await settle(world, source, shadows)
    assert broken.found == []
    world.close()


# A crash at each step -------------------------------------------------------------------------

Step = Callable[[World, str, list[str]], Awaitable[object]]


async def _create(world: World, source: str, shadows: list[str]) -> object:
    return await create(world, shadows[1], 2, source, b"command-00000001")


async def _delete_source(world: World, source: str, shadows: list[str]) -> object:
    return await world.delete_topic(source, b"command-00000001")


async def _delete_shadow(world: World, source: str, shadows: list[str]) -> object:
    return await world.delete_topic(shadows[2], b"command-00000001")


async def _grow(world: World, source: str, shadows: list[str]) -> object:
    return await grow(world, source, 5, b"command-00000001")


OPERATIONS: dict[str, tuple[Step, tuple[int, ...]]] = {
    "create a shadow": (_create, (0,)),
    "delete a source with shadows": (_delete_source, (0, 2)),
    "delete a source that has none any more": (_delete_source, ()),
    "delete a shadow": (_delete_shadow, (0, 2)),
    "grow": (_grow, (0, 1, 2)),
}
"""What is done, and which shadows are there before."""

STEPS_MAX = 20
"""More than the longest operation has."""

LOSSES = ("leader of the source", "leader of a shadow", "order", "answer")


class Saboteur:
    """Lets one thing go wrong at one step between shards: a loss or a change of leader."""

    def __init__(self, world: World, source: str, step: int, loss: str) -> None:
        self._world = world
        self._home = world.home_of_topic(source)
        self._step = step
        self._loss = loss
        self._steps = 0
        world.before_read = world.after_read = self._crash
        world.before_close = world.before_reopen = self._crash
        world.post = self._post

    @property
    def has_struck(self) -> bool:
        return self._steps > self._step

    def leave(self) -> None:
        world = self._world
        world.before_read = world.after_read = world.before_close = world.before_reopen = None
        world.post = _hand_over

    def _crash(self, _: object) -> None:
        if not self._is_now():
            return
        if self._loss == "leader of the source":
            self._home.next_term()
        elif self._loss == "leader of a shadow":
            self._world.shards[2].next_term()
        else:
            raise Unavailable("the order was lost")

    async def _post(self, delivery: Awaitable[pb.CommandResult]) -> pb.CommandResult:
        if self._loss == "answer" and self._is_now():
            await delivery
            raise Unavailable("the answer was lost")
        return await delivery

    def _is_now(self) -> bool:
        self._steps += 1
        return self._steps == self._step + 1


async def _hand_over(message: Awaitable[pb.CommandResult]) -> pb.CommandResult:
    return await message


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_crash_at_any_step_breaks_nothing_and_a_repetition_ends_it(
    operation: str, loss: str
) -> None:
    """Each step is tried until the operation has no further one."""
    run, present = OPERATIONS[operation]
    for step in range(STEPS_MAX):
        world, source, shadows = await make_world()
        broken = Broken(world)
        await create(world, source, 2)
        for number in range(SHARDS):
            await create(world, shadows[number], 2, source)
            if number not in present:
                await world.delete_topic(shadows[number])
        saboteur = Saboteur(world, source, step, loss)
        with contextlib.suppress(MetadataError, asyncio.CancelledError):
            await run(world, source, shadows)
        has_struck = saboteur.has_struck
        saboteur.leave()
        assert broken.found == []
        if "source" in operation or not step % 2:
            # Half of the time another client comes first, and finds it half done.
            await run(world, source, shadows)
        await settle(world, source, shadows)
        assert broken.found == []
        world.close()
        if not has_struck:
            break
    else:
        pytest.fail("an operation has more steps than expected")
    assert step, "no step was disturbed"
