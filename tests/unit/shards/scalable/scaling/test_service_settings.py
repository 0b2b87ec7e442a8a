"""Each service-level setting of scalable topics takes effect at once, without a new leader.

Finding 7 of the review of Apache Pulsar's PIP-483: settings called dynamic were read once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS, resolve
from tests.support.scalable.loads import (
    COLD,
    HOT,
    WARM,
    decided,
    register,
    report,
    set_policy,
    settle,
)
from tests.support.scalable.shard import ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE

Preparation = Callable[[ScalableShard], Awaitable[None]]


def loaded(*rates: Rates) -> Preparation:
    """Report the loads of the first segments, once."""

    async def prepare(shard: ScalableShard) -> None:
        await report(shard, dict(enumerate(rates)))

    return prepare


def again_loaded(rates: Rates) -> Preparation:
    """Report a load of each segment, and of those that an operation makes of them."""

    async def prepare(shard: ScalableShard) -> None:
        for _ in range(2):
            await report(shard, {each.segment_id: rates for each in shard.topic.active})
            await settle()

    return prepare


def consumed(consumers: int, rates: Rates) -> Preparation:
    async def prepare(shard: ScalableShard) -> None:
        await report(shard, {0: rates})
        for number in range(consumers):
            await register(shard, f"c{number}")
        await settle()

    return prepare


@dataclass(frozen=True)
class Case:
    """A setting whose change from ``before`` to ``after`` is what lets the next operation begin.

    ``more`` are other settings; ``done`` operations were decided before the change.
    """

    before: str
    after: str
    prepare: Preparation
    reason: str
    segments: int = 1
    done: int = 0
    more: tuple[tuple[str, str], ...] = ()


AT_ONCE = (("scalableTopicMergeWindowSeconds", "0"),)
IDLE = "cold"

CASES = {
    "scalableTopicAutoScaleEnabled": Case("false", "true", loaded(HOT), "msgRateIn"),
    "scalableTopicMaxSegments": Case("1", "2", loaded(HOT), "msgRateIn"),
    "scalableTopicMinSegments": Case("2", "1", loaded(COLD, COLD), IDLE, 2, more=AT_ONCE),
    "scalableTopicMaxDagDepth": Case("0", "1", loaded(COLD, COLD), IDLE, 2, more=AT_ONCE),
    "scalableTopicSplitCooldownSeconds": Case("3600", "0", again_loaded(HOT), "msgRateIn", done=1),
    "scalableTopicMergeCooldownSeconds": Case(
        "3600", "0", again_loaded(COLD), IDLE, 3, done=1, more=AT_ONCE
    ),
    "scalableTopicRebucketCooldownSeconds": Case(
        "3600", "0", consumed(9, COLD), "below-split-rate-floor", done=1
    ),
    "scalableTopicMergeWindowSeconds": Case("3600", "0", loaded(COLD, COLD), IDLE, 2),
    "scalableTopicSplitMsgRateInThreshold": Case(
        "30000", "19999", loaded(Rates(messages_in=20_000)), "msgRateIn"
    ),
    "scalableTopicSplitMsgRateOutThreshold": Case(
        "90000", "59999", loaded(Rates(messages_out=60_000)), "msgRateOut"
    ),
    "scalableTopicSplitBytesRateInThreshold": Case(
        "90000000", "59999999", loaded(Rates(bytes_in=60_000_000)), "bytesRateIn"
    ),
    "scalableTopicSplitBytesRateOutThreshold": Case(
        "900000000", "299999999", loaded(Rates(bytes_out=300_000_000)), "bytesRateOut"
    ),
    "scalableTopicSplitVsRebucketMinMsgRateInThreshold": Case(
        "2001", "2000", consumed(2, WARM), "consumer-count"
    ),
    "scalableTopicMergeMsgRateInThreshold": Case(
        "100", "101", loaded(*[Rates(messages_in=100)] * 2), IDLE, 2, more=AT_ONCE
    ),
    "scalableTopicMergeMsgRateOutThreshold": Case(
        "100", "101", loaded(*[Rates(messages_out=100)] * 2), IDLE, 2, more=AT_ONCE
    ),
    "scalableTopicMergeBytesRateInThreshold": Case(
        "100", "101", loaded(*[Rates(bytes_in=100)] * 2), IDLE, 2, more=AT_ONCE
    ),
    "scalableTopicMergeBytesRateOutThreshold": Case(
        "100", "101", loaded(*[Rates(bytes_out=100)] * 2), IDLE, 2, more=AT_ONCE
    ),
}
"""By setting."""

ELSEWHERE = {
    "scalableTopicAutoScaleIntervalSeconds": "test_the_interval_of_ticks_is_the_present_one",
    "scalableTopicLoadReportIntervalSeconds": "test_another_interval_holds_at_once",
    "scalableTopicLoadReportRateChangeThreshold": "test_a_smaller_change_is_recorded_at_once",
}
"""The other settings of scalable topics, and their tests here and of brokers."""


def test_every_setting_of_scalable_topics_has_a_test() -> None:
    named = {name for name in DEFAULT_TEXTS if name.startswith("scalableTopic")}

    assert named == CASES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_setting_takes_effect_at_once(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    async def story(shard: ScalableShard) -> None:
        texts = {**dict(case.more), name: case.before}
        shard.harness.cluster.set_settings(resolve(texts))
        await case.prepare(shard)
        await settle(30)
        assert len(await decided(shard)) == case.done

        shard.harness.cluster.set_settings(resolve({**texts, name: case.after}))
        await settle()

        assert [each.reason for each in await decided(shard)][case.done :][:1] == [case.reason]

    in_scalable_shard(tmp_path, story, segments=case.segments)


@run_by(in_scalable_shard)
async def test_the_interval_of_ticks_is_the_present_one(shard: ScalableShard) -> None:
    """Watches of namespaces are silent here, so a tick finds that a namespace's policy changed."""
    interval = "scalableTopicAutoScaleIntervalSeconds"
    shard.harness.cluster.set_settings(resolve({interval: "3600"}))
    await set_policy(shard, name=NAMESPACE, maxSegments=1)
    await report(shard, {0: HOT})
    await settle()
    await set_policy(shard, name=NAMESPACE, maxSegments=8)
    await settle(600)
    assert len(shard.topic.active) == 1

    shard.harness.cluster.set_settings(resolve({interval: "10"}))
    await settle()
    await set_policy(shard, name=NAMESPACE, maxSegments=1, splitCooldownSeconds=0)
    await settle(30)
    assert len(shard.topic.active) == 2
    await report(shard, {1: HOT})
    await set_policy(shard, name=NAMESPACE, maxSegments=8, splitCooldownSeconds=0)
    await settle(15)

    assert len(shard.topic.active) == 3


