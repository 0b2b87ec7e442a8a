"""Discovery over the Pulsar protocol, between a fake cluster manager and fake shards."""

import asyncio
import random

import pytest

from discovery.service.lookups import command_dispatcher
from discovery.service.lookups import topic_directory as topics
from nextgen.kernel.errors import ConnectionLost, Unavailable
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_command
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC, Item, Topic
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.integration.discovery.conftest import (
    TIMEOUT_MS,
    WAIT_S,
    directory,
    pulsar_broker,
    started_node,
)
from tests.support.discovery.fake_cluster import FakeClusterServer
from tests.support.pulsar.fake_layouts import FakeLayouts

TOPIC = "persistent://acme/orders/paid"
URL = "pulsar://broker-1.example:6650"
OUTSIDE, OUTSIDE_TLS = "pulsar://outside.example:7650", "pulsar+ssl://outside.example:7651"


def lookup(topic: str = TOPIC, **more) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.LOOKUP, lookupTopic=pulsar.CommandLookupTopic(topic=topic, **more)
    )


def partitions(topic: str = TOPIC, **more) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA,
        partitionMetadata=pulsar.CommandPartitionedTopicMetadata(topic=topic, **more),
    )


async def located(client: PulsarClientConnection, topic: str = TOPIC, **more):
    answer = await client.request(lookup(topic, **more), timeout_ms=TIMEOUT_MS)
    assert answer.type == BaseCommand.LOOKUP_RESPONSE
    return answer.lookupTopicResponse


async def counted(client: PulsarClientConnection, topic: str = TOPIC, **more):
    answer = await client.request(partitions(topic, **more), timeout_ms=TIMEOUT_MS)
    assert answer.type == BaseCommand.PARTITIONED_METADATA_RESPONSE
    return answer.partitionMetadataResponse


def add_topic(site, name: str, count: int = 0) -> None:
    topic = Topic(name=name, partitions=count)
    site.shard_of(name).items[name] = Item(kind=KIND_TOPIC, name=name, topic=topic)


def add_namespace(site, name: str, **properties: str) -> None:
    item = Item(kind=KIND_NAMESPACE, name=name)
    item.namespace.name = name
    item.namespace.properties.update(properties)
    shard_id = site.node.core.router.shard_of_key(name)
    site.server.shards[shard_id].items[name] = item


async def alive(client: PulsarClientConnection) -> bool:
    """Return whether the connection still answers."""
    return (await located(client, "bad")).request_id > 0


# Lookups ----------------------------------------------------------------------------------------


async def test_a_topic_is_looked_up_at_its_shard_once_and_then_in_the_cache(site):
    site.assign(TOPIC)
    async with await site.connect() as client:
        answers = [await located(client) for _ in range(3)]

    assert {answer.brokerServiceUrl for answer in answers} == {URL}
    assert all(answer.authoritative for answer in answers)
    assert all(answer.response == pulsar.CommandLookupTopicResponse.Connect for answer in answers)
    assert len(site.server.requests) == 1
    counters = await site.client.counters()
    assert counters["pulsar_lookups"] == 3
    assert counters["names_looked_up"] == 3
    assert counters["answers_from_cache"] == 2


async def test_an_unusual_lookup_of_a_cached_name_is_answered_alike(site):
    site.assign(TOPIC)
    async with await site.connect() as client:
        plain = await located(client)
        asked = [
            {"authoritative": True},
            {"original_principal": "somebody"},
        ]
        for more in asked:
            assert (await located(client, **more)).brokerServiceUrl == plain.brokerServiceUrl


async def test_a_lookup_that_names_a_listener_gets_its_addresses(site):
    site.shard_of(TOPIC).listeners = f";outside={OUTSIDE},{OUTSIDE_TLS}"
    site.assign(TOPIC)
    async with await site.connect() as client:
        plain = await located(client)
        named = await located(client, advertised_listener_name="outside")
        unknown = await located(client, advertised_listener_name="moon")
        again = await located(client)

    assert plain.brokerServiceUrl == again.brokerServiceUrl == URL
    assert named.response == pulsar.CommandLookupTopicResponse.Connect
    assert (named.brokerServiceUrl, named.brokerServiceUrlTls) == (
        OUTSIDE,
        OUTSIDE_TLS,
    )
    assert unknown.response == pulsar.CommandLookupTopicResponse.Failed
    assert unknown.error == pulsar.NotAllowedError
    assert unknown.message == "the broker do not have moon listener"


