"""The four metadata commands: what is answered, and with which code when it fails."""

import asyncio

import pytest

from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    NotLeader,
    Overloaded,
    ProposalLost,
    Refused,
    Unavailable,
)
from nextgen.kernel.limits.cluster import ERROR_MESSAGE_CHARACTERS_MAX
from nextgen.kernel.limits.pulsar import PULSAR_MESSAGE_BYTES_MAX, TOPIC_LIST_BYTES_MAX
from nextgen.pulsar.frames import encode_command
from nextgen.pulsar.metadata_commands import Located, MetadataCommands, StoredSchema
from nextgen.pulsar.topic_lists.permits import MemoryPermits
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.pulsar.fake_topic_lists import FakeListClient

TOPIC = "persistent://acme/orders/paid"
ANY = "pulsar://any:6650"


class FakeDirectory:
    """Gives the answers of the test; records the requests."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.urls: dict[str, str] = {}
        self.partitioned: set[str] = set()
        self.topics: list[str] = []
        self.stored: StoredSchema | None = None
        self.error: Exception | None = None
        self.any_url: str | None = ANY
        self.asked: list[tuple] = []

    async def partitions(self, name, *, create):
        self._note("partitions", name.text, create)
        if name.text not in self.counts:
            raise Refused("NOT_FOUND", f"topic {name.text} does not exist")
        return self.counts[name.text]

    async def locate(self, name, *, create):
        self._note("locate", name.text, create)
        if name.text in self.partitioned:
            raise Refused("PARTITIONED", "it has partitions")
        if name.text not in self.urls:
            raise Refused("NOT_FOUND", f"topic {name.text} does not exist")
        return Located(name.text, "b", "s", self.urls[name.text], "id", "", 1)

    def any_broker_url(self, topic):
        return self.any_url

    async def topics_of_namespace(self, question):
        self._note("topics", question.namespace.text, question.domain)
        return self.topics

    async def schema(self, name, version):
        self._note("schema", name.text, version)
        return self.stored

    def _note(self, *question):
        self.asked.append(question)
        if self.error is not None:
            raise self.error


@pytest.fixture
def directory():
    return FakeDirectory()


@pytest.fixture
def commands(directory):
    return MetadataCommands(directory)


def lookup(topic: str = TOPIC) -> BaseCommand:
    asked = pulsar.CommandLookupTopic(topic=topic, request_id=7)
    return BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked)


def partitions(topic: str = TOPIC, **more) -> BaseCommand:
    asked = pulsar.CommandPartitionedTopicMetadata(topic=topic, request_id=8, **more)
    return BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)


def topics(namespace: str = "acme/orders", **more) -> BaseCommand:
    asked = pulsar.CommandGetTopicsOfNamespace(namespace=namespace, request_id=9, **more)
    return BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked)


def schema(topic: str = TOPIC, **more) -> BaseCommand:
    asked = pulsar.CommandGetSchema(topic=topic, request_id=10, **more)
    return BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=asked)


ALL = {"lookup": lookup, "partitions": partitions, "topics": topics, "schema": schema}


def failure_of(answer: BaseCommand) -> tuple[int, int, str]:
    """Return request id, code and message of any of the four failures."""
    if answer.type == BaseCommand.LOOKUP_RESPONSE:
        inner = answer.lookupTopicResponse
        assert inner.response == pulsar.CommandLookupTopicResponse.Failed
        return inner.request_id, inner.error, inner.message
    if answer.type == BaseCommand.PARTITIONED_METADATA_RESPONSE:
        inner = answer.partitionMetadataResponse
        assert inner.response == pulsar.CommandPartitionedTopicMetadataResponse.Failed
        return inner.request_id, inner.error, inner.message
    if answer.type == BaseCommand.GET_SCHEMA_RESPONSE:
        inner = answer.getSchemaResponse
        assert inner.HasField("error_code")
        return inner.request_id, inner.error_code, inner.error_message
    assert answer.type == BaseCommand.ERROR
    return answer.error.request_id, answer.error.error, answer.error.message


def test_it_handles_the_four_and_nothing_else(commands):
    handled = {kind for kind in BaseCommand.Type.values() if commands.handles(kind)}

    assert handled == {
        BaseCommand.LOOKUP,
        BaseCommand.PARTITIONED_METADATA,
        BaseCommand.GET_TOPICS_OF_NAMESPACE,
        BaseCommand.GET_SCHEMA,
    }


async def test_a_lookup_says_connect_to_the_owner_and_that_it_is_sure(commands, directory):
    directory.urls[TOPIC] = "pulsar://owner:6650"

    answer = await commands.answer(lookup())

    assert answer == BaseCommand(
        type=BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=pulsar.CommandLookupTopicResponse(
            brokerServiceUrl="pulsar://owner:6650",
            response=pulsar.CommandLookupTopicResponse.Connect,
            request_id=7,
            authoritative=True,
        ),
    )
    assert answer.IsInitialized()


@pytest.mark.parametrize(
    "name",
    [
        TOPIC,
        "persistent://public/default/.*",
        "persistent://public/default/a|(b-[0-9]+)$",
        "topic://acme/orders/paid",
        "segment://acme/orders/paid/0000-7fff-3",
    ],
)
async def test_a_lookup_of_what_is_absent_names_any_broker_and_creates_nothing(
    commands, directory, name
):
    answer = await commands.answer(lookup(name))

    assert answer.lookupTopicResponse.brokerServiceUrl == ANY
    assert [create for _, _, create in directory.asked] == [False]


async def test_a_lookup_of_a_partitioned_topics_own_name_names_any_broker(commands, directory):
    directory.partitioned.add(TOPIC)

    answer = await commands.answer(lookup())

    assert answer.lookupTopicResponse.brokerServiceUrl == ANY


async def test_a_lookup_without_a_live_broker_is_trouble_that_passes(commands, directory):
    directory.any_url = None

    assert failure_of(await commands.answer(lookup()))[:2] == (7, pulsar.MetadataError)


async def test_an_owner_that_does_not_speak_pulsar_is_trouble_that_passes(commands, directory):
    directory.urls[TOPIC] = ""

    request_id, code, message = failure_of(await commands.answer(lookup()))

    assert (request_id, code) == (7, pulsar.MetadataError)
    assert "does not speak Pulsar" in message


@pytest.mark.parametrize("count", [0, 1, 12])
async def test_partitions_are_answered(commands, directory, count):
    directory.counts[TOPIC] = count

    answer = await commands.answer(partitions())

    assert answer == BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=pulsar.CommandPartitionedTopicMetadataResponse(
            partitions=count,
            request_id=8,
            response=pulsar.CommandPartitionedTopicMetadataResponse.Success,
        ),
    )


@pytest.mark.parametrize(
    ("given", "create"),
    [
        ({}, True),
        ({"metadata_auto_creation_enabled": True}, True),
        ({"metadata_auto_creation_enabled": False}, False),
    ],
)
async def test_the_client_may_forbid_that_a_topic_is_created(commands, directory, given, create):
    answer = await commands.answer(partitions(**given))

    assert directory.asked == [("partitions", TOPIC, create)]
    assert failure_of(answer)[:2] == (8, pulsar.TopicNotFound)


async def test_a_segment_has_no_partitions_and_nobody_is_asked(commands, directory):
    answer = await commands.answer(partitions("segment://acme/orders/paid/0000-7fff-3"))

    assert answer.partitionMetadataResponse.partitions == 0
    assert answer.partitionMetadataResponse.HasField("partitions")
    assert directory.asked == []


@pytest.mark.parametrize(
    ("mode", "domain"),
    [
        (None, "persistent"),
        (pulsar.CommandGetTopicsOfNamespace.PERSISTENT, "persistent"),
        (pulsar.CommandGetTopicsOfNamespace.NON_PERSISTENT, "non-persistent"),
        (pulsar.CommandGetTopicsOfNamespace.ALL, ""),
    ],
)
async def test_topics_are_listed_by_mode_and_unfiltered_without_pattern(
    commands, directory, mode, domain
):
    directory.topics = [TOPIC]
    more = {} if mode is None else {"mode": mode}

    answer = await commands.answer(topics(**more))

    assert directory.asked == [("topics", "acme/orders", domain)]
    response = answer.getTopicsOfNamespaceResponse
    assert (list(response.topics), response.filtered, response.changed) == ([TOPIC], False, True)
    assert response.request_id == 9


async def test_topic_list_bytes_max_of_names_are_a_frame_that_clients_take(commands, directory):
    """A name counts with three bytes more, as in ``TopicListing``."""
    names, rest_bytes = divmod(TOPIC_LIST_BYTES_MAX, 200)
    directory.topics = ["x" * 197] * (names - 1) + ["x" * (197 + rest_bytes)]

    answer = await commands.answer(topics())
    answer.getTopicsOfNamespaceResponse.request_id = 2**64 - 1

    assert TOPIC_LIST_BYTES_MAX < len(encode_command(answer)) <= PULSAR_MESSAGE_BYTES_MAX


async def test_a_schema_is_answered_with_its_version(commands, directory):
    directory.stored = StoredSchema(
        (3).to_bytes(8, "big"), "orders", pulsar.Schema.Avro, b"{}", {"a": "b"}
    )

    answer = await commands.answer(schema(schema_version=(3).to_bytes(8, "big")))

    assert directory.asked == [("schema", TOPIC, (3).to_bytes(8, "big"))]
    response = answer.getSchemaResponse
    assert not response.HasField("error_code")
    assert response.request_id == 10
    assert response.schema_version == (3).to_bytes(8, "big")
    assert response.schema == pulsar.Schema(
        name="orders",
        schema_data=b"{}",
        type=pulsar.Schema.Avro,
        properties=[pulsar.KeyValue(key="a", value="b")],
    )


async def test_the_latest_schema_is_asked_for_without_a_version(commands, directory):
    answer = await commands.answer(schema())

    assert directory.asked == [("schema", TOPIC, None)]
    assert failure_of(answer)[:2] == (10, pulsar.TopicNotFound)


async def test_a_schema_version_without_bytes_is_incompatible(commands, directory):
    answer = await commands.answer(schema(schema_version=b""))

    assert failure_of(answer)[:2] == (10, pulsar.IncompatibleSchema)
    assert directory.asked == []


@pytest.mark.parametrize("build", [lookup, partitions, schema])
@pytest.mark.parametrize(
    "name", ["", "a/b", "bad://t/n/x", "persistent://prop/cluster/ns/topic", "t/n/x y ", "\x00"]
)
async def test_a_bad_topic_name_is_an_invalid_one(commands, directory, build, name):
    answer = await commands.answer(build(name))

    assert failure_of(answer)[1] == pulsar.InvalidTopicName
    assert directory.asked == []


@pytest.mark.parametrize("namespace", ["", "acme", "prop/cluster/ns", "a b/c"])
async def test_a_bad_namespace_is_an_invalid_name(commands, namespace):
    answer = await commands.answer(topics(namespace))

    assert failure_of(answer)[:2] == (9, pulsar.InvalidTopicName)


@pytest.mark.parametrize("build", ALL.values(), ids=ALL)
@pytest.mark.parametrize(
    "error",
    [
        Unavailable("no leader"),
        Overloaded("too many"),
        NotLeader(1),
        DeadlineExceeded("late"),
        ConnectionLost("gone"),
        ProposalLost("moved"),
        RuntimeError("a mistake of ours"),
    ],
    ids=repr,
)
async def test_trouble_of_any_kind_is_answered_with_metadata_error(
    commands, directory, build, error
):
    directory.error = error

    request_id, code, message = failure_of(await commands.answer(build()))

    assert code == pulsar.MetadataError
    assert request_id in {7, 8, 9, 10}
    assert message


@pytest.mark.parametrize("build", ALL.values(), ids=ALL)
async def test_a_refusal_is_answered_with_its_code(commands, directory, build):
    directory.error = Refused("LIMIT_EXCEEDED", "too much")

    assert failure_of(await commands.answer(build()))[1:] == (pulsar.NotAllowedError, "too much")


@pytest.mark.parametrize(
    ("length", "kept"),
    [
        (ERROR_MESSAGE_CHARACTERS_MAX, ERROR_MESSAGE_CHARACTERS_MAX),
        (ERROR_MESSAGE_CHARACTERS_MAX + 1, ERROR_MESSAGE_CHARACTERS_MAX),
    ],
)
async def test_a_message_is_bounded(commands, directory, length, kept):
    directory.error = Unavailable("x" * length)

    assert len(failure_of(await commands.answer(lookup()))[2]) == kept


async def test_a_message_that_is_not_utf_8_is_sent_all_the_same(commands, directory):
    directory.error = Unavailable("\ud800")

    answer = await commands.answer(lookup())

    assert BaseCommand.FromString(answer.SerializeToString()) == answer


async def test_many_commands_are_answered_at_a_time(commands, directory):
    directory.urls[TOPIC] = "pulsar://owner:6650"

    answers = await asyncio.gather(*(commands.answer(lookup()) for _ in range(100)))

    assert {answer.lookupTopicResponse.brokerServiceUrl for answer in answers} == {
        "pulsar://owner:6650"
    }


async def test_a_long_list_holds_memory_until_its_client_has_read_it(directory):
    client, commands = FakeListClient(), MetadataCommands(directory, permits=MemoryPermits(100_000))
    directory.topics = [f"{TOPIC}-{number:070}" for number in range(700)]
    client.stop_reading()

    for _ in range(2):
        commands.send(client, await commands.answer(topics()))
    await asyncio.sleep(0.01)

    (sent,) = client.take()
    assert len(sent.getTopicsOfNamespaceResponse.topics) == 700
    assert (commands.permits.bytes_held > 60_000, commands.permits.waiting) == (True, 1)
    client.read()
    await asyncio.sleep(0.01)
    assert len(client.take()) == 1
    assert (commands.permits.bytes_held, commands.permits.waiting) == (0, 0)


async def test_a_list_that_gets_no_memory_is_refused_as_in_pulsar(directory):
    permits = MemoryPermits(1, waiting_max=0)
    client, commands = FakeListClient(), MetadataCommands(directory, permits=permits)
    directory.topics = [f"{TOPIC}-{number:070}" for number in range(700)]

    async with permits.hold(1):
        commands.send(client, await commands.answer(topics()))
        await asyncio.sleep(0.01)

    (refused,) = client.take()
    assert (refused.error.request_id, refused.error.error) == (9, pulsar.TooManyRequests)


async def test_a_short_list_needs_no_permit(directory):
    permits = MemoryPermits(1, waiting_max=0)
    client, commands = FakeListClient(), MetadataCommands(directory, permits=permits)

    async with permits.hold(1):
        commands.send(client, await commands.answer(topics()))

    assert len(client.take()) == 1
