"""Heartbeats of all groups of a process in one message: the same promises, group by group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from nextgen.kernel.limits.raft import HEARTBEATS_PER_MESSAGE_MAX
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.shared_heartbeats import SharedHeartbeats
from nextgen.replication.mesh.frames import HEARTBEATS_CHANNEL, Message, RemoteProtocolError
from nextgen.replication.ports import GroupId, NodeId
from nextgen.replication.protocol.heartbeats import (
    HEARTBEAT_ANSWERS,
    HEARTBEATS,
    Heartbeat,
    shared_message,
)
from tests.support.scenarios import run_by
from tests.support.simulated.raft import GROUP, RaftSimulation, SimNode
from tests.unit.replication.test_group import cut, log_of, now, others_than, propose, simulated

PEER = NodeId("peer")
Sent = list[tuple[NodeId, int, Message]]


@dataclass
class FakeMesh:
    """Remembers what is sent; ``reads`` are the peers that read shared heartbeats."""

    reads: set[NodeId] = field(default_factory=lambda: {PEER})
    sent: Sent = field(default_factory=list)

    def send(self, node_id: NodeId, channel: int, message: Message) -> bool:
        self.sent.append((node_id, channel, message))
        return True

    def is_connected(self, node_id: NodeId) -> bool:
        return True

    def peer_shares_heartbeats(self, node_id: NodeId) -> bool:
        return node_id in self.reads


def heartbeat(group_id: int, **changed: int) -> Heartbeat:
    return Heartbeat(GroupId(group_id), 3, 20, 2, 19, 5)._replace(**changed)


def sends_of(mesh: FakeMesh, group_ids: range, peer: NodeId = PEER) -> Sent:
    """Return what the heartbeats of ``group_ids`` to ``peer`` become."""
    shared = SharedHeartbeats(mesh, lambda _group_id: None)
    with shared.gathering():
        for group_id in group_ids:
            assert shared.send(peer, group_id, heartbeat(group_id).as_append())
        assert mesh.sent == [] or peer not in mesh.reads
    return mesh.sent


@pytest.mark.parametrize(
    ("groups", "messages"), [(HEARTBEATS_PER_MESSAGE_MAX, 1), (HEARTBEATS_PER_MESSAGE_MAX + 1, 2)]
)
def test_heartbeats_per_message_max_are_one_message_and_one_more_is_two(
    groups: int, messages: int
) -> None:
    sent = sends_of(FakeMesh(), range(groups))

    assert [(peer, channel) for peer, channel, _ in sent] == [(PEER, HEARTBEATS_CHANNEL)] * messages
    records = [record for *_, message in sent for record in message["records"]]
    assert records == [heartbeat(group_id) for group_id in range(groups)]


def test_a_peer_of_an_earlier_release_gets_messages_of_their_own() -> None:
    sent = sends_of(FakeMesh(reads=set()), range(3))

    assert sent == [(PEER, group_id, heartbeat(group_id).as_append()) for group_id in range(3)]


def test_only_the_heartbeats_of_a_beat_wait_for_each_other() -> None:
    mesh = FakeMesh()
    shared = SharedHeartbeats(mesh, lambda _group_id: None)
    entry = {**heartbeat(1).as_append(), "entries": [(21, 3, 40, 1, b"x")]}
    with shared.gathering():
        shared.send(PEER, 1, heartbeat(1).as_append())
        shared.send(PEER, 1, entry)
    shared.send(PEER, 1, heartbeat(1).as_append())

    assert [channel for _, channel, _ in mesh.sent] == [1, HEARTBEATS_CHANNEL, 1]


def test_what_a_beat_gathered_is_sent_although_a_group_fails() -> None:
    mesh = FakeMesh()
    shared = SharedHeartbeats(mesh, lambda _group_id: None)

    def beat() -> None:
        with shared.gathering():
            shared.send(PEER, 1, heartbeat(1).as_append())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        beat()

    assert len(mesh.sent) == 1


@pytest.mark.parametrize("message", [{}, {"type": "append"}, {"type": ["heartbeats"]}], ids=str)
def test_another_message_on_the_channel_ends_the_connection(message: Message) -> None:
    with pytest.raises(RemoteProtocolError, match="unknown type"):
        SharedHeartbeats(FakeMesh(), lambda _group_id: None).on_message(PEER, message)


def test_a_group_that_is_not_open_is_passed_over() -> None:
    mesh = FakeMesh()
    shared = SharedHeartbeats(mesh, lambda _group_id: None)
    shared.on_message(PEER, {"type": HEARTBEATS, "records": [list(heartbeat(1))]})
    answers = {"type": HEARTBEAT_ANSWERS, "records": [[1, 3, 20, 5, 18, 0, True, False, None]]}
    shared.on_message(PEER, answers)

    assert mesh.sent == []


# Real groups, in virtual time ---------------------------------------------------------------------


async def quiet_follower(simulation: RaftSimulation) -> tuple[SimNode, SimNode]:
    """Return the leader and a follower that has all there is."""
    leader = await simulation.leader()
    await propose(leader)
    await asyncio.sleep(1)
    return leader, others_than(simulation, leader)[0]


def usual_heartbeat(leader: SimNode, **changed: int) -> Heartbeat:
    engine = log_of(leader).engine
    usual = Heartbeat(
        GROUP,
        engine.core.term,
        engine.journal.last_index,
        engine.journal.last_term,
        engine.commit_index,
        0,
    )
    return usual._replace(**changed)


def frames_of(simulation: RaftSimulation) -> list[tuple[NodeId, NodeId, int]]:
    """Return a list that gets sender, target and channel of each frame from here on."""
    frames: list[tuple[NodeId, NodeId, int]] = []
    send = simulation.network.send

    def noted(sender: Any, target_id: NodeId, channel: int, message: Message) -> bool:
        frames.append((sender.node_id, target_id, channel))
        return send(sender, target_id, channel, message)

    simulation.network.send = noted  # type: ignore[method-assign]
    return frames


@run_by(simulated)
async def test_an_idle_group_has_shared_messages_only_and_keeps_its_leader(
    simulation: RaftSimulation,
) -> None:
    leader, _ = await quiet_follower(simulation)
    term = log_of(leader).engine.core.term
    frames = frames_of(simulation)

    await asyncio.sleep(10)

    assert {channel for *_, channel in frames} == {HEARTBEATS_CHANNEL}
    beats = 10_000 / simulation.config.heartbeat_ms
    assert len(frames) == pytest.approx(4 * beats, abs=4)
    assert log_of(leader).is_leader
    assert log_of(leader).engine.core.term == term


@run_by(simulated)
async def test_releases_that_share_heartbeats_and_others_make_one_group(
    simulation: RaftSimulation,
) -> None:
    """A rolling upgrade, and its way back: one member after the other."""
    for earlier in ({0, 1, 2}, {1, 2}, {2}, set(), {0}, {0, 1, 2}):
        for number, node in enumerate(simulation.nodes):
            own = {simulation.nodes[each].node_id for each in earlier}
            # One of the earlier release shares with nobody.
            node.mesh.earlier_peers = set(simulation.members) if number in earlier else own
        leader, _ = await quiet_follower(simulation)
        frames = frames_of(simulation)
        await asyncio.sleep(3)
        assert await simulation.leader() is leader
        shared = {frame[:2] for frame in frames if frame[2] == HEARTBEATS_CHANNEL}
        names = {simulation.nodes[each].node_id for each in {0, 1, 2} - earlier}
        assert {each for pair in shared for each in pair} <= names
        assert bool(shared) == (leader.node_id in names and len(names) > 1)
        leader.crash()
        await simulation.leader()
        await leader.start()


@run_by(simulated)
async def test_a_usual_heartbeat_has_the_answer_that_its_append_has(
    simulation: RaftSimulation,
) -> None:
    leader, follower = await quiet_follower(simulation)
    engine, answers = log_of(follower).engine, list[Message]()
    engine._link = type(  # type: ignore[assignment]
        "Link", (), {"send": lambda *given: answers.append(given[-1]) is None}
    )()
    engine.divergence._field = [1, 2, 3, 4]
    for expedited in (False, True):
        stop = engine.following.expedite() if expedited else None
        answers.clear()
        beat = usual_heartbeat(leader, read_round=9)
        shared = engine.following.answer_heartbeat(leader.node_id, beat)
        engine.following.on_append(leader.node_id, beat.as_append())
        assert [shared] == answers
        assert shared is not None
        assert (shared["read_round"], "hurry" in shared) == (9, expedited)
        if stop is not None:
            stop()


UNUSUAL: dict[str, Callable[[SimNode, SimNode, SimNode], tuple[NodeId, Heartbeat]]] = {
    "an earlier term": lambda leader, _f, _o: (
        leader.node_id,
        usual_heartbeat(leader, term=0, previous_index=0, previous_term=0),
    ),
    "a later term": lambda leader, _f, _o: (
        leader.node_id,
        usual_heartbeat(leader, term=log_of(leader).engine.core.term + 1),
    ),
    "another sender": lambda leader, _f, other: (
        other.node_id,
        usual_heartbeat(leader, term=log_of(leader).engine.core.term + 1),
    ),
    "a commit that is not known here": lambda leader, _f, _o: (
        leader.node_id,
        usual_heartbeat(leader, commit_index=log_of(leader).engine.commit_index + 1),
    ),
    "an entry that is not here": lambda leader, _f, _o: (
        leader.node_id,
        usual_heartbeat(leader, previous_index=log_of(leader).engine.journal.last_index + 1),
    ),
    "an entry of another term": lambda leader, _f, _o: (
        leader.node_id,
        usual_heartbeat(leader, previous_term=0),
    ),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_an_unusual_heartbeat_is_handled_as_a_message_of_its_own(what: str) -> None:
    async def scenario(simulation: RaftSimulation) -> None:
        leader, follower = await quiet_follower(simulation)
        other = others_than(simulation, leader, follower)[0]
        sender, beat = UNUSUAL[what](leader, follower, other)
        engine, handled = log_of(follower).engine, list[Message]()
        assert engine.following.answer_heartbeat(sender, beat) is None
        engine._handlers["append"] = lambda _sender, message: handled.append(message)
        follower.mesh.receive(
            sender, HEARTBEATS_CHANNEL, {"type": HEARTBEATS, "records": [list(beat)]}
        )
        assert handled == [beat.as_append()]

    simulated(scenario)


STATES: dict[str, Callable[[Any], None]] = {
    "stopped": lambda engine: setattr(engine, "stopped", True),
    "installing": lambda engine: setattr(engine, "installing", True),
    "has lost a part of its log": lambda engine: engine.journal.set_unverified(10**6),
    "heard an incredible term": lambda engine: engine.checks._claimed.update({PEER: 10**9}),
    "knows no leader": lambda engine: engine.core.step_down(engine.core.term),
}


@pytest.mark.parametrize("state", STATES)
def test_a_replica_in_an_unusual_state_gives_no_shared_answer(state: str) -> None:
    async def scenario(simulation: RaftSimulation) -> None:
        leader, follower = await quiet_follower(simulation)
        engine = log_of(follower).engine
        beat = usual_heartbeat(leader)
        assert engine.following.answer_heartbeat(leader.node_id, beat) is not None
        STATES[state](engine)
        assert engine.following.answer_heartbeat(leader.node_id, beat) is None
        engine.stopped = False

    simulated(scenario)


@run_by(simulated)
async def test_a_deposed_leader_learns_the_later_term_from_its_shared_heartbeat(
    simulation: RaftSimulation,
) -> None:
    leader, follower = await quiet_follower(simulation)
    cut(simulation, leader, *others_than(simulation, leader))
    await asyncio.sleep(0.9)  # It leads for a tenth of a second more.
    assert log_of(leader).engine.leadership is not None
    later = log_of(leader).engine.core.term + 1
    log_of(follower).engine.core.step_down(later)
    simulation.network.cut.clear()
    await asyncio.sleep(0.2)

    assert log_of(leader).engine.leadership is None or log_of(leader).engine.core.term > later


@run_by(simulated)
async def test_a_read_that_was_asked_for_before_a_shared_heartbeat_needs_no_round_of_its_own(
    simulation: RaftSimulation,
) -> None:
    leader, _ = await quiet_follower(simulation)
    asked_at = now()
    await asyncio.sleep(0.2)
    frames = frames_of(simulation)

    assert await log_of(leader).read_index(asked_at=asked_at) == log_of(leader).engine.commit_index

    assert frames == []


@run_by(simulated)
async def test_a_group_that_fails_over_a_heartbeat_stops_alone(simulation: RaftSimulation) -> None:
    leader, follower = await quiet_follower(simulation)
    good = log_of(follower)
    broken: list[Exception] = []

    class Broken:
        engine = type("E", (), {"following": None})()

        def broken(self, error: Exception) -> None:
            broken.append(error)

    groups: dict[int, Any] = {1: Broken(), 2: good}
    mesh = FakeMesh()

    def group(group_id: GroupId) -> PySyncObjGroup | None:
        return groups.get(group_id)

    records = [list(usual_heartbeat(leader, group_id=number)) for number in (1, 2)]
    SharedHeartbeats(mesh, group).on_message(
        leader.node_id, {"type": HEARTBEATS, "records": records}
    )

    assert [type(error) for error in broken] == [AttributeError]
    ((_, _, answers),) = mesh.sent
    assert answers == shared_message(HEARTBEAT_ANSWERS, answers["records"])
    assert [record[0] for record in answers["records"]] == [2]