async def test_a_moved_topic_is_answered_with_its_new_owner_once_the_change_is_acknowledged(site):
    site.assign(TOPIC)
    async with await site.connect() as client:
        await located(client)
        shard = site.shard_of(TOPIC)

        site.assign(TOPIC, "broker-2", "s-2")
        await site.until(lambda: shard.acked.get("discovery-1", 0) >= shard.position)

        assert (await located(client)).brokerServiceUrl == "pulsar://broker-2.example:6650"


@pytest.mark.parametrize(
    "name",
    [TOPIC, "persistent://public/default/a.b", "t/n/x-partition-7"],
)
async def test_an_absent_name_is_answered_with_a_live_broker_and_nothing_is_made(site, name):
    async with await site.connect() as client:
        assert (await located(client, name)).brokerServiceUrl == URL

    assert not any(shard.executed for shard in site.server.shards.values())


async def test_a_scalable_topic_is_answered_with_this_node_and_nothing_is_made(site):
    async with await site.connect() as client:
        answer = await located(client, "topic://acme/orders/a")

    assert answer.brokerServiceUrl == f"pulsar://{site.node.core._config.pulsar_advertise}"
    assert not any(shard.executed for shard in site.server.shards.values())


async def test_a_lookup_of_a_pattern_is_answered_with_this_node(site):
    own = "pulsar://127.0.0.1:0"  # What the node of this test advertises.
    watches = site.node.core.topic_watches
    async with await site.connect() as client:
        for _ in range(2):
            place = await located(client, "persistent://public/default/.*")
            assert place.brokerServiceUrl == own
        watches.bytes_max = 0

        assert (await located(client, "persistent://public/default/.*")).brokerServiceUrl == URL

    assert not any(shard.executed for shard in site.server.shards.values())


@pytest.mark.parametrize("name", ["a/b", "persistent://prop/cluster/ns/t", "bad://a/b/c", ""])
async def test_a_bad_name_is_an_error_and_the_connection_stays_open(site, name):
    async with await site.connect() as client:
        answer = await located(client, name)
        assert answer.response == pulsar.CommandLookupTopicResponse.Failed
        assert answer.error == pulsar.InvalidTopicName
        assert (await counted(client, name)).error == pulsar.InvalidTopicName
        assert await alive(client)


async def test_without_a_live_broker_a_lookup_is_to_be_repeated_and_the_connection_goes_on(site):
    async with await site.connect() as client:
        site.manager.push(directory(pulsar_broker("broker-1", "s-1", is_live=False)))
        await site.until(lambda: site.node.core.link.view.has_session_ended("broker-1", "s-1"))

        answer = await located(client)

        assert answer.error == pulsar.MetadataError
        assert await alive(client)


async def test_trouble_at_a_shard_is_to_be_repeated_and_the_connection_goes_on(site):
    async def refuse(_request):
        raise Unavailable("no capacity anywhere")

    site.server.hook = refuse
    async with await site.connect() as client:
        assert (await located(client)).error == pulsar.MetadataError
        assert (await counted(client)).error == pulsar.MetadataError
        site.server.hook = None
        site.assign(TOPIC)
        assert (await located(client)).brokerServiceUrl == URL


async def test_a_node_that_knows_no_cluster_yet_tells_clients_to_come_again(site):
    empty = FakeClusterServer()
    await empty.start()
    node = await started_node(empty, "discovery-9")
    async with await PulsarClientConnection.open(
        "127.0.0.1", node.pulsar_port, timeout_ms=TIMEOUT_MS
    ) as client:
        assert (await located(client)).error == pulsar.MetadataError
        assert (await counted(client)).error == pulsar.MetadataError
    await node.stop()
    await empty.stop()


async def test_cold_lookups_of_many_connections_share_requests(site):
    names = [f"persistent://t/n/x{number}" for number in range(600)]
    for name in names:
        site.assign(name)
    clients = [await site.connect() for _ in range(6)]

    answers = await asyncio.gather(
        *(located(clients[place % 6], name) for place, name in enumerate(names * 2))
    )

    assert {answer.brokerServiceUrl for answer in answers} == {URL}
    looked_up = [name for shard in site.server.shards.values() for name in shard.looked_up]
    assert sorted(looked_up) == sorted(names)
    assert len(site.server.requests) < len(names) / 3
    for client in clients:
        client.close()
        await client.closed


