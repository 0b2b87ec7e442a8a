"""Which messages a replica believes: how far ahead a term may be, and whose entries are taken."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.kernel.limits.raft import GENERATION_JUMP_MAX, TERM_JUMP_MAX, TERM_MAX
from nextgen.replication.election.peer_checks import is_plausible_jump
from nextgen.replication.mesh.frames import Message, RemoteProtocolError
from nextgen.replication.ports import NodeId
from tests.support.scenarios import run_by
from tests.support.simulated.membership import (
    REMOVE,
    MembershipSimulation,
    ask,
    engine_of,
    log_of,
    membership,
    until,
)
from tests.support.simulated.raft import SimNode

STRANGER = NodeId("node-9")
FAR = 3 * TERM_JUMP_MAX

MESSAGES: dict[str, Message] = {
    "append": {
        "previous_index": 0,
        "previous_term": 0,
        "commit_index": 0,
        "read_round": 0,
        "entries": [],
    },
    "request_vote": {"last_log_index": 1 << 40, "last_log_term": 0, "transfer": True},
    "pre_vote": {"last_log_index": 1 << 40, "last_log_term": 0},
    "pre_vote_answer": {"granted": False, "asked_term": 0},
    "response_vote": {},
    "append_answer": {
        "success": True,
        "index": 1,
        "read_round": 0,
        "applied_index": 0,
        "view_lag_ms": 0,
        "disk_takes_writes": True,
    },
    "timeout_now": {},
    "view_diverged": {"scheme": 1, "index": 1, "position": 1, "digest": 1},
    "snapshot_chunk": {
        "index": 9,
        "index_term": 1,
        "position": 9,
        "offset": 0,
        "total": 1,
        "data": b"a",
        "checksum": 1,
        "file_checksum": 1,
        "round": 1,
    },
    "snapshot_answer": {"index": 9, "offset": 0, "installed": True, "round": 1},
}


def message(kind: str, term: int) -> Message:
    return {"type": kind, "term": term, **MESSAGES[kind]}


def others(simulation: MembershipSimulation, node: SimNode) -> list[SimNode]:
    return [each for each in simulation.nodes[:3] if each is not node]


def terms(simulation: MembershipSimulation) -> set[int]:
    return {log_of(node).status.term for node in simulation.nodes if node.is_up}


async def raise_terms(*nodes: SimNode, by: int) -> None:
    """Let ``nodes`` be where as many elections would have brought them."""
    term = max(log_of(node).status.term for node in nodes) + by
    for node in nodes:
        engine_of(node).core.step_down(term)


# Terms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_term", [0, 1, 7 << GENERATION_BITS])
def test_term_jump_max_is_believed_and_one_more_is_not(own_term: int) -> None:
    assert is_plausible_jump(own_term, own_term + TERM_JUMP_MAX)
    assert not is_plausible_jump(own_term, own_term + TERM_JUMP_MAX + 1)


def test_generation_jump_max_is_believed_and_one_more_is_not() -> None:
    """The last survivor of a group is promoted to the first term of the next generation."""
    last = (3 + GENERATION_JUMP_MAX) << GENERATION_BITS
    own_term = (3 << GENERATION_BITS) + 5

    assert is_plausible_jump(own_term, last)
    assert is_plausible_jump(own_term, last + TERM_JUMP_MAX)
    assert not is_plausible_jump(own_term, last + TERM_JUMP_MAX + 1)
    assert not is_plausible_jump(own_term, last + (1 << GENERATION_BITS))


@pytest.mark.parametrize("kind", MESSAGES)
@run_by(membership)
async def test_a_member_that_claims_the_last_term_moves_nobody(
    simulation: MembershipSimulation, *, kind: str
) -> None:
    await simulation.write()
    leader, before = await simulation.leader(), terms(simulation)
    member = others(simulation, leader)[0]

    for victim in others(simulation, member):
        engine_of(victim).on_message(member.node_id, message(kind, TERM_MAX))
        for wrong in (TERM_MAX + 1, 2**64 - 1):
            with pytest.raises(RemoteProtocolError):
                engine_of(victim).on_message(member.node_id, message(kind, wrong))
    await asyncio.sleep(10)

    assert terms(simulation) == before
    assert log_of(leader).is_leader
    await simulation.write()


@run_by(membership)
async def test_a_group_serves_on_after_the_longest_jump_that_is_believed(
    simulation: MembershipSimulation,
) -> None:
    await simulation.write()
    leader = await simulation.leader()
    victim, member = others(simulation, leader)
    term = log_of(victim).status.term + TERM_JUMP_MAX

    engine_of(victim).on_message(member.node_id, message("append", term))

    assert log_of(victim).status.term == term
    await simulation.write()
    # The third replica believes the term once a majority has reached it.
    await asyncio.sleep(10)
    assert min(terms(simulation)) >= term


@run_by(membership)
async def test_a_replica_that_was_away_for_more_elections_than_a_jump_follows_again(
    simulation: MembershipSimulation,
) -> None:
    """It believes a majority of the voters what it does not believe the leader alone."""
    await simulation.write()
    away = (await simulation.followers_of_three())[0]
    simulation.cut_off(away)
    await raise_terms(*others(simulation, away), by=FAR)
    await simulation.write()
    assert log_of(away).status.term < TERM_JUMP_MAX

    simulation.heal()
    leader = await simulation.leader()
    await until(
        lambda: log_of(away).commit_position == log_of(leader).commit_position, "it follows"
    )

    assert log_of(away).status.term == log_of(leader).status.term


@run_by(membership)
async def test_a_replica_that_lost_its_disk_adopts_a_term_that_is_further_than_a_jump(
    simulation: MembershipSimulation,
) -> None:
    await simulation.write()
    victim = (await simulation.followers_of_three())[0]
    victim.crash()
    victim.lose_disk()
    await raise_terms(*others(simulation, victim), by=FAR)
    await simulation.write()

    await victim.start(may_be_lost=True)

    await until(lambda: not engine_of(victim).journal.unverified_index, "it is covered by a leader")
    assert log_of(victim).status.term > FAR


@run_by(membership)
async def test_a_newcomer_joins_a_group_whose_term_is_further_than_a_jump(
    simulation: MembershipSimulation,
) -> None:
    await simulation.write()
    await raise_terms(*simulation.nodes[:3], by=FAR)

    await simulation.add_voter(simulation.node(4))

    assert log_of(simulation.node(4)).status.term > FAR


@run_by(membership)
async def test_one_voter_that_repeats_its_claim_is_not_a_majority(
    simulation: MembershipSimulation,
) -> None:
    await simulation.write()
    leader, before = await simulation.leader(), terms(simulation)
    victim, member = others(simulation, leader)

    for number in range(20):
        claim = message("pre_vote_answer", FAR + number)
        engine_of(victim).on_message(member.node_id, claim)
        engine_of(victim).on_message(STRANGER, claim)
        await asyncio.sleep(0.5)

    assert terms(simulation) == before
    assert log_of(leader).is_leader


# Members -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["append", "snapshot_chunk", "append_answer", "pre_vote_answer"])
@run_by(membership)
async def test_a_node_that_is_no_member_leads_deposes_and_answers_nobody(
    simulation: MembershipSimulation, *, kind: str
) -> None:
    await simulation.write()
    leader, before = await simulation.leader(), terms(simulation)

    for node in simulation.nodes[:3]:
        engine_of(node).on_message(STRANGER, message(kind, max(before) + 1))
    await asyncio.sleep(10)

    assert terms(simulation) == before
    assert {log_of(node).status.leader_id for node in simulation.nodes[:3]} == {leader.node_id}
    await simulation.write()


@run_by(membership)
async def test_a_promise_of_a_node_that_was_not_asked_raises_no_term_of_a_lonely_replica(
    simulation: MembershipSimulation,
) -> None:
    lonely = (await simulation.followers_of_three())[0]
    simulation.cut_off(lonely)
    await asyncio.sleep(10)
    term = log_of(lonely).status.term

    engine_of(lonely).on_message(STRANGER, message("pre_vote_answer", term + 5))

    assert log_of(lonely).status.term == term


@run_by(membership, extra=2)
async def test_a_replica_that_is_behind_follows_a_leader_that_its_log_does_not_name(
    simulation: MembershipSimulation,
) -> None:
    """Every other member was replaced while it was away."""
    await simulation.write()
    away = (await simulation.followers_of_three())[0]
    simulation.cut_off(away)
    for newcomer in (simulation.node(4), simulation.node(5)):
        await simulation.add_voter(newcomer)
    await simulation.lead(simulation.node(4))
    for gone in others(simulation, away):
        await simulation.change(REMOVE, gone)
        gone.crash()
    await simulation.write()

    simulation.heal()
    leader = await simulation.leader()
    await until(
        lambda: log_of(away).commit_position == log_of(leader).commit_position, "it follows"
    )

    assert log_of(away).status.leader_id == leader.node_id


@run_by(membership)
async def test_a_restarted_learner_follows_a_leader_whose_removal_was_never_committed(
    simulation: MembershipSimulation,
) -> None:
    """It knows of no commit then, and the newest configuration of its log does not name it."""
    learner = simulation.node(4)
    await simulation.add_learner(learner)
    before = await simulation.leader()
    kept, other = others(simulation, before)
    simulation.cut_off(before, learner)
    ask(before, REMOVE, kept)
    await until(lambda: kept.node_id not in log_of(learner).status.members, "it has the removal")
    before.crash()
    await simulation.restart(learner)
    await until(lambda: log_of(kept).is_leader or log_of(other).is_leader, "another one leads")
    await simulation.lead(kept)

    simulation.heal()
    await until(lambda: log_of(learner).status.leader_id == kept.node_id, "it follows")

    await simulation.write()
    await until(lambda: simulation.is_caught_up(learner), "it has everything")
    assert kept.node_id in log_of(learner).status.members


@run_by(membership)
async def test_an_answer_that_confirms_reads_of_the_future_is_refused(
    simulation: MembershipSimulation,
) -> None:
    await simulation.write()
    leader = await simulation.leader()
    member = others(simulation, leader)[0]
    answer = message("append_answer", log_of(leader).status.term)

    with pytest.raises(RemoteProtocolError, match="reads"):
        engine_of(leader).on_message(member.node_id, {**answer, "read_round": 1 << 40})
