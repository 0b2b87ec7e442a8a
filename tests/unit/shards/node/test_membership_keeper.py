"""The keeper: from the map's wanted replicas to the log's configuration, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from nextgen.kernel.errors import NotLeader, ProposalLost, Refused, TransferFailed
from nextgen.kernel.events.decider import RejectionCode
from nextgen.replication.ports import (
    AppliedPoint,
    ChangeKind,
    Configuration,
    GroupId,
    LogStatus,
    MemberChange,
    MemberProgress,
    NodeId,
    ReplicatedLog,
    Role,
)
from protos.nextgen.v1.cluster_service_pb2 import MembersReport
from shards.domain.membership_plan import Wish
from shards.node.membership_keeper import LOOK_AGAIN_MS, MembershipKeeper
from tests.support.scenarios import run_by
from tests.support.shards.harness import VirtualClock
from tests.support.simulated.virtual_time import run_virtual

THREE = ("a", "b", "c")


class MembersLog:
    """A log as far as its members go: every step is an entry, committed at once."""

    def __init__(self, voters: Sequence[str] = THREE) -> None:
        self.voters, self.learners = set(voters), set[str]()
        self.index, self.commit_index, self.configuration_index = 10, 10, 0
        self.away, self.lagging = set[str](), set[str]()
        self.errors: list[Exception] = []
        self.changes: list[tuple[str, str]] = []
        self.transfers: list[str] = []
        self.looks = 0

    @property
    def status(self) -> LogStatus:
        self.looks += 1
        others = sorted((self.voters | self.learners) - {"a"})
        return LogStatus(
            group_id=GroupId(1),
            role=Role.LEADER,
            term=3,
            leader_id=NodeId("a"),
            members=tuple(map(NodeId, sorted(self.voters))),
            last_index=self.index,
            commit_index=self.commit_index,
            commit_position=0,
            applied=AppliedPoint(0, 0, 0),
            first_position=1,
            view_lag_ms=0.0,
            journal_bytes=0,
            elections=1,
            learners=tuple(map(NodeId, sorted(self.learners))),
            configuration_index=self.configuration_index,
            progress=tuple(
                MemberProgress(NodeId(node), node not in self.away, self.index, self.index, False)
                for node in others
            ),
        )

    async def change_members(self, change: MemberChange) -> Configuration:
        self.changes.append((change.kind.value, change.node_id))
        await asyncio.sleep(0.01)
        if self.errors:
            raise self.errors.pop(0)
        if change.kind is ChangeKind.PROMOTE and change.node_id in self.lagging:
            raise Refused(RejectionCode.NOT_ALLOWED, f"{change.node_id} has not caught up")
        self.voters.discard(change.node_id)
        self.learners.discard(change.node_id)
        if change.kind is not ChangeKind.REMOVE:
            chosen = self.learners if change.kind is ChangeKind.ADD_LEARNER else self.voters
            chosen.add(change.node_id)
        self.index += 1
        self.commit_index = self.configuration_index = self.index
        status = self.status
        return Configuration(status.members, status.learners, self.index)

    async def transfer_leadership(self, target: NodeId) -> None:
        self.transfers.append(target)
        if self.errors:
            raise self.errors.pop(0)


class World:
    """A keeper, the wish it sees, and what it reported."""

    def __init__(self) -> None:
        self.log = MembersLog()
        self.wish: Wish | None = Wish(THREE)
        self.reports: list[MembersReport] = []
        self.keeper = MembershipKeeper(
            1,
            3,
            "a",
            cast(ReplicatedLog, self.log),
            lambda: self.wish,
            self.reports.append,
            VirtualClock(),
        )

    async def settle(self) -> None:
        await asyncio.sleep(LOOK_AGAIN_MS / 2_000)

    async def want(self, wish: Wish) -> None:
        self.wish = wish
        self.keeper.look()
        await self.settle()

    @property
    def reported(self) -> list[tuple[int, str, str]]:
        return [
            (report.configuration_index, "".join(report.voters), "".join(report.learners))
            for report in self.reports
        ]


def with_keeper(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        world.keeper.start()
        try:
            await world.settle()
            await scenario(world)
        finally:
            ending = world.keeper.close()
            if ending is not None:
                await asyncio.gather(ending, return_exceptions=True)

    run_virtual(main)


@run_by(with_keeper)
async def test_a_cluster_that_nobody_changed_is_not_reported_and_not_looked_at(
    world: World,
) -> None:
    world.keeper.report_again()
    await world.settle()
    looks = world.log.looks
    await asyncio.sleep(60)

    assert world.reports == []
    assert world.log.looks == looks
    assert world.log.changes == []


@run_by(with_keeper)
async def test_a_node_is_taken_in_step_by_step_and_each_step_is_reported(world: World) -> None:
    await world.want(Wish(THREE, joining=("d",)))

    assert world.log.changes == [("add_learner", "d"), ("promote", "d")]
    assert world.reported[-2:] == [(11, "abc", "d"), (12, "abcd", "")] or world.reported == [
        (11, "abc", "d"),
        (12, "abcd", ""),
        (12, "abcd", ""),
    ]
    assert {report.term for report in world.reports} == {3}


@run_by(with_keeper)
async def test_a_learner_that_lags_is_looked_at_a_few_times_a_second_until_it_votes(
    world: World,
) -> None:
    world.log.lagging.add("d")
    await world.want(Wish(THREE, joining=("d",)))
    await asyncio.sleep(2.0)
    attempts = world.log.changes.count(("promote", "d"))
    assert 4 <= attempts <= 2_000 / LOOK_AGAIN_MS + 2
    assert "not caught up" in world.keeper.waits_for

    world.log.lagging.clear()
    await asyncio.sleep(2 * LOOK_AGAIN_MS / 1_000)

    assert world.log.voters == {"a", "b", "c", "d"}
    assert world.keeper.waits_for == ""


@run_by(with_keeper)
async def test_what_is_done_but_not_in_the_map_yet_is_reported(world: World) -> None:
    world.log.voters.add("d")
    world.log.configuration_index = 9

    await world.want(Wish(THREE, joining=("d",)))

    assert world.log.changes == []
    assert world.reported == [(9, "abcd", "")]


@run_by(with_keeper)
async def test_a_wish_that_is_fulfilled_without_any_change_is_reported_all_the_same(
    world: World,
) -> None:
    """A node was added and cancelled before any leader looked: nothing is in the log."""
    await world.want(Wish(THREE, leaving=("d",)))

    assert world.log.changes == []
    assert world.reported == [(0, "abc", "")]


@run_by(with_keeper)
async def test_after_a_reconnect_the_members_are_reported_again(world: World) -> None:
    world.log.configuration_index = 8
    world.keeper.report_again()
    await world.settle()

    world.keeper.report_again()
    await world.settle()

    assert world.reported == [(8, "abc", "")] * 2


@run_by(with_keeper)
async def test_a_configuration_that_is_not_committed_is_not_reported(world: World) -> None:
    world.log.configuration_index = 11  # Beyond commit_index 10.
    world.keeper.report_again()
    await world.settle()
    assert world.reports == []

    world.log.commit_index = 11
    world.keeper.report_again()
    await world.settle()

    assert world.reported == [(11, "abc", "")]


@pytest.mark.parametrize("error", [Refused(RejectionCode.NOT_ALLOWED, "busy"), ProposalLost("x")])
@run_by(with_keeper)
async def test_a_step_that_did_not_work_is_made_again(world: World, *, error: Exception) -> None:
    world.log.errors.append(error)
    await world.want(Wish(THREE, leaving=("c",)))
    await asyncio.sleep(2 * LOOK_AGAIN_MS / 1_000)

    assert world.log.changes == [("remove", "c")] * 2
    assert world.log.voters == {"a", "b"}


@run_by(with_keeper)
async def test_a_keeper_that_leads_no_more_makes_no_step_any_more(world: World) -> None:
    world.log.errors.append(NotLeader(1))
    await world.want(Wish(THREE, leaving=("c",)))
    await asyncio.sleep(60)

    assert world.log.changes == [("remove", "c")]


@run_by(with_keeper)
async def test_a_leader_that_is_to_go_hands_over_and_tries_again_if_nobody_takes_it(
    world: World,
) -> None:
    world.log.errors.append(TransferFailed("b is slow"))
    await world.want(Wish(THREE, leaving=("a",)))
    assert world.log.transfers == ["b"]
    await asyncio.sleep(LOOK_AGAIN_MS / 1_000)

    assert world.log.transfers[:2] == ["b", "b"]
    assert world.log.changes == []


@run_by(with_keeper)
async def test_a_shard_that_the_map_does_not_have_is_left_alone(world: World) -> None:
    world.wish = None
    world.keeper.look()
    await world.settle()

    assert world.log.changes == []


@run_by(run_virtual)
async def test_a_leader_that_dies_on_the_way_leaves_steps_to_the_next_one() -> None:
    """Cut off after each number of steps; the next keeper always ends where the first would."""
    wish = Wish(THREE, joining=("d", "e"), leaving=("b",))

    async def cut_after(log: MembersLog, steps: int) -> None:
        world = World()
        world.log = log
        world.keeper = replace_log(world, log)
        world.wish = wish
        world.keeper.start()
        while len(log.changes) < steps:
            await asyncio.sleep(0.001)
        ending = world.keeper.close()
        assert ending is not None
        await asyncio.gather(ending, return_exceptions=True)

    for steps in range(1, 6):
        log = MembersLog()
        await cut_after(log, steps)
        log.changes.clear()
        world = World()
        world.keeper = replace_log(world, log)
        world.wish = wish
        world.keeper.start()
        await asyncio.sleep(5)
        world.keeper.close()
        assert log.voters == {"a", "c", "d", "e"}, steps
        assert not log.learners


def replace_log(world: World, log: MembersLog) -> MembershipKeeper:
    return MembershipKeeper(
        1,
        3,
        "a",
        cast(ReplicatedLog, log),
        lambda: world.wish,
        world.reports.append,
        VirtualClock(),
    )
