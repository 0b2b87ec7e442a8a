"""What a process learns of leaders by itself, before the cluster manager pushes it."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.cluster.link import ClusterLink, ClusterView
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, Hello, LeaderReport
from protos.nextgen.v1.events_pb2 import NodeRegistered
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

PUSHED = LeaderReport(shard_id=1, term=3, node_id="node-1", grpc="node-1:1")


def link_of_two() -> ClusterLink:
    view = ClusterView()
    nodes = [NodeRegistered(node_id=each, grpc=f"{each}:1") for each in ("node-1", "node-2")]
    view.apply(ClusterUpdate(nodes=nodes, leaders=[PUSHED]))
    return ClusterLink(["manager:1"], Hello(), view=view)


@run_by(run_virtual)
async def test_a_learned_leader_wakes_those_who_wait_and_is_passed_to_listeners() -> None:
    link = link_of_two()
    seen: list[ClusterUpdate] = []
    link.on_change(lambda _view, update: seen.append(update))
    waiting = asyncio.create_task(link.wait_until(lambda view: view.leader_term(1) > 3))
    await asyncio.sleep(1)

    link.learn_leader(1, 4, "node-2")
    await asyncio.sleep(0.1)

    assert waiting.done()
    assert link.view.leader_endpoint(1) == "node-2:1"
    report = LeaderReport(shard_id=1, term=4, node_id="node-2", grpc="node-2:1")
    assert seen == [ClusterUpdate(leaders=[report])]


@pytest.mark.parametrize(("term", "node_id"), [(3, "node-2"), (2, "node-2"), (4, "stranger")])
@run_by(run_virtual)
async def test_an_earlier_term_or_a_node_without_address_changes_nothing(*, term, node_id) -> None:
    link = link_of_two()
    seen: list[ClusterUpdate] = []
    link.on_change(lambda _view, update: seen.append(update))

    link.learn_leader(1, term, node_id)

    assert link.view.leaders[1] == PUSHED
    assert seen == []


@run_by(run_virtual)
async def test_the_address_may_be_given_with_the_leader() -> None:
    link = link_of_two()

    link.learn_leader(1, 4, "node-3", "node-3:9")

    assert link.view.leader_endpoint(1) == "node-3:9"
