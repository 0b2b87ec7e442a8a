"""A layout of a backup is served again, whatever brokers have of its segments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from nextgen.kernel.limits.scalable import LAYOUT_CHANGE_READY_MS
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id
from nextgen.kernel.scalable.segments import SegmentEnd
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Namespace,
    Tenant,
    Topic,
)
from shards.domain.scalable.commands import (
    CreateScalableTopic,
    CreateSubscription,
    MarkSubscriptionReady,
)
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType
from shards.wire.scalable import scalable_topic_message
from tests.support.scalable.segments import BEGINNING, Ledger
from tests.support.scalable.shard import NAME, UNITS, ScalableShard, endpoint_of
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE
from tests.support.shards.scalable import after, changed
from tests.support.simulated.virtual_time import run_virtual

LEAST = 1 << 32
CHILD = f"s{LEAST}"
TENANT_ID, NAMESPACE_ID, TOPIC_ID = (
    mint_id(slot_of(key), bytes(10)) for key in ("acme", NAMESPACE, f"{NAMESPACE}/paid")
)
BEGUN, ENDED = "begun", "ended"


def in_empty_shard(
    directory: Path, scenario: Callable[[ScalableShard], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        shard = ScalableShard(directory)
        try:
            for broker_id in ("broker-1", "broker-2"):
                await shard.harness.start_broker(broker_id, UNITS)
            await scenario(shard)
        finally:
            await shard.close()

    run_virtual(main)


def split_topic() -> ScalableTopic:
    """Return a topic of the segments 0 (sealed), 1 and 2, with a subscription."""
    topic = changed(after(None, CreateScalableTopic(NAME, TOPIC_ID, 1, 1_000)), ChangeKind.SPLIT, 0)
    subscribed = CreateSubscription("s", SubscriptionType.STREAM, 1_000)
    return after(topic, subscribed, MarkSubscriptionReady("s", (1, 2)))


async def restore(shard: ScalableShard, wanted: ScalableTopic) -> None:
    objects = [
        Item(kind=KIND_TENANT, name="acme", tenant=Tenant(tenant_id=TENANT_ID, name="acme")),
        Item(
            kind=KIND_NAMESPACE,
            name=NAMESPACE,
            namespace=Namespace(namespace_id=NAMESPACE_ID, name=NAMESPACE, tenant_id=TENANT_ID),
        ),
        Item(
            kind=KIND_TOPIC,
            name=NAME,
            topic=Topic(topic_id=TOPIC_ID, name=NAME, namespace_id=NAMESPACE_ID),
        ),
        Item(
            kind=KIND_SCALABLE_TOPIC,
            name=NAME,
            scalable_topic=scalable_topic_message(wanted),
        ),
    ]
    await mark(shard, BEGUN)
    for item in objects:
        answer = await shard.harness.ask(restore=pb.RestoreRequest(restore_id="b", items=[item]))
        assert answer.restore.created == 1
    await asyncio.sleep(1)
    assert shard.segments.calls == [], "nothing goes on before the restore has ended"
    await mark(shard, ENDED)


async def mark(shard: ScalableShard, phase: str) -> None:
    request = pb.MarkRestoreRequest(restore_id="b", phase=phase, least_epoch=LEAST)
    await shard.harness.ask(mark_restore=request)


@run_by(in_empty_shard)
async def test_segments_that_ended_behind_the_backup_are_replaced(shard: ScalableShard) -> None:
    """Segment 1 was split behind it into 3 and 4, whose messages belong to nobody."""
    for unit, count in (("s0", 7), ("s1", 5), ("s2", 3), ("s3", 9), ("s4", 9)):
        is_ended = unit in ("s0", "s1")
        entries = [object()] * count
        shard.segments.ledgers[unit] = Ledger(9, is_ended, entries=entries, cursors={"s": 2})

    await restore(shard, split_topic())
    await asyncio.sleep(1)

    topic = shard.topic
    assert (topic.has_work, topic.epoch) == (False, LEAST + 1)
    assert shard.units == {
        "s0": "sealed",
        "s1": "sealed",
        "s2": "sealed",
        CHILD: "active",
        f"s{LEAST + 1}": "active",
    }
    assert [each.hash_range for each in topic.active] == [
        topic.segments[number].hash_range for number in (1, 2)
    ]
    assert [topic.segments[number].end for number in range(3)] == [
        SegmentEnd(1, 6),
        SegmentEnd(1, 4),
        SegmentEnd(1, 2),
    ]
    assert shard.segments.ledger("s1").cursors == {"s": 2}, "a cursor that is there stays"
    assert shard.segments.ledger(CHILD).cursors == {"s": BEGINNING}
    assert not {"s3", "s4"} & {unit for _, unit, _ in shard.segments.calls}
    assert {epoch >= LEAST for _, _, epoch in shard.segments.calls} == {True}


@run_by(in_empty_shard)
async def test_without_messages_sealed_segments_are_empty_and_ended(shard: ScalableShard) -> None:
    """Their readers go on to the children: an empty segment that is open would hold them back."""
    await restore(shard, split_topic())
    await asyncio.sleep(1)

    topic = shard.topic
    assert [topic.segments[number].end for number in range(3)] == [SegmentEnd(1, -1)] * 3
    assert all(shard.segments.ledger(unit).is_terminated for unit in ("s0", "s1", "s2"))
    assert not shard.segments.ledger(CHILD).is_terminated


@run_by(in_empty_shard)
async def test_a_restored_layout_waits_for_brokers_for_ever_and_for_the_next_leader(
    shard: ScalableShard,
) -> None:
    for broker_id in ("broker-1", "broker-2"):
        shard.stop_broker(broker_id)
    await restore(shard, split_topic())
    await asyncio.sleep(2 * LAYOUT_CHANGE_READY_MS / 1_000)
    assert shard.topic.operation is not None
    shard.stop_leader()
    await shard.start_leader()
    await asyncio.sleep(2 * LAYOUT_CHANGE_READY_MS / 1_000)

    await shard.start_broker("broker-1")
    await asyncio.sleep(15)

    assert shard.units[CHILD] == "active"
    assert not shard.topic.has_work
    assert await shard.harness.events("layout_change_abandoned") == []
    assert endpoint_of("broker-1") not in shard.segments.down
