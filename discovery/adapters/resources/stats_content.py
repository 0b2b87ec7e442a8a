"""Statistics as Pulsar's tools read them: JSON with Pulsar's names.

What is not measured here is 0 or empty, as in a Pulsar whose topic has none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb

Content = dict[str, Any]

_KINDS = {
    "EXCLUSIVE": "Exclusive",
    "SHARED": "Shared",
    "FAILOVER": "Failover",
    "KEY_SHARED": "Key_Shared",
}
_UNSUMMED = ("averageMsgSize", "topicEpoch", "lastPublishTimeStamp")
"""Of a topic with partitions these are the largest of its partitions."""


def topic_stats(
    stats: pb.TopicStats,
    created_time_ms: int = 0,
    *,
    with_publishers: bool = True,
    with_consumers: bool = True,
) -> Content:
    """Return ``TopicStats`` of the admin libraries."""
    return {
        "msgRateIn": stats.rates_in.messages_per_s,
        "msgThroughputIn": stats.rates_in.bytes_per_s,
        "msgRateOut": stats.rates_out.messages_per_s,
        "msgThroughputOut": stats.rates_out.bytes_per_s,
        "bytesInCounter": stats.bytes_in,
        "msgInCounter": stats.messages_in,
        "bytesOutCounter": stats.bytes_out,
        "msgOutCounter": stats.messages_out,
        "averageMsgSize": _average(stats.bytes_in, stats.messages_in),
        "msgChunkPublished": False,
        "storageSize": stats.bytes,
        "backlogSize": stats.backlog_bytes,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "publishers": [_publisher(each) for each in stats.publishers] if with_publishers else [],
        "waitingPublishers": 0,
        "subscriptions": {
            each.name: _subscription(each, with_consumers=with_consumers)
            for each in stats.subscriptions
        },
        "replication": {},
        "deduplicationStatus": "Enabled" if stats.deduplicates else "Disabled",
        "topicEpoch": stats.epoch,
        "topicCreationTimeStamp": created_time_ms,
        "lastPublishTimeStamp": stats.last_publish_time_ms,
        "compaction": {},
        "terminated": stats.is_terminated,
    }


def sum_of(partitions: Sequence[Content]) -> Content:
    """Return the statistics of a topic with these partitions: numbers added, lists joined."""
    whole = topic_stats(pb.TopicStats())
    for each in partitions:
        _add(whole, each)
    whole["averageMsgSize"] = _average(whole["bytesInCounter"], whole["msgInCounter"])
    return whole


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


def _add(whole: Content, part: Content) -> None:
    for key, value in part.items():
        present = whole.get(key)
        if key in _UNSUMMED:
            whole[key] = max(present or 0, value)
        elif isinstance(value, dict):
            _add(whole.setdefault(key, {}), value)
        elif isinstance(value, list):
            whole[key] = [*(present or ()), *value]
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
        **_client(stats.client),
    }


def _subscription(stats: pb.SubscriptionStats, *, with_consumers: bool) -> Content:
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
        "consumers": [_consumer(each) for each in stats.rows] if with_consumers else [],
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
        **_client(stats.client),
    }


def _client(stats: pb.ClientStats) -> Content:
    since = datetime.fromtimestamp(stats.connected_since_ms / 1_000, UTC)
    return {
        "address": f"/{stats.address}",
        "connectedSince": since.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "clientVersion": stats.client_version,
    }


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
