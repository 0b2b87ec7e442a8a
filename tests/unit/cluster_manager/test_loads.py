"""Loads of brokers at the cluster manager: checked, gathered, pushed to shard nodes only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.load_board import SHOWN_UNITS_MAX
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.placement import (
    BUSIEST_UNITS_MAX,
    LOADS_GATHERED_MS,
    LOADS_PER_UPDATE_MAX,
)
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from tests.unit.cluster_manager.fakes import ManagerUnderTest, broker, hello, settle, taken


@pytest.fixture
async def one(tmp_path: Path) -> Iterator[ManagerUnderTest]:
    """Two shard nodes; one live broker of 80 units."""
    manager = ManagerUnderTest(tmp_path)
    first, _ = await manager.join_shard_nodes()
    manager.manager.receive(first, broker())
    await settle()
    yield manager
    manager.manager.stop()
    await manager.log.stop()


def _load(
    messages_in: float = 5.0,
    *,
    broker_id: str = "broker-1",
    session_id: str = "s-1",
    at_ms: int = 1,
    units: int = 1,
    busiest: int = 0,
) -> cluster_pb.BrokerLoad:
    return cluster_pb.BrokerLoad(
        broker_id=broker_id,
        session_id=session_id,
        load=events_pb.LoadReport(
            topics=units,
            messages_in_per_second=messages_in,
            measured_at_ms=at_ms,
            busiest=[events_pb.TopicLoad(name=f"t-{each}") for each in range(busiest)],
        ),
    )


def _connection(one: ManagerUnderTest, node_id: str = "a") -> NodeConnection:
    assert one.manager.leader_term is not None
    return one.manager.leader_term.connections[node_id]


def _say(one: ManagerUnderTest, load: cluster_pb.BrokerLoad) -> None:
    one.manager.receive(_connection(one), cluster_pb.NodeMessage(load=load))


async def _pushed(connection: NodeConnection) -> list[cluster_pb.BrokerLoad]:
    return [load for update in await taken(connection) for load in update.loads]


async def test_loads_are_gathered_and_pushed_to_shard_nodes_only(one: ManagerUnderTest) -> None:
    discovery = await one.manager.join(hello("d", kind="discovery"))
    nodes = (_connection(one, "a"), _connection(one, "b"), discovery)
    for node in nodes:
        await taken(node)
    _say(one, _load(5.0, at_ms=1))
    _say(one, _load(6.0, at_ms=2))

    one.clock.advance(LOADS_GATHERED_MS - 1)
    assert [await _pushed(node) for node in nodes] == [[], [], []]
    one.clock.advance(1)

    later = _load(6.0, at_ms=2)
    assert [await _pushed(node) for node in nodes] == [[later], [later], []]
    one.clock.advance(10 * LOADS_GATHERED_MS)
    assert [await _pushed(node) for node in nodes] == [[], [], []]


async def test_a_joining_shard_node_gets_all_loads(one: ManagerUnderTest) -> None:
    _say(one, _load())
    one.clock.advance(LOADS_GATHERED_MS)

    shard_node = await one.manager.join(hello("c"))
    discovery = await one.manager.join(hello("d", kind="discovery"))

    assert await _pushed(shard_node) == [_load()]
    assert await _pushed(discovery) == []


async def test_an_overtaken_report_does_not_replace_a_later_one(one: ManagerUnderTest) -> None:
    _say(one, _load(9.0, at_ms=9))
    _say(one, _load(3.0, at_ms=3))

    assert list((await one.manager.cluster_state()).loads) == [_load(9.0, at_ms=9)]


@pytest.mark.parametrize(
    "load",
    [
        _load(-1.0, at_ms=2),
        _load(math.nan, at_ms=2),
        _load(units=81, at_ms=2),
        _load(busiest=BUSIEST_UNITS_MAX + 1, at_ms=2),
        _load(session_id="s-0", at_ms=2),
        _load(broker_id="broker-9", at_ms=2),
    ],
    ids=["negative", "nan", "beyond capacity", "too many units", "other session", "unknown"],
)
async def test_a_load_that_cannot_be_changes_nothing(
    one: ManagerUnderTest, load: cluster_pb.BrokerLoad
) -> None:
    _say(one, _load())
    assert one.manager.leader_term is not None

    refused = one.manager.leader_term.loads.take(load)

    assert refused
    assert list((await one.manager.cluster_state()).loads) == [_load()]


async def test_only_shard_nodes_report_loads(one: ManagerUnderTest) -> None:
    discovery = await one.manager.join(hello("d", kind="discovery"))

    with pytest.raises(InvalidRequest):
        one.manager.receive(discovery, cluster_pb.NodeMessage(load=_load()))


async def test_the_load_of_an_ended_session_is_not_published(one: ManagerUnderTest) -> None:
    _say(one, _load())
    one.manager.receive(_connection(one), broker(is_live=False))
    await settle()
    one.clock.advance(LOADS_GATHERED_MS)

    assert list((await one.manager.cluster_state()).loads) == []
    assert await _pushed(await one.manager.join(hello("c"))) == []


async def test_the_state_of_the_cluster_names_a_few_of_the_busiest_units(
    one: ManagerUnderTest,
) -> None:
    _say(one, _load(busiest=BUSIEST_UNITS_MAX))

    (shown,) = (await one.manager.cluster_state()).loads
    (pushed,) = await _pushed(await one.manager.join(hello("c")))

    assert len(shown.load.busiest) == SHOWN_UNITS_MAX
    assert len(pushed.load.busiest) == BUSIEST_UNITS_MAX


@pytest.mark.parametrize(("more", "updates"), [(0, 1), (1, 2)])
async def test_many_loads_travel_in_parts(one: ManagerUnderTest, more: int, updates: int) -> None:
    for number in range(2, LOADS_PER_UPDATE_MAX + more + 1):
        one.manager.receive(_connection(one), broker(f"broker-{number}", f"s-{number}"))
    await settle()
    await taken(_connection(one, "b"))
    for number in range(1, LOADS_PER_UPDATE_MAX + more + 1):
        _say(one, _load(broker_id=f"broker-{number}", session_id=f"s-{number}"))

    one.clock.advance(LOADS_GATHERED_MS)

    found = [update for update in await taken(_connection(one, "b")) if update.loads]
    assert len(found) == updates
    assert sum(len(update.loads) for update in found) == LOADS_PER_UPDATE_MAX + more
