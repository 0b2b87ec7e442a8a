"""Topics that are split and merged by themselves: when they are evaluated, and what comes of it.

Findings are those of the review of Apache Pulsar's PIP-483 (docs/flows/auto-scale.md).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance import service_settings
from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE, resolve
from nextgen.kernel.governance.policies import NO_POLICIES
from nextgen.kernel.limits.scalable import AUTO_SCALE_TICK_MS, LAYOUT_CHANGE_READY_MS
from nextgen.kernel.scalable import auto_scale
from nextgen.kernel.scalable.auto_scale import Action
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.assignment.placement_policies import PlacementPolicies
from shards.domain.scalable.events import (
    AutoScaleDecided,
    LayoutChanged,
    ScalableTopicEvent,
    SegmentLoadsRecorded,
)
from shards.domain.scalable.loads import TopicLoads
from shards.domain.scalable.loads import evolve as evolve_loads
from shards.domain.scalable.state import ScalableTopic, evolve
from shards.scalable.scaling import auto_scaler
from shards.scalable.scaling.auto_scaler import AutoScaler
from shards.wire.event import decode_event
from tests.support.scalable.loads import (
    COLD,
    HOT,
    IDLE,
    WARM,
    decided,
    register,
    report,
    set_policy,
    settle,
)
from tests.support.scalable.shard import NAME, ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE

TICK_S = AUTO_SCALE_TICK_MS / 1_000


def active(shard: ScalableShard) -> int:
    return len(shard.topic.active)


@run_by(in_scalable_shard)
async def test_a_hot_segment_is_split_and_the_record_says_why(shard: ScalableShard) -> None:
    await report(shard, {0: HOT})
    await settle()

    (why,) = await decided(shard)
    assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}
    assert (why.name, why.operation_id, why.kind, why.reason) == (NAME, 1, "split", "msgRateIn")
    assert [(each.segment_id, each.rates.messages_in) for each in why.loads] == [(0, 20_000)]
    assert json.loads(why.policy)["splitMsgRateInThreshold"] == 10_000
    (planned,) = await shard.harness.events("layout_change_planned")
    (event,) = await shard.harness.events("auto_scale_decided")
    assert planned.layout_change_planned.asked_by == "auto_scale"
    assert event.position == planned.position + 1, "in the record of the plan"
    assert why.evaluated_at_ms == planned.layout_change_planned.planned_at_ms


@run_by(in_scalable_shard, segments=2)
async def test_cold_segments_are_merged_when_the_window_is_over(shard: ScalableShard) -> None:
    """No report comes at the end of the window: the leader has noted it."""
    await report(shard, {0: COLD, 1: IDLE})
    await asyncio.sleep(299)
    assert active(shard) == 2

    await settle()

    assert [each.reason for each in await decided(shard)] == ["cold"]
    assert shard.units == {"s0": "sealed", "s1": "sealed", "s2": "active"}


@run_by(in_scalable_shard)
async def test_a_burst_of_consumers_is_answered_at_one_split_for_each_cooldown(
    shard: ScalableShard,
) -> None:
    """Finding 8: nothing but the end of the cool-down has the topic evaluated again."""
    await set_policy(shard, splitCooldownSeconds=10)
    await report(shard, {0: WARM})
    for number in range(4):
        await register(shard, f"c{number}")
    await settle()
    assert active(shard) == 2
    await report(shard, dict.fromkeys((1, 2), WARM))
    await asyncio.sleep(4)
    assert active(shard) == 2

    await asyncio.sleep(2)
    assert active(shard) == 3
    await report(shard, {each.segment_id: WARM for each in shard.topic.active})
    await asyncio.sleep(11)

    assert active(shard) == 4
    assert {each.reason for each in await decided(shard)} == {"consumer-count"}


@run_by(in_scalable_shard)
async def test_a_consumer_that_comes_during_an_evaluation_is_not_overlooked(
    shard: ScalableShard,
) -> None:
    """Finding 8: a note during an evaluation has the topic evaluated once more."""
    evaluate, evaluated = AutoScaler._evaluate, 0

    async def slow(self: AutoScaler, *arguments: object) -> None:
        nonlocal evaluated
        evaluated += 1
        await evaluate(self, *arguments)  # type: ignore[arg-type]
        await asyncio.sleep(3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoScaler, "_evaluate", slow)
        patch.setattr(PlacementPolicies, "known", lambda *_: NO_POLICIES)
        await report(shard, {0: WARM})
        await asyncio.sleep(1)
        await register(shard, "a")
        await register(shard, "b")
        await asyncio.sleep(1)
        assert active(shard) == 1, "the first evaluation is not over"

        await settle(10)

    assert active(shard) == 2


@run_by(in_scalable_shard)
async def test_the_end_of_a_consumer_has_the_topic_evaluated(shard: ScalableShard) -> None:
    """Nothing but the consumer that leaves holds back the merge."""
    await set_policy(shard, mergeWindowSeconds=0, splitVsRebucketMinMsgRateInThreshold=1)
    await shard.change("split", 0)
    await register(shard, "a")
    await register(shard, "b")
    await report(shard, {1: COLD, 2: COLD})
    await settle()
    assert active(shard) == 2

    body = pb.RemoveScalableConsumer(name=NAME, subscription="s", consumer_name="b", reason="left")
    await shard.run(remove_scalable_consumer=body)
    await settle()

    assert active(shard) == 1


@run_by(in_scalable_shard)
async def test_a_consumer_that_expires_has_the_topic_evaluated(shard: ScalableShard) -> None:
    """None of these consumers is attached: their grace ends a minute after the leader began."""
    await set_policy(shard, mergeWindowSeconds=0, splitVsRebucketMinMsgRateInThreshold=1)
    await shard.change("split", 0)
    for name in ("a", "b"):
        await register(shard, name)
    await report(shard, {1: COLD, 2: COLD})
    interval = {"scalableTopicAutoScaleIntervalSeconds": "3600"}
    shard.harness.cluster.set_settings(service_settings.resolve(interval))
    shard.stop_leader()
    await shard.start_leader()
    await settle()
    assert active(shard) == 2

    await asyncio.sleep(65)

    assert active(shard) == 1


@run_by(in_scalable_shard)
async def test_a_cooldown_counts_on_behind_a_failover(shard: ScalableShard) -> None:
    """Finding 6: the time of the last split is in the log."""
    await report(shard, {0: HOT})
    await settle()
    await report(shard, {1: HOT, 2: COLD})
    shard.stop_leader()
    await shard.start_leader()
    await asyncio.sleep(45)
    assert active(shard) == 2

    await asyncio.sleep(20)

    assert active(shard) == 3


@run_by(in_scalable_shard)
async def test_a_split_that_was_taken_back_burns_no_cooldown(shard: ScalableShard) -> None:
    """Finding 6: as soon as brokers are back the split is tried again."""
    await set_policy(shard, splitCooldownSeconds=3_600)
    await report(shard, {0: HOT})
    shard.segments.down.update(["broker-1:1", "broker-2:1"])
    await asyncio.sleep(LAYOUT_CHANGE_READY_MS / 1_000 + 5)
    assert await shard.harness.events("layout_change_abandoned")

    shard.segments.down.clear()
    await settle(40)

    assert active(shard) == 2


@run_by(in_scalable_shard)
async def test_a_topic_whose_evaluation_fails_is_evaluated_again(shard: ScalableShard) -> None:
    """Finding 1: whatever is raised, the topic is evaluated again."""
    evaluate, failures = auto_scaler.auto_scale.decide, 1

    def failing(*arguments: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("it breaks")
        return evaluate(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_scaler.auto_scale, "decide", failing)
        await report(shard, {0: HOT})
        await settle()
        assert active(shard) == 1

        await asyncio.sleep(10)

    assert active(shard) == 2


@run_by(in_scalable_shard)
async def test_every_setting_takes_effect_at_once(shard: ScalableShard) -> None:
    """Finding 7: turned on and off, and a threshold lowered, without a new leader or a report."""
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    await settle()
    assert active(shard) == 1

    await set_policy(shard, enabled=True)
    await settle()
    assert active(shard) == 2

    await report(shard, {1: WARM, 2: COLD})
    await set_policy(shard, splitMsgRateInThreshold=1_999, splitCooldownSeconds=0)
    await settle()
    assert active(shard) == 3


@run_by(in_scalable_shard)
async def test_a_tick_evaluates_no_topic_of_a_namespace_that_is_watched(
    shard: ScalableShard,
) -> None:
    """A change of it would be pushed: a shard with many topics has nothing to do at a tick."""
    evaluations: Any = shard.harness.node_metrics.auto_scale.labels("evaluated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlacementPolicies, "known", lambda *_: NO_POLICIES)
        await report(shard, {0: WARM})
        await settle()
        before = evaluations._value.get()
        assert before >= 1

        await settle(10 * TICK_S)

    assert evaluations._value.get() == before


@run_by(in_scalable_shard)
async def test_operations_keep_the_policy_of_their_topic(shard: ScalableShard) -> None:
    """As #26008 of Apache Pulsar: a change of the layout leaves alone what it does not model."""
    await set_policy(shard, splitCooldownSeconds=0, mergeWindowSeconds=20, mergeCooldownSeconds=0)
    before = shard.harness.leader.state.reads.load_topic(NAME)
    await report(shard, {0: HOT})
    await settle()
    await report(shard, {1: COLD, 2: COLD})
    await settle(30)

    assert [each.kind for each in await decided(shard)] == ["split", "merge"]
    assert before is not None
    assert shard.harness.leader.state.reads.load_topic(NAME) == before


