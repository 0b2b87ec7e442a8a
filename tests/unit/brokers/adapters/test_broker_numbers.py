"""What a broker says of itself: statistics, schemas over gRPC, metrics, load."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from brokers.adapters.broker_service.servicer import BrokerServicer
from brokers.adapters.broker_service.topic_statistics import detailed_stats
from brokers.adapters.load_meter import ProcessLoadMeter
from brokers.adapters.metrics import BrokerCollector
from brokers.domain.position import Position, ledger_id_of
from brokers.domain.schemas.schema import version_bytes
from brokers.ports.ledger import StorageFailed
from brokers.ports.plugin import PluginFault
from brokers.service.sidecar.plugin_faults import PluginFaults
from brokers.service.traffic import LATENCY_BOUNDS_S, Latency
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.pulsar import TOPIC_STATS_NAMES_MAX
from nextgen.kernel.limits.rest import HELD_NAMESPACES_PAGE_MAX
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.feed_world import FeedWorld, publish, source_at
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeBroker, settle, until

STRING = pulsar.Schema(name="String", type=pulsar.Schema.String, schema_data=b"")


class Aborted(Exception):
    """The call was ended with an error."""


class Context:
    """A call's context, as far as an error needs it."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    async def abort(self, code: grpc.StatusCode, *_: Any, **__: Any) -> None:
        self.code = code
        raise Aborted(code)

    def set_trailing_metadata(self, _: Any) -> None:
        return


def servicer(broker: FakeBroker, *, serves_clients: bool = True) -> BrokerServicer:
    return BrokerServicer(
        broker.agent,
        broker.topics if serves_clients else None,
        broker_id=broker.broker_id,
        capacity_units=5,
        clock=lambda: 0,
    )


async def stats_of(broker: FakeBroker, *topics: str) -> list[wire.TopicStats]:
    context: Any = Context()
    request = wire.GetTopicStatsRequest(topics=topics)
    return list((await servicer(broker).GetTopicStats(request, context)).topics)


