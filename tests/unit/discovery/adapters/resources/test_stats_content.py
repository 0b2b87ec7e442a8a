"""Statistics with Pulsar's names, and their sum over partitions."""

import json
from typing import Any

import pytest

from discovery.adapters.resources.stats_content import (
    StatsContent,
    SubscriptionNames,
    internal_info,
    internal_stats,
    message_id,
)
from nextgen.kernel.errors import Refused
from nextgen.kernel.limits.pulsar import SUBSCRIPTIONS_PER_TOPIC_MAX, TOPIC_ADMIN_ROWS_MAX
from nextgen.kernel.limits.rest import REST_SUBSCRIPTIONS_SUMMED_MAX
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from tests.support.costs.processor_time import processor_time, slowness

CLIENT = pb.ClientStats(
    address="10.0.0.9:4711",
    client_version="Pulsar-Java-v4.0.8",
    connected_since_ms=1_700_000_000_123,
)
CONNECTED = {
    "address": "/10.0.0.9:4711",
    "clientVersion": "Pulsar-Java-v4.0.8",
    "connectedSince": "2023-11-14T22:13:20.123Z",
}


def stats(messages: int = 4, size_bytes: int = 100) -> pb.TopicStats:
    return pb.TopicStats(
        epoch=3,
        bytes=size_bytes,
        messages_in=messages,
        bytes_in=size_bytes,
        rates_in=pb.TrafficRates(messages_per_s=2.5, bytes_per_s=60.0),
        deduplicates=True,
        publishers=[
            pb.ProducerStats(
                producer_id=1, name="p-1", access_mode="Shared", client=CLIENT, messages_in=messages
            )
        ],
        subscriptions=[
            pb.SubscriptionStats(
                name="s",
                kind="KEY_SHARED",
                is_durable=True,
                backlog_entries=messages,
                delayed_entries=1,
                properties={"a": "b"},
                rows=[pb.ConsumerStats(consumer_id=7, name="c", client=CLIENT, messages_out=2)],
            )
        ],
    )


def topic_stats(*parts: pb.TopicStats, **how: Any) -> dict[str, Any]:
    """Return the statistics of a topic of these parts as a client reads them."""
    whole = StatsContent(**how)
    for part in parts:
        whole.add(part)
    read: dict[str, Any] = json.loads("".join(whole.texts()))
    return read


def test_statistics_have_the_names_that_tools_read():
    content = topic_stats(stats())

    assert (content["msgRateIn"], content["msgThroughputIn"]) == (2.5, 60.0)
    assert (content["msgInCounter"], content["averageMsgSize"]) == (4, 25.0)
    assert (content["deduplicationStatus"], content["topicEpoch"]) == ("Enabled", 3)
    (publisher,) = content["publishers"]
    assert publisher["producerName"] == "p-1"
    assert publisher.items() >= CONNECTED.items()
    subscription = content["subscriptions"]["s"]
    assert (subscription["type"], subscription["isDurable"]) == ("Key_Shared", True)
    assert (subscription["msgBacklog"], subscription["msgBacklogNoDelayed"]) == (4, 3)
    assert subscription["subscriptionProperties"] == {"a": "b"}
    (consumer,) = subscription["consumers"]
    assert (consumer["consumerName"], consumer["msgOutCounter"]) == ("c", 2)
    assert consumer.items() >= CONNECTED.items()


def test_statistics_have_the_times_of_the_creation_and_of_the_last_message():
    content = topic_stats(pb.TopicStats(last_publish_time_ms=9_000), created_time_ms=3_000)

    assert (content["topicCreationTimeStamp"], content["lastPublishTimeStamp"]) == (3_000, 9_000)


def test_clients_are_left_out_on_demand():
    content = topic_stats(stats(), with_publishers=False, with_consumers=False)

    assert content["publishers"] == []
    assert content["subscriptions"]["s"]["consumers"] == []


def test_partitions_are_added_up_and_their_clients_joined():
    first, second = stats(4, 100), stats(6, 200)
    first.last_publish_time_ms, second.last_publish_time_ms = 7_000, 5_000

    whole = topic_stats(first, second)

    assert (whole["msgInCounter"], whole["bytesInCounter"], whole["averageMsgSize"]) == (
        10,
        300,
        30,
    )
    assert whole["msgRateIn"] == 5.0
    assert whole["lastPublishTimeStamp"] == 7_000, "a time is no count"
    assert (whole["topicEpoch"], whole["deduplicationStatus"]) == (3, "Enabled")
    assert len(whole["publishers"]) == 2
    assert whole["subscriptions"]["s"]["msgBacklog"] == 10
    assert len(whole["subscriptions"]["s"]["consumers"]) == 2
    assert whole["subscriptions"]["s"]["isDurable"]
    assert not whole["terminated"]


def test_a_sum_of_nothing_has_every_name():
    assert topic_stats().keys() == topic_stats(stats()).keys()


def feed(shadow: str, entries: int) -> pb.ShadowFeedStats:
    return pb.ShadowFeedStats(
        shadow=shadow,
        broker_id="broker-2",
        connected_since_ms=1_700_000_000_123,
        entries_out=entries,
        bytes_out=10 * entries,
        backlog_entries=3,
    )


