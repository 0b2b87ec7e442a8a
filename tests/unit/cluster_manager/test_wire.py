"""Events survive encoding, and nodes are sent what concerns them."""

from __future__ import annotations

import pytest

from cluster_manager import wire
from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
)
from cluster_manager.domain.cluster import ClusterEvent
from cluster_manager.domain.membership import Node, NodeRegistered
from cluster_manager.domain.replica_changes import Change, ChangeReplicas
from cluster_manager.domain.shard_map import Placement, ShardMap, ShardMapChanged
from nextgen.client.log.wire import filled_events
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.routing.slots import initial_table
from nextgen.replication.ports import Entry
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb

EVENTS: list[ClusterEvent] = [
    NodeRegistered(Node("a", "shard", "a:1", "a", 2, "a:3")),
    ShardMapChanged(
        ShardMap(
            initial_table([1, 2]),
            (Placement(1, ("a", "b"), ("c",), ("b", "d"), 70), Placement(2, ())),
        )
    ),
    BrokerRecorded(Broker("b-1", "s-1", 3, True, "pulsar://b:1", "b:2", "b:3", 7, "zone")),
    CapacityGranted("b-1", "s-1", 7),
    CapacityLeased("b-1", "s-1", 2, 5, 123_456_789_000, version=4, units_used=3, term=9),
    CapacityLeaseReleased("b-1", "s-1", 2, "session_ended"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_storage(event: ClusterEvent) -> None:
    stored = wire.event_to_proto(event).SerializeToString()

    assert wire.event_from_proto(events_pb.Event.FromString(stored)) == event


def test_a_placement_of_an_earlier_release_has_nothing_under_way() -> None:
    stored = events_pb.Event(
        shard_map_changed=events_pb.ShardMapChanged(
            version=1,
            slot_owners=initial_table([1]).to_bytes(),
            shards=[events_pb.ShardPlacement(shard_id=1, replicas=["a", "b"])],
        )
    )

    read = wire.event_from_proto(stored)

    assert isinstance(read, ShardMapChanged)
    assert read.shard_map.placements == (Placement(1, ("a", "b")),)
    # And what was never changed is stored as that release would store it.
    assert wire.event_to_proto(read).shard_map_changed == stored.shard_map_changed


@pytest.mark.parametrize(
    ("version", "written", "read"),
    [
        (1, (), (False, False)),
        (1, (1,), (True, False)),
        (2, (), (True, True)),
        (9, (1, 2), (True, True)),
        (9, (2,), (False, True)),
    ],
)
def test_in_a_later_map_of_an_earlier_release_all_shards_have_led(
    version: int, written: tuple[int, ...], read: tuple[bool, ...]
) -> None:
    stored = events_pb.ShardMapChanged(
        version=version,
        slot_owners=initial_table([1, 2]).to_bytes(),
        shards=[
            events_pb.ShardPlacement(shard_id=shard_id, has_led=shard_id in written)
            for shard_id in (1, 2)
        ],
    )

    placements = wire.shard_map_from_proto(stored).placements

    assert tuple(placement.has_led for placement in placements) == read


@pytest.mark.parametrize("change", list(Change))
def test_every_change_can_be_wished_for(change: Change) -> None:
    kind = cluster_pb.ChangeReplicasRequest.Change.Value(f"CHANGE_{change.name}")
    request = cluster_pb.ChangeReplicasRequest(shard_id=3, node_id="n", change=kind)

    wish = wire.change_from_proto(request, {"n"})

    assert wish == ChangeReplicas(3, "n", change, {"n"})


@pytest.mark.parametrize("kind", [0, 9])
def test_a_change_that_is_not_known_is_invalid(kind: int) -> None:
    request = cluster_pb.ChangeReplicasRequest(shard_id=3, node_id="n")
    request.change = kind  # type: ignore[assignment]

    with pytest.raises(InvalidRequest):
        wire.change_from_proto(request, set())


def test_an_event_of_another_component_is_a_broken_log() -> None:
    stranger = events_pb.Event(topic_deleted=events_pb.TopicDeleted(name="x"))

    with pytest.raises(AssertionError, match="topic_deleted"):
        wire.event_from_proto(stranger)


def test_readers_get_events_with_their_place_in_the_log() -> None:
    records = (wire.record_of(EVENTS[:2], 11), wire.record_of(EVENTS[2:3], 12))
    entry = Entry(index=9, term=4, first_position=100, records=records)

    read = list(filled_events(entry, shard_id=0))

    assert [event.position for event in read] == [100, 101, 102]
    assert [event.time_ms for event in read] == [11, 11, 12]
    assert {event.term for event in read} == {4}
    assert [wire.event_from_proto(event) for event in read] == EVENTS[:3]
    assert list(wire.events_of_entry(entry)) == EVENTS[:3]


def test_the_capacity_ledger_is_not_sent_to_nodes() -> None:
    assert wire.delta_update(EVENTS[3:]) is None


def test_nodes_brokers_and_the_map_are_sent_to_nodes() -> None:
    made = EVENTS[1]
    assert isinstance(made, ShardMapChanged)

    update = wire.delta_update(EVENTS, None, made.shard_map)

    assert update is not None
    assert not update.full
    assert [node.node_id for node in update.nodes] == ["a"]
    assert [broker.broker_id for broker in update.brokers] == ["b-1"]
    assert update.shard_map.version == 1
