"""The directory of topics over shards: what is created, what is not, and what is asked once."""

import asyncio
from dataclasses import dataclass

import pytest

from nextgen.client.brokers.live_urls import LiveBrokerUrls
from nextgen.client.routing import shard_calls, topic_listing
from nextgen.client.routing.topic_answers import located
from nextgen.client.routing.topic_creation import TopicCreation
from nextgen.client.routing.topic_directory import RoutedTopicDirectory
from nextgen.kernel.errors import InvalidRequest, Overloaded, ProposalLost, Refused, Unavailable
from nextgen.kernel.limits.listing import LIST_WALK_BYTES_MAX
from nextgen.kernel.limits.pulsar import (
    DIRECTORY_CREATES_PER_REQUEST_MAX,
    DIRECTORY_READS_IN_FLIGHT_MAX,
    DIRECTORY_READS_PER_REQUEST_MAX,
)
from nextgen.kernel.routing.names import parse_namespace, parse_topic
from nextgen.kernel.routing.property_filter import property_filter
from nextgen.pulsar.metadata_commands import Located
from nextgen.pulsar.topic_lists.pattern import compile_pattern
from nextgen.pulsar.topic_lists.ports import ListQuestion
from protos.nextgen.v1 import policies_pb2
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import BrokerEndpoints, BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicOutcome
from tests.support.discovery.fake_cluster import StaticLink, full_update
from tests.support.discovery.topic_world import SHARDS, TopicWorld

TOPIC = "persistent://acme/orders/paid"
DEFAULT = "persistent://public/default/first"
ORDERS = parse_namespace("acme/orders")


@pytest.fixture(params=[True, False], ids=["shards decide", "shards of the release before"])
def world(request):
    world = TopicWorld()
    world.uses_topics = request.param
    world.add_namespace("acme/orders")
    return world


@dataclass
class Creation:
    """A request that creates topics which are absent."""

    names: list[str]
    preferred_broker_id: str


def creations(world) -> list[Creation]:
    if world.uses_topics:
        return [
            Creation(list(each.use_topics.names), each.use_topics.preferred_broker_id)
            for each in world.requests
            if each.HasField("use_topics")
        ]
    bodies = [command.create_topics for command in world.commands("create_topics")]
    assert all(each.on_demand for each in bodies)
    return [
        Creation([topic.name for topic in each.topics], each.preferred_broker_id) for each in bodies
    ]


@pytest.fixture
def link():
    return StaticLink(full_update({shard: f"node-{shard}:1" for shard in range(1, SHARDS + 1)}))


@pytest.fixture
async def directory(world, link):
    directory = RoutedTopicDirectory(shards=world, cluster=link)
    yield directory
    await directory.stop()


def recorded(broker_id: str, url: str, *, epoch: int = 1, is_live: bool = True) -> BrokerRecorded:
    return BrokerRecorded(
        broker_id=broker_id,
        session_id=f"{broker_id}-{epoch}",
        epoch=epoch,
        is_live=is_live,
        endpoints=BrokerEndpoints(pulsar_url=url),
    )


async def refusal(work) -> Refused:
    with pytest.raises(Refused) as caught:
        await work
    return caught.value


async def test_a_broker_prefers_itself_for_what_its_client_created_and_for_nothing_else(
    world, link
):
    at_broker = RoutedTopicDirectory(shards=world, cluster=link, broker_id="broker-7")
    there = "persistent://acme/orders/there"
    world.add_topic(there)

    await at_broker.locate(parse_topic(there), create=True)
    await at_broker.locate(parse_topic(TOPIC), create=True)

    looked_up = [each.lookup for each in world.requests if each.HasField("lookup")]
    assert [(list(each.topics), each.preferred_broker_id) for each in looked_up] == [
        ([there], ""),
        ([TOPIC], ""),  # It is absent.
        ([TOPIC], "broker-7"),
    ]
    assert creations(world) == [Creation([TOPIC], "broker-7")]
    await at_broker.stop()


async def test_a_claim_prefers_the_broker_that_makes_it_and_creates_what_is_absent(world, link):
    at_broker = RoutedTopicDirectory(shards=world, cluster=link, broker_id="broker-7")
    there = "persistent://acme/orders/there"
    world.add_topic(there)

    await at_broker.claim(parse_topic(there))
    await at_broker.claim(parse_topic(TOPIC))
    with pytest.raises(Refused):
        await at_broker.claim(parse_topic(f"{TOPIC}-partition-1"))

    looked_up = [each.lookup for each in world.requests if each.HasField("lookup")]
    assert {each.preferred_broker_id for each in looked_up} == {"broker-7"}
    assert creations(world) == [Creation([TOPIC], "broker-7")]
    await at_broker.stop()


