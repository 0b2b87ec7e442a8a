"""Two shards with real rules, views and keepers, between which slots move; in virtual time.

A = shard 1 ──move──▶ B = shard 2        a network that loses, doubles and delays
      ▲ pushes, reports ▲
      └── FakeManager ──┘
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from nextgen.kernel.errors import ConnectionLost, MetadataError, NotLeader
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import SlotMoveReport
from shards.domain import assignment, broker_session
from shards.domain.broker_session import Endpoints, EstablishSession
from shards.domain.shard import Shard
from shards.domain.slot_moves.steps import MovePhase, SlotMove
from shards.domain.slots.events import SlotRanges
from shards.inventory.reader import InventoryReader
from shards.ports import Cancellable
from shards.projections.rows import query_of
from shards.slots.slot_keeper import SlotKeeper
from shards.slots.slot_source import SlotSource
from tests.support.shards.world import MemoryView, ShardReplica, World, table_of
from tests.support.simulated.virtual_time import run_virtual
from tests.support.slots.fake_record import PUSH_EVERY_S, FakeManager

A, B = 1, 2
RANGES: SlotRanges = ((0, 2047), (4096, 5119))
"""The slots that move: three eighths of those of A."""

NAMESPACES = tuple(f"tenant-{number}/ns" for number in range(6))
HOP_S = 0.002
LOST_AFTER_S = 1.0
"""After this the sender of a lost message knows that its connection broke."""

_OVER = (MovePhase.DONE, MovePhase.TAKEN_BACK)

T = TypeVar("T")
OnStep = Callable[[str], None]


class LoopClock:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1_000)

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancellable:
        return asyncio.get_running_loop().call_at(when, callback)


class MovingShard(ShardReplica):
    """A shard whose leader can be gone, or replaced without knowing it. ``services`` are of the
    leader that requests reach."""

    def __init__(self, shard_id: int, table: Any, world: SlotWorld) -> None:
        super().__init__(shard_id, table, world)
        self._world = world
        self.known: dict[int, SlotMove] = {}
        """What the node was pushed."""
        self._listeners: list[Callable[[], None]] = []
        self._lead()

    @property
    def is_led(self) -> bool:
        return self.log.is_leader and not self.state.term.is_over

    @property
    def own(self) -> Shard:
        """The shard's own record, what is pending included."""
        own = self.state.reads.load_shard()
        assert own is not None
        return own

    def next_term(self, term: int = 0) -> None:
        self.keeper.close()
        super().next_term(term)
        self._lead()

    def stop(self, *, pending_survives: bool = False) -> None:
        """Let the leader be gone; what is not committed is lost, or found by the next one."""
        self.state.term.end()
        self.keeper.close()
        self.log.lose_leadership(pending_survives=pending_survives)

    def depose(self) -> Callable[[], None]:
        """Let another replica lead; the leader of before goes on and commits nothing, until the
        function that is returned is called."""
        deposed_log, deposed_state, deposed_keeper = self.log, self.state, self.keeper
        deposed_log.hold_commits()
        self.view = MemoryView()
        self.log = deposed_log.fork(self.view)
        self.log.become_leader()
        self.query = query_of(self.view.reader)
        self.reader = InventoryReader(
            self.shard_id, self.log, self.query, self.view.read_transaction
        )
        self.state = self._new_state()
        self.service = self._new_service()
        self._lead()
        self._world.on_new_log(self)

        def end() -> None:
            deposed_state.term.end()
            deposed_keeper.close()
            deposed_log.lose_leadership()

        return end

    def close(self) -> None:
        self.keeper.close()
        self.service.close()
        super().close()

    def push(self, move: SlotMove) -> None:
        """Learn what the cluster manager has recorded."""
        if move.phase in (MovePhase.DONE, MovePhase.TAKEN_BACK):
            self.known.pop(move.move_id, None)
        else:
            self.known[move.move_id] = move
        for listener in tuple(self._listeners):
            listener()

    def forget_moves(self) -> None:
        """Learn all moves anew from the cluster manager: it knows none at this moment."""
        self.known.clear()
        for listener in tuple(self._listeners):
            listener()

    def _lead(self) -> None:
        self.source = SlotSource(self.state, self.query)
        self.keeper = SlotKeeper(self.state, self.query, _Moves(self, self._world), LoopClock())
        self.keeper.start()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


