"""Which part of all replicas moves when a shard node joins, is lost or a zone grows.

Pure: no process is started, so the machine only matters for ``plan_ms``, the processor time of one
plan with the ring at hand. Each change is carried out as a cluster does it, plan after plan, within
the bounds of transfers. Prints one JSON line last.

    python -m benchmarks.cluster.placement_moves [--check]

``--check`` fails if a join of one node to n moves more than 1 / (n + 1) and 5 points, a loss moves
more than the node had, or nodes of a zone end up with numbers that differ by more than one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster_manager.domain.membership import NodeState
from cluster_manager.domain.node_placement import Cluster, ShardNode, next_changes
from cluster_manager.domain.replica_changes import Change
from cluster_manager.domain.shard_map import Placement, place_replicas

POINTS = 0.05
ROUNDS_MAX = 20_000
CASES = (
    # nodes, shards, replicas, zones
    (3, 4, 3, 1),
    (5, 16, 3, 1),
    (5, 64, 3, 1),
    (5, 256, 3, 1),
    (5, 256, 3, 3),
    (9, 256, 3, 3),
    (9, 256, 5, 3),
    (20, 1_000, 3, 1),
    (99, 1_000, 3, 1),
    (99, 1_000, 3, 3),
)


@dataclass
class Run:
    """Placements and nodes, changed as plans say."""

    placements: dict[int, Placement]
    nodes: dict[str, ShardNode]
    factor: int
    added: int = 0
    rounds: int = 0
    plan_ms: float = 0.0

    def settle(self) -> None:
        """Plan and carry out until nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            cluster = Cluster(tuple(self.placements.values()), self.nodes, self.factor)
            began = time.process_time()
            changes = next_changes(cluster)
            self.plan_ms = (time.process_time() - began) * 1_000
            if not changes:
                return
            self.rounds += 1
            for change in changes:
                placement = self.placements[change.shard_id]
                replicas = placement.replicas
                if change.change is Change.ADD:
                    self.added += 1
                    replicas = (*replicas, change.node_id)
                else:
                    replicas = tuple(each for each in replicas if each != change.node_id)
                self.placements[change.shard_id] = replace(placement, replicas=replicas)
        raise AssertionError("the plan does not end")

    def difference(self) -> int:
        """Return by how many replicas active nodes of one zone differ at most."""
        load = Counter(node for each in self.placements.values() for node in each.replicas)
        by_zone: dict[str, list[int]] = {}
        for node in self.nodes.values():
            if node.is_active:
                by_zone.setdefault(node.zone, []).append(load[node.node_id])
        return max(max(counts) - min(counts) for counts in by_zone.values())


def begin(nodes: int, shards: int, factor: int, zones: int) -> Run:
    """Return the first map over ``nodes``."""
    by_id = {f"node-{number}": node_of(number, zones) for number in range(1, nodes + 1)}
    zone_of = {node.node_id: node.zone for node in by_id.values()}
    placed = place_replicas(range(1, shards + 1), sorted(by_id), factor, zone_of)
    return Run({each.shard_id: replace(each, has_led=True) for each in placed}, by_id, factor)


def node_of(number: int, zones: int) -> ShardNode:
    return ShardNode(f"node-{number}", f"zone-{number % zones}")


def measure(nodes: int, shards: int, factor: int, zones: int) -> Mapping[str, object]:
    """Return what a join and a loss move, as parts of all replicas."""
    replicas = shards * factor
    joined = begin(nodes, shards, factor, zones)
    newcomer = node_of(nodes + 1, zones)
    joined.nodes[newcomer.node_id] = newcomer
    joined.settle()

    lost = begin(nodes, shards, factor, zones)
    victim = replace(lost.nodes["node-1"], state=NodeState.LOST, is_connected=False)
    lost.nodes["node-1"] = victim
    had = sum("node-1" in each.replicas for each in lost.placements.values())
    lost.settle()
    return {
        "nodes": nodes,
        "shards": shards,
        "replicas_each": factor,
        "zones": zones,
        "join_moves": round(joined.added / replicas, 4),
        "join_share": round(1 / (nodes + 1), 4),
        "join_rounds": joined.rounds,
        "join_difference": joined.difference(),
        "loss_moves": round(lost.added / replicas, 4),
        "loss_had": round(had / replicas, 4),
        "loss_difference": lost.difference(),
        "plan_ms": round(joined.plan_ms, 1),
    }


def mistakes_of(found: Mapping[str, object]) -> list[str]:
    """Return which promises a case breaks."""
    name = f"{found['nodes']} nodes, {found['shards']} shards, {found['zones']} zones"
    wrong = []
    if float(str(found["join_moves"])) > float(str(found["join_share"])) + POINTS:
        wrong.append(f"{name}: a join moves {found['join_moves']}")
    if float(str(found["loss_moves"])) > float(str(found["loss_had"])):
        wrong.append(f"{name}: a loss moves {found['loss_moves']}")
    if max(int(str(found["join_difference"])), int(str(found["loss_difference"]))) > 1:
        wrong.append(f"{name}: nodes of a zone differ by more than one replica")
    return wrong


def main(arguments: list[str]) -> int:
    """Measure all cases; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="Fail if a promise is broken.")
    options = parser.parse_args(arguments)
    cases = []
    for case in CASES:
        cases.append(measure(*case))
        print(json.dumps(cases[-1]), flush=True)
    mistakes = [wrong for found in cases for wrong in mistakes_of(found)]
    print(json.dumps({"benchmark": "placement_moves", "cases": cases, "mistakes": mistakes}))
    return 1 if options.check and mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