# Owners -----------------------------------------------------------------------------------------


async def test_an_owner_that_was_fenced_names_its_epoch_and_the_one_in_its_ledger(directory, world):
    world.add_topic(TOPIC)

    located = await directory.raise_epoch(parse_topic(TOPIC), topic_id="id", epoch=3, used_epoch=6)

    assert (located.broker_id, located.epoch) == ("broker-1", 7)
    (request,) = world.requests
    (used,) = request.lookup.used
    assert (used.topic, used.topic_id, used.epoch, used.used_epoch) == (TOPIC, "id", 3, 6)


async def test_an_owner_hears_why_it_gets_no_higher_epoch(directory, world):
    refused = await refusal(
        directory.raise_epoch(parse_topic(TOPIC), topic_id="id", epoch=3, used_epoch=6)
    )

    assert refused.code == "NOT_FOUND"


# Partitions -------------------------------------------------------------------------------------


async def test_an_existing_topic_has_the_partitions_it_was_created_with(directory, world):
    world.add_topic(TOPIC, 3)

    assert await directory.partitions(parse_topic(TOPIC), create=True) == 3
    assert await directory.partitions(parse_topic(f"{TOPIC}-partition-2"), create=True) == 0
    assert world.topics == {TOPIC: 3}


async def test_a_partition_beyond_the_count_does_not_exist(directory, world):
    world.add_topic(TOPIC, 3)

    refused = await refusal(directory.partitions(parse_topic(f"{TOPIC}-partition-3"), create=True))

    assert refused.code == "NOT_FOUND"


async def test_an_absent_topic_is_created_as_its_namespace_says(directory, world):
    world.add_namespace(
        "acme/wide", {"autoTopicCreationType": "partitioned", "defaultNumPartitions": "4"}
    )

    assert await directory.partitions(parse_topic(TOPIC), create=True) == 0
    assert await directory.partitions(parse_topic("acme/wide/a"), create=True) == 4
    assert world.topics == {TOPIC: 0, "persistent://acme/wide/a": 4}


@pytest.mark.parametrize(
    ("name", "create"),
    [
        (TOPIC, False),
        (f"{TOPIC}-partition-0", True),
        ("acme/unknown/a", True),
        ("topic://acme/orders/a", True),
        ("segment://acme/orders/a/0000-ffff-0", True),
    ],
)
async def test_what_must_not_be_created_is_not_found(directory, world, name, create):
    refused = await refusal(directory.partitions(parse_topic(name), create=create))

    assert refused.code == "NOT_FOUND"
    assert world.topics == {}


async def test_a_namespace_that_forbids_it_says_so(directory, world):
    world.add_namespace("acme/closed", {"allowAutoTopicCreation": "false"})

    refused = await refusal(directory.partitions(parse_topic("acme/closed/a"), create=True))

    assert refused.code == "NOT_FOUND"
    assert "its policy forbids it" in str(refused)


@pytest.mark.parametrize("world", [False], indirect=True)
async def test_the_other_creator_of_a_race_decides_the_partitions(directory, world):
    """1. Both find the topic absent. 2. The other one creates it. 3. Ours comes second."""
    world.released.clear()
    asking = asyncio.create_task(directory.partitions(parse_topic(TOPIC), create=True))
    await asyncio.sleep(0)
    read = world._got

    def absent_once(name):
        item = read(name)
        world.add_topic(TOPIC, 5)
        world._got = read
        return item

    world._got = absent_once
    world.released.set()

    assert await asking == 5


async def test_a_thousand_who_ask_for_an_absent_topic_create_it_once(directory, world):
    name = parse_topic(TOPIC)

    counts = await asyncio.gather(*(directory.partitions(name, create=True) for _ in range(1_000)))

    assert counts == [0] * 1_000
    assert len(creations(world)) == 1
    if not world.uses_topics:
        # Use it, read the topic, its namespace and tenant, create; no read that was sent is joined.
        assert len(world.requests) <= 7


