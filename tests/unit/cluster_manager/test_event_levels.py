"""Events of group 0 that are too late for a replica are left out; nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster_manager import wire
from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.configuration import Configuration, ConfigurationSet
from cluster_manager.domain.exclusions import NodeExcluded
from cluster_manager.domain.lookup_reports import LookupWindowRecorded
from cluster_manager.domain.membership import Node, NodeRegistered, NodeState, NodeStateSet
from cluster_manager.domain.quotas import Quotas, QuotasSet
from cluster_manager.domain.shard_map import Placement, ShardChanged, ShardMap, ShardMapChanged
from cluster_manager.domain.slot_moves.moves import SlotMove, SlotMoveChanged
from cluster_manager.domain.slot_moves.plans import Plan, PlanChanged, PlanKind
from cluster_manager.service.event_levels import EVENT_LEVELS, level_of, not_known
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.levels import EVENT_LEVEL, EVENT_LEVEL_UNREPORTED
from nextgen.kernel.routing.slots import SlotRun, SlotTable, initial_table
from nextgen.replication.ports import NodeId
from tests.unit.cluster_manager.fakes import ManagerUnderTest, hello, settle
from tests.unit.cluster_manager.test_lookup_windows import BAD, message_of, recorded, said
from tests.unit.cluster_manager.test_wire import EVENTS

WINDOW = LookupWindowRecorded(BAD)
CHANGED = ShardChanged(2, (Placement(1, ("a", "b")),), (SlotRun(0, 9, 1),))
QUOTAS = QuotasSet(Quotas(version=1))
CONFIGURATION = ConfigurationSet(
    Configuration(version=1, settings={"loadBalancerEnabled": "false"})
)

FIRST_LEVEL = {
    "node_registered",
    "shard_map_changed",
    "broker_recorded",
    "capacity_granted",
    "capacity_leased",
    "capacity_lease_released",
}
"""What the release that says no level reads from its log."""

SECOND_LEVEL = {"lookup_window_recorded"}
THIRD_LEVEL = {"quotas_set"}
TENTH_LEVEL = {"configuration_set", "node_excluded"}
SLOTS = (
    SlotMoveChanged(SlotMove(1, ((0, 9),), 1, 2)),
    PlanChanged(Plan(1, PlanKind.REBALANCE)),
)
ELEVENTH_LEVEL = {"shard_changed", "slot_move_changed", "plan_changed", "node_state_set"}
LEVELS = {1: FIRST_LEVEL, 2: SECOND_LEVEL, 3: THIRD_LEVEL, 10: TENTH_LEVEL, 11: ELEVENTH_LEVEL}


def test_every_event_that_can_be_read_has_the_level_it_came_in_with() -> None:
    stored: dict[int, set[str | None]] = {1: set(), 2: set(), 3: set(), 10: set(), 11: set()}
    late = (NodeExcluded("n-1"), NodeStateSet("n-1", NodeState.LOST, 1), CHANGED, *SLOTS)
    for event in (*EVENTS, WINDOW, QUOTAS, CONFIGURATION, *late):
        level = EVENT_LEVELS[type(event)]
        stored[level].add(wire.event_to_proto(event).WhichOneof("payload"))

    assert stored == LEVELS
    assert set(wire._FROM_PROTO) == set().union(*LEVELS.values())
    assert max(EVENT_LEVELS.values()) <= EVENT_LEVEL


def test_a_lowered_capacity_waits_for_replicas_that_lower_the_grant() -> None:
    broker = Broker("broker-1", "s-1", 1, True, capacity_units=60, announced_units=100)
    lowered = BrokerRecorded(broker)

    assert level_of([lowered]) == 10
    assert level_of([BrokerRecorded(replace(broker, announced_units=0))]) == 1
    refused = not_known([WINDOW, lowered], 9, ["cm-2"])
    assert "cm-2 is not known to know broker_recorded events" in str(refused)


def test_a_stock_broker_waits_for_replicas_that_know_kinds() -> None:
    stock = BrokerRecorded(Broker("stock-1", "s-1", 1, True, kind="stock"))

    assert level_of([stock]) == 11
    assert "broker_recorded events" in str(not_known([stock], 10, ["cm-2"]))


@pytest.mark.parametrize(
    ("version", "led", "level"), [(1, (), 1), (1, (1,), 1), (2, (1, 2), 1), (3, (1,), 11)]
)
def test_a_map_with_a_shard_that_was_added_waits_for_replicas_that_know_which_have_led(
    version: int, led: tuple[int, ...], level: int
) -> None:
    placements = tuple(Placement(each, ("a",), has_led=each in led) for each in (1, 2))
    table = SlotTable(version, initial_table([1]).owners)

    assert level_of([ShardMapChanged(ShardMap(table, placements))]) == level


def test_a_zone_waits_for_replicas_that_keep_it() -> None:
    node = Node("a", "shard", "h:1", "h", 2)

    assert level_of([NodeRegistered(node)]) == 1
    assert level_of([NodeRegistered(replace(node, zone="z"))]) == 11


async def test_a_node_joins_without_its_zone_until_every_replica_keeps_it(
    one: ManagerUnderTest,
) -> None:
    one.log.event_levels[NodeId("cm-2")] = 10
    said_hello = hello("a")
    said_hello.zone = "z"
    term = one.manager.leader_term
    assert term is not None

    await one.manager.join(said_hello)
    assert term.pending.membership.nodes["a"].zone == ""
    one.log.event_levels.clear()
    await one.manager.join(said_hello)

    assert term.pending.membership.nodes["a"].zone == "z"


def test_a_record_has_the_level_of_its_latest_event() -> None:
    assert [level_of(events) for events in ([], EVENTS, [*EVENTS, WINDOW])] == [0, 1, 2]


def test_the_first_event_beyond_the_level_is_named() -> None:
    refused = not_known([WINDOW, QUOTAS], EVENT_LEVELS[LookupWindowRecorded], ["cm-2", "cm-3"])

    assert "cm-2, cm-3 are not known to know quotas_set events" in str(refused)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[ManagerUnderTest]:
    manager = ManagerUnderTest(tmp_path)
    yield manager
    manager.manager.stop()
    await manager.log.stop()


async def test_an_event_that_is_too_late_for_a_replica_changes_nothing(
    one: ManagerUnderTest,
) -> None:
    one.log.event_levels[NodeId("cm-3")] = EVENT_LEVEL_UNREPORTED
    term = one.manager.leader_term
    assert term is not None
    before, last_index = term.pending, one.log.status.last_index

    with pytest.raises(
        Refused, match="the cluster manager: cm-3 is not known to know lookup_window_recorded"
    ):
        term.propose([WINDOW])

    await asyncio.sleep(0)
    assert (term.pending, one.log.status.last_index) == (before, last_index)


async def test_windows_are_left_out_until_the_last_replica_knows_them(
    one: ManagerUnderTest,
) -> None:
    one.log.event_levels[NodeId("cm-2")] = EVENT_LEVEL_UNREPORTED

    connection = await said(one, BAD)

    assert recorded(one) == []
    assert not connection.has_ended, "the node did nothing wrong"
    one.log.event_levels.clear()
    one.manager.receive(connection, message_of(BAD))
    await settle()
    assert len(recorded(one)) == 1


async def test_nodes_join_and_the_map_is_made_while_a_replica_is_older(
    one: ManagerUnderTest,
) -> None:
    one.log.event_levels[NodeId("cm-2")] = EVENT_LEVEL_UNREPORTED

    await one.join_shard_nodes()

    term = one.manager.leader_term
    assert term is not None
    assert term.committed.shard_map is not None
