"""``python -m shards.recover``: promotes this stopped node's replica of a shard (ADR 0049).

    python -m shards.recover --node-dir DIR --shard 3 --lost node-2 --lost node-3

For a shard of which a majority of the disks is gone for good. ``nextgen shards recover`` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart
from nextgen.replication.host.promotion import Promotion, promote
from nextgen.replication.ports import GroupId, NodeId
from nextgen.runtime.lifecycle.data_directory import Identity
from nextgen.runtime.lifecycle.recover_command import Addresses, parser, run_recovery
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from shards.adapters.raft_groups import known_cluster
from shards.projections.stored_view import open_view_store


def main() -> None:
    """Run once; exit code 78 if it is refused."""
    arguments = parser("Promote the last replica of a shard.")
    arguments.add_argument("--shard", type=int, required=True)
    given = arguments.parse_args()

    def promoted(identity: Identity, lost: frozenset[str]) -> Promotion:
        return promote(
            given.node_dir,
            GroupId(given.shard),
            cluster_id=identity.cluster_id,
            node_id=NodeId(identity.node_id),
            lost=frozenset(map(NodeId, lost)),
            members=_replicas(given.node_dir, given.shard),
            open_view=open_view_store,
        )

    run_recovery(
        given,
        "shard",
        lambda: _addresses(_known(given.node_dir)),
        promoted,
        f"group-{given.shard}",
    )


def _known(directory: Path) -> ClusterUpdate:
    known = known_cluster(directory)
    if known is None:
        raise RefusesToStart(f"{directory} knows nothing of its cluster")
    return known


def _replicas(directory: Path, shard_id: int) -> tuple[NodeId, ...]:
    for placement in _known(directory).shard_map.shards:
        if placement.shard_id == shard_id:
            return tuple(NodeId(node_id) for node_id in placement.replicas)
    raise RefusesToStart(f"there is no shard {shard_id} in the map that {directory} knows")


def _addresses(known: ClusterUpdate) -> Mapping[str, Addresses]:
    found: dict[str, Addresses] = {}
    for node in known.nodes:
        host, _, port = node.grpc.rpartition(":")
        found[node.node_id] = [(host, int(port)), (node.raft_host, node.raft_port)]
    return found


if __name__ == "__main__":
    main()