class _Moves:
    """``SlotMoves`` of one shard's leader."""

    map_version = 1

    def __init__(self, shard: MovingShard, world: SlotWorld) -> None:
        self._shard = shard
        self._world = world

    def of_shard(self, _shard_id: int) -> Sequence[SlotMove]:
        return [move for _, move in sorted(self._shard.known.items())]

    def slots_of(self, shard_id: int) -> SlotRanges:
        first = self._world.table.ranges_of(shard_id)
        return self._world.manager.slots_of(shard_id, first)

    def report(self, report: SlotMoveReport) -> None:
        self._world.send(f"report {report.phase}", lambda: self._world.manager.take(report))

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._shard.subscribe(listener)

    async def copy(
        self, shard_id: int, request: pb.CopySlotsRequest, *, timeout_ms: int
    ) -> pb.CopySlotsResponse:
        other = self._world.moving(shard_id)
        return await self._world.ask("copy", other, lambda: other.source.copy(request), timeout_ms)

    async def release(
        self, shard_id: int, request: pb.ReleaseSlotsRequest, *, timeout_ms: int
    ) -> pb.ReleaseSlotsResponse:
        other = self._world.moving(shard_id)
        return await self._world.ask(
            "release", other, lambda: other.source.release(request), timeout_ms
        )

    async def pin(self, shard_id: int, reader_id: str, position: int, ttl_ms: int) -> None:
        await self._world.moving(shard_id).log.pin_reader(reader_id, position, ttl_ms)


class Fate:
    """What becomes of one message. ``late_s``: it is delivered once more, so much later."""

    def __init__(
        self, *, is_lost: bool = False, answer_is_lost: bool = False, late_s: float = 0.0
    ) -> None:
        self.is_lost = is_lost
        self.answer_is_lost = answer_is_lost
        self.late_s = late_s


ARRIVES = Fate()