@run_by(in_scalable_shard)
async def test_a_namespaces_policy_counts_field_by_field_below_the_topics(
    shard: ScalableShard,
) -> None:
    await set_policy(shard, name=NAMESPACE, maxSegments=1, splitMsgRateInThreshold=30_000)
    await set_policy(shard, maxSegments=8)
    await report(shard, {0: HOT})
    await settle()
    assert active(shard) == 1

    await set_policy(shard, name=NAMESPACE, maxSegments=1)
    # Watches of namespaces are silent here, so the next look finds it.
    await settle(2 * TICK_S)

    assert active(shard) == 2


@run_by(in_scalable_shard)
async def test_a_namespace_that_cannot_be_read_keeps_no_topic_of_another_waiting(
    shard: ScalableShard,
) -> None:
    """Its shard has no leader. Its topics wait until it is read, once for all of them."""
    reads: list[list[str]] = []

    class Policies:
        def known(self, namespace: str) -> object:
            return NO_POLICIES if namespace == NAMESPACE else None

        async def find(self, namespaces: Iterable[str]) -> dict[str, object]:
            names = list(namespaces)
            reads.append(names)
            await asyncio.sleep(30)
            return dict.fromkeys(names, NO_POLICIES)

    policies: Any = Policies()
    scaler = shard.harness.leader.scalable.scaler
    scaler._policies = policies
    for number in range(3):
        scaler.note(f"topic://acme/elsewhere/{number}")
        await asyncio.sleep(0.1)

    await report(shard, {0: HOT})
    await settle()

    assert active(shard) == 2
    assert reads == [["acme/elsewhere"]]
    await settle(30)
    assert not scaler._unread


