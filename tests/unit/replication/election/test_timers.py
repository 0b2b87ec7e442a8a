"""Who campaigns, who gets a vote, and what a leader does that was not running for a while.

The guards back each other up. Each test here fails when its own is removed and the others stay.
"""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import NotLeader, ProposalLost, TransferFailed
from nextgen.replication.config import RaftConfig
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import NodeId, Role, RoleChange
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.node import SimNode
from tests.support.simulated.raft import RaftSimulation
from tests.unit.replication.test_group import (
    cut,
    elapsed_ms,
    log_of,
    now,
    others_than,
    propose,
    simulated,
)

CONFIG = RaftConfig()
LONG_S = 10.0


def tell(node: SimNode, sender: SimNode, **message: object) -> None:
    """Let ``node`` receive a message as if ``sender`` had sent it."""
    log_of(node).engine.on_message(sender.node_id, dict(message))


def log_end(node: SimNode) -> dict[str, int]:
    journal = log_of(node).engine.journal
    return {"last_log_index": journal.last_index, "last_log_term": journal.last_term}


def sent_by(simulation: RaftSimulation, node: SimNode, kind: str) -> list[Message]:
    """Return a list that fills with what ``node`` sends of one kind."""
    found: list[Message] = []

    def tap(sender: NodeId, _target: NodeId, message: Message) -> None:
        if sender == node.node_id and message["type"] == kind:
            found.append(message)

    simulation.network.tap = tap
    return found


def freeze(node: SimNode) -> None:
    assert node.process is not None
    node.process.freeze()


def thaw(node: SimNode) -> None:
    assert node.process is not None
    node.process.thaw()


async def successor_of(simulation: RaftSimulation, old: SimNode) -> SimNode:
    async with timeout(LONG_S):
        while True:
            for node in others_than(simulation, old):
                if log_of(node).is_leader:
                    return node
            await asyncio.sleep(0.005)


# Pre-vote ----------------------------------------------------------------------------------------


