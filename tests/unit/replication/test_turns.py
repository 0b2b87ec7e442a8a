"""A replica takes a turn of the loop only when something may have changed for it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from nextgen.replication.config import RaftConfig
from nextgen.replication.ports import NodeId
from nextgen.replication.raft.replica import RaftReplica
from tests.support.scenarios import run_by
from tests.support.simulated.raft import RaftSimulation
from tests.unit.replication.test_group import propose, simulated

HEARTBEATS = 10


@run_by(simulated)
async def test_heartbeats_that_bring_no_news_take_no_turn(simulation: RaftSimulation) -> None:
    leader = await simulation.leader()
    await propose(leader)
    await asyncio.sleep(1.0)
    turns: Counter[NodeId] = Counter()
    run = RaftReplica._run

    def counted(replica: RaftReplica) -> None:
        turns[replica.node_id] += 1
        run(replica)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RaftReplica, "_run", counted)
        await asyncio.sleep(HEARTBEATS * RaftConfig().heartbeat_ms / 1000)
        assert not turns

        await propose(leader)
        assert turns[leader.node_id] >= 1
