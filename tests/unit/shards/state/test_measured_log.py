"""Commits are timed, and nothing else about the log changes."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Histogram

from nextgen.kernel.errors import ProposalLost
from nextgen.replication.ports import Entry, NodeId, Record
from shards.state.measured_log import MeasuredLog
from tests.support.logs.dict_state_machine import DictStateMachine
from tests.support.logs.memory_log import MemoryLog


class Measured:
    def __init__(self) -> None:
        self.now = 100.0
        self.registry = CollectorRegistry()
        self.inner = MemoryLog(DictStateMachine(), members=(NodeId("node-1"), NodeId("node-2")))
        seconds = Histogram("commit_seconds", "Test.", buckets=(1.0,), registry=self.registry)
        self.log = MeasuredLog(self.inner, seconds, lambda: self.now)

    def sample(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"commit_seconds_{name}")


async def test_a_commit_is_observed_with_its_seconds() -> None:
    it = Measured()
    it.inner.hold_commits()
    commit = it.log.propose(Record(b"x", 1))
    it.now = 102.5

    it.inner.release_commits()
    await commit
    await asyncio.sleep(0)

    assert (it.sample("count"), it.sample("sum")) == (1.0, 2.5)


async def test_a_lost_proposal_is_not_observed() -> None:
    it = Measured()
    it.inner.hold_commits()
    commit = it.log.propose(Record(b"x", 1))

    it.inner.lose_leadership()
    with pytest.raises(ProposalLost):
        await commit

    assert it.sample("count") == 0.0


async def test_everything_else_is_the_logs_own() -> None:
    it = Measured()
    seen: list[Entry] = []
    positions: list[tuple[int, int]] = []
    unsubscribe = it.log.on_commit(seen.extend)
    ended = it.log.on_commit_positions(lambda first, last: positions.append((first, last)))
    roles: list[str] = []
    it.log.on_role_change(lambda change: roles.append(change.role))
    commit = await it.log.propose(Record(b"x", 1))

    await it.log.wait_applied(await it.log.read_index())
    await it.log.wait_position(commit.first_position)
    assert it.log.is_leader
    it.inner.event_levels[NodeId("node-2")] = 1
    assert (it.log.event_level, it.log.behind_event_level(2)) == (1, (NodeId("node-2"),))
    assert it.log.status == it.inner.status
    assert it.log.read(1, events_max=1, bytes_max=1) == it.inner.read(1, events_max=1, bytes_max=1)
    assert len(seen) == 1
    assert positions == [(commit.first_position, commit.first_position)]
    unsubscribe()
    ended()
    assert (await it.log.compact()).position == 1
    await it.log.transfer_leadership(NodeId("node-2"))
    await it.log.stop()
    assert roles == ["leader", "follower", "stopped"]
