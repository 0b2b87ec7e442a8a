"""Metadata and where its home is: a name's slot says so, and a topic's is that of its base name."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import NAMES_PER_GET_MAX, PAGE_BYTES_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import ShardMapChanged, ShardPlacement
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Item
from protos.nextgen.v1.shard_service_pb2 import (
    AdmitShadow,
    AssignRequest,
    AssignResponse,
    CloseParentGate,
    Command,
    CommandResult,
    ExecuteResponse,
    FollowRequest,
    FollowResponse,
    GetResponse,
    GrowShadows,
    IdleManager,
    ListRequest,
    ListResponse,
    ObjectName,
    ShardRequest,
    ShardResponse,
    TopicAssignment,
    UnlistShadow,
)
from shards.adapters.routed import (
    OBJECT_BYTES_MAX,
    LinkedHomes,
    RoutedBrokerManagers,
    RoutedMetadata,
    RoutedParents,
)
from shards.domain.parent_gate import ParentKind
from shards.metrics import NodeMetrics
from shards.ports import GateAnswer, Parent

TABLE = initial_table([1, 2, 3])
TOPICS = [f"persistent://acme/orders/t-{number}" for number in range(20)]
NAMES = [
    ObjectName(kind=KIND_TENANT, name="acme"),
    ObjectName(kind=KIND_NAMESPACE, name="acme/orders"),
    *(ObjectName(kind=KIND_TOPIC, name=topic) for topic in TOPICS),
]


class FakeRouter:
    """Answers reads with absences, and keeps which names went to which shard."""

    def __init__(self, *, lost: int = 0) -> None:
        self.asked: dict[int, list[str]] = {}
        self.requests = 0
        self._lost = lost

    def shard_of_key(self, routing_key: str) -> int:
        return TABLE.shard_for_key(routing_key)

    async def call(self, shard_id: int, request: ShardRequest, *, timeout_ms: int) -> ShardResponse:
        names = request.get.names
        assert 0 < len(names) <= NAMES_PER_GET_MAX, "the shard would refuse it"
        self.requests += 1
        self.asked.setdefault(shard_id, []).extend(name.name for name in names)
        items = [Item(kind=name.kind, name=name.name) for name in names]
        return ShardResponse(get=GetResponse(items=items[self._lost :]))


class FakeLink:
    def __init__(self, *, has_map: bool = True) -> None:
        self.view = ClusterView()
        if has_map:
            shard_map = ShardMapChanged(
                version=1,
                slot_owners=TABLE.to_bytes(),
                shards=[ShardPlacement(shard_id=shard_id) for shard_id in (1, 2, 3)],
            )
            self.view.apply(ClusterUpdate(shard_map=shard_map))


def homes(*, has_map: bool = True) -> LinkedHomes:
    return LinkedHomes(cast(ClusterLink, FakeLink(has_map=has_map)), "controllers")


def home_shard(name: ObjectName) -> int:
    key = parse_topic(name.name).routing_key if name.kind == KIND_TOPIC else name.name
    return TABLE.shard_for_key(key)


async def test_an_idle_manager_counts_unless_its_shard_has_a_later_leader() -> None:
    class Router:
        async def call(self, *_: Any, **__: Any) -> ShardResponse:
            idle = [IdleManager(shard_id=shard_id, term=5) for shard_id in (1, 2, 3)]
            return ShardResponse(follow=FollowResponse(follows=True, idle=idle))

        def leader_term(self, shard_id: int) -> int:
            return {1: 4, 2: 5, 3: 6}[shard_id]

    managers = RoutedBrokerManagers(cast(ShardRouter, Router()), NodeMetrics(CollectorRegistry()))

    response = await managers.follow(7, FollowRequest(), timeout_ms=1_000)

    assert response.follows
    assert [each.shard_id for each in response.idle] == [1, 2]


async def test_every_object_is_read_at_its_home_and_answered_in_order() -> None:
    router = FakeRouter()

    items = await RoutedMetadata(cast(ShardRouter, router)).read(NAMES, timeout_ms=1_000)

    assert [item.name for item in items] == [name.name for name in NAMES]
    assert set(router.asked) == {1, 2, 3}
    for shard_id, asked in router.asked.items():
        assert asked == [name.name for name in NAMES if home_shard(name) == shard_id]


@pytest.mark.parametrize("excess", [0, 1])
async def test_no_more_is_asked_for_at_a_time_than_fits_an_answer(excess: int) -> None:
    """A thousand topics of as many namespaces are looked up at once."""
    names = [
        ObjectName(kind=KIND_NAMESPACE, name=f"acme/n-{number}") for number in range(20 * 1_024)
    ]
    of_one_shard = [name for name in names if home_shard(name) == 1]
    at_a_time = PAGE_BYTES_MAX // OBJECT_BYTES_MAX[KIND_NAMESPACE]
    asked = of_one_shard[: 200 * at_a_time + excess]
    assert len(asked) > NAMES_PER_GET_MAX
    router = FakeRouter()

    items = await RoutedMetadata(cast(ShardRouter, router)).read(asked, timeout_ms=1_000)

    assert [item.name for item in items] == [name.name for name in asked]
    assert router.requests == 200 + excess


async def test_topics_with_their_namespace_fill_an_answer_together() -> None:
    home = home_shard(NAMES[0])
    candidates = (
        ObjectName(kind=KIND_TOPIC, name=f"persistent://acme/orders/t-{number}")
        for number in range(1_000)
    )
    topics = [name for name in candidates if home_shard(name) == home]
    namespace = next(
        name
        for number in range(1_000)
        if home_shard(name := ObjectName(kind=KIND_NAMESPACE, name=f"acme/n-{number}")) == home
    )
    room = PAGE_BYTES_MAX - OBJECT_BYTES_MAX[KIND_NAMESPACE]
    at_a_time = room // OBJECT_BYTES_MAX[KIND_TOPIC]

    for excess in (0, 1):
        router = FakeRouter()
        asked = [namespace, *topics[: at_a_time + excess]]
        await RoutedMetadata(cast(ShardRouter, router)).read(asked, timeout_ms=1_000)
        assert router.requests == 1 + excess


async def test_an_answer_with_too_few_objects_is_refused() -> None:
    metadata = RoutedMetadata(cast(ShardRouter, FakeRouter(lost=1)))

    with pytest.raises(InvalidRequest, match="1 names asked for, 0 came"):
        await metadata.read(NAMES[:1], timeout_ms=1_000)


def test_an_object_is_followed_where_the_map_has_it() -> None:
    """The shard that a former one named may not have adopted the slot yet."""
    link = FakeLink()
    assert link.view.learn_move([(0, 16_383)], 3, 1)

    homes = LinkedHomes(cast(ClusterLink, link), "controllers")

    assert {homes.home_of(name.kind, name.name) for name in NAMES} == {1, 2, 3}


def test_the_home_of_an_object_is_where_it_is_watched() -> None:
    assert [homes().home_of(name.kind, name.name) for name in NAMES] == [
        home_shard(name) for name in NAMES
    ]
    stream = homes().watch(2, "manager")
    assert isinstance(stream, ShardWatch)
    assert (stream.shard_id, stream.subscriber_id) == (2, "manager")


def test_a_topic_has_its_home_by_its_id_whatever_it_is_called() -> None:
    table = FakeLink().view.map_table
    assert table is not None
    name = "persistent://acme/orders/paid"

    for slot in (0, 6_000, 16_383):
        assert homes().home_of(KIND_TOPIC, name, f"{slot:04x}{0:020x}") == table.owners[slot]
    assert homes().home_of(KIND_TOPIC, name, "no id") == homes().home_of(KIND_TOPIC, name)


def test_without_a_map_nothing_has_a_home() -> None:
    with pytest.raises(Unavailable):
        homes(has_map=False).home_of(KIND_TENANT, "acme")


class FakeManagers:
    """Answers every assignment as synced."""

    async def call_key(
        self, _key: str, _request: ShardRequest, *, timeout_ms: int
    ) -> ShardResponse:
        return ShardResponse(assign=AssignResponse(sequence=timeout_ms, synced=True))


async def test_a_request_for_many_units_is_counted_as_one_message() -> None:
    metrics = NodeMetrics(CollectorRegistry())
    managers = RoutedBrokerManagers(cast(ShardRouter, FakeManagers()), metrics)
    request = AssignRequest(broker_id="b-1", session_id="s-1")
    request.assignments.extend([TopicAssignment(name=topic) for topic in TOPICS])

    await managers.assign(request, timeout_ms=1_000)
    await managers.assign(request, timeout_ms=1_000)

    assert metrics.counters()["assign_requests"] == 2


# Orders about shadows -----------------------------------------------------------------------------

SOURCE, SHADOW = TOPICS[0], TOPICS[1]


class OrderRouter:
    """Keeps where each order went, and answers all of them with ``response``."""

    def __init__(self, response: ShardResponse) -> None:
        self.orders: list[tuple[int, ShardRequest]] = []
        self._response = response

    async def call(self, shard_id: int, request: ShardRequest, *, timeout_ms: int) -> ShardResponse:
        self.orders.append((shard_id, request))
        return self._response

    async def call_key(self, key: str, request: ShardRequest, *, timeout_ms: int) -> ShardResponse:
        return await self.call(TABLE.shard_for_key(key), request, timeout_ms=timeout_ms)


def parents_and_router(*, rejection_code: str = "") -> tuple[RoutedParents, OrderRouter]:
    result = CommandResult(id="t-1", rejection_code=rejection_code, message="because")
    router = OrderRouter(ShardResponse(execute=ExecuteResponse(results=[result])))
    return RoutedParents(cast(ShardRouter, router), ClusterView()), router


async def test_orders_to_a_source_go_to_its_home_and_orders_to_shadows_to_their_shard() -> None:
    parents, router = parents_and_router()
    home = home_shard(ObjectName(kind=KIND_TOPIC, name=SOURCE))

    assert await parents.admit_shadow(SOURCE, 3, 4) == Parent("t-1", False)
    assert await parents.unlist_shadow(SOURCE, SHADOW, "t-2") is None
    assert await parents.grow_shadows(2, SOURCE, "t-1", 7, 8) == GateAnswer()
    assert await parents.close_gate(2, ParentKind.TOPIC, SOURCE, "t-1", 7) == GateAnswer()

    commands = [(shard, request.execute.commands[0]) for shard, request in router.orders]
    assert commands == [
        (home, Command(admit_shadow=AdmitShadow(source=SOURCE, shard_id=3, partitions=4))),
        (
            home,
            Command(unlist_shadow=UnlistShadow(source=SOURCE, shadow=SHADOW, shadow_id="t-2")),
        ),
        (
            2,
            Command(
                grow_shadows=GrowShadows(source=SOURCE, source_id="t-1", attempt=7, partitions=8)
            ),
        ),
        (
            2,
            Command(
                close_parent_gate=CloseParentGate(
                    parent_kind="topic", parent_name=SOURCE, parent_id="t-1", attempt=7
                )
            ),
        ),
    ]


@pytest.mark.parametrize("topic_id", ["t-2", ""])
async def test_the_id_of_a_topic_is_read_at_its_home(topic_id: str) -> None:
    item = Item(kind=KIND_TOPIC, name=SHADOW)
    if topic_id:
        item.topic.topic_id = topic_id
    router = OrderRouter(ShardResponse(get=GetResponse(items=[item])))
    parents = RoutedParents(cast(ShardRouter, router), ClusterView())

    assert await parents.topic_id(SHADOW) == topic_id

    ((shard, request),) = router.orders
    wanted = ObjectName(kind=KIND_TOPIC, name=SHADOW)
    assert shard == home_shard(wanted)
    assert list(request.get.names) == [wanted]
    assert not request.get.min_position


async def test_a_refused_order_is_answered_with_the_reason() -> None:
    parents, _ = parents_and_router(rejection_code="NOT_ALLOWED")
    refused = Rejected(RejectionCode.NOT_ALLOWED, "because")

    assert await parents.admit_shadow(SOURCE, 3, 4) == refused
    assert await parents.unlist_shadow(SOURCE, SHADOW, "t-2") == refused
    assert await parents.grow_shadows(2, SOURCE, "t-1", 7, 8) == GateAnswer(refused)


async def test_shadows_are_listed_by_the_shard_that_is_asked() -> None:
    router = OrderRouter(ShardResponse(list=ListResponse(names=[SHADOW])))
    parents = RoutedParents(cast(ShardRouter, router), ClusterView())

    assert list(await parents.shadows_of(2, SOURCE, 4)) == [SHADOW]

    wanted = ListRequest(kind=KIND_TOPIC, shadows_of=SOURCE, limit=4)
    assert router.orders == [(2, ShardRequest(list=wanted))]