@run_by(simulated)
async def test_a_replica_that_is_cut_off_does_not_raise_its_term(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    lonely = others_than(simulation, leader)[0]
    term = log_of(lonely).status.term
    cut(simulation, lonely, *others_than(simulation, lonely))

    await asyncio.sleep(LONG_S)

    assert log_of(lonely).status.term == term


@run_by(simulated)
async def test_a_replica_whose_log_is_behind_does_not_raise_anybodys_term(
    simulation: RaftSimulation,
) -> None:
    """Its question is answered no, so there is no election that it could not win anyway."""
    leader = await simulation.leader()
    behind, other = others_than(simulation, leader)
    cut(simulation, behind, leader, other)
    await propose(leader)
    term = log_of(leader).status.term
    simulation.network.cut.clear()
    cut(simulation, leader, behind, other)
    requests = sent_by(simulation, behind, "request_vote")

    assert await successor_of(simulation, leader) is other

    assert requests == []
    assert log_of(other).status.term == term + 1


# Stickiness --------------------------------------------------------------------------------------


@run_by(simulated)
async def test_a_replica_that_hears_its_leader_grants_no_pre_vote(
    simulation: RaftSimulation,
) -> None:
    """One link is cut: who does not hear the leader asks who does, and their logs are equal."""
    leader = await simulation.leader()
    deaf, hearing = others_than(simulation, leader)
    term = log_of(leader).status.term
    cut(simulation, deaf, leader)
    asked = sent_by(simulation, deaf, "pre_vote")

    await asyncio.sleep(LONG_S)

    assert asked, "the scenario needs a replica that asks"
    assert log_of(leader).is_leader
    assert log_of(hearing).status.term == log_of(deaf).status.term == term


@run_by(simulated)
async def test_a_replica_that_hears_its_leader_gives_no_vote_and_keeps_its_term(
    simulation: RaftSimulation,
) -> None:
    """A candidate of a release without pre-vote asks for votes in later and later terms."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    candidate, asked = others_than(simulation, leader)
    term = log_of(asked).status.term
    votes = sent_by(simulation, asked, "response_vote")

    request = {"type": "request_vote", "term": term + 5, "transfer": False}
    tell(asked, candidate, **request, **log_end(candidate))
    await asyncio.sleep(1)

    assert votes == []
    assert log_of(asked).status.term == term
    assert log_of(leader).is_leader


@run_by(simulated)
async def test_a_leader_gives_no_vote_and_keeps_its_term(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    candidate = others_than(simulation, leader)[0]
    term = log_of(leader).status.term

    request = {"type": "request_vote", "term": term + 5, "transfer": False}
    tell(leader, candidate, **request, **log_end(candidate))
    await asyncio.sleep(1)

    assert log_of(leader).is_leader
    assert log_of(leader).status.term == term


@run_by(simulated)
async def test_a_leader_that_hands_over_is_believed_although_it_was_just_heard(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    target = others_than(simulation, leader)[1]

    assert await elapsed_ms(log_of(leader).transfer_leadership(target.node_id)) < 100
    assert await successor_of(simulation, leader) is target


# Answers of another term -------------------------------------------------------------------------


@run_by(simulated)
async def test_an_answer_of_an_earlier_term_confirms_no_read(simulation: RaftSimulation) -> None:
    """1. A leader asks for a confirmation. 2. What a follower said to it in an earlier term of its
    leadership arrives only then, with the number of a later round."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    followers = others_than(simulation, leader)
    cut(simulation, leader, *followers)
    reading = asyncio.ensure_future(log_of(leader).read_index())
    await asyncio.sleep(0.01)

    for follower in followers:
        tell(
            leader,
            follower,
            type="append_answer",
            term=log_of(leader).status.term - 1,
            success=True,
            index=0,
            read_round=1_000,
            applied_index=0,
            view_lag_ms=0,
            disk_takes_writes=True,
        )
    await asyncio.sleep(0.1)

    assert not reading.done()
    with pytest.raises(NotLeader):
        await reading


@run_by(simulated)
async def test_an_answer_to_an_earlier_round_confirms_no_later_read(
    simulation: RaftSimulation,
) -> None:
    """The follower's answer was on its way when the read came: it proves nothing about it."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    followers = others_than(simulation, leader)
    await log_of(leader).read_index()
    round_before = 1
    cut(simulation, leader, *followers)
    reading = asyncio.ensure_future(log_of(leader).read_index())
    await asyncio.sleep(0.01)

    for follower in followers:
        tell(
            leader,
            follower,
            type="append_answer",
            term=log_of(leader).status.term,
            success=True,
            index=log_of(leader).status.last_index,
            read_round=round_before,
            applied_index=0,
            view_lag_ms=0,
            disk_takes_writes=True,
        )
    await asyncio.sleep(0.1)

    assert not reading.done()
    with pytest.raises(NotLeader):
        await reading


# Frozen ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen_s", [0.5, 3.0, 60.0])
def test_a_leader_that_was_frozen_answers_a_read_only_if_it_still_leads(frozen_s: float) -> None:
    """1. It freezes. 2. A successor may be elected and commit. 3. It is asked for a read, which
    waits. 4. It wakes, and finds question, timers and messages all at once."""

    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        before = log_of(leader).status.commit_index
        old_log = log_of(leader)
        freeze(leader)
        await asyncio.sleep(frozen_s)
        replaced = [n for n in others_than(simulation, leader) if log_of(n).is_leader]
        for successor in replaced:
            await propose(successor, "news")
        assert leader.process is not None
        reading = asyncio.ensure_future(leader.process.ask(old_log.read_index))
        await asyncio.sleep(0)

        thaw(leader)

        if replaced:
            with pytest.raises(NotLeader):
                await reading
        else:
            assert await reading >= before
        assert bool(replaced) is (frozen_s > 1.6)

    for seed in range(5):
        simulated(scenario, seed=seed)


def test_what_a_frozen_leader_proposes_when_it_wakes_is_not_acknowledged() -> None:
    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        freeze(leader)
        successor = await successor_of(simulation, leader)
        await propose(successor, "news")
        process, log = leader.process, log_of(leader)
        assert process is not None

        async def late() -> object:
            return await propose(leader, "late")

        proposing = asyncio.ensure_future(process.ask(late))
        await asyncio.sleep(0)
        thaw(leader)

        with pytest.raises((NotLeader, ProposalLost)):
            await proposing
        await asyncio.sleep(1)
        assert successor.view is not None
        assert "late" not in successor.view.payloads
        assert log.status.role is Role.FOLLOWER

    for seed in range(5):
        simulated(scenario, seed=seed)


def test_a_leader_that_was_frozen_deposes_nobody_when_it_wakes() -> None:
    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        freeze(leader)
        successor = await successor_of(simulation, leader)
        term = log_of(successor).status.term
        await asyncio.sleep(simulation.chance.uniform(0, 60))

        thaw(leader)
        await asyncio.sleep(LONG_S)

        assert log_of(successor).is_leader
        assert {log_of(node).status.term for node in simulation.nodes} == {term}

    for seed in range(5):
        simulated(scenario, seed=seed)


@run_by(simulated)
async def test_a_follower_that_was_frozen_hears_its_leader_before_it_asks_for_votes(
    simulation: RaftSimulation,
) -> None:
    """Its election timer is long overdue when it wakes, and fires before anything is read."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    follower = others_than(simulation, leader)[0]
    asked = sent_by(simulation, follower, "pre_vote")
    engine = log_of(follower).engine

    # As after a stall: due long ago, and what the leader said is still in the buffers.
    engine.election._timer_at = engine.election._deadline = now() - 5
    engine.election._time_is_up()
    await asyncio.sleep(1)

    assert asked == []
    assert log_of(leader).is_leader


@run_by(simulated)
async def test_a_follower_that_was_frozen_asks_for_votes_if_there_is_nothing_to_hear(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    follower = others_than(simulation, leader)[0]
    freeze(leader)
    await asyncio.sleep(0.1)
    freeze(follower)
    await asyncio.sleep(5)

    thaw(follower)

    assert await elapsed_ms(successor_of(simulation, leader)) < 2_000
    thaw(leader)


@run_by(simulated)
async def test_a_leader_whose_loop_stood_still_hands_over_if_it_still_leads(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    log = log_of(leader)

    log.engine.heartbeat(CONFIG.stall_ms_max + 1)

    assert not log.is_leader
    assert await elapsed_ms(successor_of(simulation, leader)) < 100


# Handing over ------------------------------------------------------------------------------------


@run_by(simulated)
async def test_leadership_is_not_handed_to_a_follower_that_is_silent(
    simulation: RaftSimulation,
) -> None:
    """Proposals wait for a successor: one that is frozen would hold them up for nothing."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    frozen = others_than(simulation, leader)[0]
    freeze(frozen)
    await asyncio.sleep(1)
    began = now()

    with pytest.raises(TransferFailed, match="silent"):
        await log_of(leader).transfer_leadership(frozen.node_id)

    await propose(leader, "goes on")
    assert (now() - began) * 1000 < 50
    thaw(frozen)


@run_by(simulated, size=5)
async def test_a_leader_that_stops_prefers_a_follower_that_is_heard(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    frozen = max(others_than(simulation, leader), key=lambda node: node.node_id)
    freeze(frozen)
    await asyncio.sleep(1)

    told = sent_by(simulation, leader, "timeout_now")

    await leader.stop()

    assert told, "it handed over"
    async with timeout(0.1):
        while not any(n.log and n is not frozen and n.log.is_leader for n in simulation.nodes):
            await asyncio.sleep(0.001)
    thaw(frozen)


@run_by(simulated)
async def test_a_leader_that_stops_knows_its_successor_before_it_is_gone(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    changes: list[RoleChange] = []
    log_of(leader).on_role_change(changes.append)
    node_id = leader.node_id

    await leader.stop()

    successors = [each.leader_id for each in changes if each.leader_id not in (None, node_id)]
    assert successors, changes
    assert changes[-1].role is Role.STOPPED
