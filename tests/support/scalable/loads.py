"""Loads of segments for tests with a leader: reported as owners report them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC, UnitAssignment
from shards.domain.assignment import unit_key
from shards.wire.scalable import RATES
from tests.support.scalable.shard import NAME, ScalableShard

HOT, WARM, COLD, IDLE = Rates(20_000), Rates(2_000), Rates(1), Rates()


def sample(shard: ScalableShard, segment: int, rates: Rates) -> pb.SegmentSample:
    """Return a report of the present owner of a segment."""
    topic = shard.topic
    found = topic.segments[segment]
    reads = shard.harness.leader.state.reads
    (assignment,) = reads.load_assignments([unit_key(topic.topic_id, found.unit.text)])
    assert assignment is not None, f"segment {segment} has no owner"
    unit = UnitAssignment(
        topic_id=topic.topic_id,
        unit=found.unit.text,
        name=found.name_in(parse_topic(NAME)),
        epoch=assignment.epoch,
        broker_id=assignment.broker_id,
        session_id=assignment.session_id,
    )
    return pb.SegmentSample(unit=unit, rates=RATES.to_stored(rates))


async def report(shard: ScalableShard, rates: Mapping[int, Rates]) -> list[Rates | None]:
    """Report the rates of segments; return what is on record of each afterwards."""
    topic = parse_topic(NAME)
    names = [shard.topic.segments[each].name_in(topic) for each in rates]
    await shard.harness.lookup(*names)
    samples = [sample(shard, number, given) for number, given in rates.items()]
    recorded = await shard.harness.leader.segment_loads.record(samples)
    return [RATES.from_stored(each.rates) if each.HasField("rates") else None for each in recorded]


async def set_policy(shard: ScalableShard, name: str = NAME, **fields: Any) -> pb.CommandResult:
    """Set the whole policy of the topic, or of its namespace, under Pulsar's names."""
    text = json.dumps(fields)
    policies = policies_to_proto(Policies(stored=(("scalableTopicAutoScalePolicy", text),)))
    kind = KIND_TOPIC if name == NAME else KIND_NAMESPACE
    body = pb.SetPolicies(kind=kind, name=name, policies=policies)
    return await shard.run(set_policies=body)


async def register(shard: ScalableShard, consumer: str, subscription: str = "s") -> None:
    body = pb.RegisterScalableConsumer(
        name=NAME,
        subscription=subscription,
        consumer_name=consumer,
        type="stream",
        takes_buckets=True,
    )
    result = await shard.run(register_scalable_consumer=body)
    assert not result.rejection_code, result


async def decided(shard: ScalableShard) -> list[Any]:
    """Return why operations were begun by themselves, in order."""
    found = await shard.harness.events("auto_scale_decided")
    return [each.auto_scale_decided for each in found]


async def settle(seconds: float = 5.0) -> None:
    """Let what was begun end."""
    await asyncio.sleep(seconds)