@run_by(in_scalable_shard)
async def test_a_read_of_policies_that_breaks_is_made_again(shard: ScalableShard) -> None:
    """Finding 1: whatever is raised, the topics are evaluated again."""
    scaler = shard.harness.leader.scalable.scaler
    find, failures = scaler._policies.find, 1

    async def failing(namespaces: Iterable[str]) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("it breaks")
        return await find(namespaces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaler._policies, "find", failing)
        scaler.note(NAME)
        await settle(1)
    assert failures == 0
    await report(shard, {0: HOT})
    await settle(15)

    assert active(shard) == 2


@run_by(in_scalable_shard)
async def test_a_policy_that_makes_no_sense_is_refused_when_it_is_set(
    shard: ScalableShard,
) -> None:
    """Finding 5."""
    for fields, why in (
        ({"splitMsgRateInThreshold": 0}, "splitMsgRateInThreshold"),
        ({"minSegments": 3, "maxSegments": 2}, "maxSegments"),
        ({"mergeCooldownSeconds": -1}, "mergeCooldownSeconds"),
    ):
        refused = await set_policy(shard, **fields)
        assert refused.rejection_code == RejectionCode.NOT_ALLOWED.value
        assert refused.message.startswith(why)


@run_by(in_scalable_shard)
async def test_levels_that_contradict_each_other_leave_the_topic_alone(
    shard: ScalableShard,
) -> None:
    """Finding 5: what only shows when levels are put together."""
    await set_policy(shard, name=NAMESPACE, splitMsgRateInThreshold=1_500)
    await set_policy(shard, mergeMsgRateInThreshold=1_800)
    await report(shard, {0: HOT})
    await settle()
    assert active(shard) == 1

    await set_policy(shard, mergeMsgRateInThreshold=1_200)
    await settle()

    assert active(shard) == 2


