"""Replicas compare digests: the odd one stops, is not served again, and is built anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import DIGEST_POSITIONS, DIGESTS_KEPT
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.mesh.frames import RemoteProtocolError
from nextgen.replication.ports import Configuration, NodeId, Record, Role, ViewDigest
from nextgen.replication.protocol.messages import check_message
from nextgen.replication.raft.divergence import DigestComparison, DigestHistory, ViewDiverged
from tests.support.logs.raft_cluster import SMALL_SEGMENTS, STEADY, RaftCluster, eventually
from tests.support.scenarios import run_by

Scenario = Callable[[RaftCluster], Awaitable[None]]

TO_THE_NEXT_POINT = Record(b"as many events as lie between two digests", DIGEST_POSITIONS)


def run(directory: Path, scenario: Scenario, *, size: int = 3, small_segments: bool = False):
    async def main() -> None:
        segment_bytes = SMALL_SEGMENTS if small_segments else STEADY.journal_segment_bytes
        cluster = RaftCluster(directory, size, replace(STEADY, journal_segment_bytes=segment_bytes))
        await cluster.start()
        try:
            await cluster.settled_leader()
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(main())


async def reach_the_next_point(cluster: RaftCluster) -> int:
    """Return the position of the point, once every running replica is there."""
    leader = await cluster.leader()
    commit = await leader.propose(TO_THE_NEXT_POINT)
    end = commit.first_position + DIGEST_POSITIONS - 1
    logs = [log for log in cluster.logs.values() if log.status.role is not Role.STOPPED]
    await asyncio.gather(*(log.wait_position(end) for log in logs), return_exceptions=True)
    return end


async def stopped(log: PySyncObjGroup) -> None:
    await eventually(lambda: log.status.role is Role.STOPPED, f"{log!r} stops")


def digests(cluster: RaftCluster) -> list[ViewDigest | None]:
    return [view.digest() for view in cluster.views.values()]


@run_by(run)
async def test_replicas_that_agree_go_on(cluster: RaftCluster) -> None:
    first = await reach_the_next_point(cluster)
    await reach_the_next_point(cluster)

    assert first >= DIGEST_POSITIONS
    assert len(set(digests(cluster))) == 1
    assert all(not log.status.divergence for log in cluster.logs.values())
    assert all(log.status.role is not Role.STOPPED for log in cluster.logs.values())


@run_by(run)
async def test_a_replica_that_catches_up_takes_its_digests_where_the_others_did(
    cluster: RaftCluster,
) -> None:
    """It folds in batches as large as they come, the others entry by entry."""
    late = cluster.name_of((await cluster.followers())[0])
    await cluster.stop_member(late)
    leader = await cluster.leader()
    for _ in range(12):
        await leader.propose(Record(b"a quarter", DIGEST_POSITIONS // 4 + 1))

    again = await cluster.start_member(late)
    await again.wait_position(leader.status.commit_position)

    assert len(set(digests(cluster))) == 1
    assert cluster.views[late].digest().position > 2 * DIGEST_POSITIONS
    assert all(not log.status.divergence for log in cluster.logs.values())


@run_by(run)
async def test_a_follower_whose_view_differs_stops_at_the_next_point(cluster: RaftCluster) -> None:
    leader, (odd, other) = await cluster.leader(), await cluster.followers()
    cluster.view_of(odd).twist = 1

    point = await reach_the_next_point(cluster)
    await stopped(odd)

    assert f"at event {point}" in odd.status.divergence
    assert "restart this node" in odd.status.divergence
    assert leader.status.divergence == (
        f"the view of {cluster.name_of(odd)} differs at event {point}"
    )
    assert (other.status.role, other.status.divergence) == (Role.FOLLOWER, "")
    await leader.propose(Record(b"the others go on", 1))
    with pytest.raises(Unavailable):
        await odd.wait_position(1)


@run_by(run)
async def test_a_leader_whose_view_differs_stops_and_another_leads(cluster: RaftCluster) -> None:
    odd = await cluster.leader()
    cluster.view_of(odd).twist = 1

    await reach_the_next_point(cluster)
    await stopped(odd)

    assert "a majority has" in odd.status.divergence
    await eventually(lambda: any(x.is_leader for x in cluster.logs.values()), "another")
    leader = await cluster.leader()
    assert leader is not odd
    await leader.propose(Record(b"the others go on", 1))


@pytest.mark.parametrize("size", [2, 3])
def test_without_a_majority_nobody_stops_and_there_is_an_alarm(tmp_path, size):
    """Two voters differ, alone or while the third is down: neither can be shown to be right."""

    async def scenario(cluster: RaftCluster) -> None:
        leader, (other, *down) = await cluster.leader(), await cluster.followers()
        for log in down:
            await cluster.stop_member(cluster.name_of(log))
        cluster.view_of(other).twist = 1

        await reach_the_next_point(cluster)

        await eventually(lambda: bool(leader.status.divergence), "an alarm")
        assert "no majority has either" in leader.status.divergence
        await leader.propose(Record(b"it goes on", 1))
        assert leader.is_leader
        assert other.status.role is Role.FOLLOWER

    run(tmp_path, scenario, size=size)


@run_by(run)
async def test_a_third_that_comes_back_decides_who_is_right(cluster: RaftCluster) -> None:
    leader, (odd, late) = await cluster.leader(), await cluster.followers()
    name = cluster.name_of(late)
    await cluster.stop_member(name)
    cluster.view_of(odd).twist = 1
    await reach_the_next_point(cluster)
    await eventually(lambda: bool(leader.status.divergence), "an alarm")

    await cluster.start_member(name)

    await stopped(odd)


@pytest.mark.parametrize("is_cut", [False, True])
@run_by(run, small_segments=True)
async def test_a_replica_that_diverged_is_built_anew_at_its_next_start(
    cluster: RaftCluster, *, tmp_path, is_cut
) -> None:
    """From its own log; if the beginning of that was cut off, by the leader's snapshot."""
    odd = (await cluster.followers())[0]
    name = cluster.name_of(odd)
    cluster.view_of(odd).twist = 1
    if is_cut:
        leader = await cluster.leader()
        for _ in range(40):
            await leader.propose(Record(b"x" * 10_000, 1))
        await asyncio.gather(
            *(log.wait_position(leader.status.commit_position) for log in cluster.logs.values())
        )
        for log in cluster.logs.values():
            await log.compact()
        assert odd.status.first_position > 1
    await reach_the_next_point(cluster)
    await stopped(odd)
    cluster.view_of(odd).make_durable()
    await cluster.stop_member(name)
    assert (tmp_path / name / "group-3" / "diverged").exists()

    again = await cluster.start_member(name)

    assert again.status.role is Role.FOLLOWER, "its log is whole, so it votes"
    assert cluster.views[name].twist == 0, "nothing of the wrong view is served"
    assert not (tmp_path / name / "group-3" / "diverged").exists()
    await reach_the_next_point(cluster)
    assert len(set(digests(cluster))) == 1
    assert again.statistics.snapshots_installed == (1 if is_cut else 0)
    assert cluster.views[name].payloads() == cluster.views[cluster.members[0]].payloads()
    leader = await cluster.leader()
    await eventually(lambda: not leader.status.divergence, "the alarm is over")


