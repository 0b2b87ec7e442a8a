"""The shard map: the shard of each slot, and the nodes with each shard's replicas.

The first replica in a placement should lead the shard. First placements follow the ring's
preference order as far as evenness and zones allow: first replicas per node differ by at most one,
and so do replicas per node of a zone. How placements change later is in ``replica_changes``, and
where replicas go then in ``node_placement``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster_manager.domain.zone_spread import ZoneSpread
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import SHARDS_MAX
from nextgen.kernel.routing.slots import (
    FIRST_VERSION,
    SlotRun,
    SlotTable,
    initial_table,
    preference_order,
)

REPLICATION_FACTOR_MAX = 7
"""Replicas of a shard at most. Each further one slows the fsync of a majority and gains little."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The replicas of one shard as node ids in preference order: the first should lead.

    ``replicas`` are the voters that the shard last reported. ``joining`` and ``leaving`` are the
    wanted changes: ``joining`` shares no node with ``replicas``. ``leaving`` has some of them, or a
    node whose joining was cancelled and that may be in the shard's log already.
    """

    shard_id: int
    replicas: tuple[str, ...]
    joining: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    configuration_index: int = 0
    """Entry of the shard's log that made the configuration last reported, 0 before any change."""
    has_led: bool = False
    """The shard has had a leader: a replica without data may have voted before, and lost that."""

    @property
    def staying(self) -> tuple[str, ...]:
        """The replicas that are not leaving."""
        return tuple(node for node in self.replicas if node not in self.leaving)

    @property
    def named(self) -> tuple[str, ...]:
        """Every node that has, or may have, a replica of the shard."""
        return tuple(dict.fromkeys((*self.replicas, *self.joining, *self.leaving)))


@dataclass(frozen=True, slots=True)
class ShardMap:
    """Slots and placements at one version; ``table.version`` is the map's version."""

    table: SlotTable
    placements: tuple[Placement, ...]

    @property
    def version(self) -> int:
        return self.table.version

    @property
    def shard_ids(self) -> tuple[int, ...]:
        return tuple(placement.shard_id for placement in self.placements)

    def placement(self, shard_id: int) -> Placement | None:
        """Return the placement of a shard, None if there is no such shard."""
        found = (each for each in self.placements if each.shard_id == shard_id)
        return next(found, None)

    def after(self, change: ShardChanged) -> ShardMap:
        """Return the map after ``change``, which leads to a later version than this one's."""
        table = self.table.with_runs(change.version, change.slots)
        if not change.changed and not change.removed:
            return ShardMap(table, self.placements)
        placements = {each.shard_id: each for each in self.placements}
        placements.update((each.shard_id, each) for each in change.changed)
        for shard_id in change.removed:
            placements.pop(shard_id, None)
        return ShardMap(table, tuple(placements[shard_id] for shard_id in sorted(placements)))


@dataclass(frozen=True, slots=True)
class CreateShardMap:
    """Make the cluster's first map over exactly these nodes."""

    node_ids: tuple[str, ...]
    shards: int
    replication_factor: int
    zones: Mapping[str, str] = field(default_factory=dict)
    """The zone of each node that has one."""


@dataclass(frozen=True, slots=True)
class ShardMapChanged:
    """This map holds from this event on."""

    shard_map: ShardMap


@dataclass(frozen=True, slots=True)
class ShardChanged:
    """The map's next version, as its difference to the one before. The rest stays as it was."""

    version: int
    changed: tuple[Placement, ...] = ()
    """Placements of shards that are new or placed otherwise."""
    slots: tuple[SlotRun, ...] = ()
    """The slots with another owner."""
    removed: tuple[int, ...] = ()
    """The shards that are gone. None of them has a slot."""


State = ShardMap | None
MapEvent = ShardMapChanged | ShardChanged
INITIAL: State = None


