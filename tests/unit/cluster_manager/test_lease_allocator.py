"""Leasing capacity: grants first, one record per decision, quiet renewals."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_manager.service.lease_allocator import RENEWED_LEFT_MS, SILENCE_MS
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    NotLeader,
    Refused,
    SessionExpired,
    Unavailable,
)
from nextgen.kernel.limits.cluster import (
    BROKERS_MAX,
    CAPACITY_GRANTS_IN_FLIGHT_MAX,
    CAPACITY_LEASE_TTL_MS,
    STORED_INTEGER_MAX,
)
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from tests.unit.cluster_manager.fakes import ManagerUnderTest, broker, hello, leader, settle


@pytest.fixture
async def one(tmp_path: Path) -> Iterator[ManagerUnderTest]:
    """Two shards, one live broker of 80 units."""
    manager = ManagerUnderTest(tmp_path)
    first, _ = await manager.join_shard_nodes()
    manager.manager.receive(first, broker())
    await settle()
    yield manager
    manager.manager.stop()
    await manager.log.stop()


def _request(
    shard_id: int = 1, used: int = 0, wanted: int = 0, session_id: str = "s-1", term: int = 1
) -> cluster_pb.LeaseCapacityRequest:
    use = cluster_pb.LeaseUse(broker_id="broker-1", session_id=session_id, units_used=used)
    return cluster_pb.LeaseCapacityRequest(
        shard_id=shard_id, term=term, uses=[use], units_wanted=wanted
    )


def _lease(
    units: int, ttl_ms: int = CAPACITY_LEASE_TTL_MS, version: int = 1
) -> cluster_pb.CapacityLease:
    return cluster_pb.CapacityLease(
        broker_id="broker-1", session_id="s-1", units=units, ttl_ms=ttl_ms, version=version
    )


def _return(
    units: int, version: int, shard_id: int = 1, term: int = 1
) -> cluster_pb.LeaseCapacityRequest:
    request = _request(shard_id=shard_id, term=term)
    request.returns.add(broker_id="broker-1", session_id="s-1", units=units, version=version)
    return request


async def _pass_time(one: ManagerUnderTest, passed_ms: int) -> None:
    """Let so much time pass; nodes that were silent meanwhile come back."""
    one.clock.advance(passed_ms)
    for node_id in ("a", "b"):
        await one.manager.join(hello(node_id))


async def test_a_shard_gets_its_first_block_of_what_the_broker_manager_granted(
    one: ManagerUnderTest,
) -> None:
    response = await one.manager.lease_capacity(_request())

    assert list(response.leases) == [_lease(20)]
    assert one.grantor.asked == [("broker-1", "s-1", 80)]


async def test_a_granted_session_is_not_asked_for_again(one: ManagerUnderTest) -> None:
    await one.manager.lease_capacity(_request(shard_id=1))
    await one.manager.lease_capacity(_request(shard_id=2))

    assert len(one.grantor.asked) == 1


async def test_requests_at_the_same_time_share_one_grant(one: ManagerUnderTest) -> None:
    one.grantor.gate.clear()
    asking = [
        asyncio.create_task(one.manager.lease_capacity(_request(shard_id=shard_id)))
        for shard_id in (1, 2, 1)
    ]
    await settle()

    one.grantor.gate.set()
    responses = await asyncio.gather(*asking)

    assert one.grantor.asked == [("broker-1", "s-1", 80)]
    assert [response.leases[0].units for response in responses] == [20, 20, 20]


@pytest.mark.parametrize("more", [0, 1])
async def test_capacity_grants_in_flight_max_are_requested_at_once_and_one_more_waits(
    one: ManagerUnderTest, more: int
) -> None:
    node = (await one.join_shard_nodes())[0]
    count = CAPACITY_GRANTS_IN_FLIGHT_MAX + more
    for number in range(2, count + 1):
        one.manager.receive(node, broker(f"broker-{number}", f"s-{number}"))
    await settle()
    one.grantor.gate.clear()
    asking = asyncio.create_task(one.manager.lease_capacity(_request()))
    await settle()
    at_once = len(one.grantor.asked)

    one.grantor.gate.set()
    await asking

    assert (at_once, len(one.grantor.asked)) == (CAPACITY_GRANTS_IN_FLIGHT_MAX, count)


async def test_the_answer_waits_for_the_commit(one: ManagerUnderTest) -> None:
    one.log.hold_commits()
    asking = asyncio.create_task(one.manager.lease_capacity(_request()))
    await settle()
    assert not asking.done()

    one.log.release_commits()

    assert [lease.units for lease in (await asking).leases] == [20]


async def test_a_renewal_that_changes_nothing_writes_nothing_for_a_third_of_the_life(
    one: ManagerUnderTest,
) -> None:
    await one.manager.lease_capacity(_request())
    position = one.log.status.commit_position
    one.clock.advance(CAPACITY_LEASE_TTL_MS - RENEWED_LEFT_MS - 1)

    early = await one.manager.lease_capacity(_request())
    assert one.log.status.commit_position == position
    assert list(early.leases) == [_lease(20, RENEWED_LEFT_MS + 1)]

    one.clock.advance(1)
    due = await one.manager.lease_capacity(_request())
    assert one.log.status.commit_position == position + 1
    assert list(due.leases) == [_lease(20)]


async def test_a_block_grows_when_more_than_four_fifths_are_used(one: ManagerUnderTest) -> None:
    await one.manager.lease_capacity(_request())

    response = await one.manager.lease_capacity(_request(used=17))

    assert list(response.leases) == [_lease(25, version=2)]


async def test_use_of_a_session_that_is_gone_counts_nothing(one: ManagerUnderTest) -> None:
    await one.manager.lease_capacity(_request())

    response = await one.manager.lease_capacity(_request(used=17, session_id="s-0"))

    assert list(response.leases) == [_lease(20)]


async def test_units_of_a_silent_shard_are_freed_and_those_it_said_it_uses_are_not(
    one: ManagerUnderTest,
) -> None:
    for used in (0, 0, 0, 0, 0, 33):
        await one.manager.lease_capacity(_request(shard_id=1, used=used, wanted=80))
    (holder,) = (await one.manager.lease_capacity(_request(shard_id=1, used=33))).leases
    assert holder.units == 80
    await _pass_time(one, SILENCE_MS)

    await one.manager.lease_capacity(_request(shard_id=2, wanted=1_000))
    for _ in range(10):
        (newcomer,) = (await one.manager.lease_capacity(_request(shard_id=2, wanted=1_000))).leases
    assert newcomer.units == 80 - 33

    (left,) = (await one.manager.lease_capacity(_request(shard_id=1, used=33))).leases
    assert (left.units, left.version) == (33, holder.version + 1)


async def test_a_shard_that_was_silent_for_less_keeps_what_it_has(one: ManagerUnderTest) -> None:
    for _ in range(10):
        await one.manager.lease_capacity(_request(shard_id=1, wanted=80))
    await _pass_time(one, SILENCE_MS - 1)

    newcomer = await one.manager.lease_capacity(_request(shard_id=2, wanted=10))

    assert list(newcomer.leases) == []


async def test_a_leader_that_took_over_counts_every_shard_as_heard_of_when_it_did(
    one: ManagerUnderTest,
) -> None:
    for _ in range(10):
        await one.manager.lease_capacity(_request(shard_id=1, wanted=80))
    one.clock.advance(SILENCE_MS)
    one.log.lose_leadership()
    one.log.become_leader()
    await one.join_shard_nodes()

    early = await one.manager.lease_capacity(_request(shard_id=2, wanted=10))
    await _pass_time(one, SILENCE_MS)
    late = await one.manager.lease_capacity(_request(shard_id=2, wanted=10))

    assert list(early.leases) == []
    assert [lease.units for lease in late.leases] == [20]


async def test_what_a_shard_used_beyond_an_expired_lease_is_covered_first(
    one: ManagerUnderTest,
) -> None:
    """1. The shard says that it uses nothing. 2. It assigns 30. 3. It is cut off. 4. It is back."""
    await one.manager.lease_capacity(_request(shard_id=1, wanted=40))
    await _pass_time(one, SILENCE_MS)
    (other,) = (await one.manager.lease_capacity(_request(shard_id=2, used=0, wanted=30))).leases

    (back,) = (await one.manager.lease_capacity(_request(shard_id=1, used=30))).leases

    assert back.units >= 30
    assert back.units + other.units <= 80


async def test_units_that_are_returned_go_to_others(one: ManagerUnderTest) -> None:
    for _ in range(10):
        (lease,) = (await one.manager.lease_capacity(_request(wanted=80))).leases
    assert lease.units == 80

    answer = await one.manager.lease_capacity(_return(30, lease.version))
    (other,) = (await one.manager.lease_capacity(_request(shard_id=2, wanted=1))).leases

    assert (answer.leases[0].units, answer.leases[0].version) == (30, lease.version + 1)
    assert list(answer.refused) == []
    assert other.units == 20


async def test_what_is_returned_twice_is_refused_with_the_reason_and_nothing_changes(
    one: ManagerUnderTest,
) -> None:
    (lease,) = (await one.manager.lease_capacity(_request(wanted=40))).leases
    first = await one.manager.lease_capacity(_return(30, lease.version))
    position = one.log.status.commit_position

    second = await one.manager.lease_capacity(_return(25, lease.version))

    assert list(second.leases) == list(first.leases)
    (why,) = second.refused
    assert f"is at version {lease.version + 1}" in why
    assert f"is of version {lease.version}" in why
    assert one.log.status.commit_position == position


async def test_a_return_of_a_session_that_is_over_is_refused_by_name(one: ManagerUnderTest) -> None:
    (lease,) = (await one.manager.lease_capacity(_request())).leases
    request = _return(0, lease.version)
    request.returns[0].session_id = "s-0"

    response = await one.manager.lease_capacity(request)

    (why,) = response.refused
    assert "s-0" in why
    assert list(response.leases) == [lease]


async def test_a_return_of_a_deposed_leader_is_refused_though_this_manager_never_met_it(
    one: ManagerUnderTest,
) -> None:
    """The successor knows the lease and may have used all of it."""
    (lease,) = (await one.manager.lease_capacity(_request(wanted=40, term=4))).leases
    await one.manager.lease_capacity(_request(term=5))
    one.log.lose_leadership()
    one.log.become_leader()
    await one.join_shard_nodes()

    with pytest.raises(Refused, match="at term 5, the request is of term 4"):
        await one.manager.lease_capacity(_return(0, lease.version, term=4))

    (kept,) = (await one.manager.lease_capacity(_request(term=5))).leases
    assert (kept.units, kept.version) == (lease.units, lease.version)


async def test_a_broker_that_is_given_nothing_is_leased_no_more(one: ManagerUnderTest) -> None:
    await one.manager.lease_capacity(_request())
    assert one.manager.leader_term is not None
    node = one.manager.leader_term.connections["a"]
    drained = broker()
    drained.broker.broker.draining = True
    drained.broker.broker.revision = 1

    one.manager.receive(node, drained)
    (lease,) = (await one.manager.lease_capacity(_request(used=19, wanted=60))).leases

    assert lease.units == 20


async def test_a_quarantine_ends_by_itself(one: ManagerUnderTest) -> None:
    await one.manager.lease_capacity(_request())
    assert one.manager.leader_term is not None
    node = one.manager.leader_term.connections["a"]
    flapping = broker()
    flapping.broker.broker.revision = 1
    flapping.broker.broker.quarantined_until_ms = one.clock.unix_ms() + 1_000
    one.manager.receive(node, flapping)

    (during,) = (await one.manager.lease_capacity(_request(wanted=20))).leases
    one.clock.advance(1_000)
    (after,) = (await one.manager.lease_capacity(_request(wanted=20))).leases

    assert (during.units, after.units) == (20, 40)


async def test_a_request_that_names_more_brokers_than_there_can_be_is_invalid(
    one: ManagerUnderTest,
) -> None:
    allowed = cluster_pb.LeaseCapacityRequest(
        shard_id=1, term=1, uses=[cluster_pb.LeaseUse()] * BROKERS_MAX
    )
    await one.manager.lease_capacity(allowed)

    allowed.uses.add()
    with pytest.raises(InvalidRequest):
        await one.manager.lease_capacity(allowed)


async def test_a_term_that_no_table_holds_is_refused_and_nothing_is_leased(
    one: ManagerUnderTest,
) -> None:
    position = one.log.status.commit_position

    with pytest.raises(InvalidRequest, match=f"at no term {STORED_INTEGER_MAX + 1}"):
        await one.manager.lease_capacity(_request(term=STORED_INTEGER_MAX + 1))
    assert one.log.status.commit_position == position
    assert one.grantor.asked == []

    response = await one.manager.lease_capacity(_request(term=STORED_INTEGER_MAX))
    assert list(response.leases) == [_lease(20)]


async def test_the_accounts_say_who_has_how_much_and_what_was_said_last(
    one: ManagerUnderTest,
) -> None:
    await one.manager.lease_capacity(_request(shard_id=2, used=3))
    await one.manager.lease_capacity(_request(shard_id=1, used=5))
    await one.manager.lease_capacity(_request(shard_id=1, used=7))

    (account,) = (await one.manager.capacity()).accounts

    assert (account.broker_id, account.session_id, account.is_live) == ("broker-1", "s-1", True)
    assert (account.capacity_units, account.granted_units) == (80, 80)
    said = [(each.shard_id, each.units, each.units_used, each.version) for each in account.leases]
    assert said == [(1, 20, 7, 1), (2, 20, 3, 1)]


async def test_the_end_of_the_session_frees_everything_and_the_next_starts_anew(
    one: ManagerUnderTest,
) -> None:
    await one.manager.lease_capacity(_request(wanted=80))
    assert one.manager.leader_term is not None
    node = one.manager.leader_term.connections["a"]

    one.manager.receive(node, broker(is_live=False))
    assert list((await one.manager.lease_capacity(_request())).leases) == []

    one.manager.receive(node, broker(session_id="s-2", epoch=2))
    (lease,) = (await one.manager.lease_capacity(_request())).leases
    assert (lease.session_id, lease.units) == ("s-2", 20)
    assert one.grantor.asked[-1] == ("broker-1", "s-2", 80)


async def test_a_broker_whose_manager_cannot_be_asked_does_not_hold_up_the_others(
    one: ManagerUnderTest,
) -> None:
    assert one.manager.leader_term is not None
    node = one.manager.leader_term.connections["a"]
    one.manager.receive(node, broker("broker-2", "s-9"))
    one.grantor.failing["broker-1"] = Unavailable("no leader")

    response = await one.manager.lease_capacity(_request())

    assert [lease.broker_id for lease in response.leases] == ["broker-2"]


async def test_a_session_that_ends_while_its_grant_is_asked_for_gets_no_lease(
    one: ManagerUnderTest,
) -> None:
    one.grantor.gate.clear()
    asking = asyncio.create_task(one.manager.lease_capacity(_request()))
    await settle()
    assert one.manager.leader_term is not None
    one.manager.receive(one.manager.leader_term.connections["a"], broker(is_live=False))

    one.grantor.gate.set()

    assert list((await asking).leases) == []


async def test_a_shard_that_does_not_exist_is_an_invalid_request(one: ManagerUnderTest) -> None:
    with pytest.raises(InvalidRequest):
        await one.manager.lease_capacity(_request(shard_id=9))


async def test_a_deposed_shard_leader_gets_nothing(one: ManagerUnderTest) -> None:
    assert one.manager.leader_term is not None
    one.manager.receive(one.manager.leader_term.connections["a"], leader(1, 7, "a"))

    with pytest.raises(Refused, match="term 7"):
        await one.manager.lease_capacity(_request(term=6))
    assert (await one.manager.lease_capacity(_request(term=7))).leases


async def test_a_shard_leader_that_is_deposed_while_a_grant_is_asked_for_gets_nothing(
    one: ManagerUnderTest,
) -> None:
    """1. Its request waits for a grant. 2. Its successor reports. 3. The grant is there."""
    assert one.manager.leader_term is not None
    one.grantor.gate.clear()
    asking = asyncio.create_task(one.manager.lease_capacity(_request(term=6)))
    await settle()
    one.manager.receive(one.manager.leader_term.connections["a"], leader(1, 7, "a"))

    one.grantor.gate.set()

    with pytest.raises(Refused, match="term 7"):
        await asking


async def test_leadership_lost_while_asking_is_not_leader_with_a_hint(
    one: ManagerUnderTest,
) -> None:
    one.grantor.gate.clear()
    asking = asyncio.create_task(one.manager.lease_capacity(_request()))
    await settle()

    one.log.lose_leadership(NodeId("cm-2"))

    with pytest.raises(NotLeader) as refusal:
        await asking
    assert refusal.value.leader_hint == "127.0.0.1:7002"


async def test_a_leader_without_majority_does_not_answer_from_what_it_has(
    one: ManagerUnderTest,
) -> None:
    await one.manager.lease_capacity(_request())
    one.log.lose_quorum()

    with pytest.raises(NotLeader):
        await one.manager.lease_capacity(_request())


async def test_a_session_whose_end_was_never_reported_is_found_when_its_shards_leader_reports(
    one: ManagerUnderTest,
) -> None:
    """1. A session ends. 2. The report is lost with its connection. 3. The shard's leader, old
    or new, reports itself after it reconnected, and is asked about the sessions of its shard."""
    assert one.manager.leader_term is not None
    shard_map = one.manager.leader_term.committed.shard_map
    assert shard_map is not None
    home = shard_map.table.shard_for_key("broker-1")
    await one.manager.lease_capacity(_request())
    one.grantor.failing["broker-1"] = SessionExpired("it ended")
    reconnected = await one.manager.join(hello("a"))

    one.manager.receive(reconnected, leader(3 - home, 1, "a"))
    await settle()
    assert one.manager.leader_term.committed.directory.live()

    one.manager.receive(reconnected, leader(home, 1, "a"))
    await settle()
    assert one.manager.leader_term.committed.directory.live() == ()
    assert one.manager.leader_term.committed.ledger.accounts["broker-1"].leased_units == 0


async def test_a_living_session_is_not_disturbed_by_being_asked_again(
    one: ManagerUnderTest,
) -> None:
    assert one.manager.leader_term is not None
    await one.manager.lease_capacity(_request())
    before = one.manager.leader_term.committed
    node = one.manager.leader_term.connections["a"]

    for shard_id in (1, 2):
        one.manager.receive(node, leader(shard_id, 1, "a"))
    await settle()

    assert len(one.grantor.asked) == 2
    after = one.manager.leader_term.committed
    assert (after.directory, after.ledger) == (before.directory, before.ledger)


async def test_a_session_found_ended_while_leasing_is_recorded_as_ended(
    one: ManagerUnderTest,
) -> None:
    one.grantor.failing["broker-1"] = SessionExpired("it ended")

    response = await one.manager.lease_capacity(_request())

    assert list(response.leases) == []
    (recorded,) = (await one.manager.cluster_state()).brokers
    assert not recorded.is_live


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
async def test_a_wall_clock_that_leaps_by_an_hour_takes_no_lease_away_and_gives_none_twice(
    one: ManagerUnderTest, leap_ms: int
) -> None:
    one.clock.leap(10**12)
    before = [await one.manager.lease_capacity(_request(shard_id=each)) for each in (1, 2)]

    one.clock.leap(leap_ms)
    after = [await one.manager.lease_capacity(_request(shard_id=each)) for each in (1, 2)]
    wanted = await one.manager.lease_capacity(_request(shard_id=1, used=20, wanted=1_000))

    assert [list(each.leases) for each in after] == [list(each.leases) for each in before]
    leased = wanted.leases[0].units + after[1].leases[0].units
    assert leased <= 80, "no more than the broker has"
    assert wanted.leases[0].ttl_ms == CAPACITY_LEASE_TTL_MS


async def test_a_failure_without_a_waiter_is_no_broken_task(
    one: ManagerUnderTest,
) -> None:
    """1. a shard asks for capacity, 2. it goes away, 3. its broker manager says no."""
    noticed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: noticed.append(found))
    one.grantor.gate.clear()
    one.grantor.failing["broker-1"] = SessionExpired("session s-1 is over")
    asking = asyncio.create_task(one.manager.lease_capacity(_request()))
    await settle()

    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    one.grantor.gate.set()
    await settle()
    del asking
    gc.collect()
    await settle()

    assert one.grantor.asked, "nobody was asked"
    assert not noticed


async def test_an_uncommitted_lease_is_not_published(one: ManagerUnderTest) -> None:
    """1. a shard asks, 2. its leader dies before the commit, 3. the next leader asks the same."""
    await one.manager.lease_capacity(_request())
    one.log.hold_commits()
    first = asyncio.create_task(one.manager.lease_capacity(_request(used=20)))
    await settle()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    second = asyncio.create_task(one.manager.lease_capacity(_request(used=20)))
    await settle()
    assert not second.done(), "the answer came before the commit"
    one.log.release_commits()

    assert (await second).leases[0].units > 20


async def test_a_lease_whose_commit_was_lost_is_not_published(one: ManagerUnderTest) -> None:
    await one.manager.lease_capacity(_request())
    one.log.hold_commits()
    first = asyncio.create_task(one.manager.lease_capacity(_request(used=20)))
    await settle()
    second = asyncio.create_task(one.manager.lease_capacity(_request(used=20)))
    await settle()

    one.log.lose_leadership()

    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert all(isinstance(outcome, MetadataError) for outcome in outcomes), outcomes
