"""Replicas are placed by themselves: what the leader does as nodes come, go and are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster_manager.service.connection import NodeConnection
from nextgen.kernel.errors import InvalidRequest, MetadataError, NotLeader, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.service_settings import NODE_LOST_AFTER, REPLICAS_BALANCE
from nextgen.kernel.limits.cluster import JOIN_SILENCE_MS
from nextgen.kernel.limits.placement import (
    NODE_LOST_SECONDS,
    NODES_SETTLE_MS,
    PLACEMENT_PAUSE_MS,
    REPLICA_CHANGES_MAX,
    REPLICA_TRANSFERS_MAX,
    REPLICA_TRANSFERS_PER_NODE_MAX,
)
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from tests.unit.cluster_manager.fakes import (
    ManagerUnderTest,
    heartbeat,
    hello,
    leader,
    settle,
)

SHARDS = 4
SHARDS_OF_MANY = 12
LOST_MS = 1_000 * NODE_LOST_SECONDS


class Cluster:
    """Four shards of three replicas on nodes a, b and c, whose leaders do what the map asks for."""

    def __init__(self, under_test: ManagerUnderTest) -> None:
        self.under_test = under_test
        self.manager = under_test.manager
        self.nodes: dict[str, NodeConnection] = {}
        self.configuration = 0

    async def join(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self.nodes[node_id] = await self.manager.join(hello(node_id))
        await settle()

    def leave(self, node_id: str) -> None:
        self.manager.leave(self.nodes.pop(node_id))

    async def led(self) -> None:
        for placement in self.placements:
            node_id = placement.replicas[0]
            self.manager.receive(self.nodes[node_id], leader(placement.shard_id, 1, node_id))
        await settle()

    async def override(self, **settings: object) -> None:
        """Set overrides of settings, all of them."""
        self.configuration += 1
        changed = events_pb.ConfigurationSet(
            version=self.configuration,
            settings=[
                events_pb.Setting(name=name, value=str(value).lower())
                for name, value in settings.items()
            ],
        )
        request = cluster_pb.SetConfigurationRequest(configuration=changed)
        await self.manager.set_configuration(request)

    async def set_state(self, node_id: str, state: str) -> cluster_pb.ShardNode:
        request = cluster_pb.SetNodeStateRequest(node_id=node_id, state=state)
        return (await self.manager.set_node_state(request)).node

    @property
    def placements(self):
        term = self.manager.leader_term
        assert term is not None
        return term.committed.shard_map.placements

    def load(self) -> dict[str, int]:
        nodes = {node for each in self.placements for node in each.replicas}
        return {
            node: sum(node in each.replicas for each in self.placements) for node in sorted(nodes)
        }

    async def wait(self, ms: int, *, obey: bool = False) -> None:
        """Let time pass; the connected nodes are heard. With ``obey`` shards do what is asked."""
        for _ in range(ms // PLACEMENT_PAUSE_MS):
            for connection in self.nodes.values():
                self.manager.receive(connection, heartbeat(1))
            self.under_test.clock.advance(PLACEMENT_PAUSE_MS)
            await settle()
            if obey:
                await self.obey()

    async def obey(self) -> None:
        for placement in self.placements:
            joining = [node for node in placement.joining if node in self.nodes]
            if not joining and not placement.leaving:
                continue
            voters = [*placement.replicas, *joining]
            report = cluster_pb.MembersReport(
                shard_id=placement.shard_id,
                term=1,
                configuration_index=placement.configuration_index + 1,
                voters=[node for node in voters if node not in placement.leaving],
            )
            speaker = self.nodes[next(iter(self.nodes))]
            self.manager.receive(speaker, cluster_pb.NodeMessage(members=report))
        await settle()

    def under_way(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        return [
            (each.joining, each.leaving) for each in self.placements if each.joining or each.leaving
        ]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    under_test = ManagerUnderTest(
        tmp_path, initial_shard_nodes=3, shards=SHARDS, replication_factor=3
    )
    formed = Cluster(under_test)
    await formed.join("a", "b", "c")
    await formed.led()
    yield formed
    under_test.manager.stop()
    await under_test.log.stop()


async def test_a_new_node_gets_its_share_when_nodes_have_settled(cluster: Cluster) -> None:
    await cluster.wait(NODES_SETTLE_MS + PLACEMENT_PAUSE_MS)
    await cluster.join("d")

    await cluster.wait(NODES_SETTLE_MS - PLACEMENT_PAUSE_MS)
    assert cluster.under_way() == []
    await cluster.wait(60_000, obey=True)

    assert cluster.load() == {"a": 3, "b": 3, "c": 3, "d": 3}
    assert cluster.under_way() == []


async def test_no_more_transfers_run_at_a_time_than_are_allowed(cluster: Cluster) -> None:
    await cluster.join("d", "e", "f")

    await cluster.wait(NODES_SETTLE_MS + 5 * PLACEMENT_PAUSE_MS)

    joining = [node for nodes, _ in cluster.under_way() for node in nodes]
    assert 0 < len(joining) <= REPLICA_TRANSFERS_MAX
    assert all(joining.count(node) <= REPLICA_TRANSFERS_PER_NODE_MAX for node in joining)


async def test_a_node_that_is_silent_for_too_long_is_lost_and_replaced(cluster: Cluster) -> None:
    await cluster.join("d")
    await cluster.wait(60_000, obey=True)
    cluster.leave("b")

    await cluster.wait(LOST_MS - PLACEMENT_PAUSE_MS)
    assert cluster.under_way() == []
    assert node_of(await cluster.manager.replica_plan(), "b").state == "active"
    await cluster.wait(60_000, obey=True)

    lost = node_of(await cluster.manager.replica_plan(), "b")
    assert (lost.state, lost.replicas, lost.is_connected) == ("lost", 0, False)
    assert cluster.load() == {"a": 4, "c": 4, "d": 4}


async def test_a_lost_node_that_comes_back_is_active_and_keeps_what_was_not_replaced(
    cluster: Cluster,
) -> None:
    await cluster.join("d")
    await cluster.wait(60_000, obey=True)
    cluster.leave("b")
    await cluster.wait(LOST_MS + PLACEMENT_PAUSE_MS)
    assert cluster.under_way() != []

    await cluster.join("b")
    await cluster.wait(60_000, obey=True)

    plan = await cluster.manager.replica_plan()
    assert node_of(plan, "b").state == "active"
    assert node_of(plan, "b").since_ms > 0
    assert list(plan.moves) == []
    assert cluster.load() == {"a": 3, "b": 3, "c": 3, "d": 3}


async def test_a_node_that_reconnects_in_time_has_the_whole_time_again(cluster: Cluster) -> None:
    await cluster.override(**{NODE_LOST_AFTER: 20})
    for _ in range(3):
        cluster.leave("b")
        await cluster.wait(15_000)
        await cluster.join("b")
        await cluster.wait(2_000)

    assert node_of(await cluster.manager.replica_plan(), "b").state == "active"


async def test_nobody_is_lost_while_most_nodes_are_silent_or_the_setting_says_never(
    cluster: Cluster,
) -> None:
    cluster.leave("b")
    cluster.leave("c")
    await cluster.wait(LOST_MS + 10_000)
    assert states(await cluster.manager.replica_plan()) == {"active"}

    await cluster.override(**{NODE_LOST_AFTER: 0})
    await cluster.join("c")
    await cluster.wait(10_000)
    assert states(await cluster.manager.replica_plan()) == {"active"}

    await cluster.override()
    await cluster.wait(10_000)
    assert node_of(await cluster.manager.replica_plan(), "b").state == "lost"


async def test_a_drained_node_gives_up_everything_and_takes_it_back_when_that_is_undone(
    cluster: Cluster,
) -> None:
    await cluster.join("d")
    await cluster.wait(60_000, obey=True)

    drained = await cluster.set_state("a", "leaving")
    assert (drained.state, drained.replicas) == ("leaving", 3)
    await cluster.wait(60_000, obey=True)
    assert cluster.load() == {"b": 4, "c": 4, "d": 4}
    assert (await cluster.set_state("a", "active")).state == "active"
    await cluster.wait(60_000, obey=True)

    assert cluster.load() == {"a": 3, "b": 3, "c": 3, "d": 3}


@pytest.mark.parametrize(
    ("node_id", "state", "code"),
    [
        ("nobody", "leaving", RejectionCode.NOT_FOUND),
        ("discovery", "removed", RejectionCode.NOT_ALLOWED),
    ],
)
async def test_a_state_that_cannot_be_is_refused_with_its_reason(
    cluster: Cluster, node_id: str, state: str, code: RejectionCode
) -> None:
    await cluster.manager.join(hello("discovery", "discovery"))

    with pytest.raises(Refused) as refused:
        await cluster.set_state(node_id, state)

    assert refused.value.code is code


async def test_as_many_nodes_stay_as_each_shard_has_replicas(cluster: Cluster) -> None:
    await cluster.join("d")
    await cluster.set_state("a", "leaving")

    with pytest.raises(Refused, match="only 2 active shard nodes are connected"):
        await cluster.set_state("b", "removed")


@pytest.mark.parametrize("state", ["lost", "", "gone"])
async def test_an_operator_sets_no_other_state(cluster: Cluster, state: str) -> None:
    with pytest.raises(InvalidRequest, match="is no state to set"):
        await cluster.set_state("a", state)


async def test_an_older_replica_refuses_states_and_nothing_else(cluster: Cluster) -> None:
    cluster.under_test.log.event_levels[NodeId("cm-2")] = 10
    await cluster.join("d")
    with pytest.raises(Refused, match="cm-2 is not known to know node_state_set"):
        await cluster.set_state("a", "leaving")

    await cluster.wait(60_000, obey=True)

    assert cluster.load() == {"a": 3, "b": 3, "c": 3, "d": 3}


async def test_nothing_moves_while_the_setting_is_off_until_it_is_requested(
    cluster: Cluster,
) -> None:
    await cluster.override(**{REPLICAS_BALANCE: False})
    await cluster.join("d")
    await cluster.wait(30_000)

    plan = await cluster.manager.replica_plan()
    assert cluster.under_way() == []
    assert (plan.is_on, plan.is_requested, len(plan.moves)) == (False, False, 3)
    assert plan.waits_for == "the setting is off"
    assert {move.target for move in plan.moves} == {"d"}

    begun = await cluster.manager.balance_replicas(cluster_pb.BalanceReplicasRequest())
    assert (begun.is_requested, begun.waits_for) == (True, "")
    await cluster.wait(60_000, obey=True)

    done = await cluster.manager.replica_plan()
    assert (done.is_requested, list(done.moves), list(done.under_way)) == (False, [], [])
    assert cluster.load() == {"a": 3, "b": 3, "c": 3, "d": 3}


async def test_a_requested_run_can_be_stopped(cluster: Cluster) -> None:
    await cluster.override(**{REPLICAS_BALANCE: False})
    await cluster.join("d")
    await cluster.wait(NODES_SETTLE_MS)
    await cluster.manager.balance_replicas(cluster_pb.BalanceReplicasRequest())
    await cluster.wait(2_000)
    begun = cluster.under_way()
    assert begun != []

    stopped = await cluster.manager.balance_replicas(cluster_pb.BalanceReplicasRequest(stop=True))
    await cluster.wait(60_000, obey=True)

    assert stopped.is_requested is False
    assert cluster.load()["d"] == len(begun)


async def test_nothing_moves_before_every_shard_of_the_first_map_was_led(tmp_path: Path) -> None:
    under_test = ManagerUnderTest(
        tmp_path, initial_shard_nodes=3, shards=SHARDS, replication_factor=3
    )
    cluster = Cluster(under_test)
    await cluster.join("a", "b", "c", "d")

    await cluster.wait(60_000)

    plan = await cluster.manager.replica_plan()
    assert cluster.under_way() == []
    assert list(plan.moves) == []
    await cluster.led()
    await cluster.wait(60_000, obey=True)
    assert cluster.load()["d"] == 3
    under_test.manager.stop()
    await under_test.log.stop()


async def test_a_plan_begins_a_bounded_number_of_changes(tmp_path: Path) -> None:
    """Each shard got one replica too many while the setting was off."""
    under_test = ManagerUnderTest(
        tmp_path, initial_shard_nodes=3, shards=SHARDS_OF_MANY, replication_factor=3
    )
    cluster = Cluster(under_test)
    await cluster.join("a", "b", "c")
    await cluster.led()
    await cluster.override(**{REPLICAS_BALANCE: False})
    await cluster.join("d")
    for shard_id in range(1, SHARDS_OF_MANY + 1):
        wish = cluster_pb.ChangeReplicasRequest(
            shard_id=shard_id,
            node_id="d",
            change=cluster_pb.ChangeReplicasRequest.CHANGE_ADD,
        )
        await cluster.manager.change_replicas(wish)
    await cluster.obey()
    assert cluster.load() == {"a": 12, "b": 12, "c": 12, "d": 12}

    await cluster.override()
    await cluster.wait(PLACEMENT_PAUSE_MS)

    assert len(cluster.under_way()) == REPLICA_CHANGES_MAX
    await cluster.wait(60_000, obey=True)
    assert cluster.load() == {"a": 9, "b": 9, "c": 9, "d": 9}
    under_test.manager.stop()
    await under_test.log.stop()


async def test_a_plan_says_what_it_waits_for(cluster: Cluster) -> None:
    await cluster.join("d")
    await cluster.wait(PLACEMENT_PAUSE_MS)
    assert "a moment ago" in (await cluster.manager.replica_plan()).waits_for

    await cluster.wait(NODES_SETTLE_MS)
    assert "under way" in (await cluster.manager.replica_plan()).waits_for

    for node_id in ("a", "b"):
        cluster.leave(node_id)
    await cluster.wait(JOIN_SILENCE_MS)
    assert "lacks a majority" in (await cluster.manager.replica_plan()).waits_for


async def test_zones_of_nodes_are_respected_from_the_first_map_on(tmp_path: Path) -> None:
    under_test = ManagerUnderTest(tmp_path, initial_shard_nodes=4, shards=8)
    for node_id, zone in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")):
        said = hello(node_id)
        said.zone = zone
        await under_test.manager.join(said)
    await settle()

    term = under_test.manager.leader_term
    assert term is not None
    assert term.committed.shard_map is not None
    zone_of = {"a": "x", "b": "x", "c": "y", "d": "y"}
    for placement in term.committed.shard_map.placements:
        assert {zone_of[node] for node in placement.replicas} == {"x", "y"}
    plan = await under_test.manager.replica_plan()
    assert [node.zone for node in plan.nodes] == ["x", "x", "y", "y"]
    under_test.manager.stop()
    await under_test.log.stop()


async def test_a_replica_that_does_not_lead_sends_the_asker_to_the_leader(
    cluster: Cluster,
) -> None:
    cluster.under_test.log.lose_leadership(NodeId("cm-2"))

    for ask in (
        cluster.manager.replica_plan(),
        cluster.set_state("a", "leaving"),
        cluster.manager.balance_replicas(cluster_pb.BalanceReplicasRequest()),
    ):
        with pytest.raises(MetadataError) as refusal:
            await ask
        assert isinstance(refusal.value, NotLeader)


def node_of(plan: cluster_pb.ReplicaPlan, node_id: str) -> cluster_pb.ShardNode:
    return next(node for node in plan.nodes if node.node_id == node_id)


def states(plan: cluster_pb.ReplicaPlan) -> set[str]:
    return {node.state for node in plan.nodes}