@run_by(run)
async def test_a_view_that_differed_is_stopped_again_if_the_note_was_lost(
    cluster: RaftCluster, *, tmp_path
) -> None:
    """The digest is stored with the view, so a restart does not make it forgotten."""
    odd = (await cluster.followers())[0]
    name = cluster.name_of(odd)
    cluster.view_of(odd).twist = 1
    await reach_the_next_point(cluster)
    await stopped(odd)
    cluster.view_of(odd).make_durable()
    await cluster.stop_member(name)
    (tmp_path / name / "group-3" / "diverged").unlink()

    again = await cluster.start_member(name)
    assert cluster.views[name].twist == 1

    await stopped(again)
    assert again.status.divergence


# The comparison alone ---------------------------------------------------------------------------

A, B, C, D = (NodeId(name) for name in "abcd")


@dataclass
class Core:
    term: int = 4
    leader_id: NodeId | None = B


@dataclass
class FakeReplica:
    node_id: NodeId = A
    group_id: int = 3
    core: Core = field(default_factory=Core)
    leadership: object | None = None
    stopped: bool = False
    configuration: Configuration = field(default_factory=lambda: Configuration((A, B, C)))
    sent: list[tuple[NodeId, dict[str, Any]]] = field(default_factory=list)

    def send(self, node_id: NodeId, message: dict[str, Any]) -> bool:
        self.sent.append((node_id, message))
        return True


