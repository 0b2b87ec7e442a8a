"""A learner gets everything, counts for nothing, and becomes a voter when it has caught up."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import NotLeader, ProposalLost, Refused, TransferFailed
from nextgen.kernel.limits.cluster import LEARNER_LAG_ENTRIES_MAX
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import (
    NodeId,
    Record,
    Role,
)
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.membership import (
    ADD,
    PROMOTE,
    MembershipSimulation,
    ask,
    engine_of,
    log_of,
    members,
    membership,
    until,
)


@run_by(membership)
async def test_the_copy_of_a_learner_commits_nothing_and_confirms_no_read(
    simulation: MembershipSimulation,
) -> None:
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    leader = await simulation.leader()
    simulation.cut_off(leader, newcomer)

    write = log_of(leader).propose(Record(b"x", 1))
    read = asyncio.ensure_future(log_of(leader).read_index())
    index = log_of(leader).status.commit_index
    await until(lambda: not log_of(leader).is_leader, "nobody who counts was heard")

    assert log_of(newcomer).status.last_index > index
    assert log_of(leader).status.commit_index == index
    with pytest.raises(ProposalLost):
        await write
    with pytest.raises(NotLeader):
        await read


@run_by(membership)
async def test_the_vote_of_a_learner_elects_nobody(simulation: MembershipSimulation) -> None:
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    leader, (one, other) = await simulation.leader(), await simulation.followers_of_three()
    leader.crash()
    simulation.cut_off(other)

    await asyncio.sleep(30)

    assert not log_of(one).is_leader
    assert log_of(one).status.term == log_of(other).status.term
    simulation.heal()
    await simulation.write()


@run_by(membership)
async def test_the_promises_of_learners_and_strangers_start_no_election(
    simulation: MembershipSimulation,
) -> None:
    await simulation.add_learner(simulation.node(4))
    lonely = (await simulation.followers_of_three())[0]
    term = log_of(lonely).status.term
    simulation.cut_off(lonely)
    await asyncio.sleep(10)

    for promising in ("node-4", "node-9"):
        engine_of(lonely).on_message(
            NodeId(promising),
            {"type": "pre_vote_answer", "term": term, "granted": True, "asked_term": term + 1},
        )
    assert log_of(lonely).status.term == term
    voter = next(node for node in await simulation.followers_of_three() if node is not lonely)
    engine_of(lonely).on_message(
        voter.node_id,
        {"type": "pre_vote_answer", "term": term, "granted": True, "asked_term": term + 1},
    )
    assert log_of(lonely).status.term == term + 1


@run_by(membership)
async def test_a_learner_never_campaigns(simulation: MembershipSimulation) -> None:
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    asked: list[Message] = []
    simulation.network.tap = lambda sender, _t, message: (
        asked.append(message)
        if sender == newcomer.node_id and message["type"] in ("pre_vote", "request_vote")
        else None
    )
    simulation.cut_off(newcomer)

    await asyncio.sleep(30)
    engine_of(newcomer).election.campaign_for_transfer()

    assert not asked
    assert log_of(newcomer).status.role is Role.LEARNER


@run_by(membership)
async def test_leadership_is_not_handed_to_a_learner(simulation: MembershipSimulation) -> None:
    await simulation.add_learner(simulation.node(4))
    leader = await simulation.leader()
    with pytest.raises(TransferFailed, match="voter"):
        await log_of(leader).transfer_leadership(NodeId("node-4"))
    await log_of(leader).stop()
    assert (await simulation.leader()).node_id != "node-4"
    leader.kill()


@run_by(membership)
async def test_a_learner_that_lags_holds_nobody_up(simulation: MembershipSimulation) -> None:
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    newcomer.disk_delay_ms = newcomer.view_delay_ms = 10_000
    leader = await simulation.leader()
    term = log_of(leader).status.term

    async with timeout(2):
        for _ in range(100):
            await log_of(leader).propose(Record(b"x", 1))

    assert log_of(leader).status.term == term


@run_by(membership, size=1)
async def test_a_learner_that_missed_its_promotion_votes_for_a_candidate_that_knows_it(
    simulation: MembershipSimulation,
) -> None:
    """The entry that makes it a voter is on one disk only, and needs its vote to be committed."""
    one, newcomer = simulation.nodes
    await simulation.add_learner(newcomer)
    simulation.cut_off(newcomer)
    ask(one, PROMOTE, newcomer)
    await asyncio.sleep(0.1)
    await simulation.restart(one)
    assert members(newcomer) == ([1], [2])

    simulation.heal()
    await simulation.write()

    assert members(newcomer) == ([1, 2], [])


@pytest.mark.parametrize("over", [0, 1])
@run_by(membership)
async def test_a_learner_that_has_not_caught_up_is_not_promoted(
    simulation: MembershipSimulation, *, over: int
) -> None:
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    leader = await simulation.leader()
    simulation.cut_off(newcomer)
    for _ in range(LEARNER_LAG_ENTRIES_MAX + over):
        await log_of(leader).propose(Record(b"x", 1))

    if over:
        with pytest.raises(Refused, match="caught up"):
            await simulation.change(PROMOTE, newcomer)
        assert members(leader) == ([1, 2, 3], [4])
        simulation.heal()
        await simulation.leader_knows(newcomer)
    await simulation.change(PROMOTE, newcomer)
    assert members(leader) == ([1, 2, 3, 4], [])


@run_by(membership)
async def test_a_learner_that_is_gone_is_not_promoted(simulation: MembershipSimulation) -> None:
    newcomer = simulation.node(4)
    await simulation.add_learner(newcomer)
    newcomer.kill()
    await asyncio.sleep(0.1)
    with pytest.raises(Refused, match="does not follow"):
        await simulation.change(PROMOTE, newcomer)
    await newcomer.start(joining=True)


@run_by(membership)
async def test_a_learner_that_has_acknowledged_nothing_is_not_promoted_however_short_the_log(
    simulation: MembershipSimulation,
) -> None:
    newcomer = simulation.node(4)
    await newcomer.start(joining=True)
    simulation.cut_off(newcomer)
    await simulation.change(ADD, newcomer)

    with pytest.raises(Refused, match="caught up"):
        await simulation.change(PROMOTE, newcomer)


@run_by(membership)
async def test_nobody_comes_or_goes_while_leadership_is_handed_over(
    simulation: MembershipSimulation,
) -> None:
    leader, slow = await simulation.leader(), (await simulation.followers_of_three())[0]
    slow.disk_delay_ms = 300
    await simulation.write()
    handover = asyncio.ensure_future(log_of(leader).transfer_leadership(slow.node_id))
    await asyncio.sleep(0.01)

    with pytest.raises(Refused, match="handed over"):
        ask(leader, ADD, simulation.node(4))
    await handover
