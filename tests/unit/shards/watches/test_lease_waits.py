"""Moves and writes wait for leased watches: for which, how long, and what ends the wait."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import NotLeader, Overloaded, Unavailable
from nextgen.kernel.limits.cluster import (
    ASSIGNMENT_SUBSCRIBERS_MAX,
    ASSIGNMENT_TTL_MS,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
)
from tests.support.shards.leased_subscriber import (
    LeaseWorld,
    assigned,
    in_lease_world,
    refusal_of,
    subscribed,
)

TTL_S = ASSIGNMENT_TTL_MS / 1000
ROOT = "persistent://t/n"
UNIT = f"{ROOT}/x-partition-0"
SCALABLE = "topic://t/n/x"
SEGMENTS = "segment://t/n/"


def test_a_position_is_effective_when_every_subscriber_has_acknowledged_it() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        one, two = await subscribed(it, "d-1"), await subscribed(it, "d-2")
        position = await it.commit(assigned("a"))
        waiting = it.wait_moved(position, "a")
        await asyncio.sleep(0.1)

        one.acknowledge(position)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        two.acknowledge(position)

        async with timeout(0.01):
            await waiting

    in_lease_world(scenario)


def test_without_subscribers_a_position_is_effective_at_once() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)

        async with timeout(0.01):
            await it.wait_moved(await it.commit(assigned("a")))

    in_lease_world(scenario)


def test_a_new_leader_waits_one_time_to_live_for_subscribers_of_the_old_one() -> None:
    async def scenario(it: LeaseWorld) -> None:
        waiting = it.wait_moved(await it.commit(assigned("a")))

        await asyncio.sleep(TTL_S - 0.1)
        assert not waiting.done()
        await asyncio.sleep(0.2)

        assert waiting.done()

    in_lease_world(scenario)


def test_a_silent_subscriber_is_cut_off_after_one_time_to_live() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        silent = it.subscribe()
        waiting = it.wait_moved(await it.commit(assigned("a")), "a")

        await asyncio.sleep(TTL_S - 0.1)
        assert not waiting.done()
        await asyncio.sleep(0.3)

        assert waiting.done()
        error = await refusal_of(silent)
        assert isinstance(error, Unavailable)
        assert "not acknowledged position" in str(error)

    in_lease_world(scenario)


def test_an_ended_watch_is_sent_nothing_more() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        silent = await subscribed(it)
        await it.wait_moved(await it.commit(assigned("a", 2)), "a")
        await refusal_of(silent)

        await it.commit(assigned("a", 3))

        assert not await silent.has_update()
        assert it.hub.watch_count == 0

    in_lease_world(scenario)


def test_only_who_has_not_acknowledged_is_cut_off_and_not_before_a_late_update_is_there() -> None:
    """An update that left just before the change prolongs its subscriber a little later."""

    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        heard, silent = [await subscribed(it, f"discovery-{number}") for number in (1, 2)]
        position = await it.commit(assigned("a", 2))
        heard.acknowledge(position)
        waiting = it.wait_moved(position, "a")

        await asyncio.sleep(TTL_S + 0.05)
        assert not waiting.done()
        await waiting

        await heard.take()
        assert isinstance(await refusal_of(silent), Unavailable)
        assert it.hub.leased_count == 1

    in_lease_world(scenario)


def test_a_subscriber_that_left_counts_for_one_more_time_to_live() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        (await subscribed(it)).close()
        waiting = it.wait_moved(await it.commit(assigned("a")), "a")

        await asyncio.sleep(TTL_S - 0.1)
        assert not waiting.done()
        await asyncio.sleep(0.3)

        assert waiting.done()

    in_lease_world(scenario)


def test_a_subscriber_that_returns_is_waited_for_until_it_acknowledges() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        start = await it.commit(assigned("a"))
        (await subscribed(it)).close()
        position = await it.commit(assigned("b"))
        waiting = it.wait_moved(position, "b")
        await asyncio.sleep(0.1)

        back = it.subscribe(from_position=start)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        back.acknowledge((await back.until(position))[-1].position)

        async with timeout(0.01):
            await waiting

    in_lease_world(scenario)


def test_subscribing_twice_ends_the_older_subscription() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        older = it.subscribe("d-1")

        newer = it.subscribe("d-1")
        older.close()

        assert isinstance(await refusal_of(older), Unavailable)
        assert it.hub.leased_count == 1
        position = await it.commit(assigned("a", 2))
        waiting = it.wait_moved(position, "a")
        newer.acknowledge((await newer.until(position))[-1].position)
        async with timeout(0.01):
            await waiting

    in_lease_world(scenario)


@pytest.mark.parametrize("excess", [0, 1])
def test_assignment_subscribers_max_leased_watches_are_served_and_one_more_refused(
    excess: int,
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        for number in range(ASSIGNMENT_SUBSCRIBERS_MAX - 1 + excess):
            it.subscribe(f"d-{number}")

        last = it.subscribe("one-more")

        if excess:
            assert isinstance(await refusal_of(last), Overloaded)
        else:
            assert (await last.take()).ttl_ms
        it.subscribe("d-0")
        assert it.hub.leased_count == ASSIGNMENT_SUBSCRIBERS_MAX, "one in the place of another"

    in_lease_world(scenario)


def test_closing_ends_subscriptions_and_waits() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)
        waiting = it.wait_moved(1)
        await asyncio.sleep(0.1)

        it.end_term()

        with pytest.raises(NotLeader):
            await waiting
        assert await subscriber.has_update()
        assert isinstance(await refusal_of(subscriber), NotLeader)
        assert it.hub.leased_count == 0

    in_lease_world(scenario)


def test_a_replica_that_does_not_lead_serves_no_leased_watch() -> None:
    async def scenario(it: LeaseWorld) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise NotLeader(1)

        it.hub.source.join = refuse  # type: ignore[assignment]

        assert isinstance(await refusal_of(it.subscribe()), NotLeader)
        assert (it.hub.leased_count, it.hub.watch_count) == (0, 0)

    in_lease_world(scenario)


@pytest.mark.parametrize(
    ("add", "change", "is_waited_for"),
    [
        ({}, (KIND_ASSIGNMENT, UNIT), True),
        ({"prefix": f"{ROOT}/"}, (KIND_ASSIGNMENT, UNIT), True),
        ({"prefix": "persistent://t/m/"}, (KIND_ASSIGNMENT, UNIT), False),
        ({"names": [UNIT]}, (KIND_ASSIGNMENT, UNIT), True),
        ({"names": [f"{ROOT}/a", f"{ROOT}/z"]}, (KIND_ASSIGNMENT, UNIT), False),
        ({"kinds": [KIND_TENANT]}, (KIND_ASSIGNMENT, UNIT), False),
        # The units of a topic follow from it.
        ({"prefix": UNIT}, (KIND_TOPIC, f"{ROOT}/x"), True),
        ({"prefix": f"{ROOT}/"}, (KIND_TOPIC, f"{ROOT}/x"), True),
        ({"prefix": "persistent://t/m/"}, (KIND_TOPIC, f"{ROOT}/x"), False),
        ({"names": [UNIT]}, (KIND_TOPIC, f"{ROOT}/x"), True),
        # Segments have another domain than their topic.
        ({"prefix": SEGMENTS}, (KIND_TOPIC, SCALABLE), True),
        ({"prefix": f"{SEGMENTS}x/"}, (KIND_TOPIC, SCALABLE), True),
        ({"prefix": f"{SEGMENTS}y/"}, (KIND_TOPIC, SCALABLE), False),
        ({"prefix": f"{ROOT}/"}, (KIND_TOPIC, SCALABLE), False),
        # Any unit may depend on a namespace and a tenant.
        ({"prefix": f"{ROOT}/"}, (KIND_NAMESPACE, "t/n"), True),
        ({"prefix": f"{ROOT}/"}, (KIND_TENANT, "t"), True),
    ],
)
def test_a_lease_is_waited_for_if_its_filter_may_cover_the_change(
    add: dict[str, object], change: tuple[int, str], is_waited_for: bool
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        subscriber = await subscribed(it, **add)
        position = await it.commit(assigned(UNIT, 2))

        waiting = asyncio.create_task(it.effective.wait_assigned(position, {change}, ()))  # type: ignore[arg-type]
        await asyncio.sleep(0.1)

        assert waiting.done() is not is_waited_for
        subscriber.acknowledge(position)
        await waiting

    in_lease_world(scenario)


def test_a_lease_that_does_not_cover_a_move_is_not_cut_off_by_it() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        other = await subscribed(it, "d-1", prefix="persistent://t/m/")
        silent = await subscribed(it, "d-2")
        await it.wait_moved(await it.commit(assigned(UNIT, 2)), UNIT)

        assert isinstance(await refusal_of(silent), Unavailable)
        assert await other.drain() is not None
        assert it.hub.leased_count == 1

    in_lease_world(scenario)