def test_shadows_that_a_source_feeds_are_shown_and_added_up_by_their_names():
    first = pb.TopicStats(feeds=[feed("persistent://a/b/s", 4), feed("persistent://a/b/t", 1)])
    second = pb.TopicStats(feeds=[feed("persistent://a/b/s", 6)])

    shadows = topic_stats(first, second)["shadowReplication"]

    assert list(shadows) == ["persistent://a/b/s", "persistent://a/b/t"]
    of_s = shadows["persistent://a/b/s"]
    assert (of_s["msgOutCount"], of_s["bytesOutCount"], of_s["replicationBacklog"]) == (10, 100, 6)
    assert (of_s["connected"], of_s["outboundConnection"]) == (True, "broker-2")
    assert of_s["outboundConnectedSince"] == "2023-11-14T22:13:20.123Z"
    assert topic_stats(stats())["shadowReplication"] == {}


def test_shadow_says_which_source_it_has_and_why_it_gets_nothing():
    source = "persistent://a/b/source-partition-0"
    fed = pb.TopicStats(shadow=pb.ShadowStats(source=source, skipped_entries=2))
    away = pb.TopicStats(shadow=pb.ShadowStats(source=source, away="unlisted", skipped_entries=1))

    assert topic_stats(fed)["shadow"] == {
        "source": source,
        "connected": True,
        "away": "",
        "skippedEntries": 2,
    }
    assert topic_stats(away)["shadow"]["connected"] is False
    assert topic_stats(away)["shadow"]["away"] == "unlisted"
    assert topic_stats(fed, away)["shadow"]["skippedEntries"] == 3
    assert "shadow" not in topic_stats(stats())


def of_subscriptions(names: range, consumers: int = 0) -> pb.TopicStats:
    rows = [pb.ConsumerStats(consumer_id=number) for number in range(consumers)]
    return pb.TopicStats(
        subscriptions=[pb.SubscriptionStats(name=f"s-{number}", rows=rows) for number in names]
    )


def test_rest_subscriptions_summed_max_are_added_up_and_one_more_is_refused():
    whole, names = StatsContent(), SubscriptionNames()
    for added in (whole, names):
        added.add(of_subscriptions(range(REST_SUBSCRIPTIONS_SUMMED_MAX - 1)))
        added.add(of_subscriptions(range(1, REST_SUBSCRIPTIONS_SUMMED_MAX)))
        with pytest.raises(Refused, match="name one partition"):
            added.add(of_subscriptions(range(REST_SUBSCRIPTIONS_SUMMED_MAX + 1)))


def test_a_sum_has_topic_admin_rows_max_clients_and_one_more_is_only_counted():
    parts = [of_subscriptions(range(1), consumers=TOPIC_ADMIN_ROWS_MAX - 1)] * 2

    whole = topic_stats(*parts)

    assert len(whole["subscriptions"]["s-0"]["consumers"]) == TOPIC_ADMIN_ROWS_MAX


def test_no_piece_of_long_statistics_takes_long():
    subscriptions = range(SUBSCRIPTIONS_PER_TOPIC_MAX)
    consumers = TOPIC_ADMIN_ROWS_MAX // SUBSCRIPTIONS_PER_TOPIC_MAX
    whole = StatsContent().add(of_subscriptions(subscriptions, consumers))
    texts, took_s = whole.texts(), []

    while True:
        with processor_time() as took:
            text = next(texts, None)
        took_s.append(took.seconds)
        if text is None:
            break

    assert max(took_s) < 0.02 * slowness()
    assert sum(took_s) > 0.02, "there was something to be cut"


def test_what_is_stored_is_named_as_managed_ledgers_are():
    stored = admin_pb.TopicInternalStats(
        entries=9,
        bytes=90,
        last=pb.MessagePosition(ledger_id=2, entry_id=4),
        is_terminated=True,
        ledgers=[
            admin_pb.LedgerExtent(ledger_id=1, entries=4, bytes=40),
            admin_pb.LedgerExtent(ledger_id=2, entries=5, bytes=50),
        ],
        cursors=[
            admin_pb.CursorStats(
                subscription="s",
                mark_delete=pb.MessagePosition(ledger_id=1, entry_id=2),
                read=pb.MessagePosition(ledger_id=1, entry_id=3),
                backlog_entries=4,
                acked_entries=2,
                acked_ranges=1,
                acked=[admin_pb.EntryRange(ledger_id=2, first_entry=1, last_entry=2)],
            )
        ],
    )

    content, info = internal_stats(stored), internal_info(stored)

    assert (content["lastConfirmedEntry"], content["state"]) == ("2:4", "Terminated")
    assert (content["currentLedgerEntries"], content["currentLedgerSize"]) == (5, 50)
    assert [each["ledgerId"] for each in content["ledgers"]] == [1, 2]
    cursor = content["cursors"]["s"]
    assert (cursor["markDeletePosition"], cursor["readPosition"]) == ("1:2", "1:3")
    assert cursor["individuallyDeletedMessages"] == "[(2:0..2:2]]"
    assert cursor["numberOfEntriesSinceFirstNotAckedMessage"] == 6
    assert info["terminatedPosition"] == {"ledgerId": 2, "entryId": 4}
    assert info["cursors"]["s"]["markDelete"] == {"ledgerId": 1, "entryId": 2}


def test_a_message_id_names_its_partition_and_its_place_in_a_batch():
    last = admin_pb.LastMessageId(
        position=pb.MessagePosition(ledger_id=3, entry_id=1), batch_index=-1
    )

    whole = message_id(last, parse_topic("persistent://a/b/c"))
    last.batch_index = 2
    of_partition = message_id(last, parse_topic("persistent://a/b/c-partition-4"))

    assert whole == {"ledgerId": 3, "entryId": 1, "partitionIndex": -1}
    assert of_partition == {"ledgerId": 3, "entryId": 1, "partitionIndex": 4, "batchIndex": 2}
