"""Excluded nodes: for ever, within a bound, and never the one that decides."""

from __future__ import annotations

from functools import reduce

import pytest

from cluster_manager import wire
from cluster_manager.domain.cluster import ClusterState, decide_exclude, evolve
from cluster_manager.domain.exclusions import ExcludeNode, Exclusions, NodeExcluded
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.inbound import EXCLUDED_NODES_MAX

LEADER = "cm-1"


def state_with(*node_ids: str) -> ClusterState:
    return reduce(evolve, map(NodeExcluded, node_ids), ClusterState())


def decided(state: ClusterState, node_id: str):
    return decide_exclude(state, ExcludeNode(node_id, LEADER))


def test_a_node_is_excluded_once_whether_it_ever_joined_or_not():
    assert decided(ClusterState(), "lost") == Accepted((NodeExcluded("lost"),))
    assert decided(state_with("lost"), "lost") == Accepted(())
    assert state_with("lost", "stolen").exclusions == Exclusions({"lost", "stolen"})


@pytest.mark.parametrize(
    ("node_id", "code"),
    [
        ("", RejectionCode.INVALID_NAME),
        ("n" * (NODE_ID_BYTES_MAX + 1), RejectionCode.INVALID_NAME),
        (LEADER, RejectionCode.NOT_ALLOWED),
    ],
)
def test_no_node_and_the_one_that_decides_are_refused(node_id: str, code: RejectionCode):
    decision = decided(ClusterState(), node_id)

    assert isinstance(decision, Rejected)
    assert decision.code is code


def test_excluded_nodes_max_are_remembered_and_one_more_is_refused():
    almost = ClusterState(
        exclusions=Exclusions(frozenset(f"n-{number}" for number in range(EXCLUDED_NODES_MAX - 1)))
    )
    full = evolve(almost, decided(almost, "last").events[0])

    refused = decided(full, "one-more")

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.LIMIT_EXCEEDED
    assert decided(full, "last") == Accepted(()), "a repeated request is a retry, also then"


def test_every_node_is_told_and_none_ever_forgets_an_exclusion():
    view = ClusterView()
    view.apply(wire.full_update(state_with("lost"), [], ["m:1"]))
    delta = wire.delta_update([NodeExcluded("stolen")])
    assert delta is not None
    view.apply(delta)
    # A deposed replica of the cluster manager knows less.
    view.apply(wire.full_update(state_with(), [], ["m:1"]))

    assert view.excluded_nodes == {"lost", "stolen"}
    again = ClusterView()
    again.apply(view.to_update())
    assert again.excluded_nodes == {"lost", "stolen"}
    event = NodeExcluded("lost")
    assert wire.event_from_proto(wire.event_to_proto(event)) == event
