"""The stored view gives back what the log said, also after a restart."""

from __future__ import annotations

from pathlib import Path

from cluster_manager import wire
from cluster_manager.adapters.stored_view import StoredView, open_view_store
from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import CapacityGranted, CapacityLeased
from cluster_manager.domain.cluster import INITIAL, fold_events
from cluster_manager.domain.membership import Node, NodeRegistered
from nextgen.replication.ports import Entry

EVENTS = [
    NodeRegistered(Node("a", "shard", "a:1", "a", 2, "a:3")),
    BrokerRecorded(Broker("broker-1", "s-1", 1, True, capacity_units=10)),
    CapacityGranted("broker-1", "s-1", 10),
    CapacityLeased("broker-1", "s-1", 1, 4, 1_800_000_000_000),
]


def test_the_state_is_what_the_events_fold_to_and_survives_a_restart(tmp_path: Path) -> None:
    store = open_view_store(tmp_path)
    store.apply([Entry(1, 1, 1, (wire.record_of(EVENTS[:2], 1),))])
    store.apply([Entry(2, 1, 3, (wire.record_of(EVENTS[2:], 1),))])
    expected = (fold_events(INITIAL, EVENTS), 2)
    assert StoredView(store).load() == expected

    store.close()
    again = open_view_store(tmp_path)

    assert StoredView(again).load() == expected
    again.close()


def test_folding_an_event_twice_changes_nothing() -> None:
    """What ``StoredView.load`` relies on: see there."""
    once = fold_events(INITIAL, EVENTS)

    for event in EVENTS:
        assert fold_events(once, [event]) == once
