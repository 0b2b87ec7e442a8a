"""Statistics as Pulsar's tools read them: JSON with Pulsar's names.

What is not measured here is 0 or empty, as in a Pulsar whose topic has none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from discovery.adapters.rest.long_json import Texts, list_texts, map_texts, object_texts
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import TOPIC_ADMIN_ROWS_MAX
from nextgen.kernel.limits.rest import REST_SUBSCRIPTIONS_SUMMED_MAX
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb

Content = dict[str, Any]
Row = TypeVar("Row", pb.ProducerStats, pb.ConsumerStats)

_KINDS = {
    "EXCLUSIVE": "Exclusive",
    "SHARED": "Shared",
    "FAILOVER": "Failover",
    "KEY_SHARED": "Key_Shared",
}
_UNSUMMED = ("topicEpoch", "lastPublishTimeStamp")
"""Of a topic with partitions these are the largest of its partitions."""


class StatsContent:
    """``TopicStats`` of the admin libraries: of a topic, or the sum of its partitions.

    Numbers are added and lists joined. Rows of clients are made when they are written; of
    a sum ``TOPIC_ADMIN_ROWS_MAX`` at most, as of one topic.
    """

    def __init__(
        self,
        created_time_ms: int = 0,
        *,
        with_publishers: bool = True,
        with_consumers: bool = True,
    ) -> None:
        self._head: Content = _head(pb.TopicStats(), created_time_ms)
        self._publishers: list[pb.ProducerStats] = []
        self._subscriptions: dict[str, tuple[Content, list[pb.ConsumerStats]]] = {}
        self._feeds: dict[str, Content] = {}
        self._with_publishers = with_publishers
        self._with_consumers = with_consumers
        self._rows_left = TOPIC_ADMIN_ROWS_MAX

    def add(self, stats: pb.TopicStats) -> StatsContent:
        """Add the statistics of a unit; return this.

        Raises:
            Refused: LIMIT_EXCEEDED: there are more than ``REST_SUBSCRIPTIONS_SUMMED_MAX``
                subscriptions.
        """
        _add(self._head, _head(stats))
        if self._with_publishers:
            self._add_rows(self._publishers, stats.publishers)
        for feed in stats.feeds:
            _add(self._feeds.setdefault(feed.shadow, {}), _feed(feed))
        for each in stats.subscriptions:
            present = self._subscriptions.get(each.name)
            if present is not None:
                _add(present[0], _subscription(each))
            elif len(self._subscriptions) < REST_SUBSCRIPTIONS_SUMMED_MAX:
                present = self._subscriptions[each.name] = (_subscription(each), [])
            else:
                raise _too_many_subscriptions()
            if self._with_consumers:
                self._add_rows(present[1], each.rows)
        return self

    def texts(self, members: Mapping[str, Any] | None = None, **long: Texts) -> Texts:
        """Yield it as JSON, together with other ``members``, also long ones."""
        self._head["averageMsgSize"] = _average(
            self._head["bytesInCounter"], self._head["msgInCounter"]
        )
        return object_texts(
            self._head | dict(members or {}),
            publishers=list_texts(map(_publisher, self._publishers)),
            shadowReplication=map_texts(
                (name, object_texts(feed)) for name, feed in self._feeds.items()
            ),
            subscriptions=map_texts(
                (name, object_texts(head, consumers=list_texts(map(_consumer, rows))))
                for name, (head, rows) in self._subscriptions.items()
            ),
            **long,
        )

    def _add_rows(self, rows: list[Row], added: Sequence[Row]) -> None:
        taken = added[: self._rows_left]
        rows += taken
        self._rows_left -= len(taken)


class SubscriptionNames:
    """The names of the subscriptions of all units of a topic."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def add(self, stats: pb.TopicStats) -> None:
        """Add those of a unit.

        Raises:
            Refused: As ``StatsContent.add``.
        """
        self._names.update(each.name for each in stats.subscriptions)
        if len(self._names) > REST_SUBSCRIPTIONS_SUMMED_MAX:
            raise _too_many_subscriptions()

    def sorted(self) -> list[str]:
        return sorted(self._names)


def _too_many_subscriptions() -> Refused:
    return Refused(
        RejectionCode.LIMIT_EXCEEDED,
        f"the partitions have more than {REST_SUBSCRIPTIONS_SUMMED_MAX} subscriptions: "
        "name one partition",
    )


