"""The statistics of open topics, for ``GetTopicStats``."""

from __future__ import annotations

from collections.abc import Iterable

from brokers.domain.position import Position
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics.open_topics import Topics
from brokers.service.topics.topic import Topic
from protos.nextgen.v1 import broker_service_pb2 as wire


def topic_stats(topics: Topics, names: Iterable[str]) -> list[wire.TopicStats]:
    """Return the statistics of those topics that are open or failed to open."""
    found = []
    for name in names:
        topic = topics.get(name)
        if topic is not None:
            found.append(_of_topic(topic))
        elif name in topics.errors:
            found.append(wire.TopicStats(topic=name, error=topics.errors[name]))
    return found


def _of_topic(topic: Topic) -> wire.TopicStats:
    ledger, traffic = topic.ledger, topic.traffic
    return wire.TopicStats(
        topic=topic.unit.name,
        epoch=topic.unit.epoch,
        producers=len(topic.producers),
        entries=ledger.entry_count,
        bytes=ledger.byte_count,
        first=_position(ledger.first),
        last=_position(ledger.last),
        messages_in=traffic.messages_in,
        messages_out=traffic.messages_out,
        bytes_in=traffic.bytes_in,
        bytes_out=traffic.bytes_out,
        subscriptions=[_of_subscription(each) for each in topic.subscriptions.values()],
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
        mark_delete=_position(stats.mark_delete),
        is_durable=stats.is_durable,
        messages_out=stats.messages_out,
        bytes_out=stats.bytes_out,
        delayed_entries=stats.delayed_entries,
    )


def _position(position: Position) -> wire.MessagePosition:
    return wire.MessagePosition(ledger_id=position.ledger_id, entry_id=position.entry_id)
