"""What does a shard's leader need to record the loads of segments and to evaluate their topics?

    python -m benchmarks.inventory.auto_scale [--segments 100000] [--per-topic 8] [--check]

One leader in this process, over a log in memory and a real view, has all topics in its shard. Every
segment is reported once; then in each round a tenth of them moved by more than a quarter since the
report before, spread over all topics in the first kind of round and packed into whole topics in the
second. Time is virtual, processor time is real. Prints one JSON line last:

- ``record_us``: processor time for each reported segment, until it is in the log and in the view
- ``evaluate_us``: processor time for each evaluated topic
- ``new_leader_s``: processor time of a leader that begins, for the evaluation of all topics
- ``spread``, ``packed``: shares of one core for the records and for the evaluations, if so much
  moves in each interval of 10 s
- ``steady_share``: the same if nothing moves: nothing is reported, and nothing evaluated
- ``load_average``: of the machine, at the end

``--quick`` takes a tenth of the segments. With ``--check`` it exits with 1 if the evaluations of
the packed kind, or of nothing that moves, are above 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nextgen.kernel.limits.scalable import SEGMENT_LOAD_REPORT_MS, SEGMENT_LOADS_PER_REPORT_MAX
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from protos.nextgen.v1.layouts_pb2 import SegmentRates
from shards.domain.assignment import TopicAssigned
from tests.support.shards.harness import NAMESPACE, FakeBroker, Harness
from tests.support.simulated.virtual_time import run_virtual

SHARE_MAX = 0.05
MOVED = 0.1
RATE = 2_000.0
"""Messages in per second of a segment: neither hot nor cold."""

PAGE = 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--per-topic", type=int, default=8)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true", help="10,000 segments")
    given = parser.parse_args()
    count = 10_000 if given.quick else given.segments
    with tempfile.TemporaryDirectory() as directory:
        result = run_virtual(lambda: measured(Path(directory), count, given.per_topic))
    print(json.dumps(result))
    shares = (result["packed"]["evaluate_share"], result["steady_share"])
    return 1 if given.check and max(shares) > SHARE_MAX else 0


async def measured(directory: Path, count: int, per_topic: int) -> dict[str, Any]:
    """Return the numbers of one run."""
    shard = Harness(directory, units=count)
    try:
        broker = await shard.start_broker("broker-1", count)
        samples = await _segments(shard, broker, count // per_topic, per_topic)
        first = await _report(shard, samples)
        step = round(1 / MOVED)
        spread = await _report(shard, _moved(samples[::step]))
        packed = await _report(shard, _moved(samples[: len(samples) // step]))
        steady = await _used(asyncio.sleep(SEGMENT_LOAD_REPORT_MS / 1_000))
        evaluate_s = first[1] / (len(samples) / per_topic)
        shard.next_term()
        new_leader_s = await _used(asyncio.sleep(30))
    finally:
        await shard.close()
    interval_s = SEGMENT_LOAD_REPORT_MS / 1_000
    return {
        "segments": len(samples),
        "topics": len(samples) // per_topic,
        "record_us": round(first[0] / len(samples) * 1e6, 1),
        "evaluate_us": round(evaluate_s * 1e6, 1),
        "new_leader_s": round(new_leader_s, 3),
        "spread": _shares(spread, interval_s),
        "packed": _shares(packed, interval_s),
        "steady_share": round(steady / interval_s, 4),
        "load_average": os.getloadavg()[0],
    }


def _shares(used: tuple[float, float], interval_s: float) -> dict[str, float]:
    return {
        "record_share": round(used[0] / interval_s, 4),
        "evaluate_share": round(used[1] / interval_s, 4),
    }


async def _segments(
    shard: Harness, broker: FakeBroker, topics: int, per_topic: int
) -> list[pb.SegmentSample]:
    """Create the topics and assign their segments; return a sample of each segment."""
    tenant = NAMESPACE.partition("/")[0]
    await shard.execute(create_tenant=pb.CreateTenant(name=tenant))
    await shard.execute(create_namespace=pb.CreateNamespace(name=NAMESPACE))
    state, samples = shard.leader.state, []
    for first in range(0, topics, PAGE):
        names = [f"topic://{NAMESPACE}/t{each}" for each in range(first, min(first + PAGE, topics))]
        specs = [pb.TopicSpec(name=name, segments=per_topic) for name in names]
        await shard.execute(create_topics=pb.CreateTopics(topics=specs))
        assigned = []
        for name in names:
            topic = state.reads.load_scalable(name)
            assert topic is not None, name
            for segment in topic.active:
                unit = UnitAssignment(
                    topic_id=topic.topic_id,
                    unit=segment.unit.text,
                    name=segment.name_in(parse_topic(name)),
                    epoch=1,
                    broker_id=broker.broker_id,
                    session_id=broker.session_id,
                )
                samples.append(pb.SegmentSample(unit=unit, rates=SegmentRates(messages_in=RATE)))
                assigned.append(
                    TopicAssigned(
                        *(unit.topic_id, unit.unit, unit.name, 1),
                        *(broker.broker_id, broker.session_id, "first_lookup"),
                    )
                )
        await state.proposer.propose(assigned)
    return samples


def _moved(samples: Sequence[pb.SegmentSample]) -> list[pb.SegmentSample]:
    """Return reports of half as much traffic again, below the threshold of a split."""
    for sample in samples:
        sample.rates.messages_in *= 1.5
    return list(samples)


async def _report(shard: Harness, samples: Sequence[pb.SegmentSample]) -> tuple[float, float]:
    """Report; return the processor time of the records, and of the evaluations."""
    loads, scaler = shard.leader.segment_loads, shard.leader.scalable.scaler
    # Evaluations are put off, so that each is measured alone.
    noted: list[str] = []
    loads._on_recorded = noted.append
    recorded_s = 0.0
    for first in range(0, len(samples), SEGMENT_LOADS_PER_REPORT_MAX):
        page = samples[first : first + SEGMENT_LOADS_PER_REPORT_MAX]
        recorded_s += await _used(loads.record(page))
    for name in noted:
        scaler.note(name)
    return recorded_s, await _used(asyncio.sleep(5))


async def _used(work: object) -> float:
    began = time.process_time()
    await work  # type: ignore[misc]
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