def _head(stats: pb.TopicStats, created_time_ms: int = 0) -> Content:
    shadow = {"shadow": _shadow(stats.shadow)} if stats.HasField("shadow") else {}
    return shadow | {
        "msgRateIn": stats.rates_in.messages_per_s,
        "msgThroughputIn": stats.rates_in.bytes_per_s,
        "msgRateOut": stats.rates_out.messages_per_s,
        "msgThroughputOut": stats.rates_out.bytes_per_s,
        "bytesInCounter": stats.bytes_in,
        "msgInCounter": stats.messages_in,
        "bytesOutCounter": stats.bytes_out,
        "msgOutCounter": stats.messages_out,
        "averageMsgSize": 0.0,
        "msgChunkPublished": False,
        "storageSize": stats.bytes,
        "backlogSize": stats.backlog_bytes,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "waitingPublishers": 0,
        "replication": {},
        "deduplicationStatus": "Enabled" if stats.deduplicates else "Disabled",
        "topicEpoch": stats.epoch,
        "topicCreationTimeStamp": created_time_ms,
        "lastPublishTimeStamp": stats.last_publish_time_ms,
        "compaction": {},
        "terminated": stats.is_terminated,
    }


def _feed(stats: pb.ShadowFeedStats) -> Content:
    """Return ``ReplicatorStats`` of the admin libraries: a source feeds one shadow."""
    return {
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "msgRateExpired": 0.0,
        "msgOutCount": stats.entries_out,
        "bytesOutCount": stats.bytes_out,
        "replicationBacklog": stats.backlog_entries,
        "connected": True,
        "replicationDelayInSeconds": 0,
        "outboundConnection": stats.broker_id,
        "outboundConnectedSince": _time(stats.connected_since_ms),
    }


def _shadow(stats: pb.ShadowStats) -> Content:
    """Return what a shadow says of its source: Pulsar has no such statistics."""
    return {
        "source": stats.source,
        "connected": not stats.away,
        "away": stats.away,
        "skippedEntries": stats.skipped_entries,
    }


def internal_stats(stats: admin_pb.TopicInternalStats) -> Content:
    """Return ``PersistentTopicInternalStats`` of the admin libraries."""
    current = stats.ledgers[-1] if stats.ledgers else admin_pb.LedgerExtent()
    return {
        "entriesAddedCounter": stats.entries_added,
        "numberOfEntries": stats.entries,
        "totalSize": stats.bytes,
        "currentLedgerEntries": current.entries,
        "currentLedgerSize": current.bytes,
        "lastLedgerCreatedTimestamp": "",
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": stats.pending_entries,
        "lastConfirmedEntry": _position(stats.last),
        "state": "Terminated" if stats.is_terminated else "LedgerOpened",
        "ledgers": [_ledger(each) for each in stats.ledgers],
        "cursors": {each.subscription: _cursor(each) for each in stats.cursors},
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1,
            "entries": -1,
            "size": -1,
            "offloaded": False,
            "underReplicated": False,
        },
    }


def internal_info(stats: admin_pb.TopicInternalStats) -> Content:
    """Return ``ManagedLedgerInfo`` of the admin libraries."""
    info: Content = {
        "version": 0,
        "creationDate": "",
        "modificationDate": "",
        "ledgers": [_ledger(each) | {"isOffloaded": False} for each in stats.ledgers],
        "cursors": {
            each.subscription: {
                "version": 0,
                "creationDate": "",
                "modificationDate": "",
                "cursorsLedgerId": -1,
                "markDelete": _ids(each.mark_delete),
                "individualDeletedMessages": [],
                "properties": dict(each.properties),
            }
            for each in stats.cursors
        },
    }
    if stats.is_terminated:
        info["terminatedPosition"] = _ids(stats.last)
    return info


def message_id(last: admin_pb.LastMessageId, unit: TopicName) -> Content:
    """Return ``MessageIdImpl`` of the Java library, with the index of a batch's last message."""
    found: Content = _ids(last.position)
    found["partitionIndex"] = -1 if unit.partition is None else unit.partition
    if last.batch_index >= 0:
        found["batchIndex"] = last.batch_index
    return found


def found_id(position: pb.MessagePosition, unit: TopicName) -> Content:
    """Return ``MessageIdImpl`` of the Java library."""
    partition = -1 if unit.partition is None else unit.partition
    return {**_ids(position), "partitionIndex": partition}


