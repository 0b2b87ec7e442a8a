"""Writes the golden log of group 0: run once per version of the format, never again.

    python -m tests.support.golden.cluster_log

What is written stays as it is: a release that reads it differently has broken its users' logs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from google.protobuf.proto import serialize_length_prefixed

from cluster_manager import wire
from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
)
from cluster_manager.domain.cluster import INITIAL, ClusterEvent, ClusterState, fold_events
from cluster_manager.domain.membership import Node, NodeRegistered
from cluster_manager.domain.shard_map import ShardMap, ShardMapChanged, place_replicas
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1.events_pb2 import DecidedCommand

DIRECTORY = Path(__file__).parents[2] / "replay" / "logs" / "cluster-manager-v1"
NODES = tuple(
    Node(f"shard-node-{n}", "shard", f"10.0.0.{n}:5000", f"10.0.0.{n}", 5001, f"10.0.0.{n}:5002")
    for n in (1, 2, 3)
)
BROKER = Broker("broker-1", "s-1", 1, True, "pulsar://b:6650", "b:7000", "b:7001", 100, "zone-a")
SUCCESSOR = Broker("broker-1", "s-2", 2, True, "", "b:7000", "b:7001", 200, "zone-a")

RECORDS: tuple[tuple[ClusterEvent, ...], ...] = (
    (NodeRegistered(NODES[0]),),
    (NodeRegistered(NODES[1]),),
    (
        NodeRegistered(NODES[2]),
        ShardMapChanged(
            ShardMap(
                initial_table([1, 2, 3, 4]),
                place_replicas([1, 2, 3, 4], [node.node_id for node in NODES], 3),
            )
        ),
    ),
    (NodeRegistered(Node("discovery-1", "discovery", "10.0.0.4:6000")),),
    (BrokerRecorded(BROKER),),
    (CapacityGranted("broker-1", "s-1", 100), CapacityLeased("broker-1", "s-1", 1, 12, 90_000)),
    (CapacityLeased("broker-1", "s-1", 2, 12, 95_000),),
    (
        CapacityLeaseReleased("broker-1", "s-1", 1, "session_ended"),
        CapacityLeaseReleased("broker-1", "s-1", 2, "session_ended"),
        BrokerRecorded(SUCCESSOR),
    ),
    (CapacityGranted("broker-1", "s-2", 200), CapacityLeased("broker-1", "s-2", 3, 25, 99_000)),
    (BrokerRecorded(Broker("broker-2", "s-9", 4, False, capacity_units=7)),),
)


def described(state: ClusterState) -> dict[str, Any]:
    """Return all of ``state`` in a form that can be stored and compared."""
    shard_map = state.shard_map
    assert shard_map is not None, "the golden log has a shard map"
    return {
        "nodes": {
            key: [node.kind, node.grpc, node.raft_host, node.raft_port, node.http]
            for key, node in sorted(state.membership.nodes.items())
        },
        "shard_map_version": shard_map.version,
        "slot_owners_sha256": hashlib.sha256(shard_map.table.to_bytes()).hexdigest(),
        "placements": {str(p.shard_id): list(p.replicas) for p in shard_map.placements},
        "brokers": {
            key: [
                *(broker.session_id, broker.epoch, broker.is_live, broker.pulsar_url),
                *(broker.grpc, broker.http, broker.capacity_units, broker.zone),
            ]
            for key, broker in sorted(state.directory.brokers.items())
        },
        "accounts": {
            key: {
                "session_id": account.session_id,
                "is_live": account.is_live,
                "capacity_units": account.capacity_units,
                "granted_units": account.granted_units,
                "leases": {
                    str(shard): [lease.units, lease.expires_at_ms]
                    for shard, lease in sorted(account.leases.items())
                },
            }
            for key, account in sorted(state.ledger.accounts.items())
        },
    }


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / "records.binpb"
    assert not path.exists(), f"{path} is there: a golden log is never written again"
    with path.open("wb") as file:
        for number, events in enumerate(RECORDS):
            record = wire.record_of(events, 1_700_000_000_000 + number)
            serialize_length_prefixed(DecidedCommand.FromString(record.payload), file)
    state = fold_events(INITIAL, [event for events in RECORDS for event in events])
    text = json.dumps(described(state), indent=2, sort_keys=True)
    (DIRECTORY / "state.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