# Partitions -------------------------------------------------------------------------------------


async def test_partitions_are_answered_from_a_cache_until_it_expires(site, monkeypatch):
    monkeypatch.setattr(topics, "PARTITION_COUNT_TTL_MS", 60_000)
    add_topic(site, TOPIC, 12)
    async with await site.connect() as client:
        assert [(await counted(client)).partitions for _ in range(5)] == [12] * 5
        assert (await counted(client, f"{TOPIC}-partition-3")).partitions == 0

    assert len(site.server.requests) == 2
    counters = await site.client.counters()
    assert counters["pulsar_partition_reads"] == 6
    assert counters["pulsar_partition_reads_from_cache"] == 4


async def test_partitions_of_an_assigned_topic_are_answered_without_a_request(site):
    site.assign(TOPIC)
    async with await site.connect() as client:
        await located(client)
        before = len(site.server.requests)

        answer = await counted(client)

    assert answer.response == pulsar.CommandPartitionedTopicMetadataResponse.Success
    assert answer.partitions == 0
    assert len(site.server.requests) == before


@pytest.mark.parametrize("uses_topics", [True, False], ids=["as now", "as in the release before"])
async def test_an_absent_topic_is_created_as_its_namespace_says_unless_the_client_forbids_it(
    site, uses_topics
):
    site.server.uses_topics = uses_topics
    add_namespace(
        site, "acme/orders", autoTopicCreationType="partitioned", defaultNumPartitions="3"
    )
    async with await site.connect() as client:
        forbidden = await counted(client, metadata_auto_creation_enabled=False)
        assert forbidden.error == pulsar.TopicNotFound
        assert (await counted(client)).partitions == 3

    assert site.shard_of(TOPIC).items[TOPIC].topic.partitions == 3


async def test_an_absent_namespace_is_a_topic_not_found(site):
    async with await site.connect() as client:
        answer = await counted(client, "unknown/namespace/topic")

        assert answer.error == pulsar.TopicNotFound
        assert "namespace unknown/namespace does not exist" in answer.message
        assert await alive(client)


# Listings ---------------------------------------------------------------------------------------


async def test_a_namespaces_topics_are_listed(site):
    for number in range(3):
        add_topic(site, f"persistent://acme/orders/n{number}")
    add_topic(site, "persistent://acme/orders/wide", 2)
    request = BaseCommand(
        type=BaseCommand.GET_TOPICS_OF_NAMESPACE,
        getTopicsOfNamespace=pulsar.CommandGetTopicsOfNamespace(namespace="acme/orders"),
    )
    async with await site.connect() as client:
        answer = await client.request(request)

    assert list(answer.getTopicsOfNamespaceResponse.topics) == [
        "persistent://acme/orders/n0",
        "persistent://acme/orders/n1",
        "persistent://acme/orders/n2",
        "persistent://acme/orders/wide-partition-0",
        "persistent://acme/orders/wide-partition-1",
    ]


# What is not for discovery ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=pulsar.CommandProducer(topic=TOPIC, producer_id=1, request_id=5),
        ),
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=pulsar.CommandSubscribe(
                topic=TOPIC, subscription="s", subType=0, consumer_id=1, request_id=5
            ),
        ),
        BaseCommand(
            type=BaseCommand.GET_LAST_MESSAGE_ID,
            getLastMessageId=pulsar.CommandGetLastMessageId(consumer_id=1, request_id=5),
        ),
    ],
    ids=lambda command: BaseCommand.Type.Name(command.type),
)
async def test_a_brokers_command_is_sent_back_to_lookup(site, command):
    async with await site.connect() as client:
        answer = await client.request(command)

        assert answer.type == BaseCommand.ERROR
        assert answer.error.error == pulsar.ServiceNotReady
        assert "look the topic up" in answer.error.message
        assert await alive(client)


