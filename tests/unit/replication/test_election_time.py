"""How long an election takes, and what makes it longer: split votes, short logs, slow disks."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.replication.config import RaftConfig
from nextgen.replication.ports import Record
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.raft import RaftSimulation
from tests.unit.replication.election.test_timers import (
    LONG_S,
    freeze,
    log_end,
    sent_by,
    successor_of,
    tell,
    thaw,
)
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


def test_a_frozen_leader_is_replaced_within_two_seconds_even_after_a_split_vote() -> None:
    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        for node in others_than(simulation, leader):
            # Both time out at the same moment, so that both ask and both vote for themselves.
            engine = log_of(node).engine
            engine.election._wait_ms(0)
            engine.election._wait_normally = (  # type: ignore[method-assign]
                lambda e=engine.election: e._wait_ms(CONFIG.election_ms_max)
            )
        freeze(leader)

        assert await elapsed_ms(successor_of(simulation, leader)) < 2_000
        thaw(leader)

    for seed in range(10):
        simulated(scenario, seed=seed)


@run_by(simulated)
async def test_a_replica_with_the_longer_log_does_not_wait_for_its_turn(
    simulation: RaftSimulation,
) -> None:
    """The first in rank lacks the last entry: it cannot win, and says so by asking."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    followers = sorted(others_than(simulation, leader), key=lambda node: node.node_id)
    rank = {
        node.node_id: (place - log_of(leader).status.group_id) % 2
        for place, node in enumerate(followers)
    }
    first, second = sorted(followers, key=lambda node: rank[node.node_id])
    cut(simulation, first, leader, second)
    await propose(leader)
    await asyncio.sleep(0.05)
    simulation.network.cut.clear()

    leader.crash()

    began = now()
    assert await successor_of(simulation, leader) is second
    assert (now() - began) * 1000 < CONFIG.fast_election_stagger_ms


@pytest.mark.parametrize("disk_ms", [1, 40, 150, 300])
def test_slow_disks_make_an_election_longer_and_not_endless(disk_ms: int) -> None:
    """A campaign takes two syncs: an earlier rival campaign only undoes it."""

    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        behind = others_than(simulation, leader)[0]
        for node in simulation.nodes:
            node.disk_delay_ms = disk_ms
        cut(simulation, behind, *others_than(simulation, behind))
        await propose(leader)
        simulation.network.cut.clear()
        term = log_of(leader).status.term

        leader.crash()

        assert await elapsed_ms(successor_of(simulation, leader)) < 300 + 8 * disk_ms
        assert log_of(behind).status.term <= term + 4

    for seed in range(10):
        simulated(scenario, seed=seed)


