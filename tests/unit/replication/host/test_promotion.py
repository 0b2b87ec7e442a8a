"""The last survivor of a group goes on behind a gap that covers whatever the lost ones had."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nextgen.kernel.errors import Refused, RefusesToStart
from nextgen.kernel.events.generations import POSITIONS_SKIPPED, least_epoch
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.promotion import Promotion, promote
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.ports import (
    AppliedPoint,
    ChangeKind,
    MemberChange,
    NodeId,
    PositionCompacted,
    Record,
    Role,
)
from nextgen.replication.view.store import ViewStore
from tests.support.logs.raft_cluster import QUICK, eventually
from tests.support.logs.views import METADATA, fold_names, names_in, open_view

GROUP = 1
MEMBERS = tuple(NodeId(f"node-{number}") for number in (1, 2, 3))
SURVIVOR, *LOST = MEMBERS


class Node:
    """One host with a real view, on a directory that outlives it."""

    def __init__(self, root: Path, name: NodeId) -> None:
        self.name = name
        self.directory = root / name
        self.port = 0

    async def start(self, *others: Node, may_be_lost: bool = False) -> PySyncObjGroup:
        self.directory.mkdir(exist_ok=True)
        self.host = PySyncObjHost(
            node_id=self.name,
            cluster_id="cluster",
            listen_host="127.0.0.1",
            listen_port=self.port,
            data_directory=self.directory,
            config=QUICK,
        )
        await self.host.start()
        self.port = self.host.port
        self.log = await self.host.open_group(GROUP, MEMBERS, self._open, rejoining=may_be_lost)
        for other in others:
            await self.host.set_peer_address(other.name, "127.0.0.1", other.port)
            await other.host.set_peer_address(self.name, "127.0.0.1", self.port)
        return self.log

    def _open(self) -> ViewStore:
        self.view = open_view(self.directory / f"group-{GROUP}" / "view")
        return self.view

    async def stop(self) -> None:
        await self.host.stop()


def promoted(
    directory: Path,
    lost: frozenset[NodeId] = frozenset(LOST),
    open_it: Callable[[Path], ViewStore] = open_view,
) -> Promotion:
    return promote(
        directory,
        GROUP,
        cluster_id="cluster",
        node_id=SURVIVOR,
        lost=lost,
        members=MEMBERS,
        open_view=open_it,
    )


async def given_group_that_lost_two(root: Path) -> tuple[Node, int]:
    """Return the stopped survivor, which has events ``a`` and ``b``, and its last term."""
    nodes = [Node(root, name) for name in MEMBERS]
    for number, node in enumerate(nodes):
        await node.start(*nodes[:number])
    await eventually(lambda: any(node.log.is_leader for node in nodes), "a leader")
    leader = next(node for node in nodes if node.log.is_leader)
    for name in (b"a", b"b"):
        await leader.log.propose(Record(name, 1))
    survivor = nodes[0]
    await eventually(lambda: survivor.log.commit_position == 2, "the survivor has both")
    for node in nodes:
        await node.stop()
    term = max(node.log.engine.core.term for node in nodes)
    for node in nodes[1:]:
        shutil.rmtree(node.directory)
    return survivor, term


async def test_a_promoted_survivor_keeps_what_it_has_and_leads_alone(tmp_path: Path) -> None:
    survivor, term = await given_group_that_lost_two(tmp_path)

    found = promoted(survivor.directory)

    assert (found.last_position, found.voters) == (2, MEMBERS)
    log = await survivor.start()
    try:
        await eventually(lambda: log.is_leader, "it leads")
        assert log.status.members == (SURVIVOR,)
        assert names_in(survivor.view) == {"a": 1, "b": 1}
        commit = await log.propose(Record(b"c", 1))
        await log.wait_applied(commit.index)
        assert names_in(survivor.view) == {"a": 1, "b": 1, "c": 1}
        assert commit.term > term
    finally:
        await survivor.stop()


async def test_nothing_behind_a_promotion_has_a_number_that_the_lost_may_have_used(
    tmp_path: Path,
) -> None:
    survivor, term = await given_group_that_lost_two(tmp_path)

    promoted(survivor.directory)

    log = await survivor.start()
    try:
        await eventually(lambda: log.is_leader, "it leads")
        commit = await log.propose(Record(b"c", 1))
        assert commit.first_position == 2 + POSITIONS_SKIPPED + 1
        assert commit.index > POSITIONS_SKIPPED
        assert least_epoch(commit.term) > least_epoch(term) == 1
        with pytest.raises(PositionCompacted):
            log.read(3, events_max=10, bytes_max=1_000)
    finally:
        await survivor.stop()


async def test_a_group_of_one_is_not_promoted_again(tmp_path: Path) -> None:
    survivor, _ = await given_group_that_lost_two(tmp_path)
    first = promoted(survivor.directory)
    log = await survivor.start()
    await eventually(lambda: log.is_leader, "it leads")
    await survivor.stop()

    with pytest.raises(Refused, match="is the only voter: start it"):
        promoted(survivor.directory)

    assert first.term == log.engine.core.term >> 32 << 32


class FullBeforeGeneration(ViewStore):
    """Has no space for the first step that changes the view."""

    def begin_generation(self, *_arguments: object) -> None:
        raise OSError(28, "no space left on device")


class FullBehindGeneration(ViewStore):
    """Has no space for the step behind it."""

    def make_durable(self) -> AppliedPoint:
        raise OSError(28, "no space left on device")


@pytest.mark.parametrize("full", [FullBeforeGeneration, FullBehindGeneration])
async def test_a_promotion_that_was_interrupted_elects_nobody_and_is_repeated(
    tmp_path: Path, full: type[ViewStore]
) -> None:
    survivor, _ = await given_group_that_lost_two(tmp_path)
    with pytest.raises(OSError, match="no space"):
        promoted(survivor.directory, open_it=lambda path: full(path, METADATA, fold_names))
    log = await survivor.start()
    await asyncio.sleep(1)
    assert not log.is_leader
    await survivor.stop()

    promoted(survivor.directory)

    log = await survivor.start()
    await eventually(lambda: log.is_leader, "it leads")
    assert names_in(survivor.view) == {"a": 1, "b": 1}
    await survivor.stop()


async def test_a_lost_node_that_comes_back_empty_follows_and_becomes_a_voter_again(
    tmp_path: Path,
) -> None:
    survivor, _ = await given_group_that_lost_two(tmp_path)
    promoted(survivor.directory)
    log = await survivor.start()
    await eventually(lambda: log.is_leader, "it leads")
    second = Node(tmp_path, MEMBERS[1])
    returned = await second.start(survivor, may_be_lost=True)
    assert returned.status.role is Role.NON_VOTER

    await log.change_members(MemberChange(ChangeKind.ADD_LEARNER, second.name))
    await eventually(lambda: returned.status.role is Role.LEARNER, "it was covered")
    await eventually(lambda: names_in(second.view) == {"a": 1, "b": 1}, "it has everything")
    await eventually(
        lambda: any(m.match_index == log.status.last_index for m in log.status.progress),
        "the leader knows that",
    )
    await log.change_members(MemberChange(ChangeKind.PROMOTE, second.name))

    assert log.status.members == MEMBERS[:2]
    await asyncio.gather(survivor.stop(), second.stop())


async def test_a_voter_that_is_not_said_to_be_lost_forbids_it(tmp_path: Path) -> None:
    survivor, _ = await given_group_that_lost_two(tmp_path)

    with pytest.raises(Refused, match="node-3 of the voters"):
        promoted(survivor.directory, frozenset({LOST[0]}))


def test_a_directory_without_a_replica_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusesToStart, match="holds no replica"):
        promoted(tmp_path)
