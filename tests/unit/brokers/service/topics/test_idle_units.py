"""Exactly the units without use for their idle time are reported."""

from __future__ import annotations

import pytest

from brokers.domain.holding import (
    Assignment,
    Holding,
    NamespaceMetadata,
    Release,
    TenantMetadata,
    TopicMetadata,
)
from brokers.service.topics.idle_units import IdleUnits
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.placement import (
    IDLE_LOOK_MS,
    IDLE_LOOK_MS_MIN,
    IDLE_UNITS_PER_MESSAGE_MAX,
)

MINUTE_MS = 60_000


class OpenTopic:
    """As much of an open topic as is asked."""

    def __init__(self) -> None:
        self.has_clients = True
        self.is_usable = True
        self.idle_since_ms: int | None = None

    def idle_for_ms(self, now_ms: int) -> int:
        return 0 if self.idle_since_ms is None else now_ms - self.idle_since_ms


class World:
    """A broker's holding, its open topics, a clock, and what was reported."""

    def __init__(self, *, tenant_ms=None, namespace_ms=None, service_ms=0) -> None:
        self.now_ms = 0
        self.service_ms = service_ms
        self.with_upkeep: set[str] = set()
        self.holding = Holding()
        self.open: dict[str, OpenTopic] = {}
        self.reported: list[list[tuple[str, int]]] = []
        self.holding.apply(TenantMetadata("t", "acme", {}, 1, _idle(tenant_ms)), 0)
        self.holding.apply(NamespaceMetadata("n", "acme/orders", {}, 1, _idle(namespace_ms)), 0)
        self.idle = IdleUnits(
            lambda: self.holding,
            self.open.get,
            self._report,
            lambda: self.now_ms,
            service_ms=lambda: self.service_ms,
            has_upkeep=lambda unit: unit.name in self.with_upkeep,
        )

    def assign(self, name: str, *, epoch: int = 1, topic_ms=None) -> str:
        full = f"persistent://acme/orders/{name}"
        topic = TopicMetadata(f"id-{name}", full, 0, {}, 1, _idle(topic_ms))
        self.holding.apply(Assignment(topic, "", full, epoch, 1), self.now_ms)
        return full

    async def look(self, minutes: float = 1) -> list[list[tuple[str, int]]]:
        """Let time pass, look once, and return what was reported by it."""
        self.now_ms += int(minutes * MINUTE_MS)
        self.reported.clear()
        await self.idle.look()
        return self.reported

    def _report(self, units) -> None:
        self.reported.append([(unit.name, unit.epoch) for unit in units])


def _idle(idle_time_ms: int | None) -> Policies:
    return NO_POLICIES if idle_time_ms is None else Policies(idle_time_ms=idle_time_ms)


async def test_a_unit_that_no_client_ever_opened_is_named_after_its_idle_time():
    world = World(namespace_ms=5 * MINUTE_MS)
    name = world.assign("never")

    assert [await world.look() for _ in range(5)] == [[]] * 5
    assert await world.look() == [[(name, 1)]]


async def test_where_no_policy_says_more_the_service_level_counts_from_the_next_round_on():
    world = World(service_ms=5 * MINUTE_MS)
    name = world.assign("some")
    for_ever = world.assign("for-ever", topic_ms=0)
    await world.look()
    assert await world.look(4) == []

    assert await world.look(2) == [[(name, 1)]]
    world.service_ms = 0
    assert await world.look(2) == []
    world.service_ms = MINUTE_MS
    await world.look()
    assert await world.look(2) == [[(name, 1)]], for_ever


async def test_a_unit_with_upkeep_stays_until_that_is_done():
    world = World(namespace_ms=MINUTE_MS)
    name = world.assign("old-messages")
    world.with_upkeep.add(name)
    assert [await world.look(10) for _ in range(3)] == [[]] * 3

    world.with_upkeep.clear()

    assert await world.look(0) == [[(name, 1)]]


async def test_upkeep_is_asked_about_only_where_a_unit_is_about_to_leave():
    asked = []
    world = World(namespace_ms=5 * MINUTE_MS)
    world.assign("some")
    world.idle._has_upkeep = lambda unit: asked.append(unit.name) or False
    for _ in range(4):
        await world.look()
    assert asked == []


