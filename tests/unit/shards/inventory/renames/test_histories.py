"""Random renames, creates, deletions, moves of slots and changes of leaders, several at a time.

Whenever nothing is under way: a name leads to at most one living topic; a topic answers under its
name; a former name leads to its topic until its time is over; every topic that was created and not
deleted is there once.
"""

import asyncio
import random

import pytest

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from shards.domain.slot_moves.steps import MovePhase
from tests.support.slots.renames import Renamer, check_names, formers, living, make_namespaces
from tests.support.slots.world import A, SlotWorld, in_slot_world, moves, the_move

ROUNDS = 20
AT_ONCE = 4
GRACES_MS = (0, 50, 100_000)
NAMESPACES = ("acme/orders", "acme/other")


class History:
    """One random history in two shards, of which slots move from one to the other."""

    def __init__(self, world: SlotWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.clients = [Renamer(world) for _ in range(3)]
        self.names = self._names()
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self.unknown_deletions: set[str] = set()
        self.renames = 0
        self.errors: list[str] = []

    def _names(self) -> list[str]:
        """Return names in slots that move, in slots of A that stay, and in slots of B."""
        places: dict[str, list[str]] = {"moves": [], "stays": [], "B": []}
        number = 0
        while min(map(len, places.values())) < 4:
            name = f"persistent://{NAMESPACES[number % 2]}/topic-{number}"
            number += 1
            slot = slot_of(parse_topic(name).routing_key)
            is_at_a = self.world.table.shard_of(slot) == A
            place = ("moves" if moves(name) else "stays") if is_at_a else "B"
            if len(places[place]) < 4:
                places[place].append(name)
        return [name for names in places.values() for name in names]

    async def run(self) -> None:
        await make_namespaces(self.world, NAMESPACES[0])
        await self.world.create_namespace(NAMESPACES[1])
        moves_at = self.random.randrange(ROUNDS)
        for number in range(ROUNDS):
            if number == moves_at:
                self.world.manager.plan(the_move())
            steps = [self._step() for _ in range(self.random.randint(1, AT_ONCE))]
            await asyncio.gather(*steps, self._disturb())
            if number % 5 == 4:
                await self.check()
        await self.world.done()
        await self.check()

    async def _step(self) -> None:
        await asyncio.sleep(self.random.random() * 0.004)
        client = self.random.choice(self.clients)
        name = self.random.choice(self.names)
        action = self.random.choice(("create", "create", "rename", "rename", "delete", "get"))
        try:
            if action == "create":
                created = await client.create(name)
                if len(created) == 24:
                    self.created.add(created)
            elif action == "rename":
                grace_ms = self.random.choice(GRACES_MS)
                renamed = self.random.choice(sorted(living(self.world)) or self.names)
                self.renames += await client.rename(renamed, name, grace_ms) == ""
            elif action == "delete":
                await self._delete(client, name)
            else:
                await client.get(name)
        except MetadataError as error:
            self.errors.append(error.reason)

    async def _delete(self, client: Renamer, name: str) -> None:
        try:
            deleted = await client.deleted(name)
        except MetadataError:
            # Whichever topic has the name at this moment may go.
            self.unknown_deletions.add(name)
            raise
        if deleted:
            self.deleted.add(deleted)

    async def _disturb(self) -> None:
        await asyncio.sleep(self.random.random() * 0.004)
        if self.random.random() < 0.3:
            shard = self.random.choice((self.world.a, self.world.b))
            if self.random.random() < 0.5:
                shard.stop(pending_survives=self.random.random() < 0.5)
                await asyncio.sleep(0.001)
            shard.next_term()
        if self.random.random() < 0.2:
            for shard in (self.world.a, self.world.b):
                shard.clock.skip(self.random.choice((10, 70_000)))

    async def check(self) -> None:
        world = self.world
        for shard in (world.a, world.b):
            if not shard.is_led:
                shard.next_term()
        while sum(sum(shard.state.slots.owned()) for shard in (world.a, world.b)) < SLOT_COUNT:
            await asyncio.sleep(0.01)  # Slots are on their way.
        for shard in (world.a, world.b):
            await shard.state.proposer.confirm()
        topics = living(world)
        check_names(world)
        former, may_expire = formers(world, for_ms=10_000), formers(world)
        assert set(topics.values()) <= self.created or self.errors
        if not self.unknown_deletions:
            assert self.created - self.deleted <= set(topics.values())
        assert not self.deleted & set(topics.values())
        for name in self.names:
            found = await Renamer(world).get(name)
            if name in topics:
                assert (found.topic_id, found.name) == (topics[name], name)
            elif name in former:
                assert found.topic_id == former[name]
            elif name not in may_expire:
                assert found is None, f"{name} leads to {found}"


@pytest.mark.parametrize("seed", range(8))
def test_a_name_leads_to_one_topic_and_a_topic_answers_under_its_names(seed):
    async def story(world: SlotWorld) -> None:
        history = History(world, seed)
        await history.run()
        assert history.renames, "nothing was tried"
        assert world.manager.moves[1].phase in (MovePhase.DONE, MovePhase.TAKEN_BACK)

    in_slot_world(story)
