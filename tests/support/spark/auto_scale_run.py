"""A real recorded run of a shard that splits and merges a topic by itself, leaders failing over.

The leader, its evaluations and its log are those of a shard node; brokers are not, and time is
virtual: hours pass in a second or two. ``recorded_run`` gives the shard's whole log.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nextgen.kernel.governance.broker_load import Rates
from tests.support.scalable.loads import register, report, set_policy
from tests.support.scalable.shard import NAME, ScalableShard, in_scalable_shard
from tests.support.shards.harness import NAMESPACE

SHARD_ID = 1

HOT, BUSY, COLD = Rates(30_000, 0, 1e6, 0), Rates(9_000, 100, 1e5, 1e3), Rates(3, 3, 300, 300)
SKEWED = Rates(1_000, 60_000, 5e5, 4e8)


def recorded_run(directory: Path) -> list[Any]:
    """Return all events of the shard's log, at least three failovers among them."""
    return in_scalable_shard(directory, _run, segments=1, brokers=2)


async def _run(shard: ScalableShard) -> list[Any]:
    await report(shard, {0: HOT})
    await asyncio.sleep(20)
    # The first split is committed. Its children are hot as well; a leader dies in the cool-down.
    await report(shard, {1: HOT, 2: BUSY})
    await asyncio.sleep(5)
    await _fail_over(shard)
    await asyncio.sleep(90)
    await _report_all(shard, SKEWED)
    await asyncio.sleep(1)
    await _fail_over(shard)
    await asyncio.sleep(300)
    for number in range(3):
        await register(shard, f"c-{number}")
    await set_policy(shard, NAMESPACE, maxSegments=8, splitCooldownSeconds=30)
    for number in range(3, 40):
        await register(shard, f"c-{number}")
    await asyncio.sleep(200)
    await _report_all(shard, COLD)
    await asyncio.sleep(100)
    await _fail_over(shard)
    # The merge window is over under another leader than that which noted it.
    await asyncio.sleep(700)
    await set_policy(shard, NAME, mergeWindowSeconds=60, mergeCooldownSeconds=30, maxSegments=2)
    await _report_all(shard, Rates(4, 4, 400, 400))
    await asyncio.sleep(600)
    shard.stop_leader()
    await asyncio.sleep(400)
    await shard.start_leader()
    await _report_all(shard, HOT)
    await asyncio.sleep(120)
    return await shard.harness.events()


async def _fail_over(shard: ScalableShard) -> None:
    shard.stop_leader()
    await asyncio.sleep(2)
    await shard.start_leader()


async def _report_all(shard: ScalableShard, rates: Rates) -> None:
    await report(shard, {each.segment_id: rates for each in shard.topic.active})
