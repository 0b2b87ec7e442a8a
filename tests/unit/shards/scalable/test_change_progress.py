"""Metrics of layout changes: counters by outcome, and durations by step."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    MarkChildrenReady,
    PruneSegments,
    SealSegment,
)
from shards.metrics import NodeMetrics, ShardMetrics
from shards.scalable.change_progress import ChangeProgress
from tests.support.scalable.shard import ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.scalable import END, MERGE, SPLIT, after, changed, new_topic, plan


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class Progress:
    """What is tested, over metrics of its own."""

    def __init__(self) -> None:
        self.node = NodeMetrics(CollectorRegistry())
        self.clock = Clock()
        self.progress = ChangeProgress(ShardMetrics(self.node, 1), self.clock)  # type: ignore[arg-type]

    def counts(self) -> dict[str, float]:
        return counts(self.node)

    def steps(self) -> dict[str, float]:
        """Return the seconds of each step that was noted."""
        (family,) = self.node.layout_steps.collect()
        values = {(each.name, each.labels["kind"]): each.value for each in family.samples}
        name = "nextgen_shard_layout_step_seconds"
        return {
            kind: values[f"{name}_sum", kind]
            for kind in ("ready", "sealed", "committed")
            if values[f"{name}_count", kind]
        }


def counts(node: NodeMetrics) -> dict[str, float]:
    """Return the operations that were counted, by kind and outcome."""
    (family,) = node.layout_changes.collect()
    return {
        f"{each.labels['kind']} {each.labels['outcome']}": each.value
        for each in family.samples
        if each.value and each.name.endswith("_total")
    }


def test_a_change_is_counted_and_its_steps_are_timed_one_after_the_other() -> None:
    one = Progress()
    planned = after(new_topic(), plan(SPLIT, 0))
    ready = after(planned, MarkChildrenReady(1, ()))
    one.progress.see(planned)
    one.clock.now = 2.0
    one.progress.see(ready)
    one.progress.see(ready)
    one.clock.now = 5.0
    one.progress.note_parent_ended()
    one.clock.now = 9.0

    one.progress.see(after(ready, SealSegment(1, 0, END, 3_000)))

    assert one.counts() == {"split begun": 1, "split committed": 1}
    assert one.steps() == {"ready": 2.0, "sealed": 3.0, "committed": 4.0}


def test_a_change_that_is_taken_back_is_not_committed_though_the_epoch_grew() -> None:
    one = Progress()
    planned = after(changed(new_topic(), SPLIT, 0), plan(MERGE, 1, 2))
    one.progress.see(planned)

    one.progress.see(after(planned, PruneSegments((0,)), AbandonLayoutChange(2, "asked")))

    assert one.counts() == {"merge begun": 1, "merge taken_back": 1}
    assert one.steps() == {}


def test_the_next_change_is_told_from_the_one_before() -> None:
    one = Progress()
    one.progress.see(after(new_topic(2), plan(SPLIT, 0)))

    one.progress.see(after(changed(new_topic(2), SPLIT, 0), plan(SPLIT, 1)))

    assert one.counts() == {"split begun": 2, "split committed": 1}


def test_a_change_of_a_topic_that_is_deleted_ends() -> None:
    one = Progress()
    one.progress.see(after(new_topic(), plan(SPLIT, 0)))

    one.progress.see(None)
    one.progress.see(None)

    assert one.counts() == {"split begun": 1, "split deleted": 1}


@run_by(in_scalable_shard)
async def test_a_leader_counts_what_it_carries_on(shard: ScalableShard) -> None:
    await shard.change("split", 0)
    await shard.change("rebucket", 1, buckets=3)
    await asyncio.sleep(0.1)  # Virtual: the answer leaves a turn before the work ends.

    assert counts(shard.harness.node_metrics) == {
        "split begun": 1,
        "split committed": 1,
        "rebucket begun": 1,
        "rebucket committed": 1,
    }
    assert shard.harness.leader.scalable.topics == 1
    assert shard.harness.leader.consumers.attached == shard.harness.leader.consumers.in_grace == 0