@run_by(in_scalable_shard)
async def test_a_smaller_change_is_recorded_at_once(shard: ScalableShard) -> None:
    await report(shard, {0: Rates(100)})
    assert await report(shard, {0: Rates(110)}) == [Rates(100)]

    shard.harness.cluster.set_settings(
        resolve({"scalableTopicLoadReportRateChangeThreshold": "0.05"})
    )

    assert await report(shard, {0: Rates(110)}) == [Rates(110)]


@run_by(in_scalable_shard)
async def test_a_policy_of_the_topic_counts_above_the_settings(shard: ScalableShard) -> None:
    await set_policy(shard, maxSegments=1)
    await report(shard, {0: HOT})
    await settle()

    shard.harness.cluster.set_settings(resolve({"scalableTopicMaxSegments": "8"}))
    await settle()

    assert len(shard.topic.active) == 1


@run_by(in_scalable_shard)
async def test_settings_of_others_evaluate_no_topic(shard: ScalableShard) -> None:
    await report(shard, {0: COLD})
    await settle()
    before = evaluated(shard)

    shard.harness.cluster.set_settings(resolve({"loadBalancerEnabled": "false"}))
    await settle()
    assert evaluated(shard) == before

    shard.harness.cluster.set_settings(resolve({"scalableTopicMaxSegments": "8"}))
    await settle()
    assert evaluated(shard) == before + 1


def evaluated(shard: ScalableShard) -> float:
    return shard.harness.leader.metrics._auto_scale["evaluated"]._value.get()