async def test_many_absent_topics_share_requests(directory, world):
    names = [parse_topic(f"acme/orders/n{number}") for number in range(300)]

    await asyncio.gather(*(directory.partitions(name, create=True) for name in names))

    assert len(world.topics) == 300
    assert len(creations(world)) <= 2 * SHARDS
    ids = [command.command_id for command in world.commands("create_topics")]
    assert len(set(ids)) == len(ids)
    assert {len(command_id) for command_id in ids} == (set() if world.uses_topics else {16})


def names_in_one_shard(world, count):
    """Return so many absent topics of one namespace and shard."""
    names, number = [], 0
    while len(names) < count:
        name = parse_topic(f"acme/orders/n{number}")
        number += 1
        if world.shard_of_key(name.routing_key) == 1:
            names.append(name)
    return names


@pytest.mark.parametrize(
    ("body", "each_max"),
    [
        ("get", DIRECTORY_READS_PER_REQUEST_MAX),
        ("create_topics", DIRECTORY_CREATES_PER_REQUEST_MAX),
    ],
    ids=["directory_reads_per_request_max", "directory_creates_per_request_max"],
)
@pytest.mark.parametrize("more", [0, 1])
async def test_directory_reads_per_request_max_and_directory_creates_per_request_max_are_kept(
    directory, world, body, each_max, more
):
    """The first question is sent alone; those that come while it is under way share requests."""
    world.released.clear()
    creates = body == "create_topics"
    names = names_in_one_shard(world, 1 + each_max + more)
    questions = [
        asyncio.ensure_future(directory.partitions(name, create=creates)) for name in names[:1]
    ]
    await asyncio.sleep(0)
    questions += [
        asyncio.ensure_future(directory.partitions(name, create=creates)) for name in names[1:]
    ]
    await asyncio.sleep(0)
    world.released.set()
    await asyncio.gather(*questions, return_exceptions=not creates)

    sizes = sizes_of(world, body)
    assert max(sizes) <= each_max
    assert sum(sizes) >= len(names)
    if body == "get" or world.uses_topics:
        assert sizes[:2] == [1, each_max]
    assert len(world.topics) == (len(names) if creates else 0)


async def test_objects_that_do_not_fit_into_one_answer_are_read_in_parts(directory, world):
    """Policies may be large: the number of objects that fit is known to their shard only."""
    names = names_in_one_shard(world, 22)
    for number, name in enumerate(names):
        world.add_topic(name.text, partitions=number)
    world.objects_per_answer = 3
    world.released.clear()

    questions = [asyncio.ensure_future(directory.partitions(name, create=False)) for name in names]
    await asyncio.sleep(0)
    world.released.set()

    assert await asyncio.gather(*questions) == list(range(22))


async def test_one_object_that_does_not_fit_is_refused(directory, world):
    world.add_topic(TOPIC)
    world.objects_per_answer = 0

    with pytest.raises(InvalidRequest, match="too large"):
        await directory.partitions(parse_topic(TOPIC), create=False)


def sizes_of(world, body):
    """Return how many topics each request names, of those that read or create topics."""
    if body == "create_topics":
        return [len(each.names) for each in creations(world)]
    sizes = [
        sum(each.kind == KIND_TOPIC for each in request.get.names) for request in world.requests
    ]
    return [size for size in sizes if size]


async def test_directory_reads_in_flight_max_are_sent_at_once_and_one_more_waits(
    directory, world, monkeypatch
):
    world.released.clear()
    names = names_in_one_shard(world, DIRECTORY_READS_IN_FLIGHT_MAX + 1)
    questions = []
    for name in names:
        questions.append(asyncio.ensure_future(directory.partitions(name, create=False)))
        for _turn in range(10):
            await asyncio.sleep(0)
    sent = len(world.requests)
    world.released.set()
    await asyncio.gather(*questions, return_exceptions=True)

    assert sent == DIRECTORY_READS_IN_FLIGHT_MAX
    assert sizes_of(world, "get") == [1] * len(names)


async def test_the_default_namespace_is_there_from_its_first_use_on(directory, world):
    await asyncio.gather(
        *(directory.partitions(parse_topic(f"topic-{n}"), create=True) for n in range(50))
    )

    assert world.namespaces["public/default"] == {}
    assert len(world.topics) == 50
    assert len(world.commands("create_tenant")) == 1
    assert len(world.commands("create_namespace")) == 1


async def test_asking_for_nothing_to_be_created_makes_no_default_namespace(directory, world):
    await refusal(directory.partitions(parse_topic(DEFAULT), create=False))
    await refusal(directory.locate(parse_topic(DEFAULT), create=False))

    assert "public" not in world.tenants


