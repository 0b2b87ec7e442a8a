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
from cluster_manager.domain.slot_moves.moves import MovePhase
from cluster_manager.domain.slot_moves.plans import PlanKind, PlanPhase
from cluster_manager.projections.tables import (
    CONFIGURATION,
    PLACEMENTS,
    QUOTAS,
    SHARD_MAP,
    SLOT_MOVES,
    SLOT_PLANS,
)
from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.replication.host.promotion import Promotion, promote
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, NodeId
from nextgen.runtime.lifecycle.data_directory import Identity
from nextgen.runtime.lifecycle.recover_command import parser, run_recovery

RECOVERED = "the cluster manager was recovered from one replica"

SHARD_IDS_PASSED_OVER = 100
"""Shards that the lost replicas may have added beyond those that are known: more than one plan."""


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
    _pass_over_ids(connection)


def _pass_over_ids(connection: sqlite3.Connection) -> None:
    """End the plan under way, and pass over ids that the lost replicas may have given out.

    Shards have settled moves up to an id, and nodes may have data of shards that this map lacks.
    """
    moves, plans = SLOT_MOVES.name, SLOT_PLANS.name
    raised = f"((COALESCE(MAX(%s), 0) >> {GENERATION_BITS}) + 1) << {GENERATION_BITS}"
    connection.execute(
        f"INSERT INTO {moves} SELECT {raised % 'move_id'}, '[]', 0, 0, ?, ?, 0, 0, 0, 0 "
        f"FROM {moves}",
        (MovePhase.DONE.value, RECOVERED),
    ).close()
    connection.execute(
        f"UPDATE {plans} SET phase = ?, reason = ? WHERE phase IN (?, ?)",
        (PlanPhase.STOPPED.value, RECOVERED, PlanPhase.RUNNING.value, PlanPhase.STOPPING.value),
    ).close()
    retired = f"SELECT retired FROM {plans} ORDER BY plan_id DESC LIMIT 1"
    last = (
        f"SELECT MAX(last) FROM (SELECT MAX(shard_id) AS last FROM {PLACEMENTS.name} "
        f"UNION ALL SELECT MAX(last_shard_id) FROM {plans})"
    )
    connection.execute(
        f"INSERT INTO {plans} SELECT {raised % 'plan_id'}, ?, ?, '[]', '[]', '[]', "
        f"COALESCE(({retired}), '[]'), COALESCE(({last}), 0) + {SHARD_IDS_PASSED_OVER}, "
        f"0, '', ?, 0, 0 FROM {plans}",
        (PlanKind.REBALANCE.value, PlanPhase.STOPPED.value, RECOVERED),
    ).close()


if __name__ == "__main__":
    main()
