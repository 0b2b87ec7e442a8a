"""Moves of slots between two shards in which somebody is gone after any step."""

from __future__ import annotations

import asyncio

from shards.domain.slot_moves.steps import MovePhase
from tests.support.slots.world import SlotWorld, in_slot_world, the_move


def test_a_move_brings_its_slots_to_the_other_shard() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        world.manager.plan(the_move())

        while world.manager.moves[1].phase is not MovePhase.DONE:
            await asyncio.sleep(0.1)

        assert [phase for _, phase in world.manager.history] == ["planned", "adopted", "done"]
        assert world.a.own.ranges == ((2048, 4095), (5120, 8191))
        assert world.b.own.ranges == ((0, 2047), (4096, 5119), (8192, 16383))

    in_slot_world(story)
