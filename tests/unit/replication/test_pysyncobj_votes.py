"""The library counts the votes of voters, as many as are a majority, and no others."""

from __future__ import annotations

import pytest

from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.quorum import majority_of

ME = NodeId("me")


class Log:
    """An empty log that remembers term and vote."""

    base_index = last_index = last_term = 0

    def __init__(self) -> None:
        self.hard_state: tuple[int, str | None] = (0, None)

    def term_of(self, index: int) -> int:
        return 0

    def append(self, term: int, payload: bytes, events: int) -> int:
        self.last_index, self.last_term = self.last_index + 1, term
        return self.last_index

    def set_hard_state(self, term: int, voted_for: str | None) -> None:
        self.hard_state = (term, voted_for)


class Owner:
    """Notes who is asked."""

    def __init__(self) -> None:
        self.asked: list[NodeId] = []

    def send_when_durable(self, node_id: NodeId, message: Message) -> None:
        self.asked.append(node_id)

    def leadership_won(self, first_index: int) -> None: ...
    def leadership_lost(self) -> None: ...


def candidate(configuration: Configuration) -> tuple[HardenedSyncObj, Owner]:
    owner = Owner()
    core = HardenedSyncObj(ME, lambda: configuration, Log(), owner)
    core.note_connected(NodeId("somebody"))
    core.campaign(transfer=False)
    return core, owner


def vote(core: HardenedSyncObj, voter: str) -> None:
    core.vote_received(NodeId(voter), {"type": "response_vote", "term": core.term})


@pytest.mark.parametrize("is_voter", [True, False])
@pytest.mark.parametrize("others", range(1, 8))
def test_a_majority_of_the_voters_elects(others: int, is_voter: bool) -> None:
    """Also one that is no voter any more, which asks the others and does not count itself."""
    names = [NodeId(f"n{number}") for number in range(others)]
    voters = [*names, ME] if is_voter else names
    core, owner = candidate(Configuration(tuple(sorted(voters)), (), 5))
    wanted = majority_of(len(voters)) - is_voter

    for name in names[: wanted - 1]:
        vote(core, name)
        vote(core, name)
    assert not core.leads
    vote(core, names[wanted - 1])

    assert core.leads
    assert sorted(owner.asked) == names


def test_a_single_voter_elects_itself() -> None:
    core, owner = candidate(Configuration((ME,), (NodeId("n1"),), 5))

    assert core.leads
    assert not owner.asked


def test_votes_of_learners_and_strangers_are_not_counted() -> None:
    voters = (ME, NodeId("n1"), NodeId("n2"))
    core, owner = candidate(Configuration(voters, (NodeId("n3"),), 5))

    vote(core, "n3")
    vote(core, "n9")

    assert not core.leads
    assert sorted(owner.asked) == ["n1", "n2"]
    vote(core, "n2")
    assert core.leads
