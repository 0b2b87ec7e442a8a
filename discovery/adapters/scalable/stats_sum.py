"""Statistics of a scalable topic as Pulsar's tools read them: its segments, and their sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from discovery.adapters.resources import stats_content
from discovery.adapters.rest.long_json import Texts, json_text, list_texts, map_texts, object_texts
from discovery.adapters.scalable.layout_content import relatives
from discovery.service.scalable.topics import name_of
from nextgen.kernel.limits.pulsar import TOPIC_ADMIN_ROWS_MAX
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1.layouts_pb2 import ScalableSubscription, ScalableTopic, TopicSegment

Content = dict[str, Any]

_TYPES = {"stream": "STREAM", "checkpoint": "STREAM", "queue": "QUEUE"}
"""The admin libraries know no third one."""


class StatsSum:
    """``ScalableTopicStats`` of the admin libraries. Segments are added in the order of their ids.

    Producers of one name on several segments are one, and so are consumers. Beyond
    ``TOPIC_ADMIN_ROWS_MAX`` of all of them the rest is left out.
    """

    def __init__(self, name: TopicName, layout: ScalableTopic) -> None:
        self._name = name
        self._epoch = layout.epoch
        self._sealed = 0
        self._segments: list[tuple[TopicSegment, Content]] = []
        self._load = _load(pb.TopicStats())
        self._totals = _totals(pb.TopicStats())
        self._producers: dict[str, _Client] = {}
        self._rows_left = TOPIC_ADMIN_ROWS_MAX
        self._subscriptions = {each.name: _Subscription(each) for each in layout.subscriptions}

    def add(self, segment: TopicSegment, stats: pb.TopicStats | None) -> None:
        """Add a segment; ``stats`` None: its broker gave none."""
        self._sealed += segment.is_sealed
        found = stats or pb.TopicStats()
        load, totals = _load(found), _totals(found)
        self._segments.append((segment, load))
        _add(self._load, load)
        _add(self._totals, totals)
        for each in found.publishers:
            row = self._row(self._producers, each, segment)
            if row is not None:
                _add(row.load, _published(each))
        for one in found.subscriptions:
            self._add_subscription(segment, one)

    def _add_subscription(self, segment: TopicSegment, stats: pb.SubscriptionStats) -> None:
        whole = self._subscriptions.get(stats.name)
        if whole is None:
            whole = self._subscriptions[stats.name] = _Subscription(None)
        part = _backlog(stats)
        _add(whole.head, part)
        _add(whole.head, {"msgOutCounter": stats.messages_out, "bytesOutCounter": stats.bytes_out})
        whole.segments[segment.segment_id] = {**part, "consumerCount": stats.consumers}
        for each in stats.rows:
            row = self._row(whole.consumers, each, segment)
            if row is not None:
                _add(row.load, _delivered(each))

    def _row(
        self,
        rows: dict[str, _Client],
        stats: pb.ProducerStats | pb.ConsumerStats,
        segment: TopicSegment,
    ) -> _Client | None:
        """Return the row of a client; None if there are too many."""
        row = rows.get(stats.name)
        if row is None:
            if not self._rows_left:
                return None
            self._rows_left -= 1
            row = rows[stats.name] = _Client()
        row.segments.setdefault(segment.segment_id)
        row.seen = row.seen or stats
        return row

    def texts(self, brokers: dict[str, str]) -> Texts:
        """Yield it as JSON. ``brokers`` serve segments, by the names of the segments."""
        messages = self._totals["msgInCounter"]
        average = self._totals["bytesInCounter"] / messages if messages else 0.0
        return object_texts(
            {
                "epoch": self._epoch,
                "totalSegments": len(self._segments),
                "activeSegments": len(self._segments) - self._sealed,
                "sealedSegments": self._sealed,
                **self._load,
                **self._totals,
                "averageMsgSize": average,
            },
            segments=map_texts(
                (str(segment.segment_id), iter([json_text(self._segment(segment, load, brokers))]))
                for segment, load in self._segments
            ),
            producers=list_texts(map(_producer, self._producers.values())),
            subscriptions=map_texts(
                (name, each.texts()) for name, each in self._subscriptions.items()
            ),
        )

    def _segment(self, segment: TopicSegment, load: Content, brokers: dict[str, str]) -> Content:
        name = name_of(self._name, segment).text
        return {
            "segmentId": segment.segment_id,
            "name": name,  # Earlier releases of Pulsar call it so.
            "topic": name,
            **relatives(segment),
            "entryBuckets": len(segment.bucket_starts) + 1,
            "ownerBroker": brokers.get(name),
            **load,
        }


@dataclass(slots=True)
class _Client:
    """A producer or consumer on all segments. ``seen`` is its first connection, if there is one."""

    segments: dict[int, None] = field(default_factory=dict)
    seen: Any = None
    load: Content = field(default_factory=dict)


class _Subscription:
    """The sum of one subscription. ``stored`` None: it is on segments alone."""

    def __init__(self, stored: ScalableSubscription | None) -> None:
        self.type = None if stored is None else _TYPES.get(stored.type)
        self.head = _backlog(pb.SubscriptionStats()) | {"msgOutCounter": 0, "bytesOutCounter": 0}
        self.segments: dict[int, Content] = {}
        self.consumers: dict[str, _Client] = {}
        if stored is not None:
            assigned = {each.consumer_name: each.segments for each in stored.assigned}
            for each in stored.consumers:
                self.consumers[each.name] = _Client(dict.fromkeys(assigned.get(each.name, ())))

    def texts(self) -> Texts:
        # Here nothing is known of redeliveries and acknowledgements in a time.
        head = {"msgRateRedeliver": 0.0, "messageAckRate": 0.0, **self.head}
        return object_texts(
            {"type": self.type, "consumerCount": len(self.consumers), **head},
            segments=map_texts(
                (str(segment_id), iter([json_text(each)]))
                for segment_id, each in self.segments.items()
            ),
            consumers=list_texts(
                _consumer(name, consumer) for name, consumer in self.consumers.items()
            ),
        )


def _load(stats: pb.TopicStats) -> Content:
    return {
        "msgRateIn": stats.rates_in.messages_per_s,
        "msgThroughputIn": stats.rates_in.bytes_per_s,
        "msgRateOut": stats.rates_out.messages_per_s,
        "msgThroughputOut": stats.rates_out.bytes_per_s,
        "storageSize": stats.bytes,
    }


def _totals(stats: pb.TopicStats) -> Content:
    return {
        "msgInCounter": stats.messages_in,
        "bytesInCounter": stats.bytes_in,
        "msgOutCounter": stats.messages_out,
        "bytesOutCounter": stats.bytes_out,
        "backlogSize": stats.backlog_bytes,
    }


def _backlog(stats: pb.SubscriptionStats) -> Content:
    return {
        "msgBacklog": stats.backlog_entries,
        "backlogSize": stats.backlog_bytes,
        "unackedMessages": stats.unacked_messages,
        "msgRateOut": stats.rates_out.messages_per_s,
        "msgThroughputOut": stats.rates_out.bytes_per_s,
    }


def _producer(producer: _Client) -> Content:
    stats: pb.ProducerStats = producer.seen
    return {
        "producerName": stats.name,
        "segmentIds": list(producer.segments),
        **producer.load,
        "averageMsgSize": stats.bytes_in / stats.messages_in if stats.messages_in else 0.0,
        "accessMode": stats.access_mode,
        **stats_content.client(stats.client),
    }


def _consumer(name: str, consumer: _Client) -> Content:
    shown = {"consumerName": name, "segmentIds": list(consumer.segments), **consumer.load}
    if consumer.seen is not None:
        # Whether one without segments is connected, no broker knows.
        shown |= {"connected": True, **stats_content.client(consumer.seen.client)}
    return shown


def _published(stats: pb.ProducerStats) -> Content:
    return {
        "msgRateIn": stats.rates_in.messages_per_s,
        "msgThroughputIn": stats.rates_in.bytes_per_s,
    }


def _delivered(stats: pb.ConsumerStats) -> Content:
    return {
        "msgRateOut": stats.rates_out.messages_per_s,
        "msgThroughputOut": stats.rates_out.bytes_per_s,
        "msgOutCounter": stats.messages_out,
        "bytesOutCounter": stats.bytes_out,
        "unackedMessages": stats.unacked_messages,
        "availablePermits": stats.available_permits,
    }


def _add(whole: Content, part: Content) -> None:
    for key, value in part.items():
        whole[key] = whole.get(key, 0) + value
