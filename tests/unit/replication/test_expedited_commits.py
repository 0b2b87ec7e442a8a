"""Commits are announced at once to a follower where a reader waits for them, and to no other."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.replication.config import RaftConfig
from nextgen.replication.mesh.frames import RemoteProtocolError
from nextgen.replication.protocol.messages import EXPEDITE_FIELD, check_message
from nextgen.replication.raft.leading import EXPEDITED_NOTICE_S
from tests.support.scenarios import run_by
from tests.support.simulated.raft import RaftSimulation, SimNode
from tests.unit.replication.test_group import log_of, now, others_than, propose, simulated

HEARTBEAT_S = RaftConfig().heartbeat_ms / 1000

HEARD_S = 0.5
"""Some heartbeats: the leader has heard what a follower wishes."""

WAY_S = 0.005
"""More than a message takes in the simulation."""


async def notice_s(leader: SimNode, follower: SimNode) -> float:
    """Return how long after the leader's commit the follower knew of it. Nothing else is sent."""
    await asyncio.sleep(HEARD_S)
    known: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    unsubscribe = log_of(follower).on_commit(
        lambda _entries: None if known.done() else known.set_result(now())
    )
    await propose(leader)
    committed_at = now()
    noticed_at = await known
    unsubscribe()
    return noticed_at - committed_at


@run_by(simulated)
async def test_a_commit_is_announced_at_once_to_a_follower_that_requested_it(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    expedited, other = others_than(simulation, leader)
    end = log_of(expedited).expedite_commits()

    assert await notice_s(leader, expedited) <= EXPEDITED_NOTICE_S + WAY_S
    assert await notice_s(leader, other) > EXPEDITED_NOTICE_S + WAY_S

    end()
    assert await notice_s(leader, expedited) > EXPEDITED_NOTICE_S + WAY_S


@run_by(simulated)
async def test_a_heartbeat_brings_a_commit_that_nobody_requested(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    follower, _ = others_than(simulation, leader)

    assert await notice_s(leader, follower) <= HEARTBEAT_S + WAY_S


@run_by(simulated)
async def test_a_follower_requests_the_commit_that_a_reader_waits_for(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    follower, _ = others_than(simulation, leader)
    await asyncio.sleep(HEARD_S)
    commit = await propose(leader)
    assert log_of(follower).commit_position < commit.first_position
    began_at = now()

    await log_of(follower).wait_position(commit.first_position)

    assert now() - began_at <= EXPEDITED_NOTICE_S + 2 * WAY_S
    # The wish ends with the wait.
    assert await notice_s(leader, follower) > EXPEDITED_NOTICE_S + WAY_S


@run_by(simulated)
async def test_an_expedited_follower_stays_expedited_under_the_next_leader(
    simulation: RaftSimulation,
) -> None:
    leader = await simulation.leader()
    expedited, other = others_than(simulation, leader)
    log_of(expedited).expedite_commits()
    await log_of(leader).transfer_leadership(other.node_id)
    await simulation.leader()

    assert await notice_s(other, expedited) <= EXPEDITED_NOTICE_S + WAY_S


def answer(**fields: object) -> dict[str, object]:
    return {
        "type": "append_answer",
        "term": 1,
        "success": True,
        "index": 1,
        "read_round": 0,
        "applied_index": 1,
        "view_lag_ms": 0,
        "disk_takes_writes": True,
        **fields,
    }


def test_a_follower_of_an_earlier_version_wishes_nothing() -> None:
    assert check_message(answer()) == "append_answer"
    assert check_message(answer(**{EXPEDITE_FIELD: True})) == "append_answer"


def test_a_wish_that_is_no_wish_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="hurry"):
        check_message(answer(**{EXPEDITE_FIELD: 1}))
