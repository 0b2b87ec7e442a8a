"""A replica that forgot its term adopts a bound of it before it follows a leader (ADR 0048)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nextgen.kernel.errors import MetadataError
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.journal.recovery import UNKNOWN_VOTE
from nextgen.replication.journal.unverified import BLANK_INDEX, UNCOVERED_INDEX, UNKNOWN_INDEX
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import ChangeKind, MemberChange, NodeId, Record, Role
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.raft import RaftSimulation, SimNode
from tests.support.simulated.virtual_time import run_virtual

NEVER_S = 10.0
"""Longer than any election, probe or retry takes."""


def simulated(scenario: Callable[[RaftSimulation], Awaitable[None]], *, size: int = 3) -> None:
    async def main() -> None:
        await scenario(RaftSimulation(seed=1, size=size))

    run_virtual(main)


def log_of(node: SimNode) -> PySyncObjGroup:
    assert node.log is not None, f"{node.node_id} is down"
    return node.log


def unverified_index_of(node: SimNode) -> int:
    return log_of(node).engine.journal.unverified_index


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"never happened: {what}")


async def write(leader: SimNode, text: str) -> None:
    await log_of(leader).propose(Record(text.encode(), 1))


async def write_unless_deposed(leader: SimNode, text: str) -> bool:
    """Return whether ``leader`` acknowledged it."""
    try:
        async with timeout(NEVER_S):
            await write(leader, text)
    except (MetadataError, TimeoutError):
        return False
    return True


async def given_leader(simulation: RaftSimulation) -> tuple[SimNode, list[SimNode]]:
    """Return the leader and its followers, once all of them have an acknowledged entry."""
    await simulation.start()
    leader = await simulation.leader()
    await write(leader, "first")
    followers = [node for node in simulation.nodes if node is not leader]
    await until(lambda: all(log_of(node).commit_position == 1 for node in followers), "all have it")
    return leader, followers


def cut(simulation: RaftSimulation, node: SimNode, *others: SimNode) -> None:
    for other in others:
        simulation.network.cut.add(frozenset((node.node_id, other.node_id)))


# Founding a group ---------------------------------------------------------------------------


@run_by(simulated)
async def test_a_group_is_founded_when_none_of_its_voters_has_ever_had_an_entry(
    simulation: RaftSimulation,
) -> None:
    await simulation.start()
    assert {unverified_index_of(node) for node in simulation.nodes} == {BLANK_INDEX}

    await write(await simulation.leader(), "first")

    assert not any(unverified_index_of(node) for node in simulation.nodes)


@run_by(simulated)
async def test_a_group_is_not_founded_before_its_last_voter_has_answered(
    simulation: RaftSimulation,
) -> None:
    *early, late = simulation.nodes
    for node in early:
        await node.start()
    await asyncio.sleep(NEVER_S)
    assert {log_of(node).status.role for node in early} == {Role.NON_VOTER}

    await late.start()

    await write(await simulation.leader(), "first")


@run_by(simulated)
async def test_a_connection_is_a_reason_to_ask_that_voter_and_nobody_else(
    simulation: RaftSimulation,
) -> None:
    *early, late = simulation.nodes
    for node in early:
        await node.start()
    await asyncio.sleep(NEVER_S)
    asking, answering = early
    asked: list[NodeId] = []

    def tap(sender: NodeId, target: NodeId, message: Message) -> None:
        if sender == asking.node_id and message["type"] == "pre_vote":
            asked.append(target)

    simulation.network.tap = tap
    engine = log_of(asking).engine
    for stranger in range(50):
        engine.on_peer_connected(NodeId(f"stranger-{stranger}"))
    engine.on_peer_connected(answering.node_id)
    engine.on_peer_connected(late.node_id)

    # The one that answered forgot its term too, so its answer is missing as well.
    assert asked == [answering.node_id]
    simulation.network.tap = lambda *_: None
    await late.start()
    await write(await simulation.leader(), "first")


@run_by(simulated)
async def test_a_group_whose_founding_was_interrupted_everywhere_is_founded_later(
    simulation: RaftSimulation,
) -> None:
    for node in simulation.nodes:
        await node.start()
        node.crash(keep_some=False)

    await simulation.start()

    await write(await simulation.leader(), "first")


@run_by(simulated)
async def test_a_group_that_was_led_is_not_founded_again_when_all_disks_are_lost(
    simulation: RaftSimulation,
) -> None:
    for node in simulation.nodes:
        await node.start(may_be_lost=True)

    await asyncio.sleep(NEVER_S)

    assert {unverified_index_of(node) for node in simulation.nodes} == {UNKNOWN_INDEX}
    assert {log_of(node).status.role for node in simulation.nodes} == {Role.NON_VOTER}


@run_by(simulated)
async def test_a_blank_replica_among_others_with_entries_waits_for_a_leader(
    simulation: RaftSimulation,
) -> None:
    """Nobody needs to say that this replica was here before: the others know."""
    leader, (victim, other) = await given_leader(simulation)
    victim.crash()
    victim.lose_disk()
    cut(simulation, victim, leader, other)
    await victim.start()
    await asyncio.sleep(NEVER_S)
    assert unverified_index_of(victim) == BLANK_INDEX

    simulation.network.cut.clear()
    await until(lambda: not unverified_index_of(victim), "a leader has covered it")

    assert log_of(victim).commit_position == 1


# Losing the term ----------------------------------------------------------------------------


@run_by(simulated)
async def test_a_deposed_leader_commits_nothing_with_an_unverified_replica_and_does_not_verify_it(
    simulation: RaftSimulation,
) -> None:
    """1. The leader of an early term is cut off. 2. The other two elect one of them and commit.
    3. One of these loses its disk, the other is cut off. 4. The deposed leader, which does not
    know that it is, meets the one that forgot, and both together are a majority."""
    old, (one, other) = await given_leader(simulation)
    cut(simulation, old, one, other)
    await until(lambda: log_of(one).is_leader or log_of(other).is_leader, "a successor")
    new, victim = (one, other) if log_of(one).is_leader else (other, one)
    await write(new, "acknowledged")
    victim.crash()
    victim.lose_disk()
    simulation.network.cut.clear()
    cut(simulation, new, old, victim)
    deposed_term = log_of(old).status.term
    _keep_leading(old, deposed_term)
    assert log_of(old).engine.core.leads

    await victim.start(may_be_lost=True)
    assert not await write_unless_deposed(old, "must not be acknowledged")
    assert log_of(victim).status.role is Role.NON_VOTER

    simulation.network.cut.clear()
    await until(lambda: not unverified_index_of(victim), "a leader of a later term has covered it")
    leader = await simulation.leader()
    await write(leader, "last")
    assert leader.view is not None
    await log_of(leader).wait_position(3)
    assert leader.view.payloads == ["first", "acknowledged", "last"]


def _keep_leading(node: SimNode, term: int) -> None:
    """Let ``node`` be the leader of ``term`` that has not noticed its deposition yet."""
    engine = log_of(node).engine
    if not engine.core.leads:
        engine.core._SyncObj__raftState = 2
        engine.core._SyncObj__raftLeader = engine.core._SyncObj__selfNode
        engine.leadership_won(engine.journal.last_index)


@run_by(simulated)
async def test_it_answers_nobody_before_it_has_heard_every_other_voter(
    simulation: RaftSimulation,
) -> None:
    leader, (victim, other) = await given_leader(simulation)
    victim.crash()
    victim.lose_disk()
    cut(simulation, victim, other)
    sent: list[str] = []

    def tap(sender: NodeId, _target: NodeId, message: Message) -> None:
        if sender == victim.node_id:
            assert message["term"] == 0, "nothing but probes and answers to them"
            sent.append(message["type"])

    simulation.network.tap = tap
    await victim.start(may_be_lost=True)
    await write(leader, "second")
    await asyncio.sleep(NEVER_S)

    assert set(sent) == {"pre_vote"}
    assert unverified_index_of(victim) == UNKNOWN_INDEX
    assert log_of(victim).engine.journal.last_index == 0
    assert log_of(victim).engine.core.term == 0


@run_by(simulated)
async def test_it_adopts_the_highest_term_that_it_hears_with_its_vote_spent(
    simulation: RaftSimulation,
) -> None:
    leader, (victim, other) = await given_leader(simulation)
    victim.crash()
    victim.lose_disk()
    cut(simulation, other, leader)
    assert other.process is not None
    await other.process.ask(lambda: _raise_term(other, 40))

    await victim.start(may_be_lost=True)
    await until(lambda: unverified_index_of(victim) != UNKNOWN_INDEX, "it knows a term")

    assert log_of(victim).engine.journal.hard_state == (40, UNKNOWN_VOTE)


async def _raise_term(node: SimNode, term: int) -> None:
    log_of(node).engine.core.step_down(term)


@run_by(simulated)
async def test_a_term_that_was_adopted_is_kept_over_a_power_cut(simulation: RaftSimulation) -> None:
    leader, (victim, other) = await given_leader(simulation)
    victim.crash()
    victim.lose_disk()
    await victim.start(may_be_lost=True)
    await until(lambda: unverified_index_of(victim) == UNCOVERED_INDEX, "it knows a term")
    cut(simulation, victim, leader, other)
    await until(lambda: not log_of(victim).engine.journal.pending_bytes, "it is on disk")
    term = log_of(victim).engine.core.term
    assert term > 0

    victim.crash(keep_some=False)
    await victim.start()

    assert unverified_index_of(victim) == UNCOVERED_INDEX
    assert log_of(victim).engine.core.term == term


@run_by(simulated)
async def test_two_of_three_that_forgot_elect_nobody_and_help_nobody(
    simulation: RaftSimulation,
) -> None:
    leader, followers = await given_leader(simulation)
    for node in simulation.nodes:
        node.crash()
    for node in followers:
        node.lose_disk()

    for node in followers:
        await node.start(may_be_lost=True)
    await leader.start()
    await asyncio.sleep(NEVER_S)

    assert not any(log_of(node).is_leader for node in simulation.nodes)
    assert {unverified_index_of(node) for node in followers} == {UNKNOWN_INDEX}
    assert log_of(leader).status.last_index >= 1


@pytest.mark.parametrize("rejoining", [True, False])
@run_by(simulated, size=5)
async def test_two_of_five_that_forgot_come_back_while_the_others_remember(
    simulation: RaftSimulation, *, rejoining: bool
) -> None:
    _, followers = await given_leader(simulation)
    for node in followers[:2]:
        node.crash()
        node.lose_disk()

    for node in followers[:2]:
        await node.start(may_be_lost=rejoining)
    await until(lambda: not any(map(unverified_index_of, followers[:2])), "both are covered")

    await write(await simulation.leader(), "second")


@run_by(simulated)
async def test_a_learner_is_covered_although_a_voter_is_silent(simulation: RaftSimulation) -> None:
    """A dead replica is replaced by a new one, whose acknowledgements are not counted yet."""
    leader, (dead, _) = await given_leader(simulation)
    dead.crash()
    newcomer = SimNode(simulation, NodeId("node-4"))
    await newcomer.start(may_be_lost=True, joining=True)
    assert unverified_index_of(newcomer) == UNKNOWN_INDEX

    add = MemberChange(ChangeKind.ADD_LEARNER, newcomer.node_id)
    await log_of(leader).change_members(add)

    await until(lambda: not unverified_index_of(newcomer), "the leader has covered it")


# Earlier releases ---------------------------------------------------------------------------


@run_by(simulated)
async def test_an_answer_of_an_earlier_release_speaks_for_its_term_and_founds_no_group(
    simulation: RaftSimulation,
) -> None:
    node, *others = simulation.nodes
    await node.start()
    engine = log_of(node).engine

    for term, other in zip((7, 4), others, strict=True):
        answer: Message = {
            "type": "pre_vote_answer",
            "term": term,
            "granted": False,
            "asked_term": 0,
        }
        engine.on_message(other.node_id, answer)

    assert unverified_index_of(node) == UNCOVERED_INDEX
    assert engine.core.term == 7
    assert engine.journal.hard_state[0] == 7
