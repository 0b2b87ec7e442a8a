"""``ChangeReplicas`` and ``MembersReport``: committed before they are answered, pushed to all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster_manager.domain.leader_spread import STABLE_MS
from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.spreader import LOOK_PAUSE_MS
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    NotLeader,
    ProposalLost,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from tests.unit.cluster_manager.fakes import (
    ENDPOINTS,
    ManagerUnderTest,
    balance,
    hello,
    leader,
    settle,
    taken,
)

ADD = cluster_pb.ChangeReplicasRequest.CHANGE_ADD
REMOVE = cluster_pb.ChangeReplicasRequest.CHANGE_REMOVE
CANCEL = cluster_pb.ChangeReplicasRequest.CHANGE_CANCEL


def wish(
    change: cluster_pb.ChangeReplicasRequest.Change, node_id: str, shard_id: int = 1
) -> cluster_pb.ChangeReplicasRequest:
    return cluster_pb.ChangeReplicasRequest(shard_id=shard_id, node_id=node_id, change=change)


def members(
    index: int, *voters: str, learners: tuple[str, ...] = (), shard_id: int = 1
) -> cluster_pb.NodeMessage:
    report = cluster_pb.MembersReport(
        shard_id=shard_id, term=1, configuration_index=index, voters=voters, learners=learners
    )
    return cluster_pb.NodeMessage(members=report)


class Cluster:
    """A manager with two shard nodes that have all replicas, and a third that has none."""

    def __init__(self, under_test: ManagerUnderTest) -> None:
        self.under_test = under_test
        self.manager = under_test.manager
        self.nodes: dict[str, NodeConnection] = {}

    async def form(self) -> None:
        for node_id in ("a", "b", "c"):
            self.nodes[node_id] = await self.manager.join(hello(node_id))
        await settle()

    def led(self) -> None:
        for shard_id in (1, 2):
            self.manager.receive(self.nodes["a"], leader(shard_id, 1, "a"))

    async def refusal(self, request: cluster_pb.ChangeReplicasRequest) -> MetadataError:
        with pytest.raises(MetadataError) as caught:
            await self.manager.change_replicas(request)
        return caught.value


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    under_test = ManagerUnderTest(tmp_path)
    formed = Cluster(under_test)
    await formed.form()
    await balance(formed.manager, on=False)
    yield formed
    under_test.manager.stop()
    await under_test.log.stop()


async def test_a_wish_is_answered_when_it_is_committed_and_pushed_to_every_node(
    cluster: Cluster,
) -> None:
    cluster.led()
    await settle()
    for connection in cluster.nodes.values():
        await taken(connection)
    cluster.under_test.log.hold_commits()

    asked = asyncio.ensure_future(cluster.manager.change_replicas(wish(ADD, "c")))
    await settle()
    assert not asked.done()
    cluster.under_test.log.release_commits()
    answer = await asked

    assert answer.shard_map_version == 3
    assert list(answer.placement.joining) == ["c"]
    for connection in cluster.nodes.values():
        (update,) = await taken(connection)
        assert update.shard_map.version == 3
        assert list(update.shard_map.shards[0].joining) == ["c"]


async def test_a_wish_that_is_under_way_is_answered_with_what_is_under_way(
    cluster: Cluster,
) -> None:
    cluster.led()
    first = await cluster.manager.change_replicas(wish(ADD, "c"))

    assert await cluster.manager.change_replicas(wish(ADD, "c")) == first


async def asked_behind_another(
    cluster: Cluster, *wishes: cluster_pb.ChangeReplicasRequest
) -> list[asyncio.Future[cluster_pb.ChangeReplicasResponse]]:
    """Request one after the other; nothing is committed, and no request is answered."""
    cluster.led()
    cluster.under_test.log.hold_commits()
    asked = []
    for one in wishes:
        asked.append(asyncio.ensure_future(cluster.manager.change_replicas(one)))
        await settle()
    assert not any(each.done() for each in asked)
    return asked


async def test_a_repeated_wish_is_not_answered_before_the_first_is_committed(
    cluster: Cluster,
) -> None:
    first, second = await asked_behind_another(cluster, wish(ADD, "c"), wish(ADD, "c"))

    cluster.under_test.log.release_commits()

    assert await first == await second


async def test_a_wish_that_another_one_stands_against_is_refused_once_that_is_committed(
    cluster: Cluster,
) -> None:
    first, second = await asked_behind_another(cluster, wish(REMOVE, "a"), wish(REMOVE, "b"))

    cluster.under_test.log.lose_leadership()

    for asking in (first, second):
        with pytest.raises((NotLeader, ProposalLost)):
            await asking


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (wish(ADD, "c", shard_id=9), RejectionCode.NOT_FOUND),
        (wish(ADD, "x"), RejectionCode.NOT_FOUND),
        (wish(ADD, "a"), RejectionCode.ALREADY_EXISTS),
        (wish(REMOVE, "c"), RejectionCode.NOT_FOUND),
        (wish(CANCEL, "c"), RejectionCode.NOT_FOUND),
    ],
)
async def test_a_wish_that_cannot_be_is_refused_with_its_reason(
    cluster: Cluster, request_: cluster_pb.ChangeReplicasRequest, code: RejectionCode
) -> None:
    cluster.led()

    refusal = await cluster.refusal(request_)

    assert isinstance(refusal, Refused)
    assert refusal.code is code


async def test_a_wish_that_would_be_undone_is_refused_while_replicas_are_placed_by_themselves(
    cluster: Cluster,
) -> None:
    cluster.led()
    await cluster.manager.change_replicas(wish(ADD, "c"))
    await balance(cluster.manager, on=True)

    refusal = await cluster.refusal(wish(REMOVE, "a"))

    assert isinstance(refusal, Refused)
    assert "settings set shardReplicasBalanceEnabled=false" in str(refusal)
    cancelled = await cluster.manager.change_replicas(wish(CANCEL, "c"))
    assert list(cancelled.placement.leaving) == ["c"]


async def test_a_kind_of_change_that_is_not_known_is_an_invalid_request(cluster: Cluster) -> None:
    unspecified = cluster_pb.ChangeReplicasRequest.CHANGE_UNSPECIFIED

    assert isinstance(await cluster.refusal(wish(unspecified, "c")), InvalidRequest)


async def test_a_removal_counts_who_is_connected(cluster: Cluster) -> None:
    cluster.led()
    cluster.manager.leave(cluster.nodes["b"])

    refusal = await cluster.refusal(wish(REMOVE, "a"))

    assert isinstance(refusal, Refused)
    assert "b is not there" in str(refusal)
    answer = await cluster.manager.change_replicas(wish(REMOVE, "b"))
    assert list(answer.placement.leaving) == ["b"]


async def test_the_first_map_stays_until_every_shard_has_been_led(cluster: Cluster) -> None:
    """A node without data knows by the version whether it may have voted before."""
    cluster.manager.receive(cluster.nodes["a"], leader(1, 1, "a"))

    refusal = await cluster.refusal(wish(ADD, "c"))

    assert isinstance(refusal, Unavailable)
    assert "shard 2" in str(refusal)
    cluster.led()
    assert (await cluster.manager.change_replicas(wish(ADD, "c"))).shard_map_version == 3


async def test_a_replica_that_does_not_lead_sends_the_asker_to_the_leader(
    cluster: Cluster,
) -> None:
    cluster.under_test.log.lose_leadership(NodeId("cm-2"))

    refusal = await cluster.refusal(wish(ADD, "c"))

    assert isinstance(refusal, NotLeader)
    assert refusal.leader_hint == ENDPOINTS["cm-2"]


async def test_leadership_that_is_lost_on_the_way_says_so(cluster: Cluster) -> None:
    cluster.led()
    cluster.under_test.log.hold_commits()
    asked = asyncio.ensure_future(cluster.manager.change_replicas(wish(ADD, "c")))
    await settle()

    cluster.under_test.log.lose_leadership(NodeId("cm-2"))

    with pytest.raises(MetadataError):
        await asked


async def test_a_report_makes_the_wish_a_fact_and_is_pushed(cluster: Cluster) -> None:
    cluster.led()
    await cluster.manager.change_replicas(wish(ADD, "c"))
    await taken(cluster.nodes["b"])

    cluster.manager.receive(cluster.nodes["a"], members(5, "a", "b", learners=("c",)))
    await settle()
    assert await taken(cluster.nodes["b"]) == []
    cluster.manager.receive(cluster.nodes["a"], members(6, "a", "b", "c"))
    await settle()

    (update,) = await taken(cluster.nodes["b"])
    placement = update.shard_map.shards[0]
    assert set(placement.replicas) == {"a", "b", "c"}
    assert not placement.joining
    assert placement.configuration_index == 6


@pytest.mark.parametrize(
    "report",
    [members(5, "a", "b", shard_id=9), members(5, "a", "x"), members(5)],
    ids=["no such shard", "a stranger", "nobody"],
)
async def test_a_report_that_cannot_be_changes_nothing_and_ends_no_stream(
    cluster: Cluster, report: cluster_pb.NodeMessage
) -> None:
    position = cluster.under_test.log.status.commit_position

    cluster.manager.receive(cluster.nodes["a"], report)
    await settle()

    assert cluster.under_test.log.status.commit_position == position
    assert not cluster.nodes["a"].has_ended


async def test_only_shard_nodes_report_members(cluster: Cluster) -> None:
    discovery = await cluster.manager.join(hello("d", "discovery"))

    with pytest.raises(InvalidRequest, match="cannot report"):
        cluster.manager.receive(discovery, members(5, "a", "b"))


async def test_leaders_are_spread_anew_when_the_map_changes(cluster: Cluster) -> None:
    """A leader that is to be removed is asked to hand over, without anything else happening."""
    for shard_id, node_id in ((1, "a"), (2, "b")):
        cluster.manager.receive(cluster.nodes[node_id], leader(shard_id, 1, node_id))
    cluster.under_test.clock.advance(STABLE_MS)
    assert not [update for update in await taken(cluster.nodes["a"]) if update.transfers]

    await cluster.manager.change_replicas(wish(REMOVE, "a"))
    cluster.under_test.clock.advance(LOOK_PAUSE_MS)

    transfers = [
        (transfer.shard_id, transfer.target)
        for update in await taken(cluster.nodes["a"])
        for transfer in update.transfers
    ]
    assert transfers == [(1, "b")]
