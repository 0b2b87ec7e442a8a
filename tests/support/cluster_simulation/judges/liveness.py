"""GroupsAreLed (invariant L21): a healthy majority of a group has a leader in bounded time.

It is judged during the whole run, whatever goes wrong with the other replicas meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.ports import Role
from tests.support.cluster_simulation.network import DELAY_MS_TYPICAL, pair_of
from tests.support.cluster_simulation.raft_environment import RAFT_CONFIG

if TYPE_CHECKING:
    from tests.support.cluster_simulation.simulation import ClusterSimulation, Node

LED_S_MAX = 5 * RAFT_CONFIG.election_ms_max / 1000
"""What L21 promises: five longest election timeouts."""

LOOK_S = 0.25
"""Between two looks: a fault may have begun or ended up to so long before it is seen."""

Life = tuple[str, int, int]
"""A replica's node, how often that was started and how often frozen: one life without a gap."""


@dataclass(slots=True)
class _Stretch:
    """Since when the same healthy majority of a group has been without a leader."""

    since_s: float
    lives: frozenset[Life]


class Liveness:
    """Call ``look`` at least every ``LOOK_S``; what may not be goes to the simulation."""

    def __init__(self, simulation: ClusterSimulation) -> None:
        self._simulation = simulation
        self._stretches: dict[int, _Stretch] = {}

    def look(self) -> None:
        replicas: dict[int, list[tuple[Node, PySyncObjGroup]]] = {}
        for node in self._simulation.nodes.values():
            for log in self._simulation.logs_of(node):
                replicas.setdefault(log.engine.group_id, []).append((node, log))
        for group_id, found in replicas.items():
            self._look_at(group_id, found)

    def _look_at(self, group_id: int, replicas: list[tuple[Node, PySyncObjGroup]]) -> None:
        now_s = self._simulation.loop.now_s
        well = [(node, log) for node, log in replicas if self._is_well(node, log)]
        lives = frozenset(_life_of(node) for node, _ in well)
        stretch = self._stretches.setdefault(group_id, _Stretch(now_s, lives))
        stretch.lives &= lives
        voters = {log.engine.configuration.voters for _, log in well}
        is_majority = len(voters) == 1 and len(stretch.lives) > len(*voters) // 2
        is_led = any(node.is_running and log.is_leader for node, log in replicas)
        if is_led or not is_majority or not self._reach_each_other(stretch.lives):
            self._stretches[group_id] = _Stretch(now_s, lives)
        elif now_s - stretch.since_s > LED_S_MAX + LOOK_S:
            names = sorted(name for name, _, _ in stretch.lives)
            self._simulation.violate(
                f"group {group_id} has no leader although {names} were well for "
                f"{now_s - stretch.since_s:.1f} s"
            )
            del self._stretches[group_id]

    def _is_well(self, node: Node, log: PySyncObjGroup) -> bool:
        """Return whether a replica can vote and nothing hinders it."""
        assert node.machine is not None
        return (
            node.is_running
            and not node.is_disk_sick
            and log.engine.is_voter
            and log.engine.role not in (Role.STOPPED, Role.NON_VOTER)
        )

    def _reach_each_other(self, lives: frozenset[Life]) -> bool:
        simulation = self._simulation
        network, names = simulation.network, sorted(name for name, _, _ in lives)
        if simulation.fabric.loss or network.delay_ms_max > DELAY_MS_TYPICAL:
            return False
        pairs = [(one, other) for one in names for other in names if one != other]
        return not any(
            network.is_cut(*pair) or pair_of(*pair) in network.slow_pairs for pair in pairs
        )


def _life_of(node: Node) -> Life:
    assert node.process is not None
    return node.name, node.starts, node.process.freezes
