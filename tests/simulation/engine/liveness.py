"""A healthy majority has a leader soon, whatever happens to everybody else (L21).

The safety invariants look after every step. This one looks a few times a second from outside the
processes: it takes a node's health from the faults that were injected, not from the node itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Protocol

from nextgen.replication.config import RaftConfig
from nextgen.replication.ports import NodeId
from tests.support.simulated.network import SimNetwork
from tests.support.simulated.node import SimNode

LOOK_EVERY_S = 0.25

TIMEOUTS_MAX = 5
"""Longest election timeouts until a healthy majority has a leader (ADR 0050)."""

DELAY_MS_MAX = 20.0
"""A network that takes longer is not healthy."""


class Watched(Protocol):
    """The simulation as liveness sees it."""

    config: RaftConfig
    network: SimNetwork
    nodes: list[SimNode]
    over: bool

    @property
    def now(self) -> float: ...
    def leading(self) -> SimNode | None: ...
    def voters_of(self, node: SimNode) -> tuple[NodeId, ...]: ...
    def fail(self, sentence: str) -> None: ...


class Liveness:
    """Measures for how long a healthy majority has had no leader."""

    def __init__(self, world: Watched) -> None:
        self._world = world
        self._majority: frozenset[NodeId] = frozenset()
        self._since = 0.0
        self.longest_s = 0.0

    @property
    def bound_s(self) -> float:
        return TIMEOUTS_MAX * self._world.config.election_ms_max / 1000

    async def watch(self) -> None:
        """Look again and again until the run is over."""
        while not self._world.over:
            await asyncio.sleep(LOOK_EVERY_S)
            self._look()

    def disturbed(self, nodes: Iterable[SimNode]) -> None:
        """Note a fault at ``nodes``: if the majority that is watched has one, it starts anew."""
        if self._majority.intersection(node.node_id for node in nodes):
            self._since = self._world.now

    def _look(self) -> None:
        world = self._world
        if world.leading() is not None:
            self._majority = frozenset()
            return
        healthy = [node for node in world.nodes if self._is_healthy(node)]
        kept = [node for node in healthy if node.node_id in self._majority]
        if not self._majority or len(kept) < len(self._majority) or not self._can_elect(kept):
            self._majority = self._find_majority(healthy)
            self._since = world.now
        waited_s = world.now - self._since
        if self._majority:
            self.longest_s = max(self.longest_s, waited_s)
        if self._majority and waited_s > self.bound_s:
            world.fail(
                f"{', '.join(sorted(self._majority))} are a healthy majority and have had no "
                f"leader for {waited_s:.1f} s"
            )

    def _find_majority(self, healthy: Sequence[SimNode]) -> frozenset[NodeId]:
        for size in range(1, len(healthy) + 1):
            for nodes in combinations(healthy, size):
                if self._can_elect(nodes):
                    return frozenset(node.node_id for node in nodes)
        return frozenset()

    def _is_healthy(self, node: SimNode) -> bool:
        """An unverified replica may not vote, and is no part of a healthy majority."""
        log, process = node.log, node.process
        return (
            log is not None
            and process is not None
            and process.may_run
            and not log.engine.stopped
            and not log.engine.journal.unverified_index
            and node.is_disk_quick
            and not node.disk.has_faults
            and node.node_id in self._world.voters_of(node)
        )

    def _can_elect(self, nodes: Sequence[SimNode]) -> bool:
        """Return whether the one with the best log wins, whichever configuration it knows."""
        network = self._world.network
        if network.loss or network.delay_ms_max > DELAY_MS_MAX:
            return False
        ids = {node.node_id for node in nodes}
        for node in nodes:
            voters = self._world.voters_of(node)
            if len(ids.intersection(voters)) * 2 <= len(voters):
                return False
        pairs = combinations(ids, 2)
        return all(network.are_connected(one, other) for one, other in pairs)