@pytest.mark.parametrize(
    "command",
    [
        BaseCommand(type=BaseCommand.NEW_TXN, newTxn=pulsar.CommandNewTxn(request_id=5)),
    ],
    ids=lambda command: BaseCommand.Type.Name(command.type),
)
async def test_what_is_not_served_is_refused_for_good(site, command):
    async with await site.connect() as client:
        answer = await client.request(command)

        assert answer.error.error == pulsar.NotAllowedError
        assert await alive(client)


async def test_layouts_are_watched_and_what_is_not_served_is_refused_in_its_own_way(site):
    """The fake shards know no scalable topics: a classic one has a layout too."""
    site.node.core.layouts.watch = FakeLayouts().watch
    heard: asyncio.Queue[BaseCommand] = asyncio.Queue()
    async with await site.connect(on_push=lambda command, _: heard.put_nowait(command)) as client:
        assert client.server.feature_flags.supports_scalable_topics
        asked = pulsar.CommandScalableTopicLookup(session_id=9, topic="persistent://t/n/x")
        client.send_command(
            BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP, scalableTopicLookup=asked)
        )
        watch = pulsar.CommandWatchTcAssignments(watch_id=8)
        client.send_command(
            BaseCommand(type=BaseCommand.WATCH_TC_ASSIGNMENTS, watchTcAssignments=watch)
        )
        watched = (await heard.get()).watchTcAssignmentsUpdate
        update = (await heard.get()).scalableTopicUpdate

        assert (update.session_id, update.resolved_topic_name) == (9, "topic://t/n/x")
        (segment,) = update.dag.segments
        assert segment.legacy_topic_name == "persistent://t/n/x"
        assert (watched.watch_id, watched.error) == (8, pulsar.NotAllowedError)
        assert await alive(client)


@pytest.mark.parametrize(
    "data",
    [
        encode_command(
            BaseCommand(
                type=BaseCommand.FLOW,
                flow=pulsar.CommandFlow(consumer_id=1, messagePermits=1),
            )
        ),
        b"\x00\x00\x00\x07\x00\x00\x00\x03\x08\xe7\x07",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x0a\x00\x00\x00\x06garbag",
    ],
    ids=["FLOW", "unknown command", "too big", "no command"],
)
async def test_what_makes_no_sense_here_ends_its_own_connection_only(site, data):
    site.assign(TOPIC)
    async with await site.connect() as bystander, await site.connect() as client:
        await located(client)
        client.send(encode_command(lookup_with_id(77)) + data)
        async with timeout(WAIT_S):
            await client.closed
        with pytest.raises(ConnectionLost):
            client.send(b"")

        assert (await located(bystander)).brokerServiceUrl == URL


def lookup_with_id(request_id: int, topic: str = TOPIC) -> BaseCommand:
    return lookup(topic, request_id=request_id)


async def test_what_was_answered_before_nonsense_still_arrives(site):
    site.assign(TOPIC)
    heard: list[BaseCommand] = []
    async with await site.connect(on_push=lambda command, _: heard.append(command)) as client:
        await located(client)
        client.send(encode_command(lookup_with_id(77)) + b"\xff" * 8)
        async with timeout(WAIT_S):
            await client.closed

    assert [command.lookupTopicResponse.request_id for command in heard] == [77]


async def test_a_proxy_is_refused(site):
    connect = pulsar.CommandConnect(client_version="x", proxy_to_broker_url="broker-1:6650")

    with pytest.raises(Unavailable, match="no proxy"):
        await site.connect(connect=connect)


# Bounds, bytes and endings ----------------------------------------------------------------------


async def test_commands_beyond_the_bound_are_to_be_repeated_and_the_connection_goes_on(
    site, monkeypatch
):
    monkeypatch.setattr(command_dispatcher, "DISCOVERY_COMMANDS_WAITING_MAX", 3)
    release = asyncio.Event()

    async def wait(_request):
        await release.wait()

    site.assign(TOPIC)
    site.server.hook = wait
    async with await site.connect() as client:
        asking = [asyncio.create_task(located(client, f"t/n/x{n}")) for n in range(4)]
        done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().error for task in done] == [pulsar.MetadataError]
        release.set()
        assert {(await task).brokerServiceUrl for task in waiting} == {URL}
        assert (await located(client)).brokerServiceUrl == URL


