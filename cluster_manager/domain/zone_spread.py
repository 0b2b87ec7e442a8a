"""How many replicas of one shard each zone should have: as even as the zones' nodes allow.

With enough nodes in each zone their numbers differ by at most one. A zone with fewer nodes has one
replica on each of them, and the others share the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LEVEL_STEPS = 50
"""Halvings in the search for the level of extra replicas; the rest is far below one replica."""


@dataclass(frozen=True, slots=True)
class ZoneSpread:
    """The bounds of each zone for ``factor`` replicas of a shard, by the zones of the nodes."""

    factor: int
    nodes: Mapping[str, int]
    """Number of nodes of each zone."""
    least: Mapping[str, int]
    most: Mapping[str, int]

    @staticmethod
    def of(zones: Iterable[str], replicas: int) -> ZoneSpread:
        """Return the spread over nodes with these ``zones``, one zone for each node.

        With fewer nodes than ``replicas`` each node has one.
        """
        nodes = Counter(zones)
        factor = min(replicas, sum(nodes.values()))
        level = 0
        while level < factor and sum(min(n, level + 1) for n in nodes.values()) <= factor:
            level += 1
        least = {zone: min(n, level) for zone, n in nodes.items()}
        spare = factor > sum(least.values())
        most = {zone: min(n, level + spare) for zone, n in nodes.items()}
        return ZoneSpread(factor, nodes, least, most)

    def unevenness(self, counts: Mapping[str, int]) -> int:
        """Return by how many replicas a shard with ``counts`` by zone is out of the bounds."""
        zones = {*self.nodes, *counts}
        return sum(
            max(0, self.least.get(zone, 0) - counts.get(zone, 0))
            + max(0, counts.get(zone, 0) - self.most.get(zone, 0))
            for zone in zones
        )

    def with_one_more(self, held: Iterable[str]) -> dict[str, int]:
        """Return by zone the unevenness of a shard in the zones ``held``, and one more there."""
        counts = Counter(held)
        return {zone: self.unevenness(counts + Counter([zone])) for zone in self.nodes}

    def shares(self, shards: int) -> dict[str, float]:
        """Return the replicas for each node of a zone, if zones share them as evenly as allowed."""
        extra = shards * (self.factor - sum(self.least.values()))
        base = {zone: shards * least for zone, least in self.least.items()}
        room = {zone: shards * (self.most[zone] - self.least[zone]) for zone in base}
        low, high = 0.0, float(shards)
        for _ in range(LEVEL_STEPS):
            level = (low + high) / 2
            given = sum(_clamped(level * n - base[z], room[z]) for z, n in self.nodes.items())
            low, high = (level, high) if given < extra else (low, level)
        return {
            zone: (base[zone] + _clamped(high * n - base[zone], room[zone])) / n
            for zone, n in self.nodes.items()
        }


def _clamped(value: float, most: float) -> float:
    return min(max(0.0, value), float(most))
