"""A broker measures its segments and reports the rates that moved, once each."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from brokers.domain.holding import (
    Assignment,
    Holding,
    NamespaceMetadata,
    TenantMetadata,
    TopicMetadata,
)
from brokers.ports.session import SegmentTraffic
from brokers.service.session.segment_loads import SegmentLoads
from brokers.service.traffic import Traffic
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.governance.service_settings import DEFAULT_SETTINGS, resolve
from nextgen.kernel.limits.scalable import SEGMENT_LOADS_PER_REPORT_MAX
from tests.support.simulated.virtual_time import run_virtual

INTERVAL_MS = 10_000


def stored(text: str) -> Policies:
    return Policies(stored=(("scalableTopicAutoScalePolicy", text),)) if text else Policies()


class World:
    """A broker's holding, its open segments with their counters, and what was reported."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.holding = Holding()
        self.open: dict[str, Any] = {}
        self.reports: list[list[SegmentTraffic]] = []
        self.answers = True
        self.settings = DEFAULT_SETTINGS
        self.loads = SegmentLoads(
            lambda: self.holding,
            self.open.get,
            self._report,
            lambda: self.settings,
            lambda: self.now_ms,
        )

    def assign(self, segment: int = 0, *, epoch: int = 1, policy: str = "") -> str:
        topic = TopicMetadata("t-1", "topic://acme/orders/paid", 0, {}, 1, stored(policy))
        name = f"segment://acme/orders/paid/0000-ffff-{segment}"
        self.holding.apply(Assignment(topic, f"s{segment}", name, epoch, 1), self.now_ms)
        return name

    def serve(self, name: str) -> Traffic:
        traffic = Traffic()
        self.open[name] = SimpleNamespace(traffic=traffic)
        return traffic

    def _report(self, segments: list[SegmentTraffic]) -> None:
        self.reports.append(list(segments))
        if self.answers:
            self.loads.recorded(segments)

    async def measure(self) -> list[SegmentTraffic]:
        """Let an interval pass, measure, and return what was reported by it."""
        self.now_ms += INTERVAL_MS
        self.reports.clear()
        await self.loads.measure()
        return [each for report in self.reports for each in report]


async def test_rates_are_those_of_the_last_interval_and_reported_when_they_move():
    world = World()
    traffic = world.serve(world.assign())
    assert await world.measure() == [], "there is nothing to compare with"

    traffic.count_in(1_000, 50_000)
    (first,) = await world.measure()
    traffic.count_in(1_200, 60_000)
    quiet = await world.measure()
    traffic.count_in(1_300, 65_000)
    (moved,) = await world.measure()

    assert first == SegmentTraffic(
        "t-1", "s0", "segment://acme/orders/paid/0000-ffff-0", 1, Rates(100, 0, 5_000, 0)
    )
    assert quiet == [], "a fifth more is not enough"
    assert moved.rates.messages_in == 130


async def test_what_has_no_answer_is_reported_again_as_measured_then():
    world = World()
    world.answers = False
    traffic = world.serve(world.assign())
    await world.measure()
    traffic.count_in(1_000, 0)
    assert [each.rates.messages_in for each in await world.measure()] == [100]
    traffic.count_in(1_010, 0)
    assert [each.rates.messages_in for each in await world.measure()] == [101]


async def test_what_the_shard_has_on_record_counts_not_what_was_reported():
    """Finding 4: a new owner goes on from the record of the former one."""
    world = World()
    world.answers = False
    name = world.assign()
    traffic = world.serve(name)
    await world.measure()
    traffic.count_in(1_000, 0)
    (reported,) = await world.measure()

    world.loads.recorded([SegmentTraffic("t-1", "s0", name, 1, Rates(90))])
    traffic.count_in(1_120, 0)
    assert await world.measure() == []
    traffic.count_in(1_130, 0)
    assert len(await world.measure()) == 1
    assert reported.rates.messages_in == 100


async def test_a_segment_that_is_not_open_has_no_traffic():
    world = World()
    name = world.assign()
    (idle,) = await world.measure()
    assert idle.rates == Rates()
    assert await world.measure() == []

    world.serve(name).count_in(5_000, 0)
    assert await world.measure() == []
    world.open[name].traffic.count_in(1_000, 0)
    assert [each.rates.messages_in for each in await world.measure()] == [100]
    world.open.clear()
    assert [each.rates for each in await world.measure()] == [Rates()]


