"""The statistics of open topics: many of them in short, or one with all its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import chain, islice
from typing import TypeVar

from brokers.domain.position import Position
from brokers.domain.producing.access import AccessMode
from brokers.ports.client_info import ClientInfo
from brokers.service.producing.producers import Producer
from brokers.service.subscriptions.subscription import Consumer, Subscription
from brokers.service.topics.open_topics import Topics
from brokers.service.topics.topic import Topic
from brokers.service.traffic import Rate
from nextgen.kernel.limits.pulsar import (
    SUBSCRIPTIONS_PER_TURN,
    TOPIC_ADMIN_ALL_RANGES_MAX,
    TOPIC_ADMIN_RANGES_MAX,
    TOPIC_ADMIN_ROWS_BYTES_MAX,
    TOPIC_ADMIN_ROWS_MAX,
)
from nextgen.kernel.routing.names import InvalidName, parse_topic
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.nextgen.v1 import topic_admin_pb2 as admin_wire

_Row = TypeVar("_Row", wire.ProducerStats, wire.ConsumerStats)

_ACCESS_MODES = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
"""Names as in Pulsar's statistics."""


def topic_stats(topics: Topics, names: Iterable[str]) -> list[wire.TopicStats]:
    """Return the statistics of those topics that are open or failed to open.

    Each under its name in ``names``, which may be a former one.
    """
    found = []
    for name in names:
        present = name if topics.get(name) is not None else _present_name(topics, name)
        topic = topics.get(present)
        if topic is not None:
            found.append(_of_topic(topic, topic.subscriptions.values()))
            found[-1].topic = name
        elif present in topics.errors:
            found.append(wire.TopicStats(topic=name, error=topics.errors[present]))
    return found


def _present_name(topics: Topics, name: str) -> str:
    try:
        held = topics.held(parse_topic(name))
    except InvalidName:
        return name
    return name if held is None else held.name


def _of_topic(topic: Topic, subscriptions: Iterable[Subscription]) -> wire.TopicStats:
    ledger, traffic = topic.ledger, topic.traffic
    return wire.TopicStats(
        topic=topic.unit.name,
        epoch=topic.unit.epoch,
        producers=len(topic.producers),
        entries=ledger.entry_count,
        bytes=ledger.byte_count,
        first=wire_position(ledger.first),
        last=wire_position(ledger.last),
        messages_in=traffic.messages_in,
        messages_out=traffic.messages_out,
        bytes_in=traffic.bytes_in,
        bytes_out=traffic.bytes_out,
        subscriptions=[_of_subscription(each) for each in subscriptions],
        is_fenced=ledger.is_fenced,
        error="" if topic.failure is None else str(topic.failure),
        schema_versions=len(topic.schemas),
        backlog_bytes=topic.backlog_bytes,
    )


def _of_subscription(subscription: Subscription) -> wire.SubscriptionStats:
    stats = subscription.stats()
    return wire.SubscriptionStats(
        name=stats.name,
        kind=stats.kind.name,
        consumers=stats.consumers,
        backlog_entries=stats.backlog_entries,
        unacked_messages=stats.unacked_messages,
        mark_delete=wire_position(stats.mark_delete),
        is_durable=stats.is_durable,
        messages_out=stats.messages_out,
        bytes_out=stats.bytes_out,
        delayed_entries=stats.delayed_entries,
    )


async def detailed_stats(topic: Topic) -> wire.TopicStats:
    """Return the statistics of one topic with its rates, producers and consumers.

    At most ``TOPIC_ADMIN_ROWS_MAX`` clients, with ``TOPIC_ADMIN_ROWS_BYTES_MAX``, have rows; all of
    them are counted.
    """
    found = _of_topic(topic, ())
    subscriptions = list(topic.subscriptions.values())
    found.is_terminated = topic.is_terminated
    found.deduplicates = topic.policy.deduplicates
    consumers = chain.from_iterable(each.consumers for each in subscriptions)
    found.classic_clients = sum(not each.request.is_managed for each in topic.producers)
    found.classic_clients += sum(not each.request.is_managed for each in consumers)
    found.last_publish_time_ms = topic.ledger.last_time_ms
    _set_shadows(found, topic)
    _set_rate(found.rates_in, topic.rates.rate_in)
    _set_rate(found.rates_out, topic.rates.rate_out)
    room = _RowRoom()
    found.publishers.extend(room.filled(map(_of_producer, topic.producers)))
    entries, size = topic.ledger.entry_count, topic.ledger.byte_count
    async for subscription in _in_turns(subscriptions):
        row = found.subscriptions.add()
        row.CopyFrom(_of_subscription(subscription))
        _set_rate(row.rates_out, subscription.rate)
        row.rows.extend(room.filled(map(_of_consumer, subscription.consumers)))
        active = subscription.active_consumer
        row.active_consumer = "" if active is None else active.name
        row.properties.update(subscription.properties)
        row.backlog_bytes = size * min(row.backlog_entries, entries) // entries if entries else 0
    return found


async def _in_turns(subscriptions: list[Subscription]) -> AsyncIterator[Subscription]:
    """Yield all, ``SUBSCRIPTIONS_PER_TURN`` in a turn of the loop."""
    for number, subscription in enumerate(subscriptions, start=1):
        yield subscription
        if number % SUBSCRIPTIONS_PER_TURN == 0:
            await asyncio.sleep(0)