def decide(state: State, command: CreateShardMap) -> Accepted[ShardMapChanged] | Rejected:
    """Make the first map. A cluster that has a map keeps it, whatever the command."""
    if state is not None:
        return Accepted(())
    if not 1 <= command.shards <= SHARDS_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED, f"{command.shards} shards, allowed are 1 to {SHARDS_MAX}"
        )
    if not 1 <= command.replication_factor <= REPLICATION_FACTOR_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"replication factor {command.replication_factor}, "
            f"allowed are 1 to {REPLICATION_FACTOR_MAX}",
        )
    node_ids = sorted(set(command.node_ids))
    if len(node_ids) < command.replication_factor:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"{len(node_ids)} shard nodes cannot hold {command.replication_factor} replicas",
        )
    shard_ids = range(1, command.shards + 1)
    placements = place_replicas(shard_ids, node_ids, command.replication_factor, command.zones)
    return Accepted((ShardMapChanged(ShardMap(initial_table(shard_ids), placements)),))


def decide_led(state: State, led: Collection[int]) -> Accepted[ShardChanged]:
    """Record which shards have had a leader; ``led`` are those that are known to have one.

    By this a node with an empty disk knows whether it may have voted in its groups before. The
    first map is recorded as a whole, once each of its shards has had a leader: earlier releases
    read any later version so. From then on the shards that were added since are recorded, all that
    are known at a time in one event.
    """
    if state is None:
        return Accepted(())
    unled = {each.shard_id for each in state.placements if not each.has_led}
    new = unled & set(led)
    if not new or (state.version == FIRST_VERSION and unled - new):
        return Accepted(())
    changed = [replace(each, has_led=True) for each in state.placements if each.shard_id in new]
    return Accepted((ShardChanged(state.version + 1, tuple(changed)),))


def evolve(state: State, event: MapEvent) -> State:
    """Return the map after ``event``. A difference that it contains already changes nothing."""
    if isinstance(event, ShardMapChanged):
        return event.shard_map
    assert state is not None, f"the map's version {event.version} came before any map"
    if event.version <= state.version:
        return state
    assert event.version == state.version + 1, f"version {event.version} follows {state.version}"
    return state.after(event)


def place_replicas(
    shard_ids: Sequence[int],
    node_ids: Sequence[str],
    replication_factor: int,
    zones: Mapping[str, str] | None = None,
) -> tuple[Placement, ...]:
    """Return a placement per shard, in the order of ``shard_ids``.

    Each first replica is on the node with the fewest first replicas, then replicas, so far; each
    further one where it keeps the shard's zones even, on the node with the fewest replicas. Among
    equals the ring decides. Equal arguments give equal placements everywhere.
    """
    assert len(set(node_ids)) >= replication_factor > 0, "not enough nodes for the replicas"
    zone_of = {node: (zones or {}).get(node, "") for node in node_ids}
    spread = ZoneSpread.of(zone_of.values(), replication_factor)
    first_replicas: Counter[str] = Counter()
    held: Counter[str] = Counter({node: 0 for node in node_ids})
    placed: dict[int, list[str]] = {}
    for shard_id in shard_ids:
        order = preference_order(f"shard-{shard_id}", node_ids)
        # min() returns the first of equals, which is the one the ring prefers.
        leader = min(order, key=lambda node: (first_replicas[node], held[node]))
        replicas = [leader]
        while len(replicas) < replication_factor:
            others = [node for node in order if node not in replicas]
            uneven = spread.with_one_more(zone_of[node] for node in replicas)
            replicas.append(min(others, key=lambda n: (uneven[zone_of[n]], held[n])))
        first_replicas[leader] += 1
        held.update(replicas)
        placed[shard_id] = replicas
    _even_out(placed, held, zone_of)
    return tuple(Placement(shard_id, tuple(placed[shard_id])) for shard_id in shard_ids)


def _even_out(
    placed: Mapping[int, list[str]], held: Counter[str], zone_of: Mapping[str, str]
) -> None:
    """Exchange replicas within each zone until no node has two more than another one there.

    First replicas stay. Nearly always there is nothing to exchange.
    """
    for zone in sorted(set(zone_of.values())):
        nodes = [node for node in zone_of if zone_of[node] == zone]
        while True:
            fullest = max(nodes, key=lambda node: (held[node], node))
            emptiest = min(nodes, key=lambda node: (held[node], node))
            movable = [
                replicas
                for replicas in placed.values()
                if fullest in replicas[1:] and emptiest not in replicas
            ]
            if held[fullest] - held[emptiest] < 2 or not movable:
                break
            replicas = movable[0]
            replicas[replicas.index(fullest)] = emptiest
            held[fullest] -= 1
            held[emptiest] += 1
