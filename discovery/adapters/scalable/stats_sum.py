"""Statistics of a scalable topic as Pulsar's tools read them: its segments, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from discovery.adapters.resources import stats_content
from discovery.adapters.rest.long_json import Texts, json_text, list_texts, map_texts, object_texts
from discovery.adapters.scalable.layout_content import relatives
from discovery.service.scalable.topics import name_of
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import TOPIC_ADMIN_ROWS_MAX
from nextgen.kernel.limits.rest import REST_SUBSCRIPTIONS_SUMMED_MAX
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1.layouts_pb2 import ScalableSubscription, ScalableTopic, TopicSegment

Content = dict[str, Any]

_TYPES = {"stream": "STREAM", "checkpoint": "STREAM", "queue": "QUEUE"}
"""The admin libraries know no third one."""


class StatsSum:
    """``ScalableTopicStats`` of the admin libraries. Segments are added in the order of their ids.

    Producers of one name on several segments are one, and so are consumers. Beyond
    ``TOPIC_ADMIN_ROWS_MAX`` of all of them the rest is left out. Rows are made when they are
    written.
    """

    def __init__(self, name: TopicName, layout: ScalableTopic) -> None:
        self._name = name
        self._epoch = layout.epoch
        self._sealed = 0
        self._segments: list[tuple[TopicSegment, Content, bool]] = []
        """Each with its load, and whether its broker gave it."""
        self._load = _load(pb.TopicStats())
        self._totals = _totals(pb.TopicStats())
        self._producers: dict[str, _Client] = {}
        self._rows_left = TOPIC_ADMIN_ROWS_MAX
        self._subscriptions = {each.name: _Subscription(each) for each in layout.subscriptions}
        self._others_left = REST_SUBSCRIPTIONS_SUMMED_MAX

    def add(self, segment: TopicSegment, stats: pb.TopicStats | None) -> None:
        """Add a segment; ``stats`` None: its broker gave none.

        Raises:
            Refused: LIMIT_EXCEEDED: segments have ``REST_SUBSCRIPTIONS_SUMMED_MAX`` subscriptions
                that the layout has not, such as those of readers; one counts for each segment.
        """
        self._sealed += segment.is_sealed
        found = stats or pb.TopicStats()
        load, totals = _load(found), _totals(found)
        self._segments.append((segment, load, stats is not None))
        _add(self._load, load)
        _add(self._totals, totals)
        for each in found.publishers:
            row = self._row(self._producers, each.name)
            if row is not None:
                row.add(segment.segment_id, each, _published)
        for one in found.subscriptions:
            self._add_subscription(segment, one)

    def _add_subscription(self, segment: TopicSegment, stats: pb.SubscriptionStats) -> None:
        whole = self._subscriptions.get(stats.name)
        if whole is None:
            whole = self._subscriptions[stats.name] = _Subscription(None)
        if not whole.is_of_layout:
            if not self._others_left:
                raise _too_many_subscriptions()
            self._others_left -= 1
        part = _backlog(stats)
        _add(whole.head, part)
        _add(whole.head, {"msgOutCounter": stats.messages_out, "bytesOutCounter": stats.bytes_out})
        whole.segments[segment.segment_id] = {**part, "consumerCount": stats.consumers}
        for each in stats.rows:
            row = self._row(whole.consumers, each.name)
            if row is not None:
                row.add(segment.segment_id, each, _delivered)

    def _row(self, rows: dict[str, _Client], name: str) -> _Client | None:
        """Return the row of a client; None if there are too many."""
        row = rows.get(name)
        if row is None and self._rows_left:
            self._rows_left -= 1
            row = rows[name] = _Client()
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
                (
                    str(segment.segment_id),
                    iter([json_text(self._segment(segment, load, brokers if is_known else {}))]),
                )
                for segment, load, is_known in self._segments
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


class _Client:
    """A producer or consumer on all segments. ``seen`` is its first connection, if there is one."""

    __slots__ = ("_load", "seen", "segments")

    def __init__(self, segments: Iterable[int] = ()) -> None:
        self.segments = dict.fromkeys(segments)
        self.seen: Any = None
        self._load: Content | None = None

    def add(self, segment_id: int, stats: Any, measured: Callable[[Any], Content]) -> None:
        """Add a connection; ``measured`` returns the numbers to be summed."""
        self.segments[segment_id] = None
        if self.seen is None:
            self.seen = stats
            return
        if self._load is None:
            self._load = measured(self.seen)
        _add(self._load, measured(stats))

    def load(self, measured: Callable[[Any], Content]) -> Content:
        if self._load is None:
            return {} if self.seen is None else measured(self.seen)
        return self._load


class _Subscription:
    """The sum of one subscription. ``stored`` None: it is on segments alone."""

    def __init__(self, stored: ScalableSubscription | None) -> None:
        self.is_of_layout = stored is not None
        self.type = None if stored is None else _TYPES.get(stored.type)
        self.head = _backlog(pb.SubscriptionStats()) | {"msgOutCounter": 0, "bytesOutCounter": 0}
        self.segments: dict[int, Content] = {}
        self.consumers: dict[str, _Client] = {}
        if stored is not None:
            assigned = {each.consumer_name: each.segments for each in stored.assigned}
            for each in stored.consumers:
                self.consumers[each.name] = _Client(assigned.get(each.name, ()))

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


def _too_many_subscriptions() -> Refused:
    return Refused(
        RejectionCode.LIMIT_EXCEEDED,
        f"the segments have more than {REST_SUBSCRIPTIONS_SUMMED_MAX} subscriptions of their own: "
        "name one segment",
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
        **producer.load(_published),
        "averageMsgSize": stats.bytes_in / stats.messages_in if stats.messages_in else 0.0,
        "accessMode": stats.access_mode,
        **stats_content.client(stats.client),
    }


def _consumer(name: str, consumer: _Client) -> Content:
    load = consumer.load(_delivered)
    shown = {"consumerName": name, "segmentIds": list(consumer.segments), **load}
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
