"""Whom a leader follows, and whose copies and voices it counts."""

from __future__ import annotations

import pytest

from nextgen.kernel.limits.cluster import REMOVED_FOLLOWER_MS_MAX
from nextgen.replication.journal.journal import JournalEntry
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.messages import CONFIGURATION_FIELD
from nextgen.replication.raft.replicator import Replicator

LEADER = NodeId("n1")


class Log:
    """A log of so many entries without payload."""

    def __init__(self, last_index: int) -> None:
        self.last_index = self.durable_index = last_index
        self.base_index = 0
        self.held: Configuration | None = None

    def term_of(self, index: int) -> int:
        return 1 if index else 0

    def configuration_at(self, index: int) -> Configuration | None:
        return self.held if self.held and self.held.index <= index else None

    def entries(self, from_index: int, to_index: int, bytes_max: int) -> list[JournalEntry]:
        return [JournalEntry(index, 1, index, 1, b"") for index in range(from_index, to_index + 1)]


class World:
    """A leader, its clock, and what it sends."""

    def __init__(self, voters: int, learners: int = 0, *, last_index: int = 100) -> None:
        names = [NodeId(f"n{number}") for number in range(1, voters + learners + 1)]
        self.now = 1_000.0
        self.sent: list[tuple[NodeId, Message]] = []
        self.log = Log(last_index)
        self.configuration = Configuration(tuple(names[:voters]), tuple(names[voters:]), 10)
        self.gone: set[NodeId] = set()
        self.replicator = Replicator(
            self.log,
            term=1,
            node_id=LEADER,
            configuration=lambda: self.configuration,
            clock=lambda: self.now,
            send=self._send,
            is_connected=lambda node_id: node_id not in self.gone,
            start_snapshot=lambda _node_id: None,
        )

    def _send(self, node_id: NodeId, message: Message) -> bool:
        self.sent.append((node_id, message))
        return True

    def change(self, voters: str, learners: str = "", *, index: int) -> None:
        self.configuration = Configuration(
            tuple(map(NodeId, voters.split())), tuple(map(NodeId, learners.split())), index
        )

    def answer(self, node_id: str, index: int, *, success: bool = True, **more: int) -> None:
        fields = {"read_round": 0, "applied_index": 0, "view_lag_ms": 0, **more}
        self.replicator.answered(
            NodeId(node_id),
            {"success": success, "index": index, "disk_takes_writes": True, **fields},
        )


@pytest.mark.parametrize(
    ("voters", "answers", "reached"),
    [
        (1, {}, 100),
        (2, {"n2": 40}, 40),
        (3, {"n2": 40}, 40),
        (3, {"n2": 40, "n3": 60}, 60),
        (4, {"n2": 40, "n3": 60}, 40),
        (5, {"n2": 40, "n3": 60, "n4": 80}, 60),
    ],
)
def test_the_copies_of_voters_are_counted_and_those_of_learners_are_not(
    voters: int, answers: dict[str, int], reached: int
) -> None:
    world = World(voters, learners=2)
    for learner in world.configuration.learners:
        world.answer(learner, 100)

    for name, index in answers.items():
        world.answer(name, index)

    assert world.replicator.majority_durable_index() == reached


def test_a_leader_that_is_no_voter_does_not_count_itself() -> None:
    # With an odd number of others its copy would make no difference.
    world = World(3)
    world.change("n2 n3", index=20)
    world.answer("n2", 70)

    assert world.replicator.majority_durable_index() == 0
    world.answer("n3", 60)
    assert world.replicator.majority_durable_index() == 60


def test_a_configuration_counts_as_soon_as_it_is_there() -> None:
    world = World(3, learners=1)
    world.answer("n2", 50)
    assert world.replicator.majority_durable_index() == 50

    world.change("n1 n2 n3 n4", index=60)

    assert world.replicator.majority_durable_index() == 0


def test_reads_and_silence_go_by_voters() -> None:
    world = World(3, learners=2)
    world.now += 10
    for learner in ("n4", "n5"):
        world.answer(learner, 100, read_round=7)

    assert world.replicator.majority_read_round(7) == 0
    assert world.replicator.majority_heard_at() == 1_000.0
    world.answer("n2", 100, read_round=7)
    assert world.replicator.majority_read_round(7) == 7
    assert world.replicator.majority_heard_at() == 1_010.0


def test_the_views_of_learners_neither_help_nor_hinder() -> None:
    world = World(3, learners=2)
    for name in ("n4", "n5"):
        world.answer(name, 100, view_lag_ms=0)
    for name in ("n2", "n3"):
        world.answer(name, 100, view_lag_ms=900)
    assert not world.replicator.is_majority_fresh(0, 200, 1.0)

    world.answer("n2", 100, view_lag_ms=0)
    for name in ("n4", "n5"):
        world.answer(name, 100, view_lag_ms=900)
    assert world.replicator.is_majority_fresh(0, 200, 1.0)
    assert not world.replicator.is_majority_fresh(900, 200, 1.0)


def test_a_learner_is_no_successor() -> None:
    world = World(2, learners=1)
    world.answer("n3", 100)
    assert world.replicator.best_follower() == "n2"

    world.replicator.disconnected(NodeId("n2"))
    assert world.replicator.best_follower() is None


# Who is followed -----------------------------------------------------------------------------


