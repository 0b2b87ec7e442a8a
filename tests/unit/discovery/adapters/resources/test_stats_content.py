"""Statistics with Pulsar's names, and their sum over partitions."""

from discovery.adapters.resources.stats_content import (
    internal_info,
    internal_stats,
    message_id,
    sum_of,
    topic_stats,
)
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb

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
    content = topic_stats(pb.TopicStats(last_publish_time_ms=9_000), 3_000)

    assert (content["topicCreationTimeStamp"], content["lastPublishTimeStamp"]) == (3_000, 9_000)


def test_clients_are_left_out_on_demand():
    content = topic_stats(stats(), with_publishers=False, with_consumers=False)

    assert content["publishers"] == []
    assert content["subscriptions"]["s"]["consumers"] == []


def test_partitions_are_added_up_and_their_clients_joined():
    first, second = topic_stats(stats(4, 100)), topic_stats(stats(6, 200))
    first["lastPublishTimeStamp"], second["lastPublishTimeStamp"] = 7_000, 5_000

    whole = sum_of([first, second])

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
    assert first["msgInCounter"] == 4, "the parts are not changed"


def test_a_sum_of_nothing_has_every_name():
    assert sum_of([]).keys() == topic_stats(stats()).keys()


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