async def test_an_open_topic_tells_how_it_is_doing(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(schema=STRING)
    await client.subscribe(kind=pulsar.CommandSubscribe.Shared)
    client.send(0, b"abc", with_num_messages_in_batch=2)
    await client.receipts(1)
    await client.until_got(pulsar.BaseCommand.MESSAGE)

    (stats,) = await stats_of(world.broker(), TOPIC, f"{TOPIC}-unknown")

    size = len(world.broker().ledger().appended[0].payload)
    nowhere = wire.MessagePosition(ledger_id=-1, entry_id=-1)
    there = wire.MessagePosition(ledger_id=ledger_id_of(1, 0), entry_id=0)
    assert stats == wire.TopicStats(
        topic=TOPIC,
        epoch=1,
        producers=1,
        entries=1,
        bytes=size,
        first=there,
        last=there,
        messages_in=2,
        messages_out=2,
        bytes_in=size,
        bytes_out=size,
        schema_versions=1,
        backlog_bytes=size,
        subscriptions=[
            wire.SubscriptionStats(
                name="sub",
                kind="SHARED",
                consumers=1,
                backlog_entries=1,
                unacked_messages=2,
                mark_delete=nowhere,
                is_durable=True,
                messages_out=2,
                bytes_out=size,
            )
        ],
    )


async def test_a_topic_that_does_not_open_tells_why(world: BrokerWorld):
    world.broker().store.error = StorageFailed("no space left")
    await world.broker().client().producer()

    assert await stats_of(world.broker(), TOPIC) == [
        wire.TopicStats(topic=TOPIC, error="no space left")
    ]


async def test_too_many_topics_at_once_are_refused(world: BrokerWorld):
    names = ["x"] * TOPIC_STATS_NAMES_MAX

    assert await stats_of(world.broker(), *names) == []
    with pytest.raises(Aborted):
        await stats_of(world.broker(), *names, "x")


async def test_schemas_are_answered_over_grpc(world: BrokerWorld):
    await world.broker().client().producer(schema=STRING)
    context: Any = Context()
    service = servicer(world.broker())

    found = await service.GetSchema(wire.GetSchemaRequest(topic=TOPIC), context)
    missing = await service.GetSchema(
        wire.GetSchemaRequest(topic=TOPIC, version=version_bytes(1)), context
    )

    assert (found.found, found.version, found.name, found.kind) == (
        True,
        version_bytes(0),
        "String",
        pulsar.Schema.String,
    )
    assert not missing.found


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("a/b/c/d/e", grpc.StatusCode.INVALID_ARGUMENT),
        (TOPIC, grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_a_schema_of_what_is_not_served_here_is_an_error(
    world: BrokerWorld, topic: str, code: grpc.StatusCode
):
    world.assign(TOPIC, "b")
    context: Any = Context()

    with pytest.raises(Aborted):
        await servicer(world.broker("a")).GetSchema(wire.GetSchemaRequest(topic=topic), context)

    assert context.code == code


async def test_a_broker_without_clients_has_no_schemas_and_no_statistics(world: BrokerWorld):
    context: Any = Context()
    service = servicer(world.broker(), serves_clients=False)

    stats = await service.GetTopicStats(wire.GetTopicStatsRequest(topics=[TOPIC]), context)
    with pytest.raises(Aborted):
        await service.GetSchema(wire.GetSchemaRequest(topic=TOPIC), context)

    assert list(stats.topics) == []


@pytest.mark.parametrize(("count", "pages"), [(0, 1), (1, 2)])
async def test_held_namespaces_page_max_are_in_one_page_and_one_more_in_the_next(
    world: BrokerWorld, count: int, pages: int
):
    broker = world.broker()
    names = [f"acme/n-{number:04}" for number in range(HELD_NAMESPACES_PAGE_MAX + count)]
    broker.agent.session.holding.assignments = {
        (name, unit): SimpleNamespace(name=f"persistent://{name}/t-partition-{unit}")
        for name in names
        for unit in "012"
    }
    context: Any = Context()
    found: list[str] = []
    read = 0
    more = True

    while more:
        request = wire.ListHeldNamespacesRequest(after=found[-1] if found else "")
        page = await servicer(broker).ListHeldNamespaces(request, context)
        found += page.names
        more, read = page.more, read + 1

    assert (found, read) == (names, pages)


async def test_a_broker_counts_its_clients(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    await client.subscribe()
    context: Any = Context()

    status = await servicer(world.broker()).GetBrokerStatus(wire.GetBrokerStatusRequest(), context)

    assert {key: status.counters[key] for key in ("open_topics", "producers", "consumers")} == {
        "open_topics": 1,
        "producers": 1,
        "consumers": 1,
    }


async def test_metrics_show_clients_and_traffic(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    await client.subscribe()
    client.send(0)
    await client.receipts(1)
    await client.until_got(pulsar.BaseCommand.MESSAGE)
    registry = CollectorRegistry()
    registry.register(BrokerCollector(world.broker().agent, world.broker().front))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"nextgen_broker_{name}", labels)

    assert [value(name) for name in ("topics_open", "producers", "consumers", "subscriptions")] == [
        1,
        1,
        1,
        1,
    ]
    assert value("messages_in_total") == value("messages_out_total") == 1
    assert value("entries_out_total") == 1
    assert value("pulsar_unfinished_bytes") == value("pulsar_connections_dropped_total") == 0
    assert value("backlog_bytes") == value("bytes_in_total") == value("ledger_bytes")
    assert value("append_seconds_count") == value("append_seconds_bucket", le="+Inf") == 1


async def test_a_broker_without_clients_has_the_agents_metrics_only(world: BrokerWorld):
    registry = CollectorRegistry()
    registry.register(BrokerCollector(world.broker().agent, None))

    assert registry.get_sample_value("nextgen_broker_units") == 0
    assert registry.get_sample_value("nextgen_broker_producers") is None
    assert registry.get_sample_value("nextgen_broker_plugin_connected") == 0


async def test_metrics_of_a_sidecar_say_what_is_wrong_with_its_broker(world: BrokerWorld):
    faults = PluginFaults(lambda: 0)
    faults.note(PluginFault.SECOND_SIDECAR, "broker-7 commands it")
    sidecar: Any = SimpleNamespace(
        greeting=object(), faults=faults, removals=SimpleNamespace(removed=4)
    )
    registry = CollectorRegistry()
    registry.register(BrokerCollector(world.broker().agent, None, None, sidecar))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"nextgen_broker_{name}", labels)

    assert value("plugin_connected") == 1
    assert value("stock_topics_removed_total") == 4
    counts = {each: value("stock_faults_total", kind=each.value) for each in PluginFault}
    assert counts == dict.fromkeys(PluginFault, 0) | {PluginFault.SECOND_SIDECAR: 1}


def test_a_latency_falls_into_the_bucket_that_it_fits():
    latency = Latency()

    for seconds in (0.0, LATENCY_BOUNDS_S[0], LATENCY_BOUNDS_S[1], 1_000.0):
        latency.observe(seconds)

    assert latency.counts[:2] == [2, 1]
    assert latency.counts[-1] == 1
    assert sum(latency.counts) == 4


async def test_the_load_report_has_rates_since_the_last_one(world: BrokerWorld):
    now_ms = [0]
    meter = ProcessLoadMeter(lambda: now_ms[0], lambda: now_ms[0])
    assert meter().rates == Rates()
    meter.front = world.broker().front
    client = world.broker().client()
    await client.producer()
    await client.subscribe()
    meter()
    for number in range(10):
        client.send(number)
    await client.until_got(pulsar.BaseCommand.MESSAGE, 10)
    await settle()
    now_ms[0] += 2_000

    load = meter()

    size = sum(len(entry.payload) for entry in world.broker().ledger().appended)
    assert load.rates == Rates(5.0, 5.0, size / 2, size / 2)
    assert meter().rates == Rates(), "no time has passed"
    now_ms[0] += 1_000
    assert meter().rates == Rates()


async def test_a_source_says_how_it_feeds_shadows(world: BrokerWorld):
    name = f"{TOPIC}-shadow"
    topic, client = await source_at(world, "a", name, name=TOPIC)
    feeds = FeedWorld(world)
    shadow = feeds.shadow("b", TOPIC, name)
    await until(lambda: shadow.is_fed)
    await publish(client, 0, 3)
    await until(lambda: shadow.entry_count == 3)

    backlogs = []
    for acknowledged in (Position(topic.ledger.last.ledger_id, 0), None):
        topic.shadows.report(name, acknowledged)
        (row,) = (await detailed_stats(topic)).feeds
        backlogs.append(row.backlog_entries)

    assert backlogs == [2, 0]
    registry = CollectorRegistry()
    registry.register(BrokerCollector(world.broker("a").agent, world.broker("a").front))
    for metric in ("source_streams", "sources_followed"):
        assert registry.get_sample_value(f"nextgen_broker_{metric}") == 1
    assert (row.shadow, row.broker_id, row.entries_out) == (name, "b", 3)
    assert row.bytes_out > 0
    assert row.connected_since_ms == world.wall_clock_ms
    await feeds.stop()