async def test_another_process_that_makes_the_default_namespace_is_no_trouble(directory, world):
    world.tenants.add("public")

    assert await directory.partitions(parse_topic(DEFAULT), create=True) == 0


async def test_a_change_of_what_may_be_created_counts_at_once(directory, world):
    await directory.partitions(parse_topic("acme/orders/a"), create=True)
    world.namespaces["acme/orders"] = {"allowAutoTopicCreation": "false"}

    refused = await refusal(directory.partitions(parse_topic("acme/orders/b"), create=True))
    assert refused.code == "NOT_FOUND"


async def test_a_question_that_comes_after_a_read_began_does_not_share_its_answer(directory, world):
    """1. A lookup reads its answer. 2. The topic moves. 3. A later lookup must see the move."""

    def times_asked():
        asked = [each.name for request in world.requests for each in request.get.names]
        return asked.count("acme/orders")

    world.released.clear()
    one = asyncio.create_task(directory.creation._policy("acme/orders"))
    while not times_asked():
        await asyncio.sleep(0)
    other = asyncio.create_task(directory.creation._policy("acme/orders"))
    for _ in range(10):
        await asyncio.sleep(0)
    world.released.set()

    await asyncio.gather(one, other)
    assert times_asked() == 2


@pytest.mark.parametrize("world", [True], indirect=True)
async def test_a_refusal_is_of_a_request_that_was_sent_after_the_question(directory, world):
    """1. A question is decided. 2. The policy is changed, effectively. 3. Another question comes,
    and may not be refused by the answer to the first, which is on its way."""
    use, refusals = world._used, [TopicOutcome(rejection_code="NOT_FOUND", message="as it was")]
    world._used = lambda name: refusals.pop() if refusals else use(name)
    world.released.clear()
    first = asyncio.create_task(directory.partitions(parse_topic(TOPIC), create=True))
    while not world.requests:
        await asyncio.sleep(0)
    second = asyncio.create_task(directory.partitions(parse_topic(TOPIC), create=True))
    await asyncio.sleep(0)
    world.released.set()

    assert (await refusal(first)).code == "NOT_FOUND"
    assert await second == 0
    assert len(world.requests) == 2


@pytest.mark.parametrize("world", [True], indirect=True)
async def test_what_is_used_takes_one_request_whether_it_is_there_or_not(directory, world):
    world.add_topic(TOPIC, 5)

    assert await directory.partitions(parse_topic(TOPIC), create=True) == 5
    assert await directory.partitions(parse_topic("acme/orders/absent"), create=True) == 0

    assert [each.WhichOneof("body") for each in world.requests] == ["use_topics"] * 2


async def test_policies_win_over_properties_and_a_namespace_over_its_tenant(directory, world):
    world.namespaces["acme/orders"] = {"allowAutoTopicCreation": "false"}
    world.policies["acme"] = policies_pb2.Policies(
        auto_creation=policies_pb2.AutoCreation(is_partitioned=True)
    )
    world.policies["acme/orders"] = policies_pb2.Policies(
        auto_creation=policies_pb2.AutoCreation(is_allowed=True, default_partitions=3)
    )

    assert await directory.partitions(parse_topic("acme/orders/a"), create=True) == 3


async def test_a_namespace_that_went_is_forgotten_at_once(directory, world):
    await directory.partitions(parse_topic("acme/orders/a"), create=True)
    del world.namespaces["acme/orders"]

    refused = await refusal(directory.partitions(parse_topic("acme/orders/b"), create=True))
    assert refused.code == "NOT_FOUND"
    world.add_namespace("acme/orders")
    assert await directory.partitions(parse_topic("acme/orders/b"), create=True) == 0


# Where ------------------------------------------------------------------------------------------


async def test_an_existing_topic_is_located_and_thereby_assigned(directory, world):
    world.add_topic(TOPIC)

    assert await directory.locate(parse_topic(TOPIC), create=False) == Located(
        name=TOPIC,
        broker_id="broker-1",
        session_id="s-1",
        broker_url="pulsar://broker-1:6650",
        topic_id="id",
        unit="",
        epoch=7,
    )


async def test_a_partition_is_a_unit_of_its_own(directory, world):
    world.add_topic(TOPIC, 4)

    located = await directory.locate(parse_topic(f"{TOPIC}-partition-3"), create=False)

    assert (located.name, located.unit) == (f"{TOPIC}-partition-3", "p3")


