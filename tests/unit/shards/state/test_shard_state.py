"""The state a leader decides on: pending first, then the view."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import InvalidRequest, NotLeader, Overloaded, ProposalLost, StaleShardMap
from shards.domain.assignment import TopicAssigned, TopicUnassigned
from shards.domain.broker_session import BrokerSessionEstablished, Endpoints
from shards.domain.namespace import NamespaceCreated
from shards.domain.parent_gate import ParentKind
from shards.domain.states import StateKind
from shards.domain.topic import TopicCreated, TopicDeleted
from shards.state import proposer as proposer_module
from shards.state.command_outcomes import PendingOutcome
from shards.state.proposer import SETTLE_EVERY_RECORDS
from tests.support.shards.world import World

NAME = "persistent://acme/orders/paid"
CREATED = TopicCreated("t-1", NAME, 0, "ns-1", 5)
ID = b"command-00000001"


@pytest.fixture
async def shard():
    world = World(shards=1)
    await world.shards[1].state.proposer.confirm()
    yield world.shards[1]
    world.close()


def assigned(unit, session_id="s-1", epoch=1):
    return TopicAssigned("t-1", unit, f"{NAME}{unit}", epoch, "b-1", session_id, "first_lookup")


async def test_what_was_proposed_is_loaded_before_it_commits(shard):
    shard.log.hold_commits()

    commit = shard.state.proposer.propose([CREATED], time_ms=5)

    assert shard.state.reads.load_topic(NAME).topic_id == "t-1"
    assert shard.state.reads.load_topics(["x", NAME])[0] is None
    assert shard.state.reads.total(StateKind.TOPIC) == 1
    assert not commit.done()
    shard.log.release_commits()
    assert (await commit).first_position == 2
    assert shard.state.position == 2


async def test_the_view_is_read_once_for_what_is_not_in_memory(shard):
    await shard.state.proposer.propose([CREATED])
    shard.next_term()
    reads = []
    query = shard.state.reads._query
    shard.state.reads._query = lambda *arguments: reads.append(arguments) or query(*arguments)

    for _ in range(2):
        assert shard.state.reads.load_topics([NAME, "a", "b"])[0].topic_id == "t-1"

    assert len(reads) == 1


async def test_units_in_use_are_counted_as_they_are_proposed(shard):
    shard.log.hold_commits()
    lost = [shard.state.proposer.propose([assigned("p0"), assigned("p1")])]
    lost.append(shard.state.proposer.propose([assigned("p0", "s-2", 2)]))

    assert shard.state.reads.used_units("s-1") == 1
    assert shard.state.reads.used_units("s-2") == 1
    shard.log.release_commits()
    await asyncio.gather(*lost)
    shard.next_term()
    assert shard.state.reads.used_units("s-1") == 1


async def test_assignments_of_a_topic_are_those_of_view_and_pending_together(shard):
    other = TopicAssigned("t-10", "", "x", 1, "b-1", "s-1", "first_lookup")
    await shard.state.proposer.propose([assigned(""), assigned("p0"), other])
    shard.next_term()
    shard.log.hold_commits()
    lost = shard.state.proposer.propose(
        [assigned("p1"), TopicUnassigned("t-1", "p0", f"{NAME}p0", 1, "x"), assigned("", "s-2", 2)]
    )

    found = shard.state.scans.assignments_of_topic("t-1")

    assert {key: each.session_id for key, each in found.items()} == {
        "t-1/": "s-2",
        "t-1/p0": "",
        "t-1/p1": "s-1",
    }
    shard.log.release_commits()
    await lost


async def test_children_are_seen_as_soon_as_they_are_proposed_and_not_after_they_go(shard):
    shard.log.hold_commits()
    waits = [shard.state.proposer.propose([CREATED])]
    assert shard.state.scans.has_children(ParentKind.NAMESPACE, "acme/orders")
    assert not shard.state.scans.has_children(ParentKind.NAMESPACE, "acme/order")
    waits.append(
        shard.state.proposer.propose([NamespaceCreated("ns-1", "acme/orders", "tenant-1")])
    )
    assert shard.state.scans.has_children(ParentKind.TENANT, "acme")
    shard.log.release_commits()
    await asyncio.gather(*waits)

    shard.next_term()
    assert shard.state.scans.has_children(ParentKind.NAMESPACE, "acme/orders")
    shard.log.hold_commits()
    gone = shard.state.proposer.propose([TopicDeleted(NAME, "t-1")])

    assert not shard.state.scans.has_children(ParentKind.NAMESPACE, "acme/orders")
    shard.log.release_commits()
    await gone


async def test_sessions_are_those_of_view_and_pending_together(shard):
    nowhere = Endpoints("", "", "")
    first = BrokerSessionEstablished("b-1", "s-1", 1, nowhere, 10, "")
    await shard.state.proposer.propose([first])
    shard.next_term()
    shard.log.hold_commits()
    second = shard.state.proposer.propose(
        [BrokerSessionEstablished("b-2", "s-2", 1, nowhere, 10, "")]
    )

    assert {each.session_id for each in shard.state.scans.sessions()} == {"s-1", "s-2"}
    assert shard.state.reads.load_session("b-1").epoch == 1
    shard.log.release_commits()
    await second


async def test_an_outcome_is_pending_until_the_view_has_it(shard):
    shard.log.hold_applies()
    await shard.state.proposer.propose([], command_id=ID, outcome=b"no")

    pending = shard.state.outcomes.find([ID])[ID]
    assert isinstance(pending, PendingOutcome)
    assert pending.outcome == b"no"
    shard.log.release_applies()
    shard.next_term()

    recorded = shard.state.outcomes.find([ID, b"other"])
    assert {key: each.outcome for key, each in recorded.items()} == {ID: b"no"}


async def test_pending_states_are_dropped_once_the_view_has_them(shard):
    for number in range(SETTLE_EVERY_RECORDS):
        await shard.state.proposer.propose([], command_id=number.to_bytes(16, "big"), outcome=b"o")

    assert shard.state.proposer.records_in_flight < SETTLE_EVERY_RECORDS
    assert len(shard.state.outcomes) == shard.state.proposer.records_in_flight


async def test_a_view_that_does_not_follow_slows_the_leader_down(shard, monkeypatch):
    monkeypatch.setattr(proposer_module, "SHARD_PENDING_RECORDS_MAX", 40)
    shard.log.hold_applies()
    while shard.state.proposer.records_in_flight < 40:
        await shard.state.proposer.propose([CREATED])
    with pytest.raises(Overloaded):
        shard.state.proposer.propose([CREATED])

    shard.log.release_applies()

    await shard.state.proposer.propose([CREATED])


async def test_a_refused_proposal_changes_nothing(shard):
    too_large = TopicCreated("t-1", NAME, 0, "ns-1", 5, (("k", "v" * 3_000_000),))

    with pytest.raises(InvalidRequest):
        shard.state.proposer.propose([too_large], command_id=ID, outcome=b"o")

    assert shard.state.reads.load_topic(NAME) is None
    assert shard.state.outcomes.find([ID]) == {}


async def test_a_lost_proposal_ends_the_term(shard):
    shard.log.hold_commits()
    commit = shard.state.proposer.propose([CREATED])
    waiting = asyncio.ensure_future(shard.state.proposer.confirm())
    await asyncio.sleep(0)
    shard.log.lose_leadership()

    with pytest.raises(ProposalLost):
        await commit
    with pytest.raises(ProposalLost):
        await waiting
    assert shard.state.term.is_over
    for attempt in (
        lambda: shard.state.reads.load_topic(NAME),
        lambda: shard.state.proposer.propose([CREATED]),
        lambda: shard.state.outcomes.find([ID]),
        shard.state.scans.sessions,
    ):
        with pytest.raises(NotLeader):
            attempt()


async def test_a_closed_state_decides_nothing_in_the_next_term(shard):
    old = shard.state
    shard.next_term()

    with pytest.raises(NotLeader):
        old.proposer.propose([CREATED])


async def test_cancelling_who_waits_does_not_cancel_the_proposal(shard):
    shard.log.hold_commits()
    commit = shard.state.proposer.propose([CREATED])
    commit.cancel()
    await asyncio.sleep(0)

    shard.log.release_commits()
    await shard.state.proposer.confirm()

    assert shard.state.position == 2
    shard.next_term()
    assert shard.state.reads.load_topic(NAME).topic_id == "t-1"


async def test_confirming_without_anything_in_flight_asks_a_majority(shard):
    await shard.state.proposer.confirm()
    shard.log.lose_quorum()

    with pytest.raises(NotLeader):
        await shard.state.proposer.confirm()


async def test_slots_are_adopted_from_a_map_once(shard):
    assert shard.state.adopt_first_slots(((0, 5),), 9) is None

    assert shard.state.slots.map_version == 1
    assert shard.state.slots.has(6)


async def test_a_key_of_another_shard_is_refused():
    world = World(shards=2)
    other = world.shards[3 - world.home("acme").shard_id]

    world.home("acme").state.slots.check_key("acme")
    with pytest.raises(StaleShardMap):
        other.state.slots.check_key("acme")
    for shard in world.shards.values():
        await shard.state.proposer.confirm()
    world.close()


async def test_minted_ids_carry_their_slot_and_differ(shard):
    ids = shard.state.ids.mint_all([7, 7, 9])

    assert [int(each[:4], 16) for each in ids] == [7, 7, 9]
    assert len({*ids, shard.state.ids.mint("acme")}) == 4


async def test_a_sessions_units_are_those_of_view_and_pending_together(shard):
    await shard.state.proposer.propose(
        [assigned("p0"), assigned("p1"), assigned("p2"), assigned("p9")]
    )
    await shard.state.proposer.propose([assigned("p5", "s-2")])
    shard.next_term()
    shard.log.hold_commits()
    lost = shard.state.proposer.propose(
        [
            assigned("p3"),
            assigned("p1", "s-2", 2),
            TopicUnassigned("t-1", "p2", f"{NAME}p2", 1, "x"),
        ]
    )

    def units(session_id, after="", limit=100):
        return [one.unit for one in shard.state.scans.units_of_session(session_id, after, limit)]

    assert units("s-1") == ["p0", "p3", "p9"]
    assert units("s-2") == ["p1", "p5"]
    assert units("nobody") == []
    assert shard.state.scans.usage() == {"s-1": 3, "s-2": 2}
    shard.log.release_commits()
    await lost
    shard.next_term()
    assert units("s-1") == ["p0", "p3", "p9"]
    assert shard.state.scans.usage() == {"s-1": 3, "s-2": 2}


async def test_a_sessions_units_come_in_pages_by_key_and_each_once(shard):
    names = [f"p{number:03}" for number in range(20)]
    await shard.state.proposer.propose([assigned(name) for name in names])
    shard.next_term()
    shard.log.hold_commits()
    # What is pending thins the pages that the view gives, which must be full all the same.
    lost = shard.state.proposer.propose([assigned(name, "s-2", 2) for name in names[3:9]])
    expected = names[:3] + names[9:]

    pages, after = [], ""
    while page := shard.state.scans.units_of_session("s-1", after, 4):
        pages.append([one.unit for one in page])
        after = page[-1].key

    assert [len(page) for page in pages] == [4, 4, 4, 2]
    assert [unit for page in pages for unit in page] == expected
    shard.log.release_commits()
    await lost


async def test_the_last_unit_that_leaves_a_session_ends_its_usage(shard):
    await shard.state.proposer.propose([assigned("p0")])
    await shard.state.proposer.propose([assigned("p0", "s-2", 2)])

    assert shard.state.scans.usage() == {"s-2": 1}
    assert shard.state.scans.units_of_session("s-1", "", 10) == []


async def test_a_page_of_a_sessions_units_is_read_by_the_index(shard):
    statement = (
        "EXPLAIN QUERY PLAN SELECT key FROM assignments WHERE session_id = ? AND key > ? "
        "ORDER BY key LIMIT ?"
    )

    (plan,) = shard.query(statement, ("s-1", "", 10))

    assert "assignments_by_session" in plan[3]
