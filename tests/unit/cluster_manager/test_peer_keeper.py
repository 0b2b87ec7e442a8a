"""The replicas that the flags name become voters again, one step at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from cluster_manager.service.peer_keeper import LOOK_AGAIN_S, PeerKeeper
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.replication.ports import ChangeKind, MemberChange, NodeId, ReplicatedLog
from tests.support.simulated.virtual_time import run_virtual

PEERS = [NodeId(f"cm-{number}") for number in (1, 2, 3)]


@dataclass
class Progress:
    node_id: NodeId
    match_index: int = 0


@dataclass
class Log:
    """As much of a log as has members."""

    is_leader: bool = True
    members: list[NodeId] = field(default_factory=lambda: PEERS[:1])
    learners: list[NodeId] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    changes: list[MemberChange] = field(default_factory=list)
    refusals: int = 0

    @property
    def status(self) -> Log:
        return self

    @property
    def voters(self) -> list[NodeId]:
        return self.members

    async def change_members(self, change: MemberChange) -> Log:
        if self.refusals:
            self.refusals -= 1
            raise Refused(RejectionCode.NOT_ALLOWED, "it has not caught up")
        self.changes.append(change)
        if change.kind is ChangeKind.ADD_LEARNER:
            self.learners.append(change.node_id)
            self.progress.append(Progress(change.node_id, match_index=7))
        else:
            self.learners.remove(change.node_id)
            self.members = [*self.members, change.node_id]
        return self


def kept(log: Log, connected: set[NodeId], looks: int = 10) -> list[tuple[str, str]]:
    """Return the changes that so many looks make."""

    async def main() -> None:
        keeper = PeerKeeper(cast(ReplicatedLog, cast(Any, log)), PEERS, connected.__contains__)
        task = asyncio.ensure_future(keeper.run())
        await asyncio.sleep(LOOK_AGAIN_S * (looks + 0.5))
        task.cancel()

    run_virtual(main)
    return [(change.kind.value, change.node_id) for change in log.changes]


def test_those_that_are_missing_are_added_and_promoted_one_after_the_other() -> None:
    assert kept(Log(), set(PEERS)) == [
        ("add_learner", "cm-2"),
        ("promote", "cm-2"),
        ("add_learner", "cm-3"),
        ("promote", "cm-3"),
    ]


def test_one_that_is_not_there_is_not_added() -> None:
    assert kept(Log(), {PEERS[2]}) == [("add_learner", "cm-3"), ("promote", "cm-3")]


def test_a_learner_that_has_nothing_yet_is_not_promoted() -> None:
    log = Log(learners=[PEERS[1]], progress=[Progress(PEERS[1])], members=[PEERS[0], PEERS[2]])

    assert kept(log, set(PEERS)) == []


def test_a_refused_step_is_tried_again() -> None:
    assert len(kept(Log(refusals=3), set(PEERS))) == 4


def test_a_follower_changes_nothing() -> None:
    assert kept(Log(is_leader=False), set(PEERS)) == []


def test_where_all_are_voters_nothing_is_done() -> None:
    assert kept(Log(members=PEERS), set(PEERS)) == []
