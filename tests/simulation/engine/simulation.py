"""One Raft group under faults: nodes, clients, invariants and the clockwork between them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any

from nextgen.kernel.errors import JournalCorrupted, MetadataError
from nextgen.replication.config import RaftConfig
from nextgen.replication.journal.journal import Journal
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Entry, NodeId, Record, Role, RoleChange
from nextgen.replication.raft.replica import RaftReplica
from nextgen.tasks.timeouts import timeout
from tests.simulation.engine.clients import Clients
from tests.simulation.engine.history import History, Violation
from tests.simulation.engine.invariants import (
    INVARIANTS,
    Invariant,
    NobodyIsDisturbed,
    NoLeaderWithoutMajority,
)
from tests.simulation.engine.liveness import Liveness
from tests.simulation.engine.states import (
    SnapshotWatch,
    State,
    states_of,
    voters_known_by,
)
from tests.simulation.engine.view import ChainView
from tests.simulation.trace import Trace
from tests.support.simulated.node import DATA, USUAL_DELAY_MS, SimNode
from tests.support.simulated.process import SimProcess
from tests.support.simulated.raft import RaftSimulation
from tests.support.simulated.virtual_time import VirtualTimeLoop

CONFIG = RaftConfig(
    journal_segment_bytes=8 * 1024,
    log_tail_entries=8,
    snapshot_chunk_bytes=512,
    snapshot_journal_bytes=64 * 1024,
    snapshot_chunk_deadline_ms=2_000,
)

DISK_DOWN_S_MAX = 3.0
"""Until a node that died is started again, at most."""

FIRST_START_OPERATIONS = 24
"""Disk operations of a first start on an empty disk, and some beyond."""


class EngineSimulation(RaftSimulation):
    """See the module. Raises nothing: ``failure`` is the first violation."""

    config = CONFIG

    def __init__(self, seed: int, size: int, echo: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, size)
        self.loop: VirtualTimeLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.history = History()
        self.snapshots = SnapshotWatch()
        self.trace = Trace(lambda: self.loop.now_s, echo)
        self.cells: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.stopping = False
        self.over = False
        self.spares: set[NodeId] = set()
        """Machines that are no members and have nothing on their disks."""
        self.joining: set[NodeId] = set()
        """Members that were not there when the group began."""
        self.failure: str | None = None
        self.failed: asyncio.Future[None] = self.loop.create_future()
        self.wall_ahead_s: dict[str, float] = {}
        self.clients = Clients(self)
        self.in_step: Callable[[SimNode], None] | None = None
        """Called after each step with the node that made it, for waiters on a state."""
        self._nodes: dict[str, SimNode] = {node.node_id: node for node in self.nodes}
        self._tasks: set[asyncio.Task[None]] = set()
        self._chains: dict[int, str] = {}
        self._written = 0
        self._outside = copy_context()
        self._restarting: set[NodeId] = set()
        self._disk_may_fail: set[NodeId] = set()
        self._lost: set[NodeId] = set()
        """Nodes that may have forgotten promises. For the judges only: no node reads it."""
        self._recovering: dict[NodeId, Journal] = {}
        self._interruptions: dict[NodeId, int] = {}
        self.calm_periods = 0
        """How often every fault was taken back: what was going to follow one does not."""
        self.outages = 0
        """Those that are under way."""
        self.liveness = Liveness(self)
        self._invariants: list[Invariant] = [make(self) for make in INVARIANTS]
        self._has_a_majority = NoLeaderWithoutMajority(self)
        self._invariants.append(self._has_a_majority)
        self._after_step = [i.after_step for i in self._invariants if i.looks_at("after_step")]
        self._on_sent = [i.sent for i in self._invariants if i.looks_at("sent")]
        self._on_arrived = [i.arrived for i in self._invariants if i.looks_at("arrived")]
        self._seen: dict[NodeId, tuple[object, ...]] = {}
        self._disturbed = next(i for i in self._invariants if isinstance(i, NobodyIsDisturbed))
        self.network.tap = self._sent
        self.network.arrived = self._arrived
        self.network.unreachable = self._unreachable

    # What is asked about it -------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.loop.now_s

    @property
    def committed_index(self) -> int:
        return self.history.committed_index

    def node(self, node_id: NodeId) -> SimNode:
        return self._nodes[node_id]

    def add_node(self, node_id: NodeId) -> SimNode:
        """Put up a machine that is no member of the group yet."""
        node = self._nodes[node_id] = SimNode(self, node_id)
        self.nodes.append(node)
        return node

    def voters_of(self, node: SimNode) -> tuple[NodeId, ...]:
        """Return the voters by what ``node`` knows; it must be up."""
        assert node.log is not None
        return voters_known_by(node.log.engine)

    def voters_at(self, node: SimNode, index: int) -> tuple[NodeId, ...]:
        """Return the voters that held right behind entry ``index``, by what ``node`` knows."""
        assert node.log is not None
        found = node.log.engine.journal.configuration_at(index)
        return tuple(sorted(self.members)) if found is None else found.voters

    def leading(self) -> SimNode | None:
        """Return the leader of the latest term."""
        leading = [n for n in self.nodes if n.log is not None and n.log.is_leader]
        return max(leading, key=lambda n: n.log.status.term if n.log else 0, default=None)

    def may_have_lost_its_disk(self, node_id: NodeId) -> bool:
        return node_id in self._lost

    # From the nodes ---------------------------------------------------------------------------

    def make_view(self, node: SimNode) -> ChainView:
        return ChainView(node.disk, DATA, lambda index, chain: self._folded(node, index, chain))

    def saw_committed(self, node_id: NodeId, entries: Sequence[Entry]) -> None:
        history = self.history
        for entry in entries:
            fact = history.committed.get(entry.index)
            if fact is not None and not fact.is_of(entry):
                self.fail(f"{node_id} tells of another entry {entry.index}")
            for record in entry.records:
                at = history.payloads.setdefault(record.payload, entry.index)
                if at != entry.index:
                    self.fail(f"{record.payload[:20]!r} is committed at {at} and {entry.index}")
                if record.payload in history.refused:
                    error = history.refused[record.payload]
                    self.fail(f"{record.payload[:20]!r} was refused ({error}) and is committed")

    def saw_role(self, node_id: NodeId, change: RoleChange) -> None:
        self.trace.note(f"{node_id} is {change.role} in term {change.term} of {change.leader_id}")
        if change.role is Role.LEADER:
            self.clients.somebody_leads()
        if change.role is Role.STOPPED and node_id in self._disk_may_fail:
            node = self.node(node_id)
            process = node.process
            self.later(0.1, lambda: self._replace(node, process))

    def saw_step(self, process: SimProcess) -> None:
        self.trace.step(process.name)
        if self.failure is not None:
            return
        node = self._nodes[process.name]
        if node.process is process and node.log is not None:
            try:
                self._check(node, node.log.engine)
            except Violation as violation:
                self.fail(str(violation))
            if node.node_id in self._lost and not node.log.engine.journal.unverified_index:
                self._trust_once_durable(node)
        if self.in_step is not None:
            self.in_step(node)

    def _trust_once_durable(self, node: SimNode) -> None:
        """Believe that a replica is sound when its disk says so too: a crash before that makes
        it unverified again."""
        assert node.log is not None
        journal = node.log.engine.journal
        if self._recovering.get(node.node_id) is journal:
            return
        self._recovering[node.node_id] = journal

        def trust() -> None:
            if node.log is not None and node.log.engine.journal is journal:
                self._lost.discard(node.node_id)

        journal.when_durable(trust)

    def _check(self, node: SimNode, engine: RaftReplica) -> None:
        core, journal = engine.core, engine.journal
        leads = core.leads
        if leads:
            self._has_a_majority.after_step(node)
        seen = (
            engine,
            core.term,
            leads,
            engine.commit_index,
            journal.last_index,
            journal.last_term,
            journal.unverified_index,
        )
        # Whatever an invariant looks at is among these: equal ones need no second look.
        if self._seen.get(node.node_id) != seen:
            self._seen[node.node_id] = seen
            for check in self._after_step:
                check(node)

    def fail(self, sentence: str) -> None:
        """Note the first thing that broke; the run ends soon after."""
        if self.failure is None and not self.over:
            self.failure = sentence
            self.trace.note(f"FAILED: {sentence}")
            if not self.failed.done():
                self.failed.set_result(None)

    def _folded(self, node: SimNode, index: int, chain: str) -> None:
        """ReplicasAgree: views that folded the same index hold the same."""
        known = self._chains.setdefault(index, chain)
        if known != chain:
            self.fail(f"the view of {node.node_id} differs from another at entry {index}")

    def _sent(self, sender: NodeId, target: NodeId, message: Message) -> None:
        for check in self._on_sent:
            try:
                check(sender, target, message)
            except Violation as violation:
                self.fail(str(violation))

    def _arrived(self, sender: NodeId, target: NodeId, frame: bytes, message: Message) -> None:
        self.snapshots.arrived(sender, target, message, self.now)
        self.trace.frame(sender, target, frame, lambda: _described(message))
        for check in self._on_arrived:
            check(sender, target, message)

    def _unreachable(self, node_id: NodeId, peer: NodeId) -> None:
        self._disturbed.unreachable(node_id, peer)

    # What is done to it -----------------------------------------------------------------------

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        # Whichever process this is called from: what happens to it is not its own doing.
        self.loop.call_later(seconds, work, context=self._outside.copy())

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Let ``work`` go on beside everything else; a ``Violation`` in it fails the run."""
        task = self.loop.create_task(work, context=self._outside.copy())
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def freeze(self, node: SimNode, seconds: float) -> None:
        process = node.process
        assert process is not None
        process.freeze()

        def thaw() -> None:
            self._interrupted(node)
            process.thaw()

        self.later(seconds, thaw)

    def leap(self, node: SimNode, seconds: float) -> None:
        assert node.process is not None
        self._interrupted(node)
        self.loop.leap(node.process, seconds)

    def jump_wall_clock(self, node: SimNode, seconds: float) -> None:
        self.wall_ahead_s[node.node_id] = self.wall_ahead_s.get(node.node_id, 0.0) + seconds

    def restart_soon(self, node: SimNode) -> None:
        """Start ``node`` again after a while, and again if that fails."""
        if node.node_id not in self._restarting:
            self._restarting.add(node.node_id)
            delay_s = self.chance.choice((0.0, 0.05, 0.5, DISK_DOWN_S_MAX)) * self.chance.random()
            self.background(self._restart(node, delay_s))

    def may_lose_disk(self, node: SimNode) -> bool:
        """True if the group can bear it: all others of three or more voters know what they did."""
        leader = self.leading()
        if leader is None or self._lost or leader is node:
            return False
        voters = self.voters_of(leader)
        others = [self.node(v) for v in voters if v != node.node_id]
        sound = all(o.log is not None and not o.log.engine.journal.unverified_index for o in others)
        return len(voters) >= 3 and sound and node.node_id in voters

    def lose_disk(self, node: SimNode, *, interruptions: int = 0) -> None:
        """Put in an empty disk. The next starts, ``interruptions`` of them, do not get far."""
        node.kill()
        node.lose_disk()
        self._lost.add(node.node_id)
        self._interruptions[node.node_id] = interruptions
        self.restart_soon(node)

    def rot(self, node: SimNode, length: int) -> None:
        """Lose the end of the journal of a process that is gone, and start it again."""
        node.rot_tail(length)
        self._lost.add(node.node_id)
        self.restart_soon(node)

    def expect_disk_failure(self, node: SimNode) -> None:
        self._disk_may_fail.add(node.node_id)

    def snapshot(self, node: SimNode) -> None:
        log, process = node.log, node.process
        if log is not None and process is not None:
            self.background(self._quietly(process.ask(log.compact)))

    def transfer(self, node: SimNode) -> None:
        log, process = node.log, node.process
        if log is not None and process is not None:
            target = self.chance.choice(self.nodes).node_id
            self.background(self._quietly(process.ask(lambda: log.transfer_leadership(target))))

    def hit(self, fault: str, states: Sequence[State]) -> None:
        """Count a fault in the cells of the states that it met."""
        self.faults[fault] += 1
        for state in states:
            self.cells[fault, state.value] += 1

    def take_faults_back(self) -> None:
        """End all faults and start the nodes that are down."""
        self.calm_periods += 1
        self._interruptions.clear()
        self.network.calm_down()
        for node in self.nodes:
            node.disk_delay_ms = node.view_delay_ms = USUAL_DELAY_MS
            node.disk.free()
            if node.disk_hangs_s:
                node.power_cycle()
            if node.process is None and node.node_id not in self.spares:
                self.restart_soon(node)

    async def everybody_is_up(self) -> None:
        while not all(n.log is not None or n.node_id in self.spares for n in self.nodes):
            await asyncio.sleep(0.05)

    async def write_once(self) -> bool:
        """Write through the present leader; True if it was acknowledged."""
        leader = self.leading()
        if leader is None:
            return False
        self._written += 1
        return await self.clients.write(leader, Record(f"calm-{self._written}".encode(), 1))

    @property
    def is_settled(self) -> bool:
        """True when there is one leader and all members have applied the same log."""
        leader = self.leading()
        if leader is None or leader.log is None:
            return False
        status = leader.log.status
        logs = [self.node(m).log for m in (*status.members, *status.learners)]
        running = [log for log in logs if log is not None]
        ends = {log.status.last_index for log in running}
        ends |= {log.status.applied.index for log in running}
        unverified = any(log.engine.journal.unverified_index for log in running)
        return len(running) == len(logs) and len(ends) == 1 and not unverified

    def applied(self) -> dict[NodeId, int]:
        """Return how far the view of each member has got."""
        leader = self.leading()
        assert leader is not None
        assert leader.log is not None
        status = leader.log.status
        found = {}
        for member in (*status.members, *status.learners):
            log = self.node(member).log
            assert log is not None
            found[member] = log.status.applied.index
        return found

    def saw_critical(self, node_id: str, line: str) -> None:
        """A replica has stopped itself, which only a broken disk allows."""
        if node_id not in self._disk_may_fail or "the journal's disk failed" not in line:
            self.fail(line)

    def states_of(self, node: SimNode) -> tuple[State, ...]:
        return states_of(self, node)

    # Inside -----------------------------------------------------------------------------------

    def _interrupted(self, node: SimNode) -> None:
        for invariant in self._invariants:
            invariant.restarted(node)

    def _replace(self, node: SimNode, process: SimProcess | None) -> None:
        """Do what an operator does with a replica whose disk failed: start it again."""
        if process is None or node.process is not process:
            return
        if not process.may_run:
            # Frozen: whoever looks after it has to wait for that to end.
            self.later(0.1, lambda: self._replace(node, process))
            return
        node.kill()
        self.restart_soon(node)

    async def _restart(self, node: SimNode, delay_s: float) -> None:
        try:
            await asyncio.sleep(delay_s)
            while node.process is None and not self.over and node.node_id not in self.spares:
                await self._start(node)
                if node.process is None:
                    await asyncio.sleep(self.chance.uniform(0.05, 1))
        finally:
            self._restarting.discard(node.node_id)

    async def _start(self, node: SimNode) -> None:
        self._interrupted(node)
        if self._interruptions.get(node.node_id):
            self._interruptions[node.node_id] -= 1
            self._interrupt_start(node)
        try:
            # All that a process hears from outside: whether its group was ever led.
            await node.start(
                may_be_lost=bool(self.history.leaders), joining=node.node_id in self.joining
            )
        except JournalCorrupted as error:
            self.fail(f"{node.node_id} refuses to start: {error}")
        except (OSError, MetadataError) as error:
            self.trace.note(f"{node.node_id} does not start: {error}")

    def _interrupt_start(self, node: SimNode) -> None:
        """Let one of the operations of the start that begins be its last one."""

        def end() -> None:
            if node.process is not None:
                node.crash() if self.chance.random() < 0.5 else node.kill()
                self.restart_soon(node)

        if self.chance.random() < 0.25:
            node.disk.fill_up(self.chance.choice((0, 200, 6_000)))
            self.later(self.chance.uniform(0.2, 2), node.disk.free)
        else:
            node.disk.cut_power_after(self.chance.randrange(FIRST_START_OPERATIONS))
            node.disk.on_power_cut = end

    async def _quietly(self, work: Coroutine[Any, Any, object]) -> None:
        """Send a request that may be refused, or lost with its receiver."""
        try:
            async with timeout(5):
                await work
        except (MetadataError, TimeoutError, OSError):
            return

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            self.fail(str(error) if isinstance(error, Violation) else f"{error!r}")


def _described(message: Message) -> str:
    shown = {name: value for name, value in message.items() if name not in ("type", "data")}
    if "entries" in shown:
        shown["entries"] = [(entry[0], entry[1]) for entry in shown["entries"]]
    return f"{message['type']} {shown}"
