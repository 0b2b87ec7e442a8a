"""Sealed segments that nobody needs any more: when they are examined, and what happens to them."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.governance.policies import FOR_EVER
from nextgen.kernel.limits.scalable import (
    PRUNE_EXAMINED_MS_MAX,
    PRUNE_EXAMINED_MS_MIN,
    PRUNE_LOOK_MS,
    PRUNE_TOPICS_AT_ONCE_MAX,
    PRUNE_TOPICS_PER_LOOK_MAX,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable import retention
from shards.domain.scalable.commands import MarkDrained
from shards.scalable import pruning
from shards.scalable.topic_decisions import TopicDecisions
from tests.support.scalable.shard import NAME, ScalableShard, endpoint_of, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE

AT_ONCE = (0, FOR_EVER)
KEPT_MS = 100_000
LOOK_S = 2 * PRUNE_LOOK_MS / 1_000
"""Enough for a look to have begun and ended."""


async def drain(shard: ScalableShard, subscription: str, segment: int) -> None:
    decisions = TopicDecisions(shard.harness.leader.state, NAME)
    await decisions.decide(shard.topic.topic_id, MarkDrained(subscription, segment))
    ledger = shard.segments.ledger(f"s{segment}")
    ledger.cursors[subscription] = len(ledger.entries)


def examined(shard: ScalableShard) -> int:
    return sum(kind == "usage" for kind, _, _ in shard.segments.calls)


@run_by(in_scalable_shard)
async def test_a_drained_segment_goes_when_its_retention_is_over(shard: ScalableShard) -> None:
    shard.segments.retention = (KEPT_MS, FOR_EVER)
    await shard.subscribe("s")
    await shard.change("split", 0)
    await asyncio.sleep(2 * KEPT_MS / 1_000)
    assert examined(shard) == 0, "it is not drained"

    await shard.change("split", 1)
    await drain(shard, "s", 0)
    await asyncio.sleep(LOOK_S)
    assert shard.units == {"s1": "sealed", "s2": "active", "s3": "active", "s4": "active"}
    assert shard.topic.epoch == 3

    await drain(shard, "s", 1)
    await asyncio.sleep(KEPT_MS / 1_000 - 10)
    assert "s1" in shard.units
    assert examined(shard) == 2
    await asyncio.sleep(20)
    assert shard.units == {"s2": "active", "s3": "active", "s4": "active"}
    assert shard.segments.ledger("s1").is_removed
    assert shard.topic.removals == ()


@run_by(in_scalable_shard)
async def test_segments_go_the_oldest_first(shard: ScalableShard) -> None:
    """The segment in the middle is drained first, and stays as long as its parent."""
    shard.segments.retention = AT_ONCE
    await shard.subscribe("s")
    await shard.change("split", 0)
    await shard.change("split", 1)
    await drain(shard, "s", 1)
    await asyncio.sleep(LOOK_S)
    assert {"s0", "s1"} <= shard.units.keys()

    await drain(shard, "s", 0)
    await asyncio.sleep(2 * LOOK_S)

    assert shard.units == {"s2": "active", "s3": "active", "s4": "active"}


@run_by(in_scalable_shard)
async def test_a_subscription_that_only_the_broker_knows_keeps_a_segment(
    shard: ScalableShard,
) -> None:
    """Consumers of a queue subscribe to each segment by themselves."""
    shard.segments.retention = AT_ONCE
    ledger = shard.segments.ledger("s0")
    ledger.entries.append("message")
    ledger.cursors["workers"] = 0
    await shard.change("split", 0)
    await asyncio.sleep(PRUNE_EXAMINED_MS_MIN / 1_000 - LOOK_S)
    assert "s0" in shard.units
    assert examined(shard) == 1

    ledger.cursors["workers"] = 1
    await asyncio.sleep(2 * LOOK_S)

    assert "s0" not in shard.units


@run_by(in_scalable_shard)
async def test_a_segment_whose_broker_does_not_answer_is_examined_later(
    shard: ScalableShard,
) -> None:
    shard.segments.retention = AT_ONCE
    await shard.change("split", 0)
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    await asyncio.sleep(20)
    assert "s0" in shard.units
    (postponed,) = await shard.harness.events("segment_prune_postponed")

    shard.segments.hanging.clear()
    await asyncio.sleep(PRUNE_EXAMINED_MS_MIN / 1_000)

    assert "s0" not in shard.units
    assert postponed.segment_prune_postponed.segment_id == 0


@run_by(in_scalable_shard)
async def test_a_new_leader_examines_nothing_before_its_time(shard: ScalableShard) -> None:
    shard.segments.retention = (KEPT_MS, FOR_EVER)
    await shard.change("split", 0)
    await asyncio.sleep(LOOK_S)
    assert examined(shard) == 1

    shard.stop_leader()
    await shard.start_leader()
    await asyncio.sleep(KEPT_MS / 1_000 - 10)
    assert examined(shard) == 1
    await asyncio.sleep(20)

    assert "s0" not in shard.units


@run_by(in_scalable_shard)
async def test_a_retention_that_was_shortened_takes_effect_within_prune_examined_ms_max(
    shard: ScalableShard, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PRUNE_EXAMINED_MS_MAX > KEPT_MS
    monkeypatch.setattr(retention, "PRUNE_EXAMINED_MS_MAX", KEPT_MS)
    shard.segments.retention = (FOR_EVER, FOR_EVER)
    await shard.change("split", 0)
    await asyncio.sleep(LOOK_S)

    shard.segments.retention = AT_ONCE
    await asyncio.sleep(KEPT_MS / 1_000 - 2 * LOOK_S)
    assert "s0" in shard.units
    await asyncio.sleep(3 * LOOK_S)

    assert "s0" not in shard.units


@run_by(in_scalable_shard)
async def test_a_seek_that_comes_while_a_segment_is_examined_keeps_it(
    shard: ScalableShard,
) -> None:
    """1. The segment is drained, and its broker says so. 2. The subscription is set back. 3. What
    the broker said is of before."""
    shard.segments.retention = AT_ONCE
    await shard.subscribe("s")
    await shard.change("split", 0)
    usage = shard.segments.usage

    async def seek_behind_it(*given: object, **named: object) -> object:
        shard.segments.usage = usage  # type: ignore[method-assign]
        answer = await usage(*given, **named)  # type: ignore[arg-type]
        body = pb.SeekScalableSubscription(name=NAME, subscription="s", seek_to_ms=0)
        await shard.run(seek_scalable_subscription=body)
        return answer

    shard.segments.usage = seek_behind_it  # type: ignore[assignment,method-assign]
    shard.segments.ledger("s0").entries.append("message")
    await drain(shard, "s", 0)
    await asyncio.sleep(2 * LOOK_S)

    assert shard.segments.usage is usage
    assert shard.units["s0"] == "sealed"
    assert not shard.segments.ledger("s0").is_removed


@run_by(in_scalable_shard)
async def test_an_operation_goes_on_over_a_prune(shard: ScalableShard) -> None:
    shard.segments.retention = AT_ONCE
    await shard.change("split", 0)
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    splitting = asyncio.create_task(shard.change("split", 1))
    await asyncio.sleep(0.1)
    shard.segments.hanging.clear()

    result = await splitting
    await asyncio.sleep(2 * LOOK_S)

    assert not result.rejection_code
    assert shard.units == {"s2": "active", "s3": "active", "s4": "active"}


async def sealed_topics(shard: ScalableShard, count: int) -> None:
    """Make topics with a segment each that could be pruned."""
    for number in range(count):
        name = f"topic://{NAMESPACE}/other-{number}"
        specs = [pb.TopicSpec(name=name)]
        await shard.harness.execute(create_topics=pb.CreateTopics(topics=specs))
        await shard.run(change_layout=pb.ChangeLayout(name=name, kind="split", segments=[0]))


@pytest.mark.parametrize("topics", [3, 4])
@run_by(in_scalable_shard)
async def test_prune_topics_per_look_max_and_prune_topics_at_once_max_bound_what_is_opened(
    shard: ScalableShard, *, topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limits all topics are examined in one look, two at a time; one more waits."""
    assert (PRUNE_TOPICS_PER_LOOK_MAX, PRUNE_TOPICS_AT_ONCE_MAX) > (3, 2)
    monkeypatch.setattr(pruning, "PRUNE_TOPICS_PER_LOOK_MAX", 3)
    monkeypatch.setattr(pruning, "PRUNE_TOPICS_AT_ONCE_MAX", 2)
    running, most = 0, 0
    usage = shard.segments.usage

    async def count(*given: object, **named: object) -> object:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        answer = await usage(*given, **named)  # type: ignore[arg-type]
        running -= 1
        return answer

    monkeypatch.setattr(pruning, "PRUNE_LOOK_MS", 3_600_000)
    await asyncio.sleep(LOOK_S)
    look = shard.harness.leader.scalable._pruning._look
    await sealed_topics(shard, topics)
    monkeypatch.setattr(shard.segments, "usage", count)

    await look()

    assert most == 2
    assert examined(shard) == 3
    await look()
    assert examined(shard) == topics
