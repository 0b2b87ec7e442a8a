import logging
from types import SimpleNamespace
from typing import Any

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import DISK_RESERVE_BYTES
from nextgen.replication.ports import Configuration, GroupId, NodeId
from nextgen.replication.raft.disk_room import DiskRoom, disk_free_bytes, endless_disk
from nextgen.replication.raft.replicator import Replicator


class Disk:
    """What a journal or an applier says of its disk."""

    def __init__(self) -> None:
        self.stalled: str | None = None


@pytest.fixture
def journal() -> Any:
    return Disk()


@pytest.fixture
def applier() -> Any:
    return Disk()


@pytest.fixture
def room(journal: Any, applier: Any) -> DiskRoom:
    return DiskRoom(GroupId(1), journal, applier)


def replicator(**takes_writes: bool) -> Replicator:
    """A leader's followers, all of which have everything."""
    log: Any = SimpleNamespace(base_index=0, last_index=9, durable_index=9)
    group = Configuration(tuple(map(NodeId, sorted(["leader", *takes_writes]))))
    made = Replicator(
        log,
        term=1,
        node_id=NodeId("leader"),
        configuration=lambda: group,
        clock=lambda: 0.0,
        send=lambda _node, _message: True,
        is_connected=lambda _node: True,
        start_snapshot=lambda _node: None,
    )
    for name, takes in takes_writes.items():
        follower = made.followers[NodeId(name)]
        follower.disk_takes_writes, follower.match_index = takes, 9
    return made


def test_a_disk_with_room_is_no_trouble(room: DiskRoom) -> None:
    room.look(DISK_RESERVE_BYTES)

    room.check(commit_position=7)
    assert (room.trouble, room.is_stalled) == (None, False)


def test_below_the_reserve_proposals_are_refused_and_nothing_has_stalled(room: DiskRoom) -> None:
    room.look(DISK_RESERVE_BYTES - 1)

    with pytest.raises(Unavailable, match="less than 64 MiB of disk are free"):
        room.check(commit_position=7)
    assert not room.is_stalled


def test_the_first_record_is_taken_whatever_the_disk_says(room: DiskRoom) -> None:
    room.look(0)

    room.check(commit_position=0)


@pytest.mark.parametrize("stalled", ["journal", "applier"])
def test_what_waits_for_space_stalls_the_replica(
    room: DiskRoom, journal: Any, applier: Any, stalled: str
) -> None:
    {"journal": journal, "applier": applier}[stalled].stalled = "the disk is full"
    room.look(endless_disk(None))  # type: ignore[arg-type]

    assert room.is_stalled
    with pytest.raises(Unavailable, match="the disk is full"):
        room.check(commit_position=7)


def test_a_leader_hands_over_to_a_follower_with_room_and_only_to_such(room: DiskRoom) -> None:
    room.look(0)

    assert room.should_hand_over(replicator(full=False, empty=True), 9, False)
    assert not room.should_hand_over(replicator(full=False, also_full=False), 9, True)
    assert not room.should_hand_over(replicator(), 9, False)


def test_a_leader_does_not_hand_over_to_one_that_lacks_what_is_committed(room: DiskRoom) -> None:
    room.look(0)
    followers = replicator(empty=True)
    followers.followers[NodeId("empty")].match_index = 8

    assert not room.should_hand_over(followers, 9, False)


@pytest.mark.parametrize("is_stuck", [True, False])
def test_without_trouble_a_leader_hands_over_when_it_is_stuck(
    room: DiskRoom, is_stuck: bool
) -> None:
    assert room.should_hand_over(replicator(empty=True), 9, is_stuck) is is_stuck


def test_trouble_and_its_end_are_reported_once(
    room: DiskRoom, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for free_bytes in (0, 0, DISK_RESERVE_BYTES, DISK_RESERVE_BYTES):
            room.look(free_bytes)

    assert [record.getMessage() for record in caplog.records] == [
        "group 1 takes no writes here: less than 64 MiB of disk are free",
        "group 1 takes writes here again",
    ]


def test_a_disk_that_cannot_be_asked_has_no_room(tmp_path: Any) -> None:
    assert disk_free_bytes(tmp_path) > 0
    assert disk_free_bytes(tmp_path / "gone") == 0