async def test_the_name_of_a_partitioned_topic_is_served_by_nobody(directory, world):
    world.add_topic(TOPIC, 4)

    assert (await refusal(directory.locate(parse_topic(TOPIC), create=True))).code == "PARTITIONED"


async def test_an_absent_topic_is_located_only_if_it_may_be_created(directory, world):
    name = parse_topic(TOPIC)

    assert (await refusal(directory.locate(name, create=False))).code == "NOT_FOUND"
    assert world.assigned == []
    assert (await directory.locate(name, create=True)).broker_id == "broker-1"


async def test_the_lookup_of_a_partition_does_not_create_a_topic(directory, world):
    """Of a topic that only a stock Pulsar cluster knows: it has as many partitions as it has."""
    partition = parse_topic(f"{TOPIC}-partition-0")

    assert (await refusal(directory.locate(partition, create=True))).code == "NOT_FOUND"
    assert world.topics == {}


async def test_creating_a_partitioned_topic_as_unpartitioned_names_the_conflict(directory, world):
    world.add_namespace("acme/wide", {"autoTopicCreationType": "partitioned"})

    refused = await refusal(directory.locate(parse_topic("acme/wide/a"), create=True))

    assert refused.code == "PARTITIONED"
    assert world.topics["persistent://acme/wide/a"] == 1


async def test_an_answer_that_was_on_its_way_before_the_create_is_asked_for_again(world):
    """1. A slow lookup of another caller sees nothing. 2. The topic is created. 3. Our lookup
    shares the slow one's answer, and must not believe it."""
    answers = [
        LookupAnswer(rejection_code="NOT_FOUND"),
        LookupAnswer(topic=TOPIC, broker_id="b", session_id="s"),
    ]

    async def lookup(_name):
        return answers.pop(0)

    creation = TopicCreation(world)

    assert (await creation.look_up_created(parse_topic(TOPIC), lookup)).broker_id == "b"
    await creation.stop()


async def test_a_creation_is_published_before_its_creator_looks_it_up(world):
    """What remembers absent names must know before the second lookup: the topic is there."""
    told = []

    async def lookup(_name):
        if told:
            return LookupAnswer(topic=TOPIC, broker_id="b", session_id="s")
        return LookupAnswer(rejection_code="NOT_FOUND")

    creation = TopicCreation(world, created=lambda *what: told.append(what))

    assert (await creation.look_up_created(parse_topic(TOPIC), lookup)).broker_id == "b"
    ((shard_id, _position, names),) = told
    assert (shard_id, names) == (world.shard_of_key(parse_topic(TOPIC).routing_key), [TOPIC])
    await creation.stop()


def test_trouble_that_passes_is_no_refusal():
    answer = LookupAnswer(rejection_code="NO_CAPACITY", message="all full", retryable=True)

    with pytest.raises(Unavailable, match="all full"):
        located(parse_topic(TOPIC), answer)


def test_a_refusal_that_names_a_time_carries_it_on():
    answer = LookupAnswer(rejection_code="OVERLOADED", retryable=True, retry_after_ms=500)

    with pytest.raises(Overloaded) as refusal:
        located(parse_topic(TOPIC), answer)
    assert refusal.value.retry_after_ms == 500


async def test_an_owner_whose_session_ended_is_not_given(directory, world, link):
    world.add_topic(TOPIC)
    link.push(
        ClusterUpdate(brokers=[BrokerRecorded(broker_id="broker-1", session_id="s-1", epoch=1)])
    )

    with pytest.raises(Unavailable, match="gone"):
        await directory.locate(parse_topic(TOPIC), create=False)


async def test_an_error_of_a_shard_reaches_everybody_who_asked(directory, world):
    world.error = ProposalLost("leadership moved")
    name = parse_topic(TOPIC)

    errors = await asyncio.gather(
        *(directory.partitions(name, create=True) for _ in range(10)), return_exceptions=True
    )

    assert [type(error) for error in errors] == [ProposalLost] * 10


async def test_a_waiter_that_gives_up_leaves_the_others_their_answer(directory, world):
    world.add_topic(TOPIC, 2)
    world.released.clear()
    first, second = (
        asyncio.create_task(directory.partitions(parse_topic(TOPIC), create=False))
        for _ in range(2)
    )
    await asyncio.sleep(0)

    first.cancel()
    world.released.set()

    assert await second == 2
    assert first.cancelled() or first.cancelling()


