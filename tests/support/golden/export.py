"""Writes the golden export of a schema version: run once per version, never to repair.

    .venv/bin/python -m tests.support.golden.export v4

A golden export is kept for ever: what it says was once written by a release, and every later
reader must see the same in it. The events are beside it as they were in the log.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
from pathlib import Path
from typing import Any

from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from protos.nextgen.v1.events_pb2 import (
    BrokerQuota,
    BrokerRecorded,
    BrokerSessionEstablished,
    ConfigurationSet,
    DecidedCommand,
    Event,
    LookupWindowRecorded,
    NodeExcluded,
    NodeStateSet,
    PlanChanged,
    QuotasSet,
    Setting,
    ShardChanged,
    ShardMapChanged,
    ShardPlacement,
    SlotMoveChanged,
    SlotRange,
    SlotRun,
    TenantQuota,
    TopicAssigned,
    TopicDeleted,
)
from shards.wire.event import encode_decided
from tests.support.logs.export_logs import FakeLog
from tests.support.shards.events import HISTORY, TIME_MS

GOLDEN = Path(__file__).parents[2] / "spark" / "golden"
SHARD = 1
LENGTH_BYTES = 4


def golden_events() -> list[Any]:
    """Return every kind of event that a shard writes, and some of the cluster manager's."""
    packed = encode_decided(HISTORY, command_id=bytes(16), outcome=b"", time_ms=TIME_MS)
    window = LookupWindowRecorded(node_id="d-1", process="1-1", lookups=3, latency_counts=[3])
    quotas = QuotasSet(
        version=1,
        brokers=[BrokerQuota(broker_id="broker-1", units=7)],
        tenants=[TenantQuota(tenant="acme", units=5)],
        source="5ou4ce",
    )
    overrides = [Setting(name="scalableTopicMaxSegments", value="16")]
    changed = ShardChanged(
        version=2,
        changed=[ShardPlacement(shard_id=3, replicas=["n-1"], joining=["n-2"])],
        slots=[SlotRun(first=0, last=99, shard_id=3)],
        removed=[2],
    )
    moved = SlotMoveChanged(
        move_id=1,
        ranges=[SlotRange(first=0, last=99)],
        from_shard=1,
        to_shard=3,
        phase="adopted",
        from_position=40,
        to_position=9,
        shard_map_version=2,
        plan_id=1,
    )
    planned = PlanChanged(
        plan_id=1,
        kind="split",
        phase="running",
        wanted=[SlotRun(first=0, last=99, shard_id=3)],
        added=[3],
        last_shard_id=3,
        began_at_ms=TIME_MS,
    )
    forced = TopicDeleted(name="grown", topic_id="topic-9", partitions=3, forced=True)
    led, added = ShardPlacement(shard_id=1, replicas=["n-1"]), ShardPlacement(shard_id=2)
    led.has_led = True
    shard_map = ShardMapChanged(version=3, slot_owners=b"12", shards=[led, added])
    raised = TopicAssigned(topic_id="topic-1", epoch=8, reason="epoch_used", used_epoch=7)
    told = [
        *DecidedCommand.FromString(packed).events,
        Event(lookup_window_recorded=window),
        Event(quotas_set=quotas),
        Event(configuration_set=ConfigurationSet(version=1, settings=overrides)),
        Event(node_excluded=NodeExcluded(node_id="stolen-1")),
        Event(shard_map_changed=shard_map),
        Event(shard_changed=changed),
        Event(slot_move_changed=moved),
        Event(plan_changed=planned),
        Event(node_state_set=NodeStateSet(node_id="n-1", state="leaving", since_ms=TIME_MS)),
        Event(topic_assigned=raised),
        Event(topic_deleted=forced),
        Event(broker_session_established=BrokerSessionEstablished(broker_id="s-1", kind="stock")),
        Event(broker_recorded=BrokerRecorded(broker_id="s-1", session_id="s", kind="stock")),
    ]
    events = []
    for position, event in enumerate(told, start=1):
        event.position, event.shard_id = position, SHARD
        event.term = 1 + position // 20
        event.time_ms = TIME_MS + position
        event.schema_version = event.schema_version or 1
        if position % 3 == 0:
            event.causation_id = b"command-%08d" % position
        events.append(event)
    return events


def read_events(version: str) -> list[Any]:
    """Return the events that the golden export of ``version`` was made of."""
    content = gzip.decompress((GOLDEN / f"{version}.events.gz").read_bytes())
    events = []
    while content:
        end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "big")
        events.append(Event.FromString(content[LENGTH_BYTES:end]))
        content = content[end:]
    return events


def main(version: str) -> None:
    folder = GOLDEN / version
    if folder.exists():
        sys.exit(f"{folder} is there already; a golden export is never written again")
    events = golden_events()
    asyncio.run(export_log(FakeLog({SHARD: events}), LocalStore(folder)))
    (folder / ".exporter.lock").unlink(missing_ok=True)
    with gzip.GzipFile(GOLDEN / f"{version}.events.gz", "wb", mtime=0) as written:
        for event in events:
            packed = event.SerializeToString(deterministic=True)
            written.write(len(packed).to_bytes(LENGTH_BYTES, "big") + packed)


if __name__ == "__main__":
    main(sys.argv[1])
