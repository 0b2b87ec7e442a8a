"""Calls to many units: how many at a time, in whose turn, and what is held of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from discovery.service.admin import unit_calls
from discovery.service.admin.unit_calls import UnitCalls
from nextgen.kernel.errors import ConnectionLost, Overloaded, Unavailable
from nextgen.kernel.limits.rest import (
    TENANT_UNITS_CALLED_MAX,
    TOPIC_UNITS_CALLED_MAX,
    UNIT_ANSWERS_BYTES,
    UNITS_CALLED_MAX,
    UNITS_WAITING_MAX,
)
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.tasks.background import cancel_and_wait
from protos.nextgen.v1.topic_admin_pb2 import StoredEntry


class World:
    """Calls that run until they are let go, and the requests that make them."""

    def __init__(self) -> None:
        self.calls = UnitCalls()
        self.running: list[str] = []
        self.done: list[str] = []
        self.refused: list[Overloaded] = []
        self._let_go = asyncio.Semaphore(0)
        self._requests: list[asyncio.Task[None]] = []

    async def call(self, unit: TopicName) -> None:
        self.running.append(unit.text)
        await self._let_go.acquire()
        self.running.remove(unit.text)
        self.done.append(unit.text)

    async def request(self, *units: TopicName) -> None:
        """Begin a request, and return when its calls run or wait."""
        self._requests.append(asyncio.create_task(self._request(units)))
        await settled()

    async def _request(self, units: tuple[TopicName, ...]) -> None:
        try:
            await self.calls.each(units, self.call)
        except Overloaded as error:
            self.refused.append(error)

    def running_of(self, tenant: str) -> int:
        return sum(parse_topic(name).tenant == tenant for name in self.running)

    async def let_go(self, count: int) -> None:
        for _ in range(count):
            self._let_go.release()
        await settled()

    async def stop(self) -> None:
        await cancel_and_wait(*self._requests)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.stop()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def units_of(tenant: str, count: int, topic: str = "t") -> list[TopicName]:
    topic_name = parse_topic(f"persistent://{tenant}/n/{topic}")
    return [topic_name.of_partition(number) for number in range(count)]


async def test_tenant_units_called_max_run_at_a_time_and_one_more_waits(world: World):
    await world.request(*units_of("a", TENANT_UNITS_CALLED_MAX))
    await world.request(*units_of("a", 1, "other"))

    assert world.running_of("a") == TENANT_UNITS_CALLED_MAX

    await world.let_go(1)
    assert world.running_of("a") == TENANT_UNITS_CALLED_MAX
    assert "persistent://a/n/other-partition-0" in world.running


async def test_units_called_max_run_at_a_time_and_one_more_waits_for_its_tenants_turn(
    world: World,
):
    tenants = [f"t{number}" for number in range(UNITS_CALLED_MAX // TENANT_UNITS_CALLED_MAX)]
    for tenant in tenants:
        await world.request(*units_of(tenant, 3 * TENANT_UNITS_CALLED_MAX))
    await world.request(*units_of("late", 2))

    assert len(world.running) == UNITS_CALLED_MAX
    assert world.running_of("late") == 0

    await world.let_go(1)
    # The tenants have all their room, so only the late one waits for a turn.
    assert len(world.running) == UNITS_CALLED_MAX
    assert world.running_of("late") == 1


async def test_tenants_that_wait_have_turns_in_turn(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unit_calls, "UNITS_CALLED_MAX", 2)
    await world.request(*units_of("busy", TENANT_UNITS_CALLED_MAX))
    await world.request(*units_of("quiet", 1))

    await world.let_go(2)

    assert world.running_of("quiet") == 1


async def test_units_waiting_max_wait_for_a_turn_and_one_more_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    assert UNITS_WAITING_MAX > TENANT_UNITS_CALLED_MAX
    monkeypatch.setattr(unit_calls, "UNITS_CALLED_MAX", 1)
    monkeypatch.setattr(unit_calls, "TENANT_UNITS_CALLED_MAX", 2)
    monkeypatch.setattr(unit_calls, "UNITS_WAITING_MAX", 2)
    world = World()
    for tenant in ("a", "b", "c"):
        await world.request(*units_of(tenant, 1))
    assert world.refused == []

    await world.request(*units_of("d", 1))

    assert len(world.refused) == 1
    await world.stop()


async def test_a_request_that_is_given_up_leaves_its_room_to_others(world: World):
    for tenant in ("a", "b", "c"):
        await world.request(*units_of(tenant, TENANT_UNITS_CALLED_MAX))
    assert world.running_of("c") == 0

    await world.stop()

    assert repr(world.calls) == "<UnitCalls running=0 tenants=0>"


async def test_the_worst_failure_is_raised_when_all_units_were_called():
    calls, called = UnitCalls(), []
    failures = {0: Unavailable("nobody"), 2: ConnectionLost("in the middle"), 3: Unavailable("x")}

    async def call(unit: TopicName) -> None:
        assert unit.partition is not None
        called.append(unit.partition)
        if failure := failures.get(unit.partition):
            raise failure

    with pytest.raises(ConnectionLost):
        await calls.each(units_of("a", 5), call)
    assert called == [0, 1, 2, 3, 4]


async def test_units_that_are_not_called_in_time_are_a_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(unit_calls, "REQUEST_TIMEOUT_MAX_MS", 1)

    with pytest.raises(Unavailable, match="repeat it"):
        await world.calls.each(units_of("a", 1), world.call)

    assert repr(world.calls) == "<UnitCalls running=0 tenants=0>"


# In order ---------------------------------------------------------------------------------------


class Answering:
    """Counts the answers that were made and not taken."""

    def __init__(self, answer_bytes: int) -> None:
        self._answer_bytes = answer_bytes
        self.made = 0

    async def call(self, unit: TopicName) -> StoredEntry:
        self.made += 1
        return StoredEntry(payload=bytes(self._answer_bytes), publish_time_ms=unit.partition or 0)


async def held_at_most(answer_bytes: int, count: int) -> int:
    answering, taken, held = Answering(answer_bytes), 0, 0
    answers = UnitCalls().in_order(units_of("a", count), answering.call)
    async with aclosing(answers):
        async for unit, answer in answers:
            assert unit.partition == answer.publish_time_ms == taken
            taken += 1
            await settled()
            held = max(held, answering.made - taken)
    assert taken == count
    return held


async def test_answers_come_in_order_and_few_are_held():
    assert await held_at_most(1, 3 * TOPIC_UNITS_CALLED_MAX) == TOPIC_UNITS_CALLED_MAX - 1


async def test_of_answers_of_unit_answers_bytes_one_is_held_at_a_time():
    assert await held_at_most(UNIT_ANSWERS_BYTES // 4, 20) < 4
    assert await held_at_most(UNIT_ANSWERS_BYTES + 1, 5) == 0


async def test_no_unit_is_called_behind_a_failure():
    called = []

    async def call(unit: TopicName) -> StoredEntry:
        called.append(unit.partition)
        raise Unavailable("nobody")

    answers = UnitCalls().in_order(units_of("a", 99), call)
    with pytest.raises(Unavailable):
        await anext(answers)
    assert called == [0]


async def test_calls_end_with_the_generator():
    world, calls = World(), UnitCalls()

    async def call(unit: TopicName) -> StoredEntry:
        if unit.partition:
            await world.call(unit)
        return StoredEntry()

    answers = calls.in_order(units_of("a", 99), call)
    await anext(answers)
    waiting = asyncio.create_task(anext(answers))
    await settled()
    assert world.running
    await cancel_and_wait(waiting)
    await answers.aclose()

    assert repr(calls) == "<UnitCalls running=0 tenants=0>"
