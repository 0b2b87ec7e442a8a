"""What a broker's connection does beside producing and consuming."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from nextgen.kernel.governance.access import ANONYMOUS, CLUSTER, Action, Resource
from nextgen.kernel.limits.pulsar import CONNECTION_REQUESTS_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.frames import FIELD_OF_TYPE
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.settings import TopicListSettings
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.authorization import AllowList
from tests.support.brokers.world import TOPIC, BrokerWorld, settle
from tests.support.pulsar.bad_patterns import CASES, PatternCase
from tests.support.pulsar.fake_layouts import FakeLayouts, layout_of

ALL_TOPICS = pulsar.CommandGetTopicsOfNamespace.ALL

_TRANSACTIONS = [
    pulsar.BaseCommand.NEW_TXN,
    pulsar.BaseCommand.ADD_PARTITION_TO_TXN,
    pulsar.BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
    pulsar.BaseCommand.END_TXN,
    pulsar.BaseCommand.END_TXN_ON_PARTITION,
    pulsar.BaseCommand.END_TXN_ON_SUBSCRIPTION,
]


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    world.broker("a")
    yield world
    await world.stop()


async def test_a_lookup_of_what_is_held_is_answered_without_asking(world: BrokerWorld):
    world.assign(TOPIC, "a")
    client = world.broker("a").client()

    found = await client.request(pulsar.BaseCommand.LOOKUP, topic=TOPIC)
    partitions = await client.request(pulsar.BaseCommand.PARTITIONED_METADATA, topic=TOPIC)

    assert found.brokerServiceUrl == "pulsar://a:6650"
    assert (found.response, found.authoritative) == (
        pulsar.CommandLookupTopicResponse.Connect,
        True,
    )
    assert partitions.partitions == 0
    assert world.directory.asked == []


async def test_a_lookup_of_anything_else_is_asked_for(world: BrokerWorld):
    world.assign(TOPIC, "b")
    client = world.broker("a").client()

    found = await client.request(pulsar.BaseCommand.LOOKUP, topic=TOPIC)
    topics = await client.request(
        pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace="public/default"
    )

    assert found.brokerServiceUrl == "pulsar://b:6650"
    assert list(topics.topics) == [TOPIC]


async def test_a_lookup_of_what_is_not_there_creates_nothing(world: BrokerWorld):
    found = await world.broker("a").client().request(pulsar.BaseCommand.LOOKUP, topic=TOPIC)

    assert found.brokerServiceUrl == "pulsar://a:6650"
    assert world.directory.topics == set()


@pytest.mark.parametrize("kind", _TRANSACTIONS, ids=pulsar.BaseCommand.Type.Name)
async def test_transactions_have_no_coordinator(world: BrokerWorld, kind: int):
    answer = await world.broker("a").client().request(kind)

    assert answer.error == pulsar.TransactionCoordinatorNotFound


async def test_there_is_no_coordinator_to_connect_to(world: BrokerWorld):
    client = world.broker("a").client()

    answer = await client.request(pulsar.BaseCommand.TC_CLIENT_CONNECT_REQUEST, tc_id=0)

    assert answer.error == pulsar.TransactionCoordinatorNotFound


async def test_topic_lists_are_watched(world: BrokerWorld):
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    namespace = parse_topic(TOPIC).namespace_text

    watch = await client.request(
        pulsar.BaseCommand.WATCH_TOPIC_LIST,
        watcher_id=1,
        namespace=namespace,
        topics_pattern=".*",
    )
    world.topic_lists.create(f"{TOPIC}-new")
    await settle()
    close = await client.request(pulsar.BaseCommand.WATCH_TOPIC_LIST_CLOSE, watcher_id=1)

    flags = client.got(pulsar.BaseCommand.CONNECTED)[0].feature_flags
    assert (flags.supports_topic_watchers, flags.supports_topic_watcher_reconcile) == (True, True)
    assert (list(watch.topic), watch.topics_hash) == ([TOPIC], topics_hash([TOPIC]))
    (update,) = client.got(pulsar.BaseCommand.WATCH_TOPIC_UPDATE)
    assert list(update.new_topics) == [f"{TOPIC}-new"]
    assert update.topics_hash == topics_hash([TOPIC, f"{TOPIC}-new"])
    assert isinstance(close, pulsar.CommandSuccess)


async def test_layouts_of_scalable_topics_are_watched_at_a_broker(world: BrokerWorld) -> None:
    name = "topic://public/default/scaled"
    world.layouts = FakeLayouts(layout_of(name))
    client = world.broker("b").client()

    client.send_raw(
        client.command(pulsar.BaseCommand.SCALABLE_TOPIC_LOOKUP, session_id=3, topic=name)
    )
    await settle()
    world.layouts.change(name, layout_of(name, 1))
    await settle()
    refused = await client.request(
        pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE,
        topic=name,
        subscription="s",
        consumer_name="c",
        consumer_id=1,
        consumer_type=pulsar.STREAM,
    )

    assert client.got(pulsar.BaseCommand.CONNECTED)[0].feature_flags.supports_scalable_topics
    updates = client.got(pulsar.BaseCommand.SCALABLE_TOPIC_UPDATE)
    assert [(each.session_id, each.dag.epoch) for each in updates] == [(3, 0), (3, 1)]
    assert updates[0].dag.controller_broker_url == world.broker("b").url
    assert refused.error == pulsar.NotAllowedError
    client.leave()
    await settle()
    assert all(place.is_closed for place in world.layouts.places)


async def test_an_id_that_is_used_again_belongs_to_the_later_namespace(world: BrokerWorld):
    broker = world.broker("a")
    client = broker.client()
    for namespace in ("public/default", "acme/orders"):
        about = {"watcher_id": 1, "namespace": namespace, "topics_pattern": ".*"}
        await client.request(pulsar.BaseCommand.WATCH_TOPIC_LIST, **about)

    world.topic_lists.create(TOPIC)
    await settle()

    assert client.got(pulsar.BaseCommand.WATCH_TOPIC_UPDATE) == []
    assert broker.front.topic_watches.watchers == 1


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_bad_pattern_gets_its_code_and_the_connection_goes_on(
    world: BrokerWorld, case: PatternCase
):
    client = world.broker("a").client()
    about = {"namespace": "acme/orders", "topics_pattern": case.pattern}

    watched = await client.request(pulsar.BaseCommand.WATCH_TOPIC_LIST, watcher_id=1, **about)
    listed = await client.request(
        pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE, mode=ALL_TOPICS, **about
    )
    about["topics_pattern"] = ".*"
    then = await client.request(pulsar.BaseCommand.WATCH_TOPIC_LIST, watcher_id=2, **about)

    assert _code_of(watched) == case.watcher
    assert _code_of(listed) == case.listing
    assert case.listing is not None or listed.filtered is case.filtered
    assert isinstance(then, pulsar.CommandWatchTopicListSuccess)


@pytest.mark.parametrize(
    ("settings", "filtered"),
    [
        (TopicListSettings(evaluates_patterns=False), False),
        (TopicListSettings(serves_watchers=False), True),
    ],
)
async def test_what_is_off_is_not_announced_and_refused_and_listings_go_on(
    world: BrokerWorld, settings: TopicListSettings, filtered: bool
):
    world.topic_list_settings = settings
    broker = world.broker("b")
    world.assign(TOPIC, "b")
    world.assign(f"{TOPIC}-2", "b")
    client = broker.client()
    about = {"namespace": "public/default", "topics_pattern": parse_topic(TOPIC).routing_key}

    watched = await client.request(pulsar.BaseCommand.WATCH_TOPIC_LIST, watcher_id=1, **about)
    listed = await client.request(pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE, **about)

    flags = client.got(pulsar.BaseCommand.CONNECTED)[0].feature_flags
    assert not flags.HasField("supports_topic_watchers")
    assert not flags.HasField("supports_topic_watcher_reconcile")
    assert _code_of(watched) == pulsar.NotAllowedError
    assert (len(listed.topics), listed.filtered) == (1 if filtered else 2, filtered)


def _code_of(answer: object) -> int | None:
    return answer.error if isinstance(answer, pulsar.CommandError) else None


async def test_watchers_end_with_the_connection(world: BrokerWorld):
    broker = world.broker("a")
    client = broker.client()
    for watcher_id in range(3):
        await client.request(
            pulsar.BaseCommand.WATCH_TOPIC_LIST,
            watcher_id=watcher_id,
            namespace="public/default",
            topics_pattern="x.*",
        )
    assert broker.front.topic_watches.watchers == 3

    client.leave()
    await settle()

    assert broker.front.topic_watches.watchers == 0
    assert all(place.is_closed for place in world.topic_lists.places)


@pytest.mark.parametrize(
    ("kind", "fields", "answered_by"),
    [
        (
            pulsar.BaseCommand.SCALABLE_TOPIC_LOOKUP,
            {"session_id": 5, "topic": "topic://public/default/x"},
            pulsar.BaseCommand.SCALABLE_TOPIC_UPDATE,
        ),
        (
            pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE,
            {
                "request_id": 5,
                "topic": "topic://public/default/x",
                "subscription": "s",
                "consumer_name": "c",
                "consumer_id": 1,
                "consumer_type": 0,
            },
            pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
        ),
        (
            pulsar.BaseCommand.WATCH_SCALABLE_TOPICS,
            {"watch_id": 5, "namespace": "public/default"},
            pulsar.BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
        ),
        (
            pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS,
            {"watch_id": 5},
            pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE,
        ),
        (
            pulsar.BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE,
            {"request_id": 5, "consumer_id": 1},
            pulsar.BaseCommand.ERROR,
        ),
    ],
)
async def test_scalable_topics_are_refused(
    world: BrokerWorld, kind: int, fields: dict, answered_by: int
):
    client = world.broker("a").client()

    client.send_raw(client.command(kind, **fields))
    (answer,) = await client.until_got(answered_by)

    assert answer.error == pulsar.NotAllowedError
    assert (
        next(
            getattr(answer, name)
            for name in ("session_id", "request_id", "watch_id")
            if name in answer.DESCRIPTOR.fields_by_name
        )
        == 5
    )
    assert not client.transport.is_closed


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (pulsar.BaseCommand.SCALABLE_TOPIC_CLOSE, {"session_id": 5}),
        (pulsar.BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE, {"watch_id": 5}),
        (pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE, {"watch_id": 5}),
        (pulsar.BaseCommand.AUTH_RESPONSE, {}),
    ],
)
async def test_what_has_no_answer_gets_none(world: BrokerWorld, kind: int, fields: dict):
    client = world.broker("a").client()

    client.send_raw(client.command(kind, **fields))
    await settle()

    assert client.kinds == ["CONNECTED"]
    assert not client.transport.is_closed


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in FIELD_OF_TYPE
        if pulsar.BaseCommand.Type.Name(kind).endswith(("_RESPONSE", "_SUCCESS", "_RECEIPT"))
        and kind != pulsar.BaseCommand.AUTH_RESPONSE
    ],
    ids=pulsar.BaseCommand.Type.Name,
)
async def test_what_only_servers_say_ends_the_connection(world: BrokerWorld, kind: int):
    client = world.broker("a").client()
    command = pulsar.BaseCommand(type=kind)
    inner = getattr(command, FIELD_OF_TYPE[kind])
    inner.SetInParent()
    for field in inner.DESCRIPTOR.fields:
        if field.is_required and field.message_type is None:
            setattr(inner, field.name, "x" if field.type == field.TYPE_STRING else 1)
        elif field.is_required:
            getattr(inner, field.name).CopyFrom(pulsar.MessageIdData(ledgerId=1, entryId=1))

    client.send_raw(command)

    assert client.transport.is_closed


async def test_a_connection_that_ends_leaves_no_producer_and_no_consumer(world: BrokerWorld):
    client = world.broker("a").client()
    for number in range(3):
        await client.producer(producer_id=number)
        await client.subscribe(f"s{number}", consumer_id=number)
    topic = world.broker("a").topics.get(TOPIC)
    assert (len(topic.producers), topic.consumers) == (3, 3)

    client.leave()
    await settle()

    assert (len(topic.producers), topic.consumers) == (0, 0)


async def test_a_client_that_asks_for_too_much_at_a_time_is_not_read(world: BrokerWorld):
    client = world.broker("a").client()
    world.broker("a").store.released.clear()
    for number in range(CONNECTION_REQUESTS_MAX):
        assert not client.transport.is_reading_paused, number
        client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=number)
    assert client.transport.is_reading_paused

    world.broker("a").store.released.set()
    await settle(200)

    assert not client.transport.is_reading_paused
    assert len(world.broker("a").topics.get(TOPIC).producers) == CONNECTION_REQUESTS_MAX


def authorizing(world: BrokerWorld) -> AllowList:
    """Return what decides about the clients of broker a from now on."""
    allow = AllowList()
    allow.allow(ANONYMOUS.name, Action.CONNECT, CLUSTER)
    shared = world.broker("a").front.shared
    shared.greeting = replace(shared.greeting, authorizer=allow)
    return allow


async def test_a_client_that_may_not_produce_or_consume_is_refused(world: BrokerWorld) -> None:
    allow = authorizing(world)
    world.assign(TOPIC, "a")
    client = world.broker("a").client()

    produced = await client.producer()
    consumed = await client.subscribe()

    assert (produced.error, consumed.error) == (pulsar.AuthorizationError,) * 2
    assert "no permission to produce" in produced.message
    assert "no permission to consume" in consumed.message
    assert [each[1:3] for each in allow.asked[1:]] == [
        (Action.PRODUCE, Resource.topic(TOPIC)),
        (Action.CONSUME, Resource.topic(TOPIC)),
    ]


async def test_a_message_and_its_acknowledgement_are_not_asked_for(world: BrokerWorld) -> None:
    allow = authorizing(world)
    allow.allow(ANONYMOUS.name, Action.PRODUCE, Resource.topic(TOPIC))
    allow.allow(ANONYMOUS.name, Action.CONSUME, Resource.topic(TOPIC))
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()
    await client.subscribe()
    opened = len(allow.asked)

    for number in range(3):
        client.send(number)
    for message in await client.until_got(pulsar.BaseCommand.MESSAGE, 3):
        client.ack(message)
    await client.receipts(3)

    assert opened == 3
    assert len(allow.asked) == opened


@pytest.mark.parametrize("action", [Action.PRODUCE, Action.CONSUME])
async def test_a_client_whose_permission_is_taken_back_is_disconnected_and_others_are_not(
    world: BrokerWorld, action: Action
) -> None:
    allow = authorizing(world)
    topic = Resource.topic(TOPIC)
    allow.allow(ANONYMOUS.name, Action.PRODUCE, topic)
    allow.allow(ANONYMOUS.name, Action.CONSUME, topic)
    world.assign(TOPIC, "a")
    producing, consuming = world.broker("a").client(), world.broker("a").client()
    await producing.producer()
    await consuming.subscribe()
    allow.revoke(ANONYMOUS.name, action, topic)

    gone, stays = producing, consuming
    if action is Action.CONSUME:
        gone, stays = consuming, producing
    assert gone.transport.was_aborted
    assert not stays.transport.is_closed


async def test_what_was_closed_is_used_no_more(world: BrokerWorld) -> None:
    allow = authorizing(world)
    topic = Resource.topic(TOPIC)
    allow.allow(ANONYMOUS.name, Action.PRODUCE, topic)
    allow.allow(ANONYMOUS.name, Action.CONSUME, topic)
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()
    await client.subscribe()
    (access,) = allow.sessions
    assert set(access.kept.elements()) == {
        (Action.PRODUCE, topic, ""),
        (Action.CONSUME, topic, "sub"),
    }

    await client.request(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=0)
    await client.request(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=0)

    assert not +access.kept
    allow.revoke(ANONYMOUS.name, Action.PRODUCE, topic)
    assert not client.transport.is_closed


async def test_a_producer_and_a_consumer_that_could_not_be_connected_keep_nothing(
    world: BrokerWorld,
) -> None:
    allow = authorizing(world)
    topic = Resource.topic(TOPIC)
    allow.allow(ANONYMOUS.name, Action.PRODUCE, topic)
    allow.allow(ANONYMOUS.name, Action.CONSUME, topic)
    world.broker("b")
    world.assign(TOPIC, "b")
    client = world.broker("a").client()
    produced = await client.producer()
    consumed = await client.subscribe()

    assert produced.error
    assert consumed.error
    (access,) = allow.sessions
    assert not +access.kept
