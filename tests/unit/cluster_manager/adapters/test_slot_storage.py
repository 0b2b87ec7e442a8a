"""Moves and plans survive the log and the view, and both forget the same ones."""

from __future__ import annotations

import pytest

from cluster_manager import wire
from cluster_manager.adapters.stored_view import StoredView, open_view_store
from cluster_manager.domain.cluster import INITIAL, ClusterEvent, fold_events
from cluster_manager.domain.slot_moves.moves import MovePhase, SlotMove, SlotMoveChanged
from cluster_manager.domain.slot_moves.plans import Plan, PlanChanged, PlanKind, PlanPhase
from cluster_manager.projections import fold
from nextgen.kernel.routing.slots import SlotRun
from nextgen.replication.ports import Entry
from protos.nextgen.v1 import events_pb2 as events_pb

PLAN = Plan(
    3,
    PlanKind.SPLIT,
    PlanPhase.STOPPING,
    wanted=(SlotRun(0, 99, 4), SlotRun(200, 200, 5)),
    added=(4, 5),
    removed=(2,),
    retired=(1, 7),
    last_shard_id=9,
    is_automatic=True,
    request_id="r-1",
    reason="move 7 to shard 4: the disk is full",
    began_at_ms=1_700_000_000_000,
    ended_at_ms=1_700_000_001_000,
)
MOVE = SlotMove(
    7, ((0, 9), (20, 29)), 1, 4, MovePhase.ADOPTED, "late", 40, 9, shard_map_version=8, plan_id=3
)


@pytest.mark.parametrize("event", [PlanChanged(PLAN), SlotMoveChanged(MOVE)])
def test_an_event_survives_storage(event: ClusterEvent) -> None:
    stored = wire.event_to_proto(event).SerializeToString()

    assert wire.event_from_proto(events_pb.Event.FromString(stored)) == event


def entry(index: int, *events: ClusterEvent) -> Entry:
    return Entry(index, 1, index, (wire.record_of(events, 1_700_000_000_000),))


def test_the_view_reads_back_what_was_folded(tmp_path) -> None:
    store = open_view_store(tmp_path)
    store.apply([entry(1, PlanChanged(PLAN)), entry(2, SlotMoveChanged(MOVE))])

    state, _ = StoredView(store).load()

    assert state.plans.plans == {3: PLAN}
    assert state.slot_moves.moves == {7: MOVE}
    store.close()


def test_the_view_forgets_what_the_domain_forgets(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fold, "SLOT_MOVES_KEPT", 3)
    monkeypatch.setattr(fold, "SLOT_PLANS_KEPT", 2)
    monkeypatch.setattr("cluster_manager.domain.slot_moves.moves.SLOT_MOVES_KEPT", 3)
    monkeypatch.setattr("cluster_manager.domain.slot_moves.plans.SLOT_PLANS_KEPT", 2)
    events: list[ClusterEvent] = [SlotMoveChanged(SlotMove(1, ((0, 1),), 1, 2))]
    for number in range(2, 9):
        phase = MovePhase.DONE if number % 2 else MovePhase.TAKEN_BACK
        events.append(SlotMoveChanged(SlotMove(number, ((5, 6),), 3, 4, phase)))
        events.append(PlanChanged(Plan(number, PlanKind.REBALANCE, PlanPhase.DONE)))
    store = open_view_store(tmp_path)

    store.apply([entry(index, event) for index, event in enumerate(events, start=1)])

    state, _ = StoredView(store).load()
    expected = fold_events(INITIAL, events)
    assert state.slot_moves == expected.slot_moves
    assert state.plans == expected.plans
    assert state.slot_moves.moves.keys() == {1, 6, 7, 8}
    assert state.plans.plans.keys() == {7, 8}
    with store.pinned_state() as pinned:
        assert store.running_digest == pinned.scan() != 0
    store.close()
