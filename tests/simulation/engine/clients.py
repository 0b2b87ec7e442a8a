"""Who writes and reads while things go wrong, and checks every answer."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from nextgen.kernel.errors import Definite, MetadataError
from nextgen.replication.ports import Commit, NodeId, PositionCompacted, Record
from nextgen.tasks.timeouts import timeout
from tests.simulation.engine.history import (
    History,
    durable_state,
    holds_entry,
    require,
)
from tests.support.simulated.node import SimNode

REQUEST_DEADLINE_S = 3.0
"""Time after which a client gives up; its request may still be carried out."""

WRITE_PAUSE_S_MAX = 0.06
READ_PAUSE_S_MAX = 0.04
TAIL_PAUSE_S_MAX = 0.3
IDLE_FACTOR = 10
"""How much longer clients pause in an outage while nobody leads. They go on as soon as somebody
does: some faults show in the first moments of a term only."""

FIRST_S_MAX = 0.01
"""From the beginning of a term until clients that waited for it ask: a leader that may not answer
yet has no entry of its own committed by then."""

DISK_CHECKS_EVERY = 200
"""One acknowledgement in this many is looked up on the disks themselves."""


class Served(Protocol):
    """The simulation as its clients see it."""

    chance: random.Random
    history: History
    nodes: list[SimNode]
    stopping: bool
    outages: int

    def leading(self) -> SimNode | None: ...
    def voters_of(self, node: SimNode) -> tuple[NodeId, ...]: ...
    def voters_at(self, node: SimNode, index: int) -> tuple[NodeId, ...]: ...
    def node(self, node_id: NodeId) -> SimNode: ...
    def may_have_lost_its_disk(self, node_id: NodeId) -> bool: ...


class Clients:
    """Several writers, readers and a tail reader. Each is a coroutine that ends on its own."""

    def __init__(self, world: Served) -> None:
        self._world = world
        self._chance = world.chance
        self._history = world.history
        self._acks = 0
        self._idle: dict[asyncio.Future[None], None] = {}

    def somebody_leads(self) -> None:
        """Have the clients that wait for a leader go on."""
        for waiting in self._idle:
            _wake(waiting)

    async def write_for_ever(self, name: str) -> None:
        number = 0
        while not self._world.stopping:
            await self._pause(WRITE_PAUSE_S_MAX)
            node = self._chance.choice(self._world.nodes)
            if node.log is None or not node.log.is_leader:
                continue
            number += 1
            text = f"{name}-{number}" + "." * self._chance.choice((0, 0, 300))
            await self.write(node, Record(text.encode(), self._chance.choice((0, 1, 3, 60))))

    async def write(self, node: SimNode, record: Record) -> bool:
        """Propose ``record`` to ``node``; True if it was acknowledged."""
        log, process = node.log, node.process
        assert log is not None
        assert process is not None

        async def propose() -> Commit:
            commit = await log.propose(record)
            self._check_acknowledged(node, record, commit)
            return commit

        try:
            async with timeout(REQUEST_DEADLINE_S):
                commit = await process.ask(propose)
        except Definite as error:
            self._history.refused[record.payload] = repr(error)
            return False
        except (MetadataError, TimeoutError, ConnectionResetError):
            return False
        self._history.acked[record.payload] = commit
        self._history.acked_index = max(self._history.acked_index, commit.index)
        return True

    async def read_for_ever(self) -> None:
        """Linearizable reads: whatever was acknowledged before one began is in its answer."""
        while not self._world.stopping:
            await self._pause(READ_PAUSE_S_MAX)
            node = self._chance.choice(self._world.nodes)
            log, process = node.log, node.process
            if log is None or process is None:
                continue
            before = self._history.acked_index
            try:
                async with timeout(REQUEST_DEADLINE_S):
                    index = await process.ask(log.read_index)
                    require(index >= before, f"a stale read of {index}: {before} was acknowledged")
                    await process.ask(lambda: log.wait_applied(index))  # noqa: B023
            except (MetadataError, TimeoutError, ConnectionResetError):
                continue
            if node.log is log:
                point = log.status.applied
                require(point.index >= index, f"{node.node_id} waited for {index}, not long enough")
                self._history.reads += 1

    async def tail_for_ever(self) -> None:
        """Read the log by position, wherever it can be read, and compare it with what was seen."""
        position = 1
        while not self._world.stopping:
            await self._pause(TAIL_PAUSE_S_MAX)
            node = self._chance.choice(self._world.nodes)
            if node.log is None or node.process is None or not node.process.may_run:
                continue
            try:
                entries = node.log.read(position, events_max=500, bytes_max=64 * 1024)
            except PositionCompacted as compacted:
                position = compacted.oldest
                continue
            for entry in entries:
                fact = self._history.committed.get(entry.index)
                require(
                    fact is not None and fact.is_of(entry),
                    f"{node.node_id} shows a reader another entry {entry.index}",
                )
                require(
                    entry.first_position <= position <= entry.next_position,
                    f"{node.node_id} shows a reader of {position} the entry {entry.index} "
                    f"that begins at {entry.first_position}",
                )
                position = entry.next_position

    async def _pause(self, seconds_max: float) -> None:
        world = self._world
        is_idle = bool(world.outages) and world.leading() is None
        if is_idle and await self._wait_led(self._chance.uniform(0, IDLE_FACTOR * seconds_max)):
            seconds_max = FIRST_S_MAX
        await asyncio.sleep(self._chance.uniform(0, seconds_max))

    async def _wait_led(self, seconds: float) -> bool:
        """Return whether there is a leader, waiting for one that long at most."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, waiting)
        self._idle[waiting] = None
        try:
            await waiting
        finally:
            timer.cancel()
            del self._idle[waiting]
        return self._world.leading() is not None

    def _check_acknowledged(self, node: SimNode, record: Record, commit: Commit) -> None:
        """AnswerImpliesCommitted, and durable on a majority of the voters of the moment."""
        history, world = self._history, self._world
        fact = history.committed.get(commit.index)
        # The leader's own step is not over: its invariants see the entry right behind this.
        assert node.log is not None
        if fact is not None:
            require(
                fact.term == commit.term,
                f"{record.payload[:20]!r} is acknowledged in {commit}, where {fact} is committed",
            )
        self._acks += 1
        on_disk = self._acks % DISK_CHECKS_EVERY == 0
        # The answer comes a turn of the loop after the commit: others may be voters by then.
        for voters in (world.voters_of(node), world.voters_at(node, commit.index)):
            holders = [v for v in voters if self._holds(v, commit, on_disk=on_disk)]
            if len(holders) > len(voters) // 2:
                return
        require(
            False, f"entry {commit.index} is acknowledged and durable on {holders} of {voters} only"
        )

    def _holds(self, node_id: NodeId, commit: Commit, *, on_disk: bool) -> bool:
        node = self._world.node(node_id)
        if self._world.may_have_lost_its_disk(node_id):
            return True  # It had it when it said so.
        if node.log is None and not on_disk:
            return True  # Its disk knows; it is asked in its turn.
        if on_disk or node.log is None:
            return holds_entry(durable_state(node.disk, node_id), commit.index, commit.term)
        journal = node.log.engine.journal
        if commit.index <= journal.base_index:
            return True
        return commit.index <= journal.durable_index and (
            journal.term_of(commit.index) == commit.term
        )


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
