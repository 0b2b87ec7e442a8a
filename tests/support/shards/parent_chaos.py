"""Delays and losses between the shards of a ``World``, in an order that a seed fixes."""

from __future__ import annotations

import asyncio
import random

from nextgen.kernel.errors import Unavailable
from protos.nextgen.v1.shard_service_pb2 import CommandResult
from tests.support.shards.world import Delivery, World


class ParentChaos:
    """Delays and loses messages between shards."""

    def __init__(self, world: World, seed: int) -> None:
        self.random = random.Random(seed)
        world.before_read = world.after_read = self.delay
        world.post = self.post
        self._world = world
        self._on_their_way: set[asyncio.Task[CommandResult]] = set()

    async def delay(self, _: object) -> None:
        for _turn in range(self.random.randrange(12)):
            await asyncio.sleep(0)

    async def post(self, message: Delivery) -> CommandResult:
        """Deliver an order at some time, even if its sender is gone; often the answer is lost."""
        is_answer_lost = self.random.random() < 0.2
        turns = self.random.randrange(200 if is_answer_lost else 10)
        delivery = asyncio.ensure_future(self._deliver(message, turns))
        self._on_their_way.add(delivery)
        if is_answer_lost:
            raise Unavailable("no answer came")
        return await asyncio.shield(delivery)

    async def calm_down(self) -> None:
        """Let what is on its way arrive, then leave the shards in peace."""
        while pending := [each for each in self._on_their_way if not each.done()]:
            # What arrives may send more.
            await asyncio.gather(*pending, return_exceptions=True)
        self._world.before_read = self._world.after_read = None
        self._world.post = _hand_over
        for shard in self._world.shards.values():
            await shard.state.proposer.confirm()

    async def _deliver(self, message: Delivery, turns: int) -> CommandResult:
        for _turn in range(turns):
            await asyncio.sleep(0)
        return await message


async def _hand_over(message: Delivery) -> CommandResult:
    return await message
