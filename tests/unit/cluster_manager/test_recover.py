"""Versions and ids that the lost replicas may have handed out are passed over."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cluster_manager import wire
from cluster_manager.adapters.stored_view import StoredView, open_view_store
from cluster_manager.domain.cluster import ClusterEvent, ClusterState
from cluster_manager.domain.configuration import Configuration, ConfigurationSet
from cluster_manager.domain.shard_map import ShardMap, ShardMapChanged, place_replicas
from cluster_manager.domain.slot_moves.moves import SlotMove, SlotMoveChanged
from cluster_manager.domain.slot_moves.plans import Plan, PlanChanged, PlanKind, PlanPhase
from cluster_manager.recover import SHARD_IDS_PASSED_OVER, raise_versions
from nextgen.kernel.routing.slots import SlotTable, initial_table
from nextgen.replication.ports import Entry

MAP = ShardMap(SlotTable(7, initial_table([1, 2]).owners), place_replicas([1, 2], ["a", "b"], 2))
MAPPED = (ShardMapChanged(MAP), ConfigurationSet(Configuration(3)))


def recovered(path: Path, events: Sequence[ClusterEvent], times: int = 1) -> ClusterState:
    """Return the state that a view with ``events`` has after a recovery, or several."""
    store = open_view_store(path)
    store.apply([Entry(1, 1, 1, (wire.record_of(events, 1_700_000_000_000),))])
    store.close()
    with closing(sqlite3.connect(path / "view.000000000001.sqlite")) as connection:
        for _ in range(times):
            raise_versions(connection)
        connection.commit()
    again = open_view_store(path)
    state, _ = StoredView(again).load()
    again.close()
    return state


def test_what_has_a_version_goes_on_behind_every_version_that_may_have_been_used(
    tmp_path: Path,
) -> None:
    state = recovered(tmp_path, MAPPED)

    assert state.shard_map.version == 1 << 32
    assert state.configuration.version == 1 << 32
    assert state.quotas.version == 0


def test_so_it_does_at_each_recovery(tmp_path: Path) -> None:
    assert recovered(tmp_path, MAPPED, times=2).shard_map.version == 2 << 32


def test_ids_of_moves_plans_and_shards_are_passed_over(tmp_path: Path) -> None:
    under_way = SlotMove(6, ((0, 9),), 1, 2, plan_id=4)
    running = Plan(4, PlanKind.MERGE, retired=(1,), last_shard_id=9)

    state = recovered(tmp_path, (*MAPPED, SlotMoveChanged(under_way), PlanChanged(running)))

    assert state.slot_moves.next_id == (1 << 32) + 1
    assert state.slot_moves.under_way == (under_way,), "its shards report how it ends"
    assert state.plans.next_id == (1 << 32) + 1
    assert state.plans.plans[4].phase is PlanPhase.STOPPED
    assert state.plans.present is None
    assert state.plans.retired == (1,)
    assert state.plans.next_shard_id(state.shard_map.shard_ids) == 10 + SHARD_IDS_PASSED_OVER


def test_a_cluster_without_plans_passes_over_the_shards_of_its_map(tmp_path: Path) -> None:
    state = recovered(tmp_path, MAPPED)

    assert state.plans.next_shard_id(state.shard_map.shard_ids) == 3 + SHARD_IDS_PASSED_OVER
    assert state.slot_moves.next_id == (1 << 32) + 1