class Compared:
    """A comparison whose view has the digest ``7`` at the first point."""

    def __init__(self, *, leads: bool = False, digest: int = 7) -> None:
        self.replica = FakeReplica(leadership=object() if leads else None)
        self.point = ViewDigest(10, DIGEST_POSITIONS, digest, scheme=1)
        self.errors: list[ViewDiverged] = []
        self.comparison = DigestComparison(self.replica, lambda: self.point, self._stop)
        self.comparison.applied()

    def _stop(self, error: ViewDiverged) -> None:
        self.errors.append(error)
        self.replica.stopped = True

    def hear(self, node_id: NodeId, digest: int, *, scheme: int = 1, index: int = 10) -> None:
        self.comparison.heard(node_id, [scheme, index, DIGEST_POSITIONS, digest])

    def order(self, sender: NodeId = B, **changes: int) -> None:
        message = {
            "type": "view_diverged",
            "term": 4,
            "scheme": 1,
            "index": 10,
            "position": DIGEST_POSITIONS,
            "digest": 8,
        }
        self.comparison.on_view_diverged(sender, message | changes)


def test_an_order_of_the_leader_stops_a_view_that_differs():
    compared = Compared()

    compared.order()

    assert len(compared.errors) == 1


@pytest.mark.parametrize(
    ("sender", "changes"),
    [
        (C, {}),
        (B, {"term": 3}),
        (B, {"digest": 7}),
        (B, {"position": 2 * DIGEST_POSITIONS}),
        (B, {"scheme": 2}),
    ],
    ids=["not the leader", "an earlier term", "no difference", "not taken here", "another scheme"],
)
def test_an_order_that_does_not_hold_here_stops_nobody(sender, changes):
    compared = Compared()

    compared.order(sender, **changes)

    assert not compared.errors


def test_digests_of_programs_that_hash_other_things_are_not_compared():
    compared = Compared(leads=True)

    compared.hear(B, 8, scheme=2)
    compared.hear(C, 8, scheme=2)

    assert not compared.errors
    assert not compared.comparison.alarm


def test_a_point_reached_at_another_entry_is_a_difference():
    compared = Compared(leads=True)

    compared.hear(C, 7)
    compared.hear(B, 7, index=11)

    assert [node_id for node_id, _ in compared.replica.sent] == [B]


def test_a_learner_is_compared_but_not_counted():
    compared = Compared(leads=True)
    compared.replica.configuration = Configuration((A, B), (C, D))

    compared.hear(C, 8)
    compared.hear(D, 8)
    assert not compared.errors, "two learners are no majority"
    compared.hear(B, 7)

    assert {node_id for node_id, _ in compared.replica.sent} == {C, D}


def test_an_order_that_may_have_been_lost_is_repeated_with_the_next_answer():
    compared = Compared(leads=True)
    compared.hear(C, 7)
    compared.hear(B, 8)
    compared.hear(B, 8)

    assert [node_id for node_id, _ in compared.replica.sent] == [B, B]


def test_a_leader_that_stops_lets_one_of_the_majority_try_at_once():
    compared = Compared(leads=True, digest=9)

    compared.hear(B, 7)
    compared.hear(C, 7)

    assert len(compared.errors) == 1
    assert compared.replica.sent[-1][1] == {"type": "timeout_now", "term": 4}


def test_what_an_earlier_leader_heard_is_not_believed_in_the_next_term():
    compared = Compared(leads=True)
    compared.hear(B, 8)
    compared.replica.core.term = 5

    compared.hear(C, 7)

    assert not compared.comparison.alarm


@pytest.mark.parametrize(("further", "is_kept"), [(DIGESTS_KEPT - 1, True), (DIGESTS_KEPT, False)])
def test_a_history_holds_a_stated_number_of_digests(further, is_kept):
    history = DigestHistory()

    for number in range(further + 1):
        history.add(ViewDigest(number, number * DIGEST_POSITIONS, number))

    assert (history.at(0) is not None) is is_kept
    assert history.at(further * DIGEST_POSITIONS) is not None


# On the wire --------------------------------------------------------------------------------------

ANSWER = {
    "type": "append_answer",
    "term": 1,
    "success": True,
    "index": 1,
    "read_round": 0,
    "applied_index": 1,
    "view_lag_ms": 0,
    "disk_takes_writes": True,
}


@pytest.mark.parametrize("fields", [{}, {"digest": None}, {"digest": [1, 2, 4096, 2**64 - 1]}])
def test_an_answer_may_carry_a_digest(fields):
    assert check_message(ANSWER | fields) == "append_answer"


@pytest.mark.parametrize("digest", [7, [1, 2, 3], [1, 2, 3, -1], [1, 2, 3, 4, 5], [1, 2, 3, "4"]])
def test_a_digest_of_another_form_is_refused(digest):
    with pytest.raises(RemoteProtocolError, match="a digest"):
        check_message(ANSWER | {"digest": digest})