def test_a_new_member_is_followed_from_the_append_on() -> None:
    world = World(3)

    world.change("n1 n2 n3", "n4", index=100)
    world.replicator.follow_configuration(99)
    world.replicator.send_entries(99, 0)

    assert "n4" in [node_id for node_id, _ in world.sent]


def test_a_removed_replica_is_followed_until_it_knows_its_removal() -> None:
    world = World(3)
    world.answer("n3", 100)
    world.log.last_index = world.log.durable_index = 101
    world.change("n1 n2", index=101)
    follower = world.replicator.followers[NodeId("n3")]

    world.replicator.follow_configuration(100)
    world.replicator.send_entries(100, 0)
    world.replicator.follow_configuration(101)
    world.replicator.send_entries(101, 0)
    world.replicator.follow_configuration(101)
    assert follower in world.replicator.followers.values(), "it may not have the entry"

    world.answer("n3", 101)
    world.replicator.follow_configuration(101)
    assert follower not in world.replicator.followers.values()


def test_a_removed_voter_gets_its_removal_only_once_it_is_committed() -> None:
    """With it, uncommitted, it would refuse the others, and need this leader to win."""
    world = World(3)
    for voter in ("n2", "n3"):
        world.answer(voter, 100)
    world.log.last_index = world.log.durable_index = 101
    world.change("n1 n2", index=101)
    world.replicator.follow_configuration(100)

    world.replicator.send_entries(100, 0)
    assert [node_id for node_id, _ in world.sent] == ["n2"]

    world.replicator.send_entries(101, 0)
    (node_id, message), *others = world.sent[1:]
    assert (node_id, message["entries"][-1][0], message["commit_index"]) == ("n3", 101, 101)
    assert not others


def test_a_follower_is_sent_no_commit_index_beyond_its_log() -> None:
    """One that is probed hears of a commit and cannot believe it: it has to hear again."""
    world = World(3)
    world.answer("n3", 50, success=False)
    world.change("n1 n2", index=60)
    world.replicator.follow_configuration(59)

    world.replicator.send_heartbeats(60, 0)
    world.answer("n3", 100)
    world.replicator.follow_configuration(60)

    assert NodeId("n3") in world.replicator.followers


@pytest.mark.parametrize("late_ms", [0, 1])
def test_a_removed_one_that_does_not_answer_is_given_up_after_a_while(late_ms: int) -> None:
    world = World(3)
    world.change("n1 n2", index=101)
    world.replicator.follow_configuration(100)

    world.now += (REMOVED_FOLLOWER_MS_MAX + late_ms) / 1000
    world.replicator.follow_configuration(101)

    assert (NodeId("n3") in world.replicator.followers) is (late_ms == 0)


def test_a_removed_one_that_is_gone_is_given_up_at_once() -> None:
    world = World(3)
    world.change("n1 n2", index=101)
    world.replicator.follow_configuration(100)
    assert NodeId("n3") in world.replicator.followers

    world.replicator.disconnected(NodeId("n3"))
    world.replicator.follow_configuration(101)

    assert NodeId("n3") not in world.replicator.followers


def test_one_that_comes_back_is_believed_nothing_of_what_it_had() -> None:
    world = World(3)
    world.answer("n3", 100)
    world.change("n1 n2", index=101)
    world.replicator.follow_configuration(100)

    world.change("n1 n2", "n3", index=102)
    world.replicator.follow_configuration(101)

    assert world.replicator.followers[NodeId("n3")].match_index == 0


@pytest.mark.parametrize(("name", "believed"), [("n2", 90), ("n3", 0)])
def test_a_learner_that_lacks_what_it_had_starts_over_and_a_voter_never(
    name: str, believed: int
) -> None:
    """The learner by this name is another replica; what a voter acknowledged may be committed."""
    world = World(2, learners=1)
    world.answer(name, 90)

    world.answer(name, 1, success=False)

    follower = world.replicator.followers[NodeId(name)]
    assert follower.match_index == believed
    assert follower.next_index == believed + 1


def test_a_stranger_that_connects_is_not_followed() -> None:
    world = World(3)

    world.replicator.connected(NodeId("n9"))
    world.replicator.disconnected(NodeId("n9"))

    assert sorted(world.replicator.followers) == ["n2", "n3"]


# What it is told ---------------------------------------------------------------------------------


def test_a_probed_follower_gets_the_configuration_until_it_matches() -> None:
    world = World(3)
    world.log.held = world.configuration

    world.replicator.send_heartbeats(0, 0)
    told = [message.get("configuration") for _, message in world.sent]
    for name in ("n2", "n3"):
        world.answer(name, 100)
    world.sent.clear()
    world.replicator.send_heartbeats(0, 0)

    assert all(told)
    assert not [message for _, message in world.sent if "configuration" in message]


def test_a_follower_that_falls_silent_is_sent_the_configuration() -> None:
    """It may answer nothing before it has heard that it is no voter any more (ADR 0048)."""
    world = World(2, learners=1)
    world.log.held = world.configuration
    for follower in ("n2", "n3"):
        world.answer(follower, 100)
    world.now += 1
    world.answer("n2", 100)

    world.replicator.send_heartbeats(100, 0)

    sent = {node_id: CONFIGURATION_FIELD in message for node_id, message in world.sent}
    assert sent == {"n2": False, "n3": True}
