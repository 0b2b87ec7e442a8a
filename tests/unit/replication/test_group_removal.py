"""A replica that leaves a group hands over, learns of its removal, and disturbs no one."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Refused
from nextgen.replication.journal.unverified import UNKNOWN_INDEX
from nextgen.replication.ports import (
    NodeId,
    Role,
)
from tests.support.scenarios import run_by
from tests.support.simulated.membership import (
    PROMOTE,
    REMOVE,
    MembershipSimulation,
    ask,
    engine_of,
    log_of,
    members,
    membership,
    until,
)


def test_a_leader_that_removes_itself_hands_over_when_that_is_committed() -> None:
    async def scenario(simulation: MembershipSimulation) -> None:
        leader = await simulation.leader()
        term = log_of(leader).status.term
        loop = asyncio.get_running_loop()

        made = await simulation.change(REMOVE, leader)
        began = loop.time()
        await until(lambda: not log_of(leader).is_leader, "it steps down")
        await until(
            lambda: any(log_of(n).is_leader for n in simulation.nodes[:3] if n is not leader),
            "somebody else leads",
        )
        took_ms = (loop.time() - began) * 1000

        assert leader.node_id not in made.voters
        assert took_ms < 100
        assert log_of(await simulation.leader()).status.term == term + 1
        assert log_of(leader).status.role is Role.LEARNER
        await simulation.write()
        await asyncio.sleep(30)
        assert log_of(await simulation.leader()).status.term == term + 1

    for seed in range(3):
        membership(scenario, seed=seed, extra=0)


@run_by(membership, extra=0)
async def test_a_leader_that_removes_itself_does_not_count_itself(
    simulation: MembershipSimulation,
) -> None:
    leader = await simulation.leader()
    _, away = await simulation.followers_of_three()
    simulation.cut_off(away)

    change = ask(leader, REMOVE, leader)
    await asyncio.sleep(0.3)

    assert not change.done()
    assert log_of(leader).is_leader
    simulation.heal()
    await change


@run_by(membership, size=1)
async def test_the_last_voter_is_not_removed(simulation: MembershipSimulation) -> None:
    await simulation.add_learner(simulation.node(2))
    with pytest.raises(Refused, match="last voter"):
        await simulation.change(REMOVE, simulation.node(1))
    assert members(simulation.node(1)) == ([1], [2])


@run_by(membership, size=2, extra=0)
async def test_a_removal_that_only_the_removed_one_has_is_committed_by_it(
    simulation: MembershipSimulation,
) -> None:
    """One of two removed itself and the other does not know: only it may lead, to hand over."""
    one, two = simulation.nodes
    await simulation.lead(one)
    simulation.cut_off(one)
    ask(one, REMOVE, one)
    await asyncio.sleep(0.1)
    await simulation.restart(one)
    assert members(one) == ([2], [])
    assert members(two) == ([1, 2], [])

    simulation.heal()
    await until(lambda: members(two) == ([2], []) and log_of(two).is_leader, "node-2 leads")
    await simulation.write()
    assert log_of(one).status.role is Role.LEARNER


@run_by(membership, extra=0)
async def test_a_removed_replica_is_notified_and_disturbs_no_one(
    simulation: MembershipSimulation,
) -> None:
    leader = await simulation.leader()
    removed = (await simulation.followers_of_three())[0]

    await simulation.change(REMOVE, removed)
    await until(lambda: log_of(removed).status.role is Role.LEARNER, "it hears of it")
    await until(
        lambda: engine_of(removed).commit_index >= log_of(leader).status.configuration_index,
        "it hears that it is committed",
    )
    assert removed.node_id not in [p.node_id for p in log_of(leader).status.progress]
    term = log_of(leader).status.term
    await simulation.restart(removed)
    await asyncio.sleep(30)

    assert log_of(leader).is_leader
    assert [log_of(n).status.term for n in simulation.nodes] == [term] * 3
    assert log_of(removed).status.role is Role.LEARNER


@run_by(membership, extra=0)
async def test_one_that_was_removed_while_it_was_away_disturbs_nobody(
    simulation: MembershipSimulation,
) -> None:
    leader = await simulation.leader()
    removed = (await simulation.followers_of_three())[0]
    simulation.cut_off(removed)
    await simulation.change(REMOVE, removed)
    await asyncio.sleep(10)
    term = log_of(leader).status.term

    simulation.heal()
    await asyncio.sleep(30)

    assert members(removed) == ([1, 2, 3], [])
    assert log_of(leader).is_leader
    assert log_of(leader).status.term == term


@run_by(membership)
async def test_an_answer_of_a_stranger_deposes_nobody(simulation: MembershipSimulation) -> None:
    leader = await simulation.leader()
    term = log_of(leader).status.term
    engine_of(leader).on_message(
        NodeId("node-9"),
        {
            "type": "append_answer",
            "term": term + 5,
            "success": False,
            "index": 1,
            "read_round": 0,
            "applied_index": 0,
            "view_lag_ms": 0,
            "disk_takes_writes": True,
        },
    )
    assert log_of(leader).is_leader
    assert log_of(leader).status.term == term


@run_by(membership, extra=0)
async def test_one_that_was_removed_and_comes_back_empty_gets_everything_again(
    simulation: MembershipSimulation,
) -> None:
    back = (await simulation.followers_of_three())[0]
    for number in range(20):
        await simulation.write(str(number))
    await simulation.change(REMOVE, back)
    back.kill()
    back.lose_disk()

    await back.start(joining=True)
    await simulation.add_learner(back)
    await simulation.change(PROMOTE, back)

    await until(lambda: simulation.is_caught_up(back), "it has everything")
    assert back.view is not None
    assert back.view.payloads == [str(number) for number in range(20)]


@run_by(membership)
async def test_one_that_was_a_member_and_comes_back_empty_votes_for_nobody_before_it_is_covered(
    simulation: MembershipSimulation,
) -> None:
    back = simulation.node(4)
    await simulation.add_learner(back)
    await simulation.change(PROMOTE, back)
    leader = await simulation.leader()
    candidate = next(node for node in simulation.nodes if node not in (leader, back))
    await simulation.write("known to all")
    simulation.cut_off(candidate)
    await simulation.write("acknowledged")
    back.kill()
    back.put_data_aside()
    # Together with one that lacks what it has acknowledged itself.
    simulation.heal()
    simulation.cut_off(candidate, back)

    await back.start(joining=True)

    assert log_of(back).engine.journal.unverified_index == UNKNOWN_INDEX
    await asyncio.sleep(10)
    assert log_of(back).status.role is Role.NON_VOTER
    simulation.heal()
    await until(lambda: not log_of(back).engine.journal.unverified_index, "it is covered")
    assert back.view is not None
    await until(lambda: simulation.is_caught_up(back), "it has everything")
    assert back.view.payloads == ["known to all", "acknowledged"]