@pytest.mark.parametrize(
    ("units", "pause_ms"),
    [
        (0, IDLE_LOOK_MS_MIN),
        (IDLE_LOOK_MS_MIN + 1, IDLE_LOOK_MS_MIN + 1),
        (IDLE_LOOK_MS + 1, IDLE_LOOK_MS),
    ],
)
def test_fewer_units_are_looked_at_more_often(units, pause_ms):
    world = World()
    world.holding.assignments = dict.fromkeys(range(units))

    assert world.idle.pause_ms == pause_ms


async def test_a_source_that_feeds_shadows_stays_and_its_time_begins_when_they_leave():
    """An open topic that feeds shadows has no clients and is not idle."""
    world = World(namespace_ms=5 * MINUTE_MS)
    name = world.assign("source")
    topic = world.open[name] = OpenTopic()
    topic.has_clients = False
    assert [await world.look(10) for _ in range(3)] == [[]] * 3

    topic.idle_since_ms = world.now_ms

    assert await world.look(4.9) == []
    assert await world.look(0.2) == [[(name, 1)]]


async def test_a_unit_without_an_idle_time_stays():
    world = World()
    world.assign("for-ever")

    assert [await world.look(600) for _ in range(3)] == [[]] * 3


@pytest.mark.parametrize(
    ("tenant_ms", "namespace_ms", "topic_ms", "is_named"),
    [
        (MINUTE_MS, None, None, True),
        (MINUTE_MS, 0, None, False),
        (None, MINUTE_MS, 99 * MINUTE_MS, False),
        (None, 0, MINUTE_MS, True),
    ],
)
async def test_the_nearest_idle_time_counts(tenant_ms, namespace_ms, topic_ms, is_named):
    world = World(tenant_ms=tenant_ms, namespace_ms=namespace_ms)
    world.assign("some", topic_ms=topic_ms)
    await world.look()

    assert bool(await world.look(5)) is is_named


async def test_a_unit_with_clients_is_in_use_and_its_time_begins_when_they_leave():
    world = World(namespace_ms=5 * MINUTE_MS)
    name = world.assign("used")
    topic = world.open[name] = OpenTopic()
    assert [await world.look(10) for _ in range(3)] == [[]] * 3

    topic.has_clients = False
    topic.idle_since_ms = world.now_ms
    assert await world.look(4.9) == []
    assert await world.look(0.2) == [[(name, 1)]]


async def test_a_topic_that_is_closed_for_being_idle_goes_on_being_idle():
    world = World(namespace_ms=5 * MINUTE_MS)
    name = world.assign("closed")
    topic = world.open[name] = OpenTopic()
    topic.has_clients = False
    topic.idle_since_ms = 0
    assert await world.look(2) == []

    del world.open[name]

    assert await world.look(2) == []
    assert await world.look(2) == [[(name, 1)]]


async def test_a_unit_that_came_back_under_another_epoch_begins_anew():
    world = World(namespace_ms=5 * MINUTE_MS)
    name = world.assign("moved")
    await world.look(4)
    world.holding.apply(Release("id-moved", "", name, 1, "", 0, "", ""), world.now_ms)
    world.assign("moved", epoch=3)

    assert await world.look(4) == []
    assert await world.look(4) == []
    assert await world.look(4) == [[(name, 3)]]


async def test_a_unit_of_which_nothing_comes_back_is_named_again():
    world = World(namespace_ms=MINUTE_MS)
    name = world.assign("stays")
    await world.look()

    assert await world.look() == [[(name, 1)]]
    assert await world.look() == [[(name, 1)]]


async def test_a_message_names_so_many_and_the_others_come_later():
    world = World(namespace_ms=MINUTE_MS)
    for number in range(IDLE_UNITS_PER_MESSAGE_MAX + 1):
        world.assign(f"t-{number}")
    await world.look()

    (first,) = await world.look()
    assert len(first) == IDLE_UNITS_PER_MESSAGE_MAX
    for name, epoch in first:
        topic_id = "id-" + name.rpartition("/")[2]
        world.holding.apply(Release(topic_id, "", name, epoch, "", 0, "", ""), world.now_ms)
    (second,) = await world.look(0)
    assert len(second) == 1
