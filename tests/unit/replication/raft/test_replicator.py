"""What a leader believes of a follower, and what it never unlearns in its term."""

from __future__ import annotations

import pytest

from nextgen.kernel.limits.cluster import FOLLOWER_IN_FLIGHT_BYTES_MAX
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


@pytest.mark.parametrize(("sent_bytes", "has_room"), [(-1, True), (0, False)])
def test_below_follower_in_flight_bytes_max_more_is_sent_and_at_it_no_more(
    sent_bytes: int, has_room: bool
) -> None:
    follower = FollowerProgress(NodeId("node-2"), next_index=2, heard_at=0.0)
    follower.matched(1)
    follower.probing = False
    follower.in_flight.append((2, FOLLOWER_IN_FLIGHT_BYTES_MAX + sent_bytes))
    follower.in_flight_bytes = FOLLOWER_IN_FLIGHT_BYTES_MAX + sent_bytes

    assert follower.has_room is has_room
    follower.matched(2)
    assert follower.has_room