def backlog_bytes(stats: admin_pb.TopicInternalStats, ledger_id: int, entry_id: int) -> int:
    """Return the bytes from an entry on, by the average size of entries of its ledger, as Pulsar.

    A ledger of -1 stands for the beginning.
    """
    if ledger_id < 0:
        return stats.bytes
    size = 0
    for each in stats.ledgers:
        if each.ledger_id > ledger_id:
            size += each.bytes
        elif each.ledger_id == ledger_id:
            passed = min(max(entry_id, 0), each.entries)
            size += each.bytes - (each.bytes * passed // each.entries if each.entries else 0)
    return size


def backlog_analysis(found: admin_pb.BacklogAnalysis) -> Content:
    """Return ``AnalyzeSubscriptionBacklogResult``. Without entry filters all is accepted."""
    content: Content = {
        "entries": found.entries,
        "messages": found.messages,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": found.entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": found.messages,
        "filterRescheduledMessages": 0,
        "aborted": found.is_aborted,
    }
    if found.entries:
        content["firstMessageId"] = f"{found.first.ledger_id}:{found.first.entry_id}"
        content["lastMessageId"] = f"{found.last.ledger_id}:{found.last.entry_id}"
    return content


def _add(whole: Content, part: Content) -> None:
    for key, value in part.items():
        present = whole.get(key)
        if key in _UNSUMMED:
            whole[key] = max(present or 0, value)
        elif isinstance(value, dict):
            _add(whole.setdefault(key, {}), value)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            whole[key] = value if isinstance(value, str) else bool(present) or value
        else:
            whole[key] = (present or 0) + value


def _publisher(stats: pb.ProducerStats) -> Content:
    return {
        "accessMode": stats.access_mode,
        "msgRateIn": stats.rates_in.messages_per_s,
        "msgThroughputIn": stats.rates_in.bytes_per_s,
        "averageMsgSize": _average(stats.bytes_in, stats.messages_in),
        "chunkedMessageRate": 0.0,
        "producerId": stats.producer_id,
        "supportsPartialProducer": False,
        "producerName": stats.name,
        "metadata": {},
        **client(stats.client),
    }


def _subscription(stats: pb.SubscriptionStats) -> Content:
    return {
        "msgRateOut": stats.rates_out.messages_per_s,
        "msgThroughputOut": stats.rates_out.bytes_per_s,
        "bytesOutCounter": stats.bytes_out,
        "msgOutCounter": stats.messages_out,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "chunkedMessageRate": 0,
        "msgBacklog": stats.backlog_entries,
        "msgBacklogNoDelayed": stats.backlog_entries - stats.delayed_entries,
        "backlogSize": stats.backlog_bytes,
        "earliestMsgPublishTimeInBacklog": 0,
        "blockedSubscriptionOnUnackedMsgs": False,
        "msgDelayed": stats.delayed_entries,
        "unackedMessages": stats.unacked_messages,
        "type": _KINDS.get(stats.kind, ""),
        "activeConsumerName": stats.active_consumer,
        "msgRateExpired": 0.0,
        "totalMsgExpired": 0,
        "lastExpireTimestamp": 0,
        "lastConsumedFlowTimestamp": 0,
        "lastConsumedTimestamp": 0,
        "lastAckedTimestamp": 0,
        "lastMarkDeleteAdvancedTimestamp": 0,
        "isDurable": stats.is_durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "consumersAfterMarkDeletePosition": {},
        "nonContiguousDeletedMessagesRanges": 0,
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "subscriptionProperties": dict(stats.properties),
        "durable": stats.is_durable,
        "replicated": False,
    }


def _consumer(stats: pb.ConsumerStats) -> Content:
    return {
        "msgRateOut": stats.rates_out.messages_per_s,
        "msgThroughputOut": stats.rates_out.bytes_per_s,
        "bytesOutCounter": stats.bytes_out,
        "msgOutCounter": stats.messages_out,
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "chunkedMessageRate": 0.0,
        "consumerName": stats.name,
        "availablePermits": stats.available_permits,
        "unackedMessages": stats.unacked_messages,
        "avgMessagesPerEntry": 0,
        "blockedConsumerOnUnackedMsgs": stats.is_blocked_on_unacked,
        "metadata": {},
        **client(stats.client),
    }


def client(stats: pb.ClientStats) -> Content:
    """Return the address, connection time and version of a client, under Pulsar's names."""
    return {
        "address": f"/{stats.address}",
        "connectedSince": _time(stats.connected_since_ms),
        "clientVersion": stats.client_version,
    }


def _time(time_ms: int) -> str:
    found = datetime.fromtimestamp(time_ms / 1_000, UTC)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ledger(extent: admin_pb.LedgerExtent) -> Content:
    return {
        "ledgerId": extent.ledger_id,
        "entries": extent.entries,
        "size": extent.bytes,
        "offloaded": False,
        "underReplicated": False,
    }


def _cursor(stats: admin_pb.CursorStats) -> Content:
    acked = ",".join(
        f"({each.ledger_id}:{each.first_entry - 1}..{each.ledger_id}:{each.last_entry}]"
        for each in stats.acked
    )
    return {
        "markDeletePosition": _position(stats.mark_delete),
        "readPosition": _position(stats.read),
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": stats.messages_out,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": f"[{acked}]",
        "lastLedgerSwitchTimestamp": "",
        "state": "Open",
        "active": stats.is_active,
        "numberOfEntriesSinceFirstNotAckedMessage": stats.backlog_entries + stats.acked_entries,
        "totalNonContiguousDeletedMessagesRange": stats.acked_ranges,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": {},
    }


def _ids(position: pb.MessagePosition) -> Content:
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id}


def _position(position: pb.MessagePosition) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _average(size_bytes: int, messages: int) -> float:
    return size_bytes / messages if messages else 0.0
