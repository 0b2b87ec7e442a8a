"""When capacity is requested from the cluster manager, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.placement import LEASE_UNUSED_MS
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from shards.assignment.lease_keeper import LeaseKeeper
from shards.domain.slots.events import CountedUnits, OutgoingSlots
from tests.support.scenarios import run_by
from tests.support.shards.harness import Cluster, VirtualClock
from tests.support.simulated.virtual_time import run_virtual


class Kept:
    """A keeper, the ledger it asks, and what is in use."""

    def __init__(self) -> None:
        self.cluster = Cluster(units=10)
        self.used: dict[str, int] = {}
        self.keeper = LeaseKeeper(
            1,
            7,
            self.cluster,
            self.cluster,
            self.cluster,
            lambda session_id: self.used.get(session_id, 0),
            VirtualClock(),
            self._known_shards,
            lambda: self.outgoing,
        )
        self.outgoing: list[OutgoingSlots] = []
        self.shard_ids: tuple[int, ...] | None = (1, 2)

    def _known_shards(self) -> tuple[int, ...]:
        if self.shard_ids is None:
            raise Unavailable("no map is known yet")
        return self.shard_ids

    @property
    def requests(self) -> int:
        return len(self.cluster.lease_requests)

    def broker(self, number: int, *, is_live: bool = True, capacity_units: int = 0) -> None:
        self.cluster.report(
            BrokerRecorded(
                broker_id=f"broker-{number}",
                session_id=f"s-{number}",
                epoch=1,
                is_live=is_live,
                capacity_units=capacity_units,
            )
        )


def with_keeper(scenario: Callable[[Kept], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        it = Kept()
        it.keeper.start()
        try:
            await scenario(it)
        finally:
            it.keeper.close()

    run_virtual(main)


@run_by(with_keeper)
async def test_nobody_is_asked_while_no_broker_lives(it: Kept) -> None:
    await asyncio.sleep(1_000)

    assert it.requests == 0
    assert it.keeper.candidates() == []


@run_by(with_keeper)
async def test_a_new_broker_is_leased_at_once_and_renewed_at_a_third_of_the_life(it: Kept) -> None:
    it.broker(1)
    await asyncio.sleep(0.1)
    assert it.requests == 1
    (candidate,) = it.keeper.candidates()
    assert (candidate.session_id, candidate.units_leased) == ("s-1", 10)

    await asyncio.sleep(29.0)
    assert it.requests == 1
    await asyncio.sleep(2.0)

    assert it.requests == 2


@run_by(with_keeper)
async def test_a_request_says_term_and_use(it: Kept) -> None:
    it.used["s-1"] = 4
    it.broker(1)
    await asyncio.sleep(0.1)

    (request,) = it.cluster.lease_requests
    assert (request.shard_id, request.term, request.units_wanted) == (1, 7, 0)
    (use,) = request.uses
    assert (use.broker_id, use.session_id, use.units_used) == ("broker-1", "s-1", 4)


@run_by(with_keeper)
async def test_more_than_four_fifths_in_use_asks_for_more_but_not_all_the_time(it: Kept) -> None:
    it.broker(1)
    await asyncio.sleep(0.1)
    it.used["s-1"] = 8
    it.keeper.note_use(it.keeper.candidates())
    await asyncio.sleep(1.0)
    assert it.requests == 1

    it.used["s-1"] = 9
    for _ in range(100):
        it.keeper.note_use(it.keeper.candidates())
        await asyncio.sleep(0.01)

    assert 2 <= it.requests <= 7


@run_by(with_keeper)
async def test_a_lease_that_cannot_grow_is_asked_for_less_and_less_often(it: Kept) -> None:
    """A broker that is full, drained or at its quota is used, as far as it is leased, for long."""

    async def placements(seconds: float) -> int:
        before = it.requests
        for _ in range(int(10 * seconds)):
            it.keeper.note_use(it.keeper.candidates())
            await asyncio.sleep(0.1)
        return it.requests - before

    it.used["s-1"] = 9
    it.broker(1)
    await asyncio.sleep(0.1)
    assert await placements(60.0) <= 10

    it.keeper.want(1)
    await asyncio.sleep(0.3)
    assert it.cluster.lease_requests[-1].units_wanted == 1, "lookups that wait do not wait long"

    it.cluster.units, it.used["s-1"] = 20, 17
    while it.keeper.units_leased < 20:
        await placements(0.1)
    it.cluster.units = 40
    assert 1 <= await placements(0.5) <= 3, "one that has grown may grow again"
    assert it.keeper.units_leased == 40


@run_by(with_keeper)
async def test_a_want_right_after_another_is_asked_a_moment_later_and_not_forgotten(
    it: Kept,
) -> None:
    it.broker(1)
    await asyncio.sleep(0.1)
    it.keeper.want(3)
    await asyncio.sleep(0.01)

    it.keeper.want(5)
    assert await it.keeper.wait_change(1_000)

    assert [request.units_wanted for request in it.cluster.lease_requests] == [0, 3, 5]


@run_by(with_keeper)
async def test_what_lookups_wait_for_is_asked_for_again_if_the_request_fails(it: Kept) -> None:
    it.broker(1)
    await asyncio.sleep(0.1)
    it.cluster.is_reachable = False
    it.keeper.want(5)
    await asyncio.sleep(0.3)
    it.cluster.is_reachable = True

    await asyncio.sleep(1.1)
    assert [request.units_wanted for request in it.cluster.lease_requests] == [0, 5]
    await asyncio.sleep(60.0)
    assert it.cluster.lease_requests[-1].units_wanted == 0


@run_by(with_keeper)
async def test_without_a_cluster_manager_leases_go_on_until_they_end(it: Kept) -> None:
    it.broker(1)
    await asyncio.sleep(0.1)
    it.cluster.is_reachable = False

    await asyncio.sleep(89.0)
    assert len(it.keeper.candidates()) == 1
    await asyncio.sleep(1.1)
    assert it.keeper.candidates() == []

    it.cluster.is_reachable = True
    await asyncio.sleep(17.0)
    assert len(it.keeper.candidates()) == 1


@run_by(with_keeper)
async def test_a_session_that_ended_is_no_candidate(it: Kept) -> None:
    it.broker(1)
    it.broker(2)
    await asyncio.sleep(0.1)

    it.broker(1, is_live=False)

    assert [each.broker_id for each in it.keeper.candidates()] == ["broker-2"]


@run_by(with_keeper)
async def test_waiting_for_a_change_ends_in_time(it: Kept) -> None:
    assert not await it.keeper.wait_change(500)

    waiting = asyncio.create_task(it.keeper.wait_change(5_000))
    await asyncio.sleep(0.1)
    it.broker(1)

    assert await waiting


@run_by(with_keeper)
async def test_what_a_quota_leaves_no_first_block_for_is_returned_as_well(it: Kept) -> None:
    it.cluster.units = 100
    it.broker(1, capacity_units=400)
    it.used["s-1"] = 2
    await asyncio.sleep(LEASE_UNUSED_MS / 1000 + 61)
    assert not any(request.returns for request in it.cluster.lease_requests)

    it.cluster.broker_quotas["broker-1"] = 16
    await asyncio.sleep(61)

    (said,) = it.cluster.lease_requests[-1].returns
    assert said.units == 4, "a first block of 16 units in two shards"


@run_by(with_keeper)
async def test_what_a_shard_may_come_to_have_is_what_others_neither_have_nor_hold(it: Kept) -> None:
    it.broker(1, capacity_units=400)
    it.used["s-1"] = 4
    await asyncio.sleep(0.1)
    broker = it.cluster.session("s-1")
    assert broker is not None

    assert it.keeper.units_in_reach(broker, -1) == 300, "the other's first block is 100"
    assert it.keeper.units_in_reach(broker, 204) == 200, "the other has 200"
    it.cluster.broker_quotas["broker-1"] = 40
    assert it.keeper.units_in_reach(broker, -1) == 30
    assert it.keeper.units_in_reach(broker, 204) == 10, "what is leased stays"


@run_by(with_keeper)
async def test_without_a_lease_or_a_map_little_is_in_reach(it: Kept) -> None:
    it.cluster.is_reachable = False
    it.broker(1, capacity_units=400)
    await asyncio.sleep(0.1)
    broker = it.cluster.session("s-1")
    assert broker is not None

    assert it.keeper.units_in_reach(broker, -1) == 300, "it will be leased"
    it.shard_ids = None
    assert it.keeper.units_in_reach(broker, -1) == 0


@run_by(with_keeper)
async def test_what_nobody_needs_is_returned_and_repeated_until_the_ledger_says_so(
    it: Kept,
) -> None:
    it.cluster.units = 100
    it.broker(1, capacity_units=40)
    it.used["s-1"] = 12
    await asyncio.sleep(LEASE_UNUSED_MS / 1000)
    assert not any(request.returns for request in it.cluster.lease_requests)

    await asyncio.sleep(61)

    first, second = it.cluster.lease_requests[-2:]
    (said,) = first.returns
    assert (said.session_id, said.units, said.version) == ("s-1", 18, 1)
    assert list(second.returns) == [said], "the answers were of the same version"
    (candidate,) = it.keeper.candidates()
    assert (candidate.units_used, candidate.units_leased) == (12, 18)

    it.cluster.units, it.cluster.lease_version = 18, 2
    await asyncio.sleep(61)

    assert not it.cluster.lease_requests[-1].returns
    assert it.keeper.candidates()[0].units_leased == 18


@run_by(with_keeper)
async def test_nothing_is_returned_while_lookups_wait_for_more(it: Kept) -> None:
    it.cluster.units = 100
    it.broker(1, capacity_units=40)
    await asyncio.sleep(LEASE_UNUSED_MS / 1000 - 1)
    for _ in range(20):
        it.keeper.want(5)
        await asyncio.sleep(5)

    assert not any(request.returns for request in it.cluster.lease_requests)


@run_by(with_keeper)
async def test_a_lease_ends_its_time_after_the_request_however_late_the_answer_comes(
    it: Kept,
) -> None:
    it.cluster.answers_after_s = 5.0
    it.broker(1)
    await asyncio.sleep(6.0)
    it.cluster.is_reachable = False

    await asyncio.sleep(83.9)
    assert len(it.keeper.candidates()) == 1
    await asyncio.sleep(0.2)

    assert it.keeper.candidates() == []


@run_by(with_keeper)
async def test_the_largest_of_several_wishes_is_asked_for(it: Kept) -> None:
    it.broker(1)
    await asyncio.sleep(0.1)

    it.keeper.want(5)
    it.keeper.want(3)
    await asyncio.sleep(0.3)

    assert it.cluster.lease_requests[-1].units_wanted == 5


@run_by(with_keeper)
async def test_a_lookup_that_waits_is_not_put_off_by_one_that_is_served(it: Kept) -> None:
    """A lease that did not grow for long is requested every 16 s unless a unit waits for it."""
    it.used["s-1"] = 9
    it.broker(1)
    for _ in range(600):
        await asyncio.sleep(0.1)
        it.keeper.note_use(it.keeper.candidates())
    it.keeper.want(1)
    await asyncio.sleep(0.3)

    it.keeper.want(7)
    it.keeper.note_use(it.keeper.candidates())
    await asyncio.sleep(0.3)

    assert it.cluster.lease_requests[-1].units_wanted == 7


@run_by(with_keeper)
async def test_failing_requests_slow_down_and_start_over_once_one_was_answered(it: Kept) -> None:
    it.cluster.is_reachable = False
    it.broker(1)
    await asyncio.sleep(120.0)
    assert it.cluster.lease_attempts <= 12, "1, 2, 4, 8 and then 16 seconds apart"

    it.cluster.is_reachable = True
    await asyncio.sleep(17.0)
    assert it.keeper.candidates()
    it.cluster.is_reachable = False
    it.broker(2)
    before = it.cluster.lease_attempts
    await asyncio.sleep(3.5)

    assert it.cluster.lease_attempts - before == 3, "at once, after 1 and after 2 seconds"


@run_by(with_keeper)
async def test_a_live_broker_without_a_lease_is_asked_for_again_soon(it: Kept) -> None:
    it.cluster.brokers_not_leased.add("broker-2")
    it.broker(1)
    it.broker(2)
    await asyncio.sleep(0.1)
    it.cluster.brokers_not_leased.clear()

    await asyncio.sleep(1.1)

    assert [each.broker_id for each in it.keeper.candidates()] == ["broker-1", "broker-2"]


@run_by(with_keeper)
async def test_leases_that_end_at_once_are_not_asked_for_all_the_time(it: Kept) -> None:
    it.cluster.lease_ttl_ms = 1
    it.broker(1)

    await asyncio.sleep(2.0)

    assert 5 <= it.requests <= 11


@run_by(run_virtual)
async def test_a_lookup_that_gives_up_at_that_moment_does_not_break_the_closing() -> None:
    it = Kept()
    waiting = asyncio.create_task(it.keeper.wait_change(5_000))
    await asyncio.sleep(0.1)

    waiting.cancel()
    it.keeper.close()

    await asyncio.wait([waiting])
    assert waiting.cancelled()


@run_by(with_keeper)
async def test_nothing_is_returned_of_a_session_that_ended(it: Kept) -> None:
    it.cluster.units = 100
    it.broker(1, capacity_units=40)
    await asyncio.sleep(LEASE_UNUSED_MS / 1000 + 61)
    assert it.cluster.lease_requests[-1].returns
    it.broker(1, is_live=False)
    it.broker(2, capacity_units=40)

    await asyncio.sleep(61)

    assert not it.cluster.lease_requests[-1].returns


@run_by(with_keeper)
async def test_units_of_released_slots_are_not_placed_until_a_later_lease_is_stated(
    it: Kept,
) -> None:
    it.broker(1)
    await asyncio.sleep(0.1)
    (before,) = it.keeper.candidates()

    it.outgoing.append(OutgoingSlots(1, ((5, 9),), 2, (CountedUnits("s-1", 4),), (), 0))
    (during,) = it.keeper.candidates()
    assert during.units_leased == before.units_leased - 4

    requests = it.requests
    it.outgoing.clear()
    (behind,) = it.keeper.candidates()
    assert behind.units_leased == before.units_leased - 4
    await asyncio.sleep(0.1)

    assert it.requests == requests + 1, "it asks at once"
    (after,) = it.keeper.candidates()
    assert after.units_leased == before.units_leased