async def test_questions_that_wait_are_bounded(world, link, monkeypatch):
    monkeypatch.setattr(shard_calls, "DIRECTORY_NAMES_WAITING_MAX", 2)
    directory = RoutedTopicDirectory(shards=world, cluster=link)
    world.released.clear()
    names = [parse_topic(f"acme/orders/n{number}") for number in range(3)]
    waiting = [asyncio.create_task(directory.partitions(name, create=False)) for name in names[:2]]
    await asyncio.sleep(0)

    with pytest.raises(Overloaded):
        await directory.partitions(names[2], create=False)

    await directory.stop()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [Unavailable] * 2


# Brokers and listings ---------------------------------------------------------------------------


async def test_any_broker_is_a_live_one_that_speaks_pulsar(directory, link):
    names = [f"persistent://acme/orders/n{number}" for number in range(200)]
    assert directory.any_broker_url(TOPIC) is None

    link.push(
        ClusterUpdate(
            brokers=[
                recorded("b-1", "pulsar://b-1:1"),
                recorded("b-2", "pulsar://b-2:1"),
                recorded("b-3", "pulsar://b-3:1", is_live=False),
                recorded("b-4", ""),
            ]
        )
    )
    found = [directory.any_broker_url(name) for name in names]
    assert set(found) == {"pulsar://b-1:1", "pulsar://b-2:1"}
    assert min(found.count(url) for url in set(found)) >= 60

    link.push(ClusterUpdate(brokers=[recorded("b-1", "", is_live=False)]))
    assert {directory.any_broker_url(name) for name in names} == {"pulsar://b-2:1"}


async def test_all_processes_return_the_same_broker_for_a_name_in_whatever_order_they_know_them():
    brokers = [recorded(f"b-{number}", f"pulsar://b-{number}:1") for number in range(5)]
    names = [f"persistent://acme/orders/n{number}" for number in range(100)]
    found = []
    for known in (brokers, brokers[::-1]):
        link = StaticLink()
        urls = LiveBrokerUrls(link)
        link.push(ClusterUpdate(brokers=known))
        found.append([urls.any(name) for name in names])

    assert found[0] == found[1]


async def test_a_draining_broker_is_returned_only_if_all_drain(directory, link):
    one, other = recorded("b-1", "pulsar://b-1:1"), recorded("b-2", "pulsar://b-2:1")
    names = [f"persistent://acme/orders/n{number}" for number in range(50)]

    one.draining = True
    link.push(ClusterUpdate(brokers=[one, other]))
    assert {directory.any_broker_url(name) for name in names} == {"pulsar://b-2:1"}

    other.draining, other.revision = True, 1
    link.push(ClusterUpdate(brokers=[other]))
    assert {directory.any_broker_url(name) for name in names} == {
        "pulsar://b-1:1",
        "pulsar://b-2:1",
    }


async def test_a_stock_broker_is_returned_only_where_no_other_lives(directory, link):
    """It knows no scalable topics, and of absent ones what Pulsar says."""
    embedded, stock = recorded("b-1", "pulsar://b-1:1"), recorded("b-2", "pulsar://b-2:1")
    stock.kind = "stock"
    names = [f"persistent://acme/orders/n{number}" for number in range(50)]

    link.push(ClusterUpdate(brokers=[embedded, stock]))
    assert {directory.any_broker_url(name) for name in names} == {"pulsar://b-1:1"}

    link.push(ClusterUpdate(brokers=[recorded("b-1", "", is_live=False)]))
    assert {directory.any_broker_url(name) for name in names} == {"pulsar://b-2:1"}


@pytest.mark.parametrize("lists_names", [True, False])
async def test_a_listing_has_all_shards_pages_and_partitions_in_order(
    directory, world, lists_names
):
    world.lists_names = lists_names
    for number in range(9):
        world.add_topic(f"persistent://acme/orders/n{number}")
    world.add_topic("persistent://acme/orders/wide", 2)
    world.add_topic("non-persistent://acme/orders/brief")
    world.add_topic("persistent://acme/other/n")
    namespace = parse_namespace("acme/orders")

    topics = await directory.topics_of_namespace(ListQuestion(namespace, domain="persistent"))

    assert topics == [
        *(f"persistent://acme/orders/n{number}" for number in range(9)),
        "persistent://acme/orders/wide-partition-0",
        "persistent://acme/orders/wide-partition-1",
    ]
    assert await directory.topics_of_namespace(
        ListQuestion(namespace, domain="non-persistent")
    ) == ["non-persistent://acme/orders/brief"]
    assert len(await directory.topics_of_namespace(ListQuestion(namespace, domain=""))) == 12


