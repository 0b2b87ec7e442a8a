"""A member whose journal is gone: it knows that it may have voted, and does not vote again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nextgen.replication.journal.recovery import Outcome
from nextgen.replication.journal.unverified import UNKNOWN_INDEX
from nextgen.replication.ports import NodeId, Record, Role
from tests.support.logs.raft_cluster import GROUP, STEADY, RaftCluster, eventually

RECORDS = [Record(str(number).encode(), events=1) for number in range(5)]


async def committed(cluster: RaftCluster) -> None:
    leader = await cluster.settled_leader()
    for record in RECORDS:
        await leader.propose(record)


@pytest.mark.parametrize("lost", [f"group-{GROUP}", f"group-{GROUP}/journal"])
async def test_a_member_without_its_journal_votes_only_when_it_has_been_given_back(
    tmp_path: Path, lost: str
) -> None:
    cluster = RaftCluster(tmp_path, size=3, config=STEADY)
    await cluster.start()
    try:
        await committed(cluster)
        follower = cluster.name_of((await cluster.followers())[0])
        await cluster.stop_member(follower)
        shutil.rmtree(tmp_path / follower / lost)

        log = await cluster.start_member(follower)

        assert log.engine.journal.recovery.outcome is Outcome.NEW
        assert log.engine.journal.unverified_index == UNKNOWN_INDEX
        assert log.status.role is Role.NON_VOTER
        await eventually(lambda: log.status.role is Role.FOLLOWER, "it votes again")
        await eventually(lambda: log.status.applied.position == len(RECORDS), "it has all")
        assert log.engine.journal.unverified_index == 0
    finally:
        await cluster.stop()


async def test_a_member_that_was_never_here_votes_at_once(tmp_path: Path) -> None:
    cluster = RaftCluster(tmp_path, size=1)
    await cluster.start()
    try:
        log = cluster.logs[NodeId("node-1")]
        assert log.engine.journal.unverified_index == 0
        await committed(cluster)
    finally:
        await cluster.stop()
    assert (tmp_path / "node-1" / f"group-{GROUP}.member").exists()


async def test_a_view_is_opened_only_behind_a_sound_journal(tmp_path: Path) -> None:
    opened: list[str] = []
    cluster = RaftCluster(tmp_path, size=1)
    await cluster.start()
    await committed(cluster)
    member = NodeId("node-1")
    host = cluster.hosts[member]
    await cluster.logs[member].stop()
    journal = tmp_path / member / f"group-{GROUP}" / "journal"
    (journal / "000000000001.journal").unlink()

    def open_view():  # type: ignore[no-untyped-def]
        opened.append("view")
        return cluster.views[member]

    try:
        with pytest.raises(Exception, match="its segments are missing"):
            await host.open_group(GROUP, [member], open_view)
    finally:
        await cluster.stop()

    assert opened == []
