"""``python -m cluster_manager.recover``: promotes this stopped replica of the cluster manager.

    python -m cluster_manager.recover --node-dir DIR --peers PEERS --lost cm-2 --lost cm-3

``PEERS`` is the value of the process's own ``--peers``. For a cluster manager that has lost a
majority of its disks for good (ADR 0049). ``nextgen shards recover 0`` runs it.
"""

from __future__ import annotations

import sqlite3

from cluster_manager.adapters.stored_view import open_view_store
from cluster_manager.bootstrap import COMPONENT
from cluster_manager.config import parse_peers
from cluster_manager.projections.tables import CONFIGURATION, QUOTAS, SHARD_MAP
from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.replication.host.promotion import Promotion, promote
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, NodeId
from nextgen.runtime.lifecycle.data_directory import Identity
from nextgen.runtime.lifecycle.recover_command import parser, run_recovery


def main() -> None:
    """Run once; exit code 78 if it is refused."""
    arguments = parser("Promote the last replica of the cluster manager.")
    arguments.add_argument("--peers", required=True)
    given = arguments.parse_args()
    peers = parse_peers(given.peers)

    def promoted(identity: Identity, lost: frozenset[str]) -> Promotion:
        return promote(
            given.node_dir,
            CLUSTER_MANAGER_GROUP_ID,
            cluster_id=identity.cluster_id,
            node_id=NodeId(identity.node_id),
            lost=frozenset(map(NodeId, lost)),
            members=tuple(NodeId(peer.node_id) for peer in peers),
            open_view=open_view_store,
            change=raise_versions,
        )

    addresses = {
        peer.node_id: [(peer.raft.host, peer.raft.port), (peer.grpc.host, peer.grpc.port)]
        for peer in peers
    }
    run_recovery(given, COMPONENT, lambda: addresses, promoted, "group-0")


def raise_versions(connection: sqlite3.Connection) -> None:
    """Raise the versions of map, quotas and configuration above any that the lost replicas may have
    published: a node that has one of those would ignore another of the same version."""
    for table in (SHARD_MAP, QUOTAS, CONFIGURATION):
        sql = f"UPDATE {table.name} SET version = ((version >> ?) + 1) << ?"
        connection.execute(sql, (GENERATION_BITS, GENERATION_BITS)).close()


if __name__ == "__main__":
    main()