def _set_shadows(found: wire.TopicStats, topic: Topic) -> None:
    shadow, ledger = topic.as_shadow, topic.ledger
    if shadow is not None:
        found.shadow.source = shadow.source
        found.shadow.away = shadow.away
        found.shadow.skipped_entries = shadow.skipped_entries
    for feed in topic.followers.feeds:
        acknowledged = topic.shadows.of(feed.shadow)
        backlog = 0 if acknowledged is None else ledger.entries_between(acknowledged, ledger.last)
        found.feeds.add(
            shadow=feed.shadow,
            broker_id=feed.broker_id,
            connected_since_ms=feed.connected_since_ms,
            entries_out=feed.entries_out,
            bytes_out=feed.bytes_out,
            backlog_entries=backlog,
        )


class _RowRoom:
    """Room for the rows of clients in one answer."""

    def __init__(self) -> None:
        self._rows = TOPIC_ADMIN_ROWS_MAX
        self._bytes = TOPIC_ADMIN_ROWS_BYTES_MAX

    def filled(self, rows: Iterable[_Row]) -> list[_Row]:
        """Return the first of ``rows``, as many as there is room for."""
        found: list[_Row] = []
        for row in islice(rows, self._rows):
            self._bytes -= row.ByteSize()
            if self._bytes < 0:
                self._rows = 0
                return found
            self._rows -= 1
            found.append(row)
        return found


def _of_producer(producer: Producer) -> wire.ProducerStats:
    row = wire.ProducerStats(
        producer_id=producer.request.producer_id,
        name=producer.name,
        access_mode=_ACCESS_MODES[producer.request.mode],
        client=_client(producer.sink.client, producer.connected_since_ms),
        messages_in=producer.state.messages_in,
        bytes_in=producer.state.bytes_in,
    )
    _set_rate(row.rates_in, producer.rate)
    return row


def _of_consumer(consumer: Consumer) -> wire.ConsumerStats:
    row = wire.ConsumerStats(
        consumer_id=consumer.request.consumer_id,
        name=consumer.name,
        client=_client(consumer.sink.client, consumer.connected_since_ms),
        messages_out=consumer.messages_out,
        bytes_out=consumer.bytes_out,
        available_permits=consumer.permits,
        unacked_messages=consumer.unacked_messages,
        is_blocked_on_unacked=consumer.is_blocked,
    )
    _set_rate(row.rates_out, consumer.rate)
    return row


def _client(client: ClientInfo, connected_since_ms: int) -> wire.ClientStats:
    return wire.ClientStats(
        address=client.address,
        client_version=client.version,
        connected_since_ms=connected_since_ms,
    )


def _set_rate(field: wire.TrafficRates, rate: Rate) -> None:
    field.messages_per_s, field.bytes_per_s = rate.messages_per_s, rate.bytes_per_s


async def internal_stats(topic: Topic) -> admin_wire.TopicInternalStats:
    """Return the ledgers and cursors of one topic."""
    ledger = topic.ledger
    durable = [each for each in topic.subscriptions.values() if each.is_durable]
    ranges_max = min(TOPIC_ADMIN_RANGES_MAX, TOPIC_ADMIN_ALL_RANGES_MAX // max(1, len(durable)))
    return admin_wire.TopicInternalStats(
        entries_added=topic.entries_added,
        entries=ledger.entry_count,
        bytes=ledger.byte_count,
        pending_entries=topic.pending_entries,
        last=wire_position(ledger.last),
        is_terminated=topic.is_terminated,
        ledgers=[
            admin_wire.LedgerExtent(
                ledger_id=each.ledger_id, entries=each.entries, bytes=each.size_bytes
            )
            for each in ledger.extents
        ],
        cursors=[_of_cursor(each, ranges_max) async for each in _in_turns(durable)],
        schema_versions=len(topic.schemas),
        retention=admin_wire.StoredRetention(
            time_ms=topic.policy.retention_ms, size_bytes=topic.policy.retention_bytes
        ),
    )


def _of_cursor(subscription: Subscription, ranges_max: int) -> admin_wire.CursorStats:
    cursor, stats = subscription.cursor, subscription.stats()
    read = cursor.end_of_run(cursor.mark_delete)
    return admin_wire.CursorStats(
        subscription=subscription.name,
        mark_delete=wire_position(cursor.mark_delete),
        read=wire_position(Position(read.ledger_id, read.entry_id + 1)),
        acked_entries=cursor.ranges.count,
        acked_ranges=cursor.holes,
        backlog_entries=stats.backlog_entries,
        acked=[
            admin_wire.EntryRange(
                ledger_id=first.ledger_id, first_entry=first.entry_id, last_entry=last_entry
            )
            for first, last_entry in islice(cursor.ranges, ranges_max)
        ],
        messages_out=stats.messages_out,
        properties=subscription.properties,
        is_active=bool(subscription.consumers),
    )


def wire_position(position: Position) -> wire.MessagePosition:
    """Return a position as a message."""
    return wire.MessagePosition(ledger_id=position.ledger_id, entry_id=position.entry_id)
