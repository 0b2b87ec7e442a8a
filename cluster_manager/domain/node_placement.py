"""Placing replicas on nodes: which replicas should move, and which change comes next.

    shard map, nodes ──wanted──▶ placement ──moves──▶ replicas to move ──next_changes──▶ ADD, REMOVE

The wanted placement differs from the present one in as few replicas as possible. A replica moves
only if its node is not active, if its shard's zones are uneven, or if its node has more replicas
than another one that could have it. It goes to the first node in the ring's preference order that
has room. So the wanted placement is stable: what is placed as wanted stays where it is.

*Evenness.* Among nodes of one zone the numbers of replicas differ by at most one. Between zones
they differ by more only as far as zones have different numbers of nodes.

*Zones.* The replicas of a shard are spread over the zones as evenly as the zones' nodes allow.

*Order.* A shard has one change under way at a time. A replica is added first, and the one that it
replaces is removed only when as many active voters as wanted stay without it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cluster_manager.domain.membership import NodeState
from cluster_manager.domain.replica_changes import Change
from cluster_manager.domain.shard_map import Placement
from cluster_manager.domain.zone_spread import ZoneSpread
from nextgen.kernel.limits.placement import (
    REPLICA_TRANSFERS_MAX,
    REPLICA_TRANSFERS_PER_NODE_MAX,
)
from nextgen.kernel.routing.slots import preference_order


@dataclass(frozen=True, slots=True)
class ShardNode:
    """A shard node: its failure domain, its state, and whether it is connected."""

    node_id: str
    zone: str = ""
    state: NodeState = NodeState.ACTIVE
    is_connected: bool = True

    @property
    def is_active(self) -> bool:
        return self.state is NodeState.ACTIVE


@dataclass(frozen=True, slots=True)
class Bounds:
    """Replicas that may be joining at a time. A leader that sends the data counts as well."""

    per_node: int = REPLICA_TRANSFERS_PER_NODE_MAX
    per_cluster: int = REPLICA_TRANSFERS_MAX


@dataclass(frozen=True, slots=True)
class Cluster:
    """All that a plan is made from. ``nodes`` has every node of a placement, by id."""

    placements: tuple[Placement, ...]
    nodes: Mapping[str, ShardNode]
    replication_factor: int
    leaders: Mapping[int, str] = field(default_factory=dict)
    """The leading node of each shard, as far as known."""
    bounds: Bounds = Bounds()

    def node(self, node_id: str) -> ShardNode:
        """Return a node. One that never joined counts as removed."""
        known = self.nodes.get(node_id)
        return known or ShardNode(node_id, state=NodeState.REMOVED, is_connected=False)

    def has_majority(self, placement: Placement) -> bool:
        """Return whether most voters of the shard are connected."""
        connected = sum(self.node(each).is_connected for each in placement.replicas)
        return 2 * connected > len(placement.replicas)


@dataclass(frozen=True, slots=True)
class Move:
    """A replica goes from ``source`` to ``target``; an empty one: a replica more, or one less."""

    shard_id: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """The next change of one shard: see ``ChangeReplicas``."""

    shard_id: int
    node_id: str
    change: Change


def moves(cluster: Cluster, *, evens: bool = True) -> list[Move]:
    """Return the replicas that are not where they should be, without those that are moving.

    Without ``evens`` replicas move only from nodes that are not active, and shards get the
    replicas that they lack.
    """
    wanted = _Wanted(cluster, evens=evens)
    found = []
    for placement in cluster.placements:
        if _is_still(placement):
            found += _moves_of(cluster, placement, wanted.held[placement.shard_id])
    return found


def next_changes(cluster: Cluster, *, evens: bool = True) -> list[ReplicaChange]:
    """Return the changes that may begin now, at most one for each shard.

    A shard without a majority of connected voters changes nothing. While there is one, replicas
    move only from nodes that are not active. A join that has become needless is cancelled.
    """
    evens = evens and all(map(cluster.has_majority, cluster.placements))
    wanted = _Wanted(cluster, evens=evens)
    transfers = _Transfers(cluster)
    changes: list[ReplicaChange] = []
    adds: list[tuple[int, Move]] = []
    for placement in filter(cluster.has_majority, cluster.placements):
        held = wanted.held[placement.shard_id]
        if not _is_still(placement):
            changes += _cancelled(placement, held)
            continue
        for move in _moves_of(cluster, placement, held)[:1]:
            if move.target:
                adds.append((_active_voters(cluster, placement), move))
            else:
                changes.append(ReplicaChange(move.shard_id, move.source, Change.REMOVE))
    # Shards that lack an active replica come first: a further loss would cost them more.
    for _, move in sorted(adds, key=lambda found: found[0]):
        if transfers.may_begin(move):
            changes.append(ReplicaChange(move.shard_id, move.target, Change.ADD))
    return changes


def under_way(cluster: Cluster) -> list[Move]:
    """Return the replicas that are joining or leaving."""
    found = []
    for placement in cluster.placements:
        found += [Move(placement.shard_id, "", each) for each in placement.joining]
        found += [Move(placement.shard_id, each, "") for each in placement.leaving]
    return found


def _is_still(placement: Placement) -> bool:
    """Return whether a change of the shard may begin: none is under way, and it has been led.

    Before that a node with an empty disk could not tell whether it may have voted.
    """
    return placement.has_led and not placement.joining and not placement.leaving


def _moves_of(cluster: Cluster, placement: Placement, held: list[str]) -> list[Move]:
    """Return the moves from the shard's present replicas to ``held``, those that add first.

    So one that only removes means that all of ``held`` vote, as many as the factor says.
    """
    new = [each for each in held if each not in placement.replicas]
    gone = [each for each in placement.replicas if each not in held]
    if len(held) < cluster.replication_factor:
        gone = []  # There are too few nodes: what a lost one has may come back with it.
    gone.sort(key=lambda each: cluster.node(each).is_active)
    pairs = max(len(new), len(gone))
    sources, targets = (each + [""] * (pairs - len(each)) for each in (gone, new))
    return [Move(placement.shard_id, *pair) for pair in zip(sources, targets, strict=True)]


def _cancelled(placement: Placement, held: list[str]) -> Iterator[ReplicaChange]:
    """Yield a join that is needless by now: its node gives up its replicas, or another returned."""
    needless = [each for each in placement.joining if each not in held]
    if needless and not placement.leaving:
        yield ReplicaChange(placement.shard_id, needless[0], Change.CANCEL)


def _active_voters(cluster: Cluster, placement: Placement) -> int:
    return sum(cluster.node(each).is_active for each in placement.staying)


class _Transfers:
    """Counts the transfers under way, of the cluster and of each node that takes part."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of_node: Counter[str] = Counter()
        self._all = 0
        for placement in cluster.placements:
            for node_id in placement.joining:
                self._count(Move(placement.shard_id, "", node_id))

    def may_begin(self, move: Move) -> bool:
        """Count one more transfer if the bounds allow it."""
        bounds = self._cluster.bounds
        parties = self._parties(move)
        if self._all >= bounds.per_cluster or any(
            self._of_node[each] >= bounds.per_node for each in parties
        ):
            return False
        self._count(move)
        return True

    def _count(self, move: Move) -> None:
        self._all += 1
        self._of_node.update(self._parties(move))

    def _parties(self, move: Move) -> set[str]:
        return {move.target, self._cluster.leaders.get(move.shard_id, move.target)}


