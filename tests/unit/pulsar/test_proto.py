"""The numbers of the protocol, which are other people's: none may move."""

import pytest

from protos.pulsar import PulsarApi_pb2 as pulsar

FIELDS = {
    field.number: field.name
    for field in pulsar.BaseCommand.DESCRIPTOR.fields
    if field.name != "type"
}


@pytest.mark.parametrize(("name", "number"), pulsar.BaseCommand.Type.items())
def test_the_command_of_a_type_is_in_the_field_of_that_number(name: str, number: int) -> None:
    assert FIELDS[number].replace("_", "").lower() in {
        name.replace("_", "").lower(),
        *OTHERWISE_NAMED.get(name, ()),
    }


OTHERWISE_NAMED = {
    "PARTITIONED_METADATA": ("partitionmetadata",),
    "PARTITIONED_METADATA_RESPONSE": ("partitionmetadataresponse",),
    "LOOKUP": ("lookuptopic",),
    "LOOKUP_RESPONSE": ("lookuptopicresponse",),
}


def test_there_is_a_field_for_each_type_and_no_other() -> None:
    assert set(FIELDS) == set(pulsar.BaseCommand.Type.values())
    assert set(FIELDS) == {*range(2, 41), *range(50, 69), *range(70, 83)}


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (
            pulsar.FeatureFlags,
            {
                "supports_auth_refresh": 1,
                "supports_broker_entry_metadata": 2,
                "supports_partial_producer": 3,
                "supports_topic_watchers": 4,
                "supports_get_partitioned_metadata_without_auto_creation": 5,
                "supports_repl_dedup_by_lid_and_eid": 6,
                "supports_topic_watcher_reconcile": 7,
                "supports_scalable_topics": 8,
                "supports_tc_metadata_discovery": 9,
            },
        ),
        (
            pulsar.CommandLookupTopicResponse,
            {
                "brokerServiceUrl": 1,
                "brokerServiceUrlTls": 2,
                "response": 3,
                "request_id": 4,
                "authoritative": 5,
                "error": 6,
                "message": 7,
                "proxy_through_service_url": 8,
            },
        ),
        (
            pulsar.KeySharedMeta,
            {
                "keySharedMode": 1,
                "hashRanges": 3,
                "allowOutOfOrderDelivery": 4,
                "entryBucketDispatch": 5,
            },
        ),
        (
            pulsar.ScalableTopicDAG,
            {
                "epoch": 1,
                "segments": 2,
                "segment_brokers": 3,
                "controller_broker_url": 4,
                "controller_broker_url_tls": 5,
            },
        ),
        (pulsar.CommandConsumerStats, {"request_id": 1, "consumer_id": 4}),
    ],
)
def test_the_fields_have_their_numbers(message: type, numbers: dict[str, int]) -> None:
    assert {field.name: field.number for field in message.DESCRIPTOR.fields} == numbers


@pytest.mark.parametrize(
    ("message", "field", "number"),
    [
        (pulsar.MessageMetadata, "num_messages_in_batch", 11),
        (pulsar.MessageMetadata, "entry_hash_min", 33),
        (pulsar.MessageMetadata, "entry_hash_max", 34),
        (pulsar.CommandGetOrCreateSchema, "producerName", 4),
        (pulsar.CommandPartitionedTopicMetadata, "metadata_auto_creation_enabled", 6),
        (pulsar.CommandSubscribe, "consumer_epoch", 19),
        (pulsar.CommandProducer, "initial_subscription_name", 13),
        (pulsar.CommandWatchTopicList, "watcher_id", 2),
        (pulsar.SegmentInfoProto, "entry_bucket_splits", 12),
        (pulsar.Schema, "schema_data", 3),
    ],
)
def test_fields_that_are_easily_misnumbered(message: type, field: str, number: int) -> None:
    assert message.DESCRIPTOR.fields_by_name[field].number == number


def test_the_errors_have_their_codes() -> None:
    codes = pulsar.ServerError.keys()
    assert len(codes) == 26
    assert [pulsar.ServerError.Value(name) for name in codes] == list(range(26))
    assert pulsar.ServerError.MetadataError == 1
    assert pulsar.ServerError.TopicNotFound == 11
    assert pulsar.ServerError.NotAllowedError == 22


def test_the_defaults_that_clients_leave_out_are_theirs() -> None:
    assert pulsar.CommandPartitionedTopicMetadata().metadata_auto_creation_enabled is True
    assert pulsar.CommandSubscribe().durable is True
    assert pulsar.CommandSubscribe().force_topic_creation is True
    assert pulsar.CommandProducer().user_provided_producer_name is True
    assert pulsar.CommandProducerSuccess().last_sequence_id == -1
    assert pulsar.MessageIdData().partition == -1
    assert pulsar.MessageIdData().batch_index == -1
    assert pulsar.MessageMetadata().num_messages_in_batch == 1
    assert pulsar.CommandSend().num_messages == 1
    assert pulsar.CommandGetTopicsOfNamespaceResponse().changed is True