class SlotWorld(World):
    """Make it with ``in_slot_world``. ``on_step`` is called with each step of a move; ``fate_of``
    with each message when it is sent."""

    def __init__(self) -> None:
        super().__init__(0)
        self.table = table_of(2)
        self.on_step: OnStep = lambda _step: None
        self.fate_of: Callable[[str], Fate] = lambda _message: ARRIVES
        self.on_new_log: Callable[[MovingShard], None] = lambda _shard: None
        self.manager = FakeManager(self._push)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.shards = {shard_id: MovingShard(shard_id, self.table, self) for shard_id in (A, B)}

    def moving(self, shard_id: int) -> MovingShard:
        shard = self.shards[shard_id]
        assert isinstance(shard, MovingShard)
        return shard

    @property
    def a(self) -> MovingShard:
        return self.moving(A)

    @property
    def b(self) -> MovingShard:
        return self.moving(B)

    def home(self, routing_key: str) -> ShardReplica:
        """Return the shard that has the slot by its own record; A while none has."""
        return self.home_of_slot(slot_of(routing_key))

    def home_of_slot(self, slot: int) -> ShardReplica:
        for shard in (self.a, self.b):
            if shard.is_led and shard.state.slots.has(slot):
                return shard
        return self.shards[self.table.shard_of(slot)]

    # The network ------------------------------------------------------------------------------

    def start(self) -> None:
        self._run(self._push_again())

    def send(self, what: str, deliver: Callable[[], None]) -> None:
        """Send a message to which there is no answer."""
        fate = self.fate_of(what)
        self.on_step(f"{what} is sent")
        if not fate.is_lost:
            self._run(self._later(HOP_S, deliver))
        if fate.late_s:
            self._run(self._later(fate.late_s, deliver))

    async def ask(
        self,
        what: str,
        shard: MovingShard,
        answer: Callable[[], Coroutine[Any, Any, T]],
        timeout_ms: int,
    ) -> T:
        """Send a request to whoever leads ``shard``."""
        fate = self.fate_of(what)
        self.on_step(f"{what} is asked")
        if fate.late_s:
            self._run(self._once_more(fate.late_s, shard, answer))
        await asyncio.sleep(HOP_S)
        if fate.is_lost:
            await asyncio.sleep(LOST_AFTER_S)
            raise ConnectionLost("the request was lost")
        if not shard.is_led:
            raise NotLeader(shard.shard_id)
        try:
            async with timeout(timeout_ms / 1_000):
                answered = await answer()
        except TimeoutError:
            raise ConnectionLost("no answer came in time") from None
        await asyncio.sleep(HOP_S)
        if fate.answer_is_lost:
            await asyncio.sleep(LOST_AFTER_S)
            raise ConnectionLost("the answer was lost")
        self.on_step(f"{what} is answered")
        return answered

    async def _once_more(
        self, seconds: float, shard: MovingShard, answer: Callable[[], Coroutine[Any, Any, T]]
    ) -> None:
        await asyncio.sleep(seconds)
        if shard.is_led:
            with contextlib.suppress(MetadataError):
                await answer()  # Nobody waits for it.

    async def _later(self, seconds: float, deliver: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        deliver()

    def _push(self, move: SlotMove) -> None:
        recoveries = self.manager.recoveries

        def push(shard: MovingShard) -> None:
            # What was under way from a cluster manager before the recovery is gone with it.
            if recoveries == self.manager.recoveries:
                shard.push(move)

        for shard in (self.a, self.b):
            self.send(f"push {move.phase} to {'AB'[shard.shard_id - 1]}", partial(push, shard))

    async def _push_again(self) -> None:
        while True:
            await asyncio.sleep(PUSH_EVERY_S)
            for move in self.manager.moves.values():
                for shard in (self.a, self.b):
                    if not self.manager.is_away:
                        shard.push(move)

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self) -> None:
        """Return once every move that was planned is over."""
        while any(each.phase not in _OVER for each in self.manager.moves.values()):
            await asyncio.sleep(PUSH_EVERY_S)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        super().close()

    # What fills the shards --------------------------------------------------------------------

    async def fill(self, topics: int) -> None:
        """Create tenants, namespaces and topics in all slots of A; assign every other topic."""
        for name in NAMESPACES:
            await self.create_tenant(name.partition("/")[0])
            await self.create_namespace(name)
        for number in range(2):
            self.establish(f"broker-{number}")
        made = 0
        number = 0
        while made < topics:
            name = f"persistent://{NAMESPACES[number % len(NAMESPACES)]}/topic-{number}"
            number += 1
            if self.table.shard_for_key(parse_topic(name).routing_key) != A:
                continue
            result = await self.create_topic(name)
            assert not result.topics[0].rejection_code, result
            if made % 2:
                self.assign(name, f"session-{made % 3}")
            made += 1
        await self.b.state.proposer.confirm()
        await self.a.state.proposer.confirm()

    def assign(self, name: str, session_id: str, at: MovingShard | None = None) -> None:
        """Assign a whole topic to a session; "" ends its assignment. As a lookup does it, or, at a
        given shard, as work in the background, which does not ask whose the slot is.

        Raises:
            MetadataError: The shard does not have it.
        """
        topic_name = parse_topic(name)
        shard = at or self.home_of_topic(name)
        if at is None:
            shard.state.slots.check_key(topic_name.routing_key)
        topic = shard.state.reads.load_topic(name)
        if topic is None:
            return
        unit = topic_name.unit.text
        (before,) = shard.state.reads.load_assignments([f"{topic.topic_id}/{unit}"])
        command: Any = assignment.UnassignTopic(topic.topic_id, unit, "idle")
        if session_id:
            command = assignment.AssignTopic(
                topic.topic_id,
                unit,
                name,
                f"broker-of-{session_id}",
                session_id,
                is_owner_live=False,
                least_epoch=shard.state.least_epoch,
            )
        decision = assignment.decide(before, command)
        events = getattr(decision, "events", ())
        if events:
            shard.state.proposer.propose(events)

    def establish(self, broker_id: str) -> None:
        """Establish a session of a broker at its manager."""
        shard = self.home(broker_id)
        shard.state.slots.check_key(broker_id)
        before = shard.state.reads.load_session(broker_id)
        order = EstablishSession(
            broker_id,
            shard.state.ids.mint(broker_id),
            Endpoints("pulsar://h:1", "h:2", "h:3"),
            100,
            least_epoch=shard.state.least_epoch,
        )
        decision = broker_session.decide(before, order)
        events = getattr(decision, "events", ())
        if events:
            shard.state.proposer.propose(events)


def in_slot_world(scenario: Callable[[SlotWorld], Coroutine[Any, Any, T]]) -> T:
    """Run ``scenario`` with two shards, in virtual time."""

    async def main() -> T:
        world = SlotWorld()
        try:
            world.start()
            return await scenario(world)
        finally:
            world.close()

    return run_virtual(main)


def moves(name: str) -> bool:
    """Return whether a topic of this name is in ``RANGES``, so that ``the_move`` moves it."""
    slot = slot_of(parse_topic(name).routing_key)
    return any(first <= slot <= last for first, last in RANGES)


def the_move(move_id: int = 1, ranges: SlotRanges = RANGES) -> SlotMove:
    return SlotMove(move_id, ranges, A, B, MovePhase.PLANNED)