class _Wanted:
    """The wanted placement. ``held`` has the nodes of each shard's replicas, by shard id.

    Joining replicas count as there, leaving ones as gone.
    """

    def __init__(self, cluster: Cluster, *, evens: bool) -> None:
        self._nodes = {each.node_id: each for each in cluster.nodes.values() if each.is_active}
        self._takers = [each for each in self._nodes.values() if each.is_connected]
        zones = (each.zone for each in self._nodes.values())
        self._spread = ZoneSpread.of(zones, cluster.replication_factor)
        self._shares = self._spread.shares(len(cluster.placements))
        self._node_ids = tuple(sorted(self._nodes))
        self.held = {
            each.shard_id: [node for node in (*each.staying, *each.joining) if node in self._nodes]
            for each in cluster.placements
        }
        self.load = Counter({node_id: 0 for node_id in self._nodes})
        for held in self.held.values():
            self.load.update(held)
        still = list(filter(_is_still, cluster.placements))
        for placement in cluster.placements:
            self._trim(placement)
        new = {placement.shard_id: self._fill(placement.shard_id) for placement in still}
        self._even_out_new(new)
        if evens:
            for placement in still:
                self._spread_over_zones(placement.shard_id)
            self._even_out([placement.shard_id for placement in still])

    def _trim(self, placement: Placement) -> None:
        """Drop replicas beyond the factor: of the fullest node, and rather one that only joins."""
        shard_id, held = placement.shard_id, self.held[placement.shard_id]

        def cost(node_id: str) -> tuple[int, int, bool, int]:
            is_voter = node_id in placement.replicas
            left = self._unevenness(shard_id, without=node_id)
            return left, -self.load[node_id], is_voter, -self._rank(shard_id)[node_id]

        while len(held) > self._spread.factor:
            self._drop(shard_id, min(held, key=cost))

    def _fill(self, shard_id: int) -> list[str]:
        """Add the replicas that the shard lacks, where the ring prefers them and there is room.

        Returns their nodes. A shard still lacks some if there are too few connected ones.
        """
        new: list[str] = []
        while len(self.held[shard_id]) < self._spread.factor:
            target = self._best_taker(shard_id)
            if target is None:
                break
            self._put(shard_id, target)
            new.append(target)
        return new

    def _even_out_new(self, new: Mapping[int, list[str]]) -> None:
        """Place added replicas otherwise while that makes nodes more even: it moves nothing else.

        Each round looks for the shortest chain of added replicas, each to the node of the next,
        from a node to one with at least two fewer.
        """
        of_node: dict[str, set[int]] = {node_id: set() for node_id in self._nodes}
        for shard_id, node_ids in new.items():
            for node_id in node_ids:
                of_node[node_id].add(shard_id)
        while chain := self._chain(of_node):
            for shard_id, source, target in reversed(chain):
                self._move(of_node, shard_id, source, target)

    def _chain(self, of_node: Mapping[str, set[int]]) -> list[tuple[int, str, str]]:
        """Return the moves of the chain, [] if there is none."""
        starts = [node_id for node_id, shard_ids in of_node.items() if shard_ids]
        for start in sorted(starts, key=lambda node_id: (-self.load[node_id], node_id)):
            reached: dict[str, list[tuple[int, str, str]]] = {start: []}
            waiting = deque([start])
            while waiting:
                source = waiting.popleft()
                for target in sorted(self._takers, key=lambda each: self.load[each.node_id]):
                    if target.node_id in reached:
                        continue
                    used = {shard_id for shard_id, _, _ in reached[source]}
                    node = self._nodes[source]
                    movable = [
                        each
                        for each in of_node[source] - used
                        if self._stays_even(each, node, target)
                    ]
                    if not movable:
                        continue
                    chosen = min(movable, key=lambda each: self._preference(each, node, target))
                    chain = [*reached[source], (chosen, source, target.node_id)]
                    if self.load[start] - self.load[target.node_id] >= 2:
                        return chain
                    reached[target.node_id] = chain
                    waiting.append(target.node_id)
        return []

    def _spread_over_zones(self, shard_id: int) -> None:
        """Move replicas of the shard until its zones are even, or no node can take one."""
        while present := self._unevenness(shard_id):
            swaps = [
                (self._unevenness(shard_id, without=source, plus=target), source, target)
                for source in self._sources(shard_id)
                if (target := self._best_taker(shard_id, instead_of=source)) is not None
            ]
            better = [swap for swap in swaps if swap[0] < present]
            if not better:
                return
            _, source, target = min(better, key=lambda swap: (swap[0], -self.load[swap[1]]))
            self._drop(shard_id, source)
            self._put(shard_id, target)

    def _even_out(self, shard_ids: list[int]) -> None:
        """Move replicas from fuller nodes to emptier ones while that makes them more even."""
        of_node: dict[str, set[int]] = {node_id: set() for node_id in self._nodes}
        for shard_id in shard_ids:
            for node_id in self.held[shard_id]:
                of_node[node_id].add(shard_id)
        while (found := self._evening_move(of_node)) is not None:
            self._move(of_node, *found)

    def _evening_move(self, of_node: Mapping[str, set[int]]) -> tuple[int, str, str] | None:
        """Return a move to a node with at least two replicas fewer, from the fullest node."""
        fullest = sorted(self._takers, key=lambda each: (-self.load[each.node_id], each.node_id))
        for source in fullest:
            for target in reversed(fullest):
                if self.load[source.node_id] - self.load[target.node_id] < 2:
                    break
                if not self._may_exchange(source.zone, target.zone):
                    continue
                free = of_node[source.node_id] - of_node[target.node_id]
                movable = [each for each in free if self._stays_even(each, source, target)]
                if movable:
                    chosen = min(movable, key=lambda each: self._preference(each, source, target))
                    return chosen, source.node_id, target.node_id
        return None

    def _may_exchange(self, source: str, target: str) -> bool:
        """Return whether a replica may ever go from one zone to the other in even shards."""
        spread = self._spread
        return source == target or (
            spread.most[source] > spread.least[source]
            and spread.most[target] > spread.least[target]
        )

    def _stays_even(self, shard_id: int, source: ShardNode, target: ShardNode) -> bool:
        if target.node_id in self.held[shard_id]:
            return False
        if source.zone == target.zone:
            return True
        after = self._unevenness(shard_id, without=source.node_id, plus=target.node_id)
        return after <= self._unevenness(shard_id)

    def _preference(self, shard_id: int, source: ShardNode, target: ShardNode) -> tuple[int, int]:
        """Return the place in the order of shards to move: the ring prefers the target most."""
        rank = self._rank(shard_id)
        return rank[target.node_id] - rank[source.node_id], shard_id

    def _best_taker(self, shard_id: int, instead_of: str = "") -> str | None:
        """Return the node for one more replica, None if every connected one has one already."""
        held, rank = self.held[shard_id], self._rank(shard_id)
        zones = (self._nodes[each].zone for each in held if each != instead_of)
        uneven = self._spread.with_one_more(zones)

        def cost(node: ShardNode) -> tuple[int, int, int]:
            return uneven[node.zone], self._fullness(node), rank[node.node_id]

        takers = [each for each in self._takers if each.node_id not in held]
        return min(takers, key=cost).node_id if takers else None

    def _fullness(self, node: ShardNode) -> int:
        """Return 0 below the node's share, 1 while it rounds up to the share, then more."""
        share, load = self._shares[node.zone], self.load[node.node_id]
        if load < math.floor(share):
            return 0
        return 1 + max(0, load + 1 - math.ceil(share))

    def _sources(self, shard_id: int) -> list[str]:
        return [each for each in self.held[shard_id] if self._nodes[each].is_connected]

    def _unevenness(self, shard_id: int, without: str = "", plus: str = "") -> int:
        counts = Counter(self._nodes[each].zone for each in self.held[shard_id] if each != without)
        if plus:
            counts[self._nodes[plus].zone] += 1
        return self._spread.unevenness(counts)

    def _rank(self, shard_id: int) -> Mapping[str, int]:
        return _rank(shard_id, self._node_ids)

    def _move(
        self, of_node: Mapping[str, set[int]], shard_id: int, source: str, target: str
    ) -> None:
        self._drop(shard_id, source)
        self._put(shard_id, target)
        of_node[source].remove(shard_id)
        of_node[target].add(shard_id)

    def _put(self, shard_id: int, node_id: str) -> None:
        self.held[shard_id].append(node_id)
        self.load[node_id] += 1

    def _drop(self, shard_id: int, node_id: str) -> None:
        self.held[shard_id].remove(node_id)
        self.load[node_id] -= 1


@lru_cache(maxsize=1_024)
def _rank(shard_id: int, node_ids: tuple[str, ...]) -> Mapping[str, int]:
    """Return the place of each node in the ring's preference order for the shard."""
    order = preference_order(f"shard-{shard_id}", node_ids)
    return {node_id: place for place, node_id in enumerate(order)}