@run_by(simulated)
async def test_a_candidate_grants_no_pre_vote_to_another(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    await asyncio.sleep(1)
    followers = others_than(simulation, leader)
    for node in followers:
        node.disk_delay_ms = 100
    leader.crash()
    async with timeout(LONG_S):
        while not any(log_of(node).engine.core.campaigns for node in followers):
            await asyncio.sleep(0.001)
    candidate = next(n for n in followers if log_of(n).engine.core.campaigns)
    (other,) = (node for node in followers if node is not candidate)
    answers = sent_by(simulation, candidate, "pre_vote_answer")

    later = log_of(candidate).status.term + 1
    tell(candidate, other, type="pre_vote", term=later, **log_end(other))

    assert [each["granted"] for each in answers] == [False]
    assert await successor_of(simulation, leader) is candidate


@run_by(simulated)
async def test_a_candidate_helps_one_whose_log_is_better(simulation: RaftSimulation) -> None:
    """Its own campaign lacks the vote of the other, which alone may be able to win."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    followers = others_than(simulation, leader)
    for node in followers:
        node.disk_delay_ms = 100
    leader.crash()
    async with timeout(LONG_S):
        while not any(log_of(node).engine.core.campaigns for node in followers):
            await asyncio.sleep(0.001)
    candidate = next(n for n in followers if log_of(n).engine.core.campaigns)
    (other,) = (node for node in followers if node is not candidate)
    answers = sent_by(simulation, candidate, "pre_vote_answer")

    later = log_of(candidate).status.term + 1
    better = {**log_end(candidate), "last_log_index": log_end(candidate)["last_log_index"] + 1}
    tell(candidate, other, type="pre_vote", term=later, **better)

    assert [each["granted"] for each in answers] == [True]


@run_by(simulated)
async def test_campaigns_without_votes_leave_others_their_turn_however_many_there_are(
    simulation: RaftSimulation,
) -> None:
    """1. A replica is cut off. 2. Pre-votes pass, votes never arrive: as over a link that loses
    most. 3. It campaigns more often than a float can double."""
    leader = await simulation.leader()
    await asyncio.sleep(1)
    lonely, other = others_than(simulation, leader)
    cut(simulation, lonely, leader, other)
    engine = log_of(lonely).engine
    while engine.core.term < 1_100:
        await asyncio.sleep(0.5)
        asked = engine.election._asked_term
        if asked is not None:
            answer = {"term": engine.core.term, "granted": True, "asked_term": asked}
            tell(lonely, other, type="pre_vote_answer", **answer)
        assert not engine.stopped
    await asyncio.sleep(CONFIG.election_ms_max / 1000)
    answers = sent_by(simulation, lonely, "pre_vote_answer")

    tell(lonely, other, type="pre_vote", term=engine.core.term + 1, **log_end(lonely))

    assert [each["granted"] for each in answers] == [True]


def test_a_replica_whose_disk_is_stuck_neither_campaigns_nor_promises_its_vote() -> None:
    """Neither a vote nor a request for votes would leave it: both only keep others waiting."""

    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        healthy, stuck = others_than(simulation, leader)
        stuck.hang_disk(120)
        leader.kill()
        await asyncio.sleep(5)
        terms = [log_of(node).status.term for node in (healthy, stuck)]
        answers = sent_by(simulation, stuck, "pre_vote_answer")

        await asyncio.sleep(30)

        assert answers
        assert not any(each["granted"] for each in answers)
        assert [log_of(node).status.term for node in (healthy, stuck)] == terms

    for seed in range(5):
        simulated(scenario, seed=seed)


def test_a_healthy_majority_elects_soon_whatever_a_stuck_disk_has_begun() -> None:
    """1. The leader dies; an entry that nobody else has is in its log. 2. The disk of a follower
    hangs for minutes; the other one campaigns and gets no vote. 3. The replica that hangs dies, the
    old leader returns: it and the other are a majority, and only it can win."""

    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        stuck, other = others_than(simulation, leader)
        cut(simulation, leader, stuck, other)
        log_of(leader).propose(Record(b"only here", 1)).add_done_callback(
            lambda done: done.exception()
        )
        await asyncio.sleep(0.05)
        leader.kill()
        simulation.network.cut.clear()
        stuck.hang_disk(300)
        await asyncio.sleep(120)
        stuck.crash()
        await leader.start()

        assert await elapsed_ms(successor_of(simulation, stuck)) < 3 * CONFIG.election_ms_max
        assert log_of(leader).is_leader

    for seed in range(10):
        simulated(scenario, seed=seed)


def test_a_leader_whose_view_stands_still_hands_over_and_does_not_campaign() -> None:
    """It commits, for a majority has the entries, and can neither decide nor answer."""

    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        await asyncio.sleep(1)
        leader.view_delay_ms = 120_000
        await propose(leader)

        successor = await successor_of(simulation, leader)
        asked = sent_by(simulation, leader, "pre_vote")
        successor.crash()
        await asyncio.sleep(20)

        (third,) = others_than(simulation, leader, successor)
        assert log_of(third).is_leader
        assert asked == []
        leader.crash()

    for seed in range(5):
        simulated(scenario, seed=seed)
