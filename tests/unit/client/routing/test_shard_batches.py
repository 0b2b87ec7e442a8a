"""Batches to shards: what shares one, and when the next may go."""

import asyncio

from nextgen.client.routing.shard_batches import ShardBatches


class Line:
    """Batches of at most two, one under way at a time."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.under_way = 0

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def has_room(self) -> bool:
        return self.under_way < 1

    def take(self) -> list[str] | None:
        if not self.has_room:
            return None
        batch, self.waiting = self.waiting[:2], self.waiting[2:]
        self.under_way += 1
        return batch


class World:
    def __init__(self) -> None:
        self.sent: list[tuple[int, list[str]]] = []
        self.answered = asyncio.Event()
        self.batches: ShardBatches[Line, list[str]] = ShardBatches(Line, self.begin)

    def begin(
        self, shard_id: int, line: Line, batch: list[str], tasks: set[asyncio.Task[None]]
    ) -> None:
        task = asyncio.create_task(self.carry_out(shard_id, line, batch))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def carry_out(self, shard_id: int, line: Line, batch: list[str]) -> None:
        self.sent.append((shard_id, batch))
        await self.answered.wait()
        line.under_way -= 1
        self.batches.send_soon(shard_id)

    def put(self, shard_id: int, *items: str) -> None:
        for item in items:
            self.batches.line(shard_id).waiting.append(item)
            self.batches.send_soon(shard_id)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_put_in_one_turn_of_the_loop_shares_a_batch() -> None:
    world = World()

    world.put(1, "a", "b")
    world.put(2, "c")
    assert world.sent == []
    await turns()

    assert world.sent == [(1, ["a", "b"]), (2, ["c"])]
    await world.batches.stop()


async def test_the_next_batch_goes_once_the_line_has_room() -> None:
    world = World()
    world.put(1, "a", "b", "c")
    await turns()
    assert world.sent == [(1, ["a", "b"])]

    world.answered.set()
    await turns()

    assert world.sent == [(1, ["a", "b"]), (1, ["c"])]
    assert len(world.batches) == 0


async def test_nothing_is_sent_once_stopped() -> None:
    world = World()
    world.put(1, "a")

    await world.batches.stop()
    world.put(1, "b")
    await turns()

    assert world.sent == []