@run_by(in_scalable_shard)
async def test_an_operation_of_an_operator_is_not_disturbed(shard: ScalableShard) -> None:
    shard.segments.down.update(["broker-1:1", "broker-2:1"])
    changing = asyncio.create_task(shard.change("rebucket", 0, buckets=8))
    await asyncio.sleep(1)
    await shard.harness.leader.state.proposer.confirm()
    shard.harness.leader.scalable.scaler.note(NAME)
    await settle(1)
    assert await decided(shard) == []

    shard.segments.down.clear()
    await changing


@run_by(in_scalable_shard)
async def test_a_group_that_has_not_been_upgraded_is_left_alone(shard: ScalableShard) -> None:
    shard.harness.log.event_levels[NodeId("node-1")] = 8

    with pytest.raises(Refused, match="segment_loads_recorded"):
        await report(shard, {0: HOT})

    for number in range(6):
        await register(shard, f"c{number}")
    await settle()
    assert await decided(shard) == []
    shard.harness.log.event_levels.clear()
    await register(shard, "c6")
    await settle()
    assert [each.kind for each in await decided(shard)] == ["rebucket"]


@run_by(in_scalable_shard, segments=2)
async def test_all_segments_get_buckets_in_one_operation(shard: ScalableShard) -> None:
    for number in range(5):
        await register(shard, f"c{number}")
    await settle()

    (why,) = await decided(shard)
    assert (why.kind, list(why.segments), why.buckets) == ("rebucket", [0, 1], 4)
    assert [each.bucket_count for each in shard.topic.active] == [4, 4]
    assert shard.topic.epoch == 1


@run_by(in_scalable_shard)
async def test_recorded_history_gives_the_same_decisions_again(shard: ScalableShard) -> None:
    """What a rehearsal does: everything is decided by what stands in the log before."""
    await set_policy(shard, splitCooldownSeconds=10, mergeWindowSeconds=20, mergeCooldownSeconds=5)
    await report(shard, {0: HOT})
    for number in range(3):
        await register(shard, f"c{number}")
    await settle()
    shard.stop_leader()
    await shard.start_leader()
    await report(shard, {1: WARM, 2: COLD})
    await settle(15)
    await report(shard, {each.segment_id: IDLE for each in shard.topic.active})
    await settle(120)
    whys = await decided(shard)
    assert {each.kind for each in whys} == {"split", "merge"}

    topic: ScalableTopic | None = None
    loads: TopicLoads | None = None
    repeated = 0
    for stored in await shard.harness.events():
        event = decode_event(stored)
        if isinstance(event, SegmentLoadsRecorded | LayoutChanged):
            loads = evolve_loads(loads, event)
        if isinstance(event, AutoScaleDecided):
            assert topic is not None
            assert loads is not None
            assert (topic.group_sizes, loads.clocks) == (event.groups, event.clocks)
            assert tuple(loads.loads.values()) == event.loads
            again = auto_scale.decide(
                tuple(topic.segments.values()),
                loads.loads,
                topic.group_sizes,
                resolve(DEFAULT_AUTO_SCALE, event.policy),
                loads.clocks,
                event.evaluated_at_ms,
            )
            assert again.action == Action(event.kind, event.segments, event.reason, event.buckets)
            repeated += 1
        if isinstance(event, get_args(ScalableTopicEvent)):
            topic = evolve(topic, event)
    assert repeated == len(whys) >= 3


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 8, 12, 20, 40])
def test_a_split_happens_once_whenever_the_leader_is_gone(tmp_path: Path, after_ms: int) -> None:
    async def scenario(shard: ScalableShard) -> None:
        await set_policy(shard, enabled=False)
        await report(shard, {0: HOT})
        await set_policy(shard, enabled=True, splitCooldownSeconds=3_600)
        await asyncio.sleep(after_ms / 1_000)
        shard.stop_leader()
        await shard.start_leader()
        await settle(30)

        assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}
        assert len(await decided(shard)) == 1
        await report(shard, {1: HOT, 2: HOT})
        await settle(30)
        assert active(shard) == 2, "its cool-down counts"

    in_scalable_shard(tmp_path / "shard", scenario)