async def test_a_later_epoch_begins_anew_and_an_answer_to_the_former_one_does_not_count():
    """Finding 2: what is known of a segment goes when it leaves."""
    world = World()
    name = world.assign()
    await world.measure()
    world.assign(epoch=2)
    world.answers = False
    assert [each.epoch for each in await world.measure()] == [2]
    world.loads.recorded([SegmentTraffic("t-1", "s0", name, 1, Rates())])
    assert [each.epoch for each in await world.measure()] == [2]

    world.holding = Holding()
    assert await world.measure() == []
    assert repr(world.loads) == "<SegmentLoads segments=0>"


async def test_thresholds_are_those_of_the_topic_its_namespace_and_the_broker():
    """Finding 3: a rate that crosses a threshold by little is reported, at whatever level the
    threshold is set."""
    world = World()
    namespace = stored('{"splitMsgRateInThreshold": 3000, "mergeMsgRateInThreshold": 10}')
    world.holding.apply(NamespaceMetadata("n", "acme/orders", {}, 1, namespace), 0)
    traffic = world.serve(world.assign(policy='{"splitMsgRateInThreshold": 2000}'))
    await world.measure()
    for messages, is_reported in ((19_900, True), (20_100, True), (20_200, False), (20_300, False)):
        traffic.count_in(messages, 0)
        assert bool(await world.measure()) is is_reported, messages


async def test_other_units_and_odd_policies_do_no_harm():
    world = World()
    topic = TopicMetadata("t-2", "persistent://acme/orders/plain", 0, {}, 1)
    world.holding.apply(Assignment(topic, "", topic.name, 1, 1), 0)
    world.assign(policy='{"splitMsgRateInThreshold": 5}')
    assert [each.unit for each in await world.measure()] == ["s0"]


async def test_segment_loads_per_report_max_are_reported_and_one_more_with_the_next():
    world = World()
    for segment in range(SEGMENT_LOADS_PER_REPORT_MAX + 1):
        world.assign(segment)

    first = await world.measure()
    second = await world.measure()

    assert (len(first), len(second)) == (SEGMENT_LOADS_PER_REPORT_MAX, 1)
    assert await world.measure() == []


async def test_without_answers_every_segment_has_its_turn():
    world = World()
    world.answers = False
    for segment in range(SEGMENT_LOADS_PER_REPORT_MAX + 1):
        world.assign(segment)

    seen = {each.unit for _ in range(2) for each in await world.measure()}

    assert len(seen) == SEGMENT_LOADS_PER_REPORT_MAX + 1


async def test_a_namespace_without_thresholds_has_its_tenants():
    world = World()
    tenant = stored('{"splitMsgRateInThreshold": 2000, "mergeMsgRateInThreshold": 10}')
    world.holding.apply(TenantMetadata("t", "acme", {}, 1, tenant), 0)
    world.holding.apply(NamespaceMetadata("n", "acme/orders", {}, 1, Policies()), 0)
    traffic = world.serve(world.assign())
    await world.measure()
    for messages in (19_900, 20_100):
        traffic.count_in(messages, 0)
        assert await world.measure(), messages


async def test_the_change_that_is_reported_is_that_of_the_settings_in_force():
    world = World()
    traffic = world.serve(world.assign())
    await world.measure()
    traffic.count_in(1_000, 0)
    assert [each.rates.messages_in for each in await world.measure()] == [100]
    traffic.count_in(1_100, 0)
    assert await world.measure() == [], "a tenth more is not enough"

    world.settings = resolve({"scalableTopicLoadReportRateChangeThreshold": "0.05"})
    traffic.count_in(1_100, 0)

    assert [each.rates.messages_in for each in await world.measure()] == [110]


async def test_the_policy_of_the_service_is_that_of_the_settings_in_force():
    world = World()
    traffic = world.serve(world.assign())
    await world.measure()
    traffic.count_in(1_000, 0)
    await world.measure()
    world.settings = resolve({"scalableTopicMergeMsgRateInThreshold": "105"})
    traffic.count_in(1_100, 0)

    moved = await world.measure()

    assert [each.rates.messages_in for each in moved] == [110], "it crossed the threshold"


def test_another_interval_holds_at_once():
    async def main() -> None:
        world = World()
        measured: list[float] = []

        async def measure() -> None:
            measured.append(asyncio.get_running_loop().time() - began_at)

        world.loads.measure = measure  # type: ignore[method-assign]
        began_at = asyncio.get_running_loop().time()
        running = asyncio.ensure_future(world.loads.run())
        await asyncio.sleep(12)
        world.settings = resolve({"scalableTopicLoadReportIntervalSeconds": "3"})
        world.loads.settings_changed()
        await asyncio.sleep(5)
        running.cancel()

        assert measured == [10, 13, 16]

    run_virtual(main)
