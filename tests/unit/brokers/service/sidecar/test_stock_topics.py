"""The open topics of a stock broker, by its reports."""

from __future__ import annotations

import asyncio

import pytest

from brokers.domain.former_names import OldName
from brokers.domain.holding import Assignment, Holding, TopicMetadata
from brokers.ports.plugin import PluginFault, PluginLost, TopicsReported
from brokers.service.sidecar import stock_topics as stock_topics_module
from brokers.service.sidecar.stock_topics import StockTopics
from brokers.service.topics.idle_units import IdleUnits
from nextgen.kernel.limits.stream import PLUGIN_OBEYS_MS
from nextgen.tasks.background import failures, keep
from nextgen.tasks.timeouts import timeout
from tests.support.processes.kept_tasks import break_kept, has_begun_again

TOPIC = "persistent://acme/orders/eu"
IDLE_MS = 60_000


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.holding = Holding()
        self.topics = StockTopics(lambda: self.holding, lambda: self.now_ms, lambda: self.now_ms)
        self.idle: list[str] = []
        self.search = IdleUnits(
            lambda: self.holding,
            self.topics.get,
            lambda units: self.idle.extend(unit.name for unit in units),
            lambda: self.now_ms,
            service_ms=lambda: IDLE_MS,
            has_upkeep=lambda _unit: False,
        )

    def assign(self, name: str = TOPIC, *, former: str = "") -> None:
        old = (OldName(former, 10**15),) if former else ()
        topic = TopicMetadata(f"id-{name}", name, 0, {}, 1, former_names=old)
        self.holding.apply(Assignment(topic, "", name, 5, 1), self.now_ms)

    def report(self, *, first: bool = False, last: bool = True, **lists: list[str]) -> None:
        self.topics.take(TopicsReported(first, last, **lists))

    async def pass_time(self, ms: int) -> list[str]:
        self.now_ms += ms
        self.idle.clear()
        await self.search.look()
        return list(self.idle)


@pytest.fixture
def world() -> World:
    return World()


async def test_nothing_is_idle_before_the_plugin_has_reported(world: World) -> None:
    world.assign()
    await world.pass_time(0)
    assert await world.pass_time(IDLE_MS) == []

    world.report(first=True, last=False)
    assert await world.pass_time(IDLE_MS) == []


async def test_a_topic_that_is_in_use_is_never_idle(world: World) -> None:
    world.assign()
    world.report(first=True, used=[TOPIC])

    assert [await world.pass_time(IDLE_MS) for _ in range(3)] == [[], [], []]


async def test_a_topic_is_idle_when_it_was_not_used_for_its_time(world: World) -> None:
    world.assign()
    world.report(first=True, used=[TOPIC])
    await world.pass_time(IDLE_MS)
    world.report(unused=[TOPIC])

    assert await world.pass_time(IDLE_MS - 1) == []
    assert await world.pass_time(1) == [TOPIC]


async def test_a_topic_that_pulsar_closed_or_never_opened_is_idle_too(world: World) -> None:
    closed, never = TOPIC, f"{TOPIC}-2"
    world.assign(closed)
    world.assign(never)
    world.report(first=True, used=[closed])
    world.report(closed=[closed])
    await world.pass_time(0)

    assert sorted(await world.pass_time(IDLE_MS)) == [closed, never]


async def test_use_begins_the_time_anew(world: World) -> None:
    world.assign()
    world.report(first=True, unused=[TOPIC])
    await world.pass_time(IDLE_MS - 1)
    world.report(used=[TOPIC])
    await world.pass_time(1_000)
    world.report(unused=[TOPIC])

    assert await world.pass_time(IDLE_MS - 1) == []
    assert await world.pass_time(1) == [TOPIC]


async def test_the_search_for_idle_topics_goes_on_after_its_task_ended(world: World) -> None:
    searching = keep("idle_stock_units", world.search.run)
    await asyncio.sleep(0)

    broken = break_kept("idle_stock_units")

    async with timeout(30):
        while not has_begun_again("idle_stock_units", broken):
            await asyncio.sleep(0.01)
    searching.cancel()
    failures.clear()


def test_a_topic_that_is_not_assigned_is_disobeyed_after_some_time_and_again(world: World) -> None:
    world.report(first=True, unused=[TOPIC])
    assert world.topics.disobeyed() == []
    world.now_ms += PLUGIN_OBEYS_MS - 1
    assert world.topics.disobeyed() == []
    world.now_ms += 1
    assert world.topics.disobeyed() == [TOPIC]
    assert world.topics.disobeyed() == []
    world.now_ms += PLUGIN_OBEYS_MS
    assert world.topics.disobeyed() == [TOPIC]


@pytest.mark.parametrize("end", ["closed", "assigned", "first"])
def test_a_topic_that_is_closed_or_assigned_in_time_is_not_disobeyed(
    world: World, end: str
) -> None:
    world.report(first=True, used=[TOPIC])
    world.topics.disobeyed()
    if end == "closed":
        world.report(closed=[TOPIC])
    elif end == "assigned":
        world.assign()
    else:
        world.report(first=True)
    world.now_ms += PLUGIN_OBEYS_MS

    assert world.topics.disobeyed() == []


def test_a_renamed_topic_may_be_open_under_its_former_name(world: World) -> None:
    world.assign("persistent://acme/orders/new", former=TOPIC)
    world.report(first=True, used=[TOPIC])
    world.topics.disobeyed()
    world.now_ms += PLUGIN_OBEYS_MS

    assert world.topics.disobeyed() == []


async def test_a_renamed_topic_that_is_used_under_its_former_name_is_not_idle(world: World) -> None:
    world.assign("persistent://acme/orders/new", former=TOPIC)
    world.report(first=True, used=[TOPIC])
    await world.pass_time(0)

    assert await world.pass_time(IDLE_MS) == []


def test_a_name_that_the_cluster_cannot_have_is_not_assigned(world: World) -> None:
    world.report(first=True, used=["no name"])
    world.topics.disobeyed()
    world.now_ms += PLUGIN_OBEYS_MS

    assert world.topics.disobeyed() == ["no name"]


@pytest.mark.parametrize("over", [0, 1])
def test_plugin_open_topics_max(world: World, monkeypatch: pytest.MonkeyPatch, over: int) -> None:
    monkeypatch.setattr(stock_topics_module, "PLUGIN_OPEN_TOPICS_MAX", 3)
    names = [f"{TOPIC}-{number}" for number in range(3 + over)]
    if over:
        with pytest.raises(PluginLost) as raised:
            world.report(first=True, used=names)
        assert raised.value.fault is PluginFault.OVERSIZED
    else:
        world.report(first=True, used=names)
        assert len(world.topics) == 3
