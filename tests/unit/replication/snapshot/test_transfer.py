"""Snapshots on their way to a follower, in virtual time: interrupted, damaged, resumed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

from nextgen.kernel.limits.snapshot import (
    LOG_REST_MS,
    SNAPSHOT_CHUNKS_IN_FLIGHT_MAX,
    SNAPSHOT_REWINDS_MAX,
    SNAPSHOTS_KEPT_MAX,
)
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import NodeId, Record
from nextgen.replication.snapshot.partial import RECEIVED_NAME, RECEIVING_NAME
from nextgen.replication.snapshot.sender import OutgoingSnapshot
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.raft import CONFIG, DATA, RaftSimulation, SimNode
from tests.support.simulated.virtual_time import run_virtual

SNAPSHOTS = DATA / "group-1" / "snapshots"
CHUNK_BYTES = CONFIG.snapshot_chunk_bytes
RECORDS = 200
RECORD_BYTES = 500

Scenario = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    """A group whose follower ``away`` has missed what the others have cut."""

    def __init__(self) -> None:
        self.simulation = RaftSimulation(7)
        self.chunks: list[tuple[NodeId, Message]] = []
        self.answers: list[Message] = []
        self.in_flight_most = 0
        self.interrupt_at: tuple[int, Callable[[], None]] | None = None
        self.simulation.network.tap = self._saw
        # Every message takes as long as any other, so that none overtakes another: like TCP.
        self.simulation.network.delay_ms_max = 0.05

    async def start(self) -> None:
        await self.simulation.start()
        self.leader = await self.simulation.leader()
        self.other, self.away = (n for n in self.simulation.nodes if n is not self.leader)
        await self.away.stop()
        self.away.disk_delay_ms = 20.0  # So that a transfer takes a while.
        for number in range(RECORDS):
            commit = await self.write(f"{number}".ljust(RECORD_BYTES, "."))
        for node in (self.leader, self.other):
            await log_of(node).wait_applied(commit.index)
            await log_of(node).compact()
        assert log_of(self.leader).status.first_position > 1

    async def write(self, text: str = "x") -> Any:
        leader = await self.simulation.leader()
        return await log_of(leader).propose(Record(text.encode(), 1))

    @property
    def data_sent(self) -> int:
        return sum(len(chunk["data"]) for _, chunk in self.chunks)

    @property
    def snapshot_bytes(self) -> int:
        return int(self.chunks[0][1]["total"])

    def interrupt(self, at_chunk: int, how: Callable[[], None]) -> None:
        """Call ``how`` when the chunk of that number, counted from here on, is sent."""
        self.interrupt_at = len(self.chunks) + at_chunk, how

    async def interrupted(self, at_chunk: int = 20) -> None:
        """Return when so many more chunks were sent."""
        reached = asyncio.Event()
        self.interrupt(at_chunk, reached.set)
        async with timeout(60):
            await reached.wait()

    def unplug(self) -> None:
        """Take ``away`` off the network."""
        self.simulation.network.unplug(self.away.node_id)
        for node in (self.leader, self.other):
            log_of(node).engine.on_peer_disconnected(self.away.node_id)

    def plug_in(self) -> None:
        self.simulation.network.cut.clear()
        for node in (self.leader, self.other):
            log_of(node).engine.on_peer_connected(self.away.node_id)

    async def caught_up(self) -> None:
        """Return when ``away`` has everything and goes on."""
        commit = await self.write("the last")
        async with timeout(120):
            await log_of(self.away).wait_applied(commit.index)
            await log_of(self.leader_now).wait_applied(commit.index)
        assert self.away.view is not None
        assert self.leader_now.view is not None
        assert self.away.view.payloads == self.leader_now.view.payloads

    @property
    def leader_now(self) -> SimNode:
        return next(node for node in self.simulation.nodes if node.log and node.log.is_leader)

    def _saw(self, sender: NodeId, _target: NodeId, message: Message) -> None:
        if message["type"] == "snapshot_chunk":
            self.chunks.append((sender, message))
            unanswered = len(self.chunks) - len(self.answers)
            self.in_flight_most = max(self.in_flight_most, unanswered)
            if self.interrupt_at is not None and len(self.chunks) >= self.interrupt_at[0]:
                how, self.interrupt_at = self.interrupt_at[1], None
                asyncio.get_running_loop().call_soon(how)
        elif message["type"] == "snapshot_answer":
            self.answers.append(message)


def transferring(scenario: Scenario) -> None:
    async def main() -> None:
        world = World()
        await world.start()
        await scenario(world)
        await asyncio.gather(*(node.stop() for node in world.simulation.nodes if node.is_up))

    run_virtual(main)


def log_of(node: SimNode) -> PySyncObjGroup:
    assert node.log is not None
    return node.log


def names_on(node: SimNode) -> list[str]:
    return node.disk.list_names(SNAPSHOTS)


# The way it should be --------------------------------------------------------------------------


@run_by(transferring)
async def test_a_snapshot_is_sent_once_with_a_bounded_number_of_chunks_in_flight(
    world: World,
) -> None:
    await world.away.start()
    await world.caught_up()

    assert world.data_sent == world.snapshot_bytes > RECORDS * RECORD_BYTES
    assert 1 < world.in_flight_most <= SNAPSHOT_CHUNKS_IN_FLIGHT_MAX
    assert log_of(world.away).statistics.snapshots_installed == 1
    assert RECEIVING_NAME not in names_on(world.away)
    assert RECEIVED_NAME not in names_on(world.away)


@run_by(transferring)
async def test_writes_go_on_while_a_snapshot_is_sent_and_reach_the_follower_behind_it(
    world: World,
) -> None:
    await world.away.start()
    await world.interrupted()
    for number in range(50):
        await world.write(f"meanwhile {number}")

    await world.caught_up()

    assert log_of(world.away).statistics.snapshots_installed == 1


# Interrupted -----------------------------------------------------------------------------------


@run_by(transferring)
async def test_a_transfer_goes_on_where_a_lost_connection_ended_it(world: World) -> None:
    await world.away.start()
    await world.interrupted()
    world.unplug()
    await asyncio.sleep(5)
    world.plug_in()

    await world.caught_up()

    again = world.data_sent - world.snapshot_bytes
    assert 0 <= again <= SNAPSHOT_CHUNKS_IN_FLIGHT_MAX * CHUNK_BYTES


@run_by(transferring)
async def test_a_transfer_goes_on_where_a_stop_of_the_receiver_ended_it(world: World) -> None:
    await world.away.start()
    await world.interrupted()
    await world.away.stop()
    await asyncio.sleep(1)
    sent_before = world.data_sent

    await world.away.start()
    await world.caught_up()

    assert sent_before > 10 * CHUNK_BYTES
    again = world.data_sent - world.snapshot_bytes
    assert 0 <= again <= SNAPSHOT_CHUNKS_IN_FLIGHT_MAX * CHUNK_BYTES


@run_by(transferring)
async def test_another_snapshot_starts_from_the_beginning(world: World) -> None:
    await world.away.start()
    await world.interrupted()
    commit = await world.write("the other leader's snapshot has one more record")
    await log_of(world.other).wait_applied(commit.index)
    await log_of(world.other).compact()
    sent_before = world.data_sent
    await log_of(world.leader).transfer_leadership(world.other.node_id)

    await world.caught_up()

    own = [chunk for sender, chunk in world.chunks if sender == world.other.node_id]
    assert sum(len(chunk["data"]) for chunk in own) == own[0]["total"]
    assert sent_before > 0


@run_by(transferring)
async def test_lost_messages_and_messages_out_of_order_are_sent_again(world: World) -> None:
    world.simulation.network.loss = 0.1
    world.simulation.network.delay_ms_max = 60.0
    await world.away.start()
    await world.interrupted(100)
    world.simulation.network.loss = 0.0

    await world.caught_up()


# Damaged ---------------------------------------------------------------------------------------


@run_by(transferring)
async def test_a_snapshot_that_is_damaged_at_the_sender_is_not_sent(world: World) -> None:
    """What an interrupted transfer left rots before the follower comes back for the rest."""
    await world.away.start()
    await world.interrupted()
    world.unplug()
    await asyncio.sleep(5)
    (name,) = names_on(world.leader)
    world.leader.disk.damage(SNAPSHOTS / name, 1000, b"rot")
    world.plug_in()

    await world.caught_up()

    assert log_of(world.leader).statistics.snapshots == 2
    assert log_of(world.away).statistics.snapshots_installed == 1


@run_by(transferring)
async def test_what_was_damaged_on_the_way_is_asked_for_again_and_never_installed(
    world: World,
) -> None:
    await world.away.start()
    await world.interrupted()
    world.away.disk.damage(SNAPSHOTS / RECEIVING_NAME, 1000, b"rot")

    await world.caught_up()

    assert world.data_sent >= 2 * world.snapshot_bytes - CHUNK_BYTES
    assert log_of(world.away).statistics.snapshots_installed == 1


@run_by(transferring)
async def test_what_was_damaged_during_a_stop_is_not_built_upon(world: World) -> None:
    await world.away.start()
    await world.interrupted()
    await world.away.stop()
    sent_before = world.data_sent
    world.away.disk.damage(SNAPSHOTS / RECEIVING_NAME, 1000, b"rot")

    await world.away.start()
    await world.caught_up()

    assert world.data_sent - sent_before >= world.snapshot_bytes


# What is kept ----------------------------------------------------------------------------------


@run_by(transferring)
async def test_there_is_a_copy_of_the_view_only_while_it_is_on_its_way(world: World) -> None:
    assert names_on(world.leader) == []
    await world.away.start()
    await world.interrupted()
    (sent,) = names_on(world.leader)
    for number in range(3):
        commit = await world.write(f"more {number}")
        await log_of(world.leader).wait_applied(commit.index)
        await log_of(world.leader).compact()
        assert names_on(world.leader) == [sent]

    await world.caught_up()

    assert world.data_sent == world.snapshot_bytes
    await asyncio.sleep(1)
    assert names_on(world.leader) == names_on(world.away) == []


@run_by(transferring)
async def test_what_an_interrupted_transfer_left_goes_with_the_log_behind_it(world: World) -> None:
    await world.away.start()
    await world.interrupted()
    await world.away.stop()
    await asyncio.sleep(1)
    assert len(names_on(world.leader)) == 1
    for number in range(RECORDS):
        commit = await world.write(f"{number}".ljust(RECORD_BYTES, ","))
    await log_of(world.leader).wait_applied(commit.index)

    await log_of(world.leader).compact()

    assert names_on(world.leader) == []


@run_by(transferring)
async def test_the_log_behind_a_snapshot_under_transfer_is_kept(world: World) -> None:
    await world.away.start()
    await world.interrupted()
    cut_before = log_of(world.leader).status.first_position
    for number in range(RECORDS):
        commit = await world.write(f"{number}".ljust(RECORD_BYTES, ","))
    await log_of(world.leader).wait_applied(commit.index)
    await log_of(world.leader).compact()
    assert log_of(world.leader).status.first_position <= RECORDS + 1

    await world.caught_up()

    assert log_of(world.away).statistics.snapshots_installed == 1
    await asyncio.sleep(3)
    assert log_of(world.leader).status.first_position > cut_before


SEGMENT_BYTES = 4096
SNAPSHOT_JOURNAL_BYTES = 10 * SEGMENT_BYTES
PINNED_BYTES_MAX = 12 * SEGMENT_BYTES


class SmallLogs(RaftSimulation):
    config = dataclasses.replace(
        CONFIG,
        journal_segment_bytes=SEGMENT_BYTES,
        snapshot_journal_bytes=SNAPSHOT_JOURNAL_BYTES,
        log_tail_entries=4,
        pinned_log_bytes_max=PINNED_BYTES_MAX,
    )


@run_by(run_virtual)
async def test_restarts_do_not_put_off_the_next_compaction() -> None:
    simulation = SmallLogs(5, 1)
    (node,) = simulation.nodes
    for _ in range(8):
        await node.start()
        log = log_of(await simulation.leader())
        for number in range(15):
            commit = await log.propose(Record(f"{number}".ljust(RECORD_BYTES).encode(), 1))
        await log.wait_applied(commit.index)
        assert log.status.journal_bytes <= SNAPSHOT_JOURNAL_BYTES + 4 * SEGMENT_BYTES
        await node.stop()
    assert names_on(node) == []


@run_by(run_virtual)
async def test_a_log_at_rest_is_cut_however_little_was_written() -> None:
    simulation = SmallLogs(5, 1)
    (node,) = simulation.nodes
    await node.start()
    log = log_of(await simulation.leader())
    for number in range(60):
        commit = await log.propose(Record(f"{number}".ljust(RECORD_BYTES).encode(), 1))
    await log.wait_applied(commit.index)
    compactions, bytes_before = log.statistics.compactions, log.status.journal_bytes
    await asyncio.sleep(LOG_REST_MS / 1000 - 1)
    assert log.statistics.compactions == compactions

    await asyncio.sleep(2)
    assert log.statistics.compactions == compactions + 1
    assert log.status.journal_bytes < bytes_before
    await asyncio.sleep(3 * LOG_REST_MS / 1000)
    assert log.statistics.compactions == compactions + 1, "there is nothing new to cut"
    await node.stop()


@run_by(run_virtual)
async def test_the_disk_is_bounded_whichever_reader_is_slow() -> None:
    """A reader that never advances, a follower that takes in nothing, and writes without end.

    The bound of docs/reference.md: the log between two cuts, before the last one, and pinned; two
    snapshots and one that is written; the view.
    """
    simulation = SmallLogs(5)
    await simulation.start()
    leader = await simulation.leader()
    log = log_of(leader)
    stuck = next(node for node in simulation.nodes if node is not leader)
    pin = log.pin("reader", 1)
    await log.propose(Record(b"x", 1))
    stuck.disk_delay_ms = 10_000.0
    most = 0
    for number in range(400):
        await log.propose(Record(f"{number}".ljust(RECORD_BYTES, ".").encode(), 1))
        view_bytes = len(leader.view.payloads) * (RECORD_BYTES + 4) if leader.view else 0
        journal_bytes = log.status.journal_bytes
        most = max(most, journal_bytes)
        # What is appended while a snapshot is written and cut comes on top: two files here.
        log_max = SNAPSHOT_JOURNAL_BYTES + PINNED_BYTES_MAX + 4 * SEGMENT_BYTES
        assert journal_bytes <= log_max, f"after {number} writes"
        copies = SNAPSHOTS_KEPT_MAX + 1 + 2  # Snapshots, one being written, the view twice.
        assert leader.disk.used_bytes <= log_max + copies * (view_bytes + 10_000)
    assert pin.is_broken
    assert log.statistics.compactions >= 3
    assert most > SNAPSHOT_JOURNAL_BYTES + PINNED_BYTES_MAX / 2, "the pin kept something"
    for node in simulation.nodes:
        node.crash()


# The sender's machine --------------------------------------------------------------------------


def answer(offset: int, round_number: int, **more: bool) -> Message:
    return {"offset": offset, "installed": False, "round": round_number, **more}


def given_a_sender(wanted: int = 0, length: int = 10_000) -> OutgoingSnapshot:
    sender = OutgoingSnapshot(length)
    sender.offered()
    sender.answered(answer(wanted, 1))
    return sender


def test_nothing_is_sent_before_the_offer_is_answered() -> None:
    sender = OutgoingSnapshot(100)
    sender.offered()

    assert not sender.may_send
    sender.answered(answer(40, 1))

    assert (sender.may_send, sender.next_offset) == (True, 40)


def test_an_answer_of_an_earlier_round_changes_nothing() -> None:
    sender = given_a_sender()
    sender.sent(100)
    sender.offered()

    assert not sender.answered(answer(100, 1))
    assert not sender.may_send


def test_an_answer_that_was_not_expected_begins_a_round() -> None:
    sender = given_a_sender()
    for _ in range(3):
        sender.sent(100)

    sender.answered(answer(0, 1))

    assert (sender.needs_offer, sender.rewinds, sender.in_flight) == (True, 1, 0)


def test_as_many_chunks_are_in_flight_as_may_be_and_not_one_more() -> None:
    sender = given_a_sender()
    for _ in range(SNAPSHOT_CHUNKS_IN_FLIGHT_MAX):
        assert sender.may_send
        sender.sent(100)

    assert not sender.may_send


def test_a_sign_of_life_answers_no_chunk() -> None:
    sender = given_a_sender()
    sender.sent(100)

    assert sender.answered(answer(100, 1, installing=True))
    assert sender.in_flight == 1


@run_by(transferring)
async def test_a_receiver_that_always_wants_another_chunk_is_given_up(world: World) -> None:
    network = world.simulation.network
    send = network.send

    def damaging(sender: Any, target: NodeId, channel: int, message: Message) -> bool:
        if message["type"] == "snapshot_chunk" and message["offset"] >= 5 * CHUNK_BYTES:
            message = {**message, "checksum": message["checksum"] ^ 1}
        return send(sender, target, channel, message)

    network.send = damaging  # type: ignore[method-assign]
    await world.away.start()
    await world.interrupted(SNAPSHOT_REWINDS_MAX * SNAPSHOT_CHUNKS_IN_FLIGHT_MAX)
    assert log_of(world.away).statistics.snapshots_installed == 0
    network.send = send  # type: ignore[method-assign]

    await world.caught_up()
