"""How a segment is subscribed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nextgen.client.st.domain.assignment import BucketRanges
from nextgen.client.st.domain.checkpoints import Edge
from nextgen.client.st.domain.positions import NO_BATCH, Position
from nextgen.client.st.schemas.schema import Schema
from nextgen.client.st.wire import id_data
from protos.pulsar import PulsarApi_pb2 as pulsar

_EARLIEST = 2**64 - 1
_LATEST = 2**63 - 1

Place = Position | Edge
"""Where to begin reading: behind a message, at the start, or behind what is stored."""


@dataclass(frozen=True, slots=True)
class SegmentSubscription:
    """How a segment is subscribed."""

    topic: str
    segment: str
    subscription: str
    kind: pulsar.CommandSubscribe.SubType
    consumer_name: str
    receiver_queue: int
    is_durable: bool = True
    is_earliest: bool = True
    place: Place = Edge.START
    """Of a subscription that is not durable."""

    bucket_ranges: BucketRanges = ()
    is_legacy: bool = False
    priority_level: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    since_ms: int | None = None
    """Publish time to begin at, if ``place`` is ``Edge.LATEST``."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def subscribe_command(
    how: SegmentSubscription, consumer_id: int, place: Place, schema: Schema[Any]
) -> pulsar.BaseCommand:
    """Return the SUBSCRIBE of a segment. ``place``: where a reader goes on."""
    subscribe = pulsar.CommandSubscribe(
        topic=how.segment,
        subscription=how.subscription,
        subType=how.kind,
        consumer_id=consumer_id,
        consumer_name=how.consumer_name,
        durable=how.is_durable,
        priority_level=how.priority_level,
        initialPosition=pulsar.CommandSubscribe.Earliest
        if how.is_earliest
        else pulsar.CommandSubscribe.Latest,
    )
    if not how.is_durable:
        subscribe.start_message_id.CopyFrom(_start_of(place))
        if place is Edge.LATEST and how.since_ms is not None:
            # Seconds before now are all that the protocol has; the rest is left out on arrival.
            age_ms = max(now_ms() - how.since_ms, 0)
            subscribe.start_message_rollback_duration_sec = age_ms // 1_000 + 2
    if how.bucket_ranges:
        meta = subscribe.keySharedMeta
        meta.keySharedMode = pulsar.STICKY
        meta.entryBucketDispatch = True
        for first, last in how.bucket_ranges:
            meta.hashRanges.add(start=first, end=last)
    message = schema.as_message()
    if message is not None:
        subscribe.schema.CopyFrom(message)
    for key, value in how.properties.items():
        subscribe.metadata.add(key=key, value=value)
    for key, value in how.subscription_properties.items():
        subscribe.subscription_properties.add(key=key, value=value)
    if how.is_legacy:
        subscribe.metadata.add(key="__pulsar.v5.managed", value="true")
    return pulsar.BaseCommand(type=pulsar.BaseCommand.SUBSCRIBE, subscribe=subscribe)


def _start_of(place: Place) -> pulsar.MessageIdData:
    if isinstance(place, Position):
        data = id_data(place)
        if place.batch_index != NO_BATCH:
            data.batch_index = place.batch_index
        return data
    edge = _LATEST if place is Edge.LATEST else _EARLIEST
    return pulsar.MessageIdData(ledgerId=edge, entryId=edge)