@pytest.mark.parametrize("seed", range(5))
async def test_however_the_bytes_are_cut_each_command_is_answered_once(site, seed):
    chance = random.Random(seed)
    known = [f"persistent://t/n/x{number}" for number in range(20)]
    for name in known:
        site.assign(name)
    heard: dict[int, str] = {}

    def hear(command: BaseCommand, _payload: bytes) -> None:
        answer = command.lookupTopicResponse
        assert answer.request_id not in heard
        heard[answer.request_id] = answer.brokerServiceUrl or str(answer.error)

    expected: dict[int, str] = {}
    stream = bytearray()
    for number in range(400):
        request_id = chance.choice([number, 10_000 + number, 2**40 + number])
        name = chance.choice([*known[:10], *known, "absent/t/n", "a/b"])
        more = {"authoritative": True} if chance.random() < 0.2 else {}
        stream += encode_command(lookup(name, request_id=request_id, **more))
        is_name = name in known
        expected[request_id] = URL if is_name or name != "a/b" else str(pulsar.InvalidTopicName)
        if chance.random() < 0.1:
            stream += encode_command(BaseCommand(type=BaseCommand.PONG, pong=pulsar.CommandPong()))

    async with await site.connect(on_push=hear) as client:
        for name in known[:10]:
            await located(client, name)
        at = 0
        while at < len(stream):
            size = chance.choice([1, 7, 60, 500, 5_000])
            client.send(bytes(stream[at : at + size]))
            at += size
            await asyncio.sleep(0)
        await site.until(lambda: len(heard) == len(expected))

    assert heard == expected


async def test_moves_under_load_never_show_the_old_owner_behind_the_acknowledgement(site):
    """What a controller rests on: acked means that no lookup begun later names the old owner."""
    names = [f"persistent://t/n/x{number}" for number in range(40)]
    for name in names:
        site.assign(name)
    owners: dict[str, list[str]] = {name: ["broker-1"] for name in names}
    acked: dict[str, int] = dict.fromkeys(names, 0)
    is_over = asyncio.Event()
    checked = 0

    async def look_up(client: PulsarClientConnection) -> None:
        nonlocal checked
        while not is_over.is_set():
            since = dict(acked)
            answers = await asyncio.gather(*(located(client, name) for name in names))
            for name, answer in zip(names, answers, strict=True):
                broker = answer.brokerServiceUrl.removeprefix("pulsar://").split(".")[0]
                assert owners[name].index(broker) >= since[name], (name, broker)
                checked += 1

    clients = [await site.connect() for _ in range(4)]
    looking = [asyncio.create_task(look_up(client)) for client in clients]
    for turn in range(200):
        name = names[turn % len(names)]
        shard = site.shard_of(name)
        owners[name].append(f"broker-m{turn}")
        site.assign(name, f"broker-m{turn}", f"session-m{turn}")
        position, place = shard.position, len(owners[name]) - 1
        await site.until(lambda: shard.acked.get("discovery-1", 0) >= position)  # noqa: B023
        acked[name] = place
    await site.until(lambda: checked > 1_000)
    is_over.set()
    await asyncio.gather(*looking)

    counters = await site.client.counters()
    assert counters["answers_from_cache"] > counters["lookups_assigned"]
    for client in clients:
        client.close()
        await client.closed


async def test_a_stop_answers_what_was_asked_and_then_closes(site):
    site.assign(TOPIC)
    release = asyncio.Event()

    async def wait(_request):
        await release.wait()

    site.server.hook = wait
    client = await site.connect()
    before = len(site.server.requests)
    asking = asyncio.create_task(located(client))
    await site.server.wait_requests(before + 1)

    stopping = asyncio.create_task(site.node.core.drain())
    release.set()

    assert (await asking).brokerServiceUrl == URL
    async with timeout(WAIT_S):
        await client.closed
    await stopping
    with pytest.raises(Unavailable):
        await site.connect()


async def test_connections_are_counted_and_shown(site):
    clients = [await site.connect() for _ in range(3)]
    counters = await site.client.counters()

    assert counters["pulsar_connections"] == 3
    for client in clients:
        client.close()
        await client.closed


def test_the_routing_key_of_the_fake_is_the_real_one(site):
    assert site.shard_of(TOPIC).shard_id == site.node.core.router.shard_of_key(
        parse_topic(TOPIC).routing_key
    )
