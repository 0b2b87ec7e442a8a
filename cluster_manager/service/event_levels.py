"""The level of each event of group 0, and the refusal of events that a replica may not know.

See ``nextgen.kernel.events.levels``. An event type keeps its level for ever. A new type has the
level of the release that adds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cluster_manager import wire
from cluster_manager.domain.broker_directory import BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
)
from cluster_manager.domain.cluster import ClusterEvent
from cluster_manager.domain.configuration import ConfigurationSet
from cluster_manager.domain.exclusions import NodeExcluded
from cluster_manager.domain.lookup_reports import LookupWindowRecorded
from cluster_manager.domain.membership import NodeRegistered, NodeStateSet
from cluster_manager.domain.quotas import QuotasSet
from cluster_manager.domain.shard_map import (
    ShardChanged,
    ShardMap,
    ShardMapChanged,
    evolve,
)
from cluster_manager.domain.slot_moves.moves import SlotMoveChanged
from cluster_manager.domain.slot_moves.plans import PlanChanged
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.levels import not_known_everywhere
from nextgen.kernel.routing.slots import FIRST_VERSION

EVENT_LEVELS: Final[dict[type[ClusterEvent], int]] = {
    NodeRegistered: 1,
    ShardMapChanged: 1,
    BrokerRecorded: 1,
    LookupWindowRecorded: 2,
    CapacityGranted: 1,
    CapacityLeased: 1,
    CapacityLeaseReleased: 1,
    QuotasSet: 3,
    ConfigurationSet: 10,
    NodeExcluded: 10,
    ShardChanged: 11,
    PlanChanged: 11,
    SlotMoveChanged: 11,
    NodeStateSet: 11,
}


_LOWERED_CAPACITY_LEVEL: Final = 10
"""Level of a session whose capacity was lowered: earlier releases do not lower its grant."""

_ZONE_LEVEL: Final = 11
"""Level of a shard node with a zone: earlier releases would forget it."""

_KIND_LEVEL: Final = 11
"""Level of a broker that is not embedded: earlier releases would place any topic there."""


_ADDED_SHARD_LEVEL: Final = 11
"""Level of a map, later than the first, with a shard that has had no leader. Earlier releases take
it for one that has, and a replica of theirs without data would wait for others for ever."""


def level_of(events: Iterable[ClusterEvent]) -> int:
    """Return the level that a replica must know to fold ``events``, 0 for none."""
    return max(map(_level, events), default=0)


def _level(event: ClusterEvent) -> int:
    if isinstance(event, BrokerRecorded) and event.broker.kind:
        return _KIND_LEVEL
    if isinstance(event, BrokerRecorded) and event.broker.announced_units:
        return _LOWERED_CAPACITY_LEVEL
    if isinstance(event, ShardMapChanged) and _has_added_shard(event.shard_map):
        return _ADDED_SHARD_LEVEL
    if isinstance(event, NodeRegistered) and event.node.zone:
        return _ZONE_LEVEL
    return EVENT_LEVELS[type(event)]


def _has_added_shard(shard_map: ShardMap) -> bool:
    return shard_map.version > FIRST_VERSION and not all(
        placement.has_led for placement in shard_map.placements
    )


def known_form(
    events: Sequence[ClusterEvent], shard_map: ShardMap | None, level: int
) -> Sequence[ClusterEvent]:
    """Return ``events`` as a replica of ``level`` knows them: with whole maps for differences.

    ``shard_map`` is the map before the events.
    """
    if level >= EVENT_LEVELS[ShardChanged]:
        return events
    known: list[ClusterEvent] = []
    for event in events:
        if isinstance(event, ShardMapChanged | ShardChanged):
            shard_map = evolve(shard_map, event)
            assert shard_map is not None, "a map cannot be taken away"
            known.append(ShardMapChanged(shard_map))
        else:
            known.append(event)
    return known


def not_known(events: Iterable[ClusterEvent], level: int, members: Sequence[str]) -> Refused:
    """Return why ``events`` are not proposed: ``members`` may not know those above ``level``."""
    late = next(event for event in events if _level(event) > level)
    name = wire.event_to_proto(late).WhichOneof("payload")
    return not_known_everywhere("the cluster manager", members, f"{name} events")
