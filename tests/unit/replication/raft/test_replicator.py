"""What a leader believes of a follower, and what it never unlearns in its term."""

from __future__ import annotations

from nextgen.replication.ports import NodeId
from nextgen.replication.raft.replicator import FollowerProgress


def test_what_a_follower_has_acknowledged_is_not_forgotten_over_a_late_answer() -> None:
    follower = FollowerProgress(NodeId("node-2"), next_index=1, heard_at=0.0)
    follower.matched(5)

    follower.matched(3)

    assert (follower.match_index, follower.next_index) == (5, 6)


def test_what_a_follower_has_acknowledged_is_not_sent_again() -> None:
    follower = FollowerProgress(NodeId("node-2"), next_index=1, heard_at=0.0)
    follower.matched(5)

    follower.restart_from(2)

    assert follower.next_index == 6
