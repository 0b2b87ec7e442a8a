"""Reported loads become records: what counts, what is recorded, and in how many records."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.scalable import SEGMENT_LOADS_PER_REPORT_MAX
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from shards.domain.scalable.loads import TopicLoads
from shards.wire.scalable import RATES
from tests.support.scalable.loads import COLD, HOT, WARM, report, sample, set_policy, settle
from tests.support.scalable.shard import NAME, ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE


def loads_of(shard: ScalableShard) -> TopicLoads:
    found = shard.harness.leader.state.reads.load_loads(NAME)
    return found or TopicLoads("")


def counted(shard: ScalableShard, outcome: str) -> float:
    metrics: Any = shard.harness.node_metrics.segment_loads
    return float(metrics.labels(outcome)._value.get())


async def records(shard: ScalableShard) -> list[Any]:
    return await shard.harness.events("segment_loads_recorded")


@run_by(in_scalable_shard, segments=3)
async def test_one_report_is_one_record_and_a_steady_load_none(shard: ScalableShard) -> None:
    await set_policy(shard, enabled=False)
    recorded = await report(shard, {0: COLD, 1: WARM, 2: HOT})
    again = await report(shard, {0: COLD, 1: Rates(2_400), 2: HOT})

    assert recorded == [COLD, WARM, HOT]
    assert again == [COLD, WARM, HOT], "what is on record, not what was measured"
    (event,) = await records(shard)
    assert [each.segment_id for each in event.segment_loads_recorded.loads] == [0, 1, 2]
    assert (counted(shard, "recorded"), counted(shard, "unchanged")) == (3, 3)


@run_by(in_scalable_shard)
async def test_the_report_of_many_topics_is_one_record(shard: ScalableShard) -> None:
    """However many topics a broker has segments of: one entry of the log for each report."""
    names = [f"topic://{NAMESPACE}/more-{number}" for number in range(3)]
    specs = [pb.TopicSpec(name=name, segments=2) for name in names]
    await shard.harness.execute(create_topics=pb.CreateTopics(topics=specs))
    reads = shard.harness.leader.state.reads
    samples = []
    for name in names:
        topic = reads.load_scalable(name)
        assert topic is not None
        segments = [each.name_in(parse_topic(name)) for each in topic.active]
        samples += [
            pb.SegmentSample(
                unit=UnitAssignment(
                    topic_id=answer.topic_id,
                    unit=segment.unit.text,
                    name=text,
                    epoch=answer.epoch,
                    broker_id=answer.broker_id,
                    session_id=answer.session_id,
                ),
                rates=RATES.to_stored(WARM),
            )
            for answer, segment, text in zip(
                await shard.harness.lookup(*segments), topic.active, segments, strict=True
            )
        ]
    proposed: list[Any] = []
    log: Any = shard.harness.log
    propose = log.propose

    def noting(record: Any) -> Any:
        proposed.append(record)
        return propose(record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "propose", noting)
        answers = await shard.harness.leader.segment_loads.record(samples)

    assert [each.rates.messages_in for each in answers] == [WARM.messages_in] * 6
    assert len(proposed) == 1
    assert [each.segment_loads_recorded.topic for each in await records(shard)] == names


@run_by(in_scalable_shard, segments=2)
async def test_a_new_owner_goes_on_from_what_is_on_record(shard: ScalableShard) -> None:
    """Finding 4: the same load from the next owner writes nothing: the merge window goes on."""
    await set_policy(shard, enabled=False)
    await report(shard, {0: COLD, 1: WARM})
    before = loads_of(shard)
    owner = shard.owner("s0")
    await asyncio.sleep(100)
    unit = shard.topic.segments[0]
    name = f"segment://acme/orders/paid/{unit.descriptor.text}"
    await shard.harness.move((name, ""))
    assert shard.owner("s0") != owner

    assert await report(shard, {0: COLD}) == [COLD]

    assert loads_of(shard) == before
    assert loads_of(shard).loads[0].cold_since_ms == before.loads[0].cold_since_ms


@run_by(in_scalable_shard)
async def test_a_former_owners_report_and_rates_that_cannot_be_are_counted_and_ignored(
    shard: ScalableShard,
) -> None:
    await report(shard, {0: WARM})
    leader = shard.harness.leader
    former = sample(shard, 0, HOT)
    former.unit.epoch -= 1
    stranger = sample(shard, 0, HOT)
    stranger.unit.session_id = "another"
    invalid = [
        sample(shard, 0, replace(HOT, bytes_in=rate)) for rate in (float("nan"), -1.0, float("inf"))
    ]

    answers = await leader.segment_loads.record([former, stranger, *invalid])

    assert not any(each.HasField("rates") for each in answers)
    assert loads_of(shard).loads[0].rates == WARM
    assert (counted(shard, "former_owner"), counted(shard, "invalid")) == (2, 3)


@run_by(in_scalable_shard)
async def test_a_sealed_segment_has_no_record(shard: ScalableShard) -> None:
    """Finding 2: the record goes with the segment, and a late report does not bring it back."""
    await report(shard, {0: WARM})
    late = sample(shard, 0, COLD)
    await shard.change("split", 0)

    (answer,) = await shard.harness.leader.segment_loads.record([late])

    assert not answer.HasField("rates")
    assert loads_of(shard).loads == {}


@run_by(in_scalable_shard)
async def test_a_deleted_topic_leaves_no_loads(shard: ScalableShard) -> None:
    await report(shard, {0: WARM})
    await shard.run(delete_topic=pb.DeleteTopic(name=NAME))
    await settle()

    assert shard.harness.leader.state.reads.load_loads(NAME) is None


@run_by(in_scalable_shard)
async def test_segment_loads_per_report_max_are_recorded_and_one_more_refused(
    shard: ScalableShard,
) -> None:
    await report(shard, {0: WARM})
    one = sample(shard, 0, WARM)
    recorder = shard.harness.leader.segment_loads

    answers = await recorder.record([one] * SEGMENT_LOADS_PER_REPORT_MAX)

    assert len(answers) == SEGMENT_LOADS_PER_REPORT_MAX
    with pytest.raises(InvalidRequest, match="segments"):
        await recorder.record([one] * (SEGMENT_LOADS_PER_REPORT_MAX + 1))
    bad = pb.SegmentSample()
    bad.CopyFrom(one)
    bad.unit.name = "no://name"
    with pytest.raises(InvalidRequest, match="load of a segment"):
        await recorder.record([bad])
    with pytest.raises(InvalidRequest):
        await recorder.record([])
