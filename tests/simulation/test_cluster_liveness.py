"""The cluster's simulation judges liveness (L21): its judge can fail, and accepts legal delays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nextgen.replication.ports import Role
from tests.support.cluster_simulation.judges.liveness import LED_S_MAX, LOOK_S, Liveness
from tests.support.cluster_simulation.network import DELAY_MS_TYPICAL

NAMES = ("shard-1", "shard-2", "shard-3")


class Network:
    def __init__(self) -> None:
        self.delay_ms_max = DELAY_MS_TYPICAL
        self.slow_pairs: dict[tuple[str, str], float] = {}
        self.cuts: set[tuple[str, str]] = set()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts


class Cluster:
    """Three replicas of one group that are well and have no leader."""

    def __init__(self) -> None:
        self.loop = SimpleNamespace(now_s=1_000.0)
        self.network = Network()
        self.fabric = SimpleNamespace(loss=0.0)
        self.violations: list[str] = []
        self.nodes = {name: self._node(name) for name in NAMES}
        configuration = SimpleNamespace(voters=NAMES)
        self.logs = {
            name: SimpleNamespace(
                is_leader=False,
                engine=SimpleNamespace(
                    group_id=1, is_voter=True, role=Role.FOLLOWER, configuration=configuration
                ),
            )
            for name in NAMES
        }
        liveness: Any = self
        self.liveness = Liveness(liveness)

    @staticmethod
    def _node(name: str) -> Any:
        return SimpleNamespace(
            name=name,
            starts=1,
            machine=object(),
            process=SimpleNamespace(freezes=0),
            is_running=True,
            is_disk_sick=False,
        )

    def logs_of(self, node: Any) -> list[Any]:
        return [self.logs[node.name]]

    def violate(self, what: str) -> None:
        self.violations.append(what)

    def wait(self, seconds: float) -> None:
        end_s = self.loop.now_s + seconds
        while self.loop.now_s < end_s:
            self.liveness.look()
            self.loop.now_s += LOOK_S
        self.liveness.look()


def test_a_healthy_group_without_a_leader_is_found_behind_the_bound() -> None:
    cluster = Cluster()
    cluster.wait(LED_S_MAX)
    assert cluster.violations == []

    cluster.wait(1)

    (said,) = cluster.violations
    assert "group 1 has no leader although ['shard-1', 'shard-2', 'shard-3']" in said


def test_two_that_are_well_are_a_majority_whatever_the_third_does() -> None:
    cluster = Cluster()
    cluster.nodes["shard-3"].is_disk_sick = True
    cluster.network.cuts.add(("shard-3", "shard-1"))

    cluster.wait(LED_S_MAX + 1)

    assert len(cluster.violations) == 1


def test_no_leader_is_asked_of_two_that_do_not_reach_each_other() -> None:
    cluster = Cluster()
    cluster.nodes["shard-3"].is_running = False
    cluster.network.cuts.add(("shard-2", "shard-1"))

    cluster.wait(2 * LED_S_MAX)

    assert cluster.violations == []


def test_a_freeze_or_a_restart_begins_the_time_again() -> None:
    cluster = Cluster()
    cluster.nodes["shard-3"].is_running = False

    cluster.wait(LED_S_MAX - 1)
    cluster.nodes["shard-1"].process.freezes += 1
    cluster.wait(LED_S_MAX - 1)
    cluster.nodes["shard-2"].starts += 1
    cluster.wait(LED_S_MAX - 1)

    assert cluster.violations == []


def test_a_group_that_is_led_is_fine_and_its_time_begins_with_the_end_of_the_leader() -> None:
    cluster = Cluster()
    cluster.logs["shard-1"].is_leader = True
    cluster.wait(3 * LED_S_MAX)
    cluster.logs["shard-1"].is_leader = False

    cluster.wait(LED_S_MAX - 1)

    assert cluster.violations == []


def test_an_unverified_replica_is_not_counted() -> None:
    cluster = Cluster()
    cluster.nodes["shard-3"].is_running = False
    cluster.logs["shard-1"].engine.role = Role.NON_VOTER

    cluster.wait(2 * LED_S_MAX)

    assert cluster.violations == []