async def test_list_walk_bytes_max_are_shared_by_the_pages_of_all_shards(directory, world):
    world.add_topic("persistent://acme/orders/n1")

    await directory.topics_of_namespace(ListQuestion(ORDERS))

    pages = [each.list.bytes_max for each in world.requests if each.HasField("list")]
    assert len(pages) == SHARDS
    assert LIST_WALK_BYTES_MAX - SHARDS < sum(pages) <= LIST_WALK_BYTES_MAX


@pytest.mark.parametrize(("room_bytes", "fits"), [(64, True), (63, False)])
async def test_a_listing_is_as_long_as_one_answer(directory, world, monkeypatch, room_bytes, fits):
    monkeypatch.setattr(topic_listing, "TOPIC_LIST_BYTES_MAX", room_bytes)
    world.add_topic("persistent://acme/orders/n1")
    world.add_topic("persistent://acme/orders/n23456")
    listing = directory.topics_of_namespace(ListQuestion(ORDERS))

    if fits:
        assert len(await listing) == 2
    else:
        refused = await refusal(listing)
        assert refused.code == "LIMIT_EXCEEDED"
        assert "over HTTP has no limit: GET /admin/v2/namespaces/acme/orders/topics" in str(refused)


async def test_a_listing_leaves_out_the_topics_that_pulsar_keeps_for_itself(directory, world):
    world.add_topic("persistent://acme/orders/__change_events")
    world.add_topic("persistent://acme/orders/__transaction_buffer_snapshot", 2)
    world.add_topic("persistent://acme/orders/x-sub__transaction_pending_ack")
    world.add_topic("persistent://acme/orders/__mine")

    topics = await directory.topics_of_namespace(ListQuestion(ORDERS))

    assert topics == ["persistent://acme/orders/__mine"]


@pytest.mark.parametrize("lists_names", [True, False])
async def test_a_listing_has_the_topics_that_a_pattern_describes(directory, world, lists_names):
    world.lists_names = lists_names
    for name in ("n1", "n2", "m1", "n1x", "__change_events"):
        world.add_topic(f"persistent://acme/orders/{name}")
    world.add_topic("persistent://acme/orders/n3", 2)

    async def listed(pattern):
        question = ListQuestion(ORDERS, compile_pattern(pattern))
        return [name[25:] for name in await directory.topics_of_namespace(question)]

    assert await listed("persistent://acme/orders/n.") == [
        "n1",
        "n2",
        "n3-partition-0",
        "n3-partition-1",
    ]
    assert await listed(".*orders/.1") == ["m1", "n1"]
    assert await listed("acme/other/.*") == []
    assert await listed("acme/orders") == []
    assert len(await listed(".*")) == 6


async def test_a_listing_has_the_topics_with_all_the_properties(directory, world):
    world.add_topic("persistent://acme/orders/n1", properties={"zone": "a", "use": "x"})
    world.add_topic("persistent://acme/orders/n2", properties={"zone": "a"})
    world.add_topic("persistent://acme/orders/n3")

    async def listed(**properties):
        question = ListQuestion(ORDERS, properties=property_filter(properties.items()))
        return [name[25:] for name in await directory.topics_of_namespace(question)]

    assert await listed(zone="a") == ["n1", "n2"]
    assert await listed(zone="a", use="x") == ["n1"]
    assert await listed(zone="b") == []


async def test_only_matching_names_have_to_fit_into_an_answer(directory, world, monkeypatch):
    monkeypatch.setattr(topic_listing, "TOPIC_LIST_BYTES_MAX", 64)
    for number in range(9):
        world.add_topic(f"persistent://acme/orders/n{number}")

    few = ListQuestion(ORDERS, compile_pattern("acme/orders/n[12]"))

    assert len(await directory.topics_of_namespace(few)) == 2


async def test_without_a_shard_map_nothing_is_listed(world):
    directory = RoutedTopicDirectory(shards=world, cluster=StaticLink())

    with pytest.raises(Unavailable):
        await directory.topics_of_namespace(ListQuestion(ORDERS))
    await directory.stop()
