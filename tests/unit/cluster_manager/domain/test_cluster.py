"""Decisions that touch several aggregates leave one record."""

from __future__ import annotations

from dataclasses import replace

from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import (
    CapacityGranted,
    CapacityLeased,
    CapacityLeaseReleased,
)
from cluster_manager.domain.cluster import (
    INITIAL,
    ClusterState,
    FirstMapPlan,
    decide_broker_report,
    decide_change_replicas,
    decide_members_report,
    decide_register,
    fold_events,
)
from cluster_manager.domain.membership import Node, NodeRegistered
from cluster_manager.domain.replica_changes import Change, ChangeReplicas, TakeMembers
from cluster_manager.domain.shard_map import ShardMapChanged
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode

PLAN = FirstMapPlan(initial_shard_nodes=2, shards=3, replication_factor=2)
FIRST = Node("a", "shard", "a:1", "a", 2)
SECOND = Node("b", "shard", "b:1", "b", 2)
LIVE = Broker("broker-1", "s-1", 1, True, capacity_units=10)
GIVEN_LEASES = (
    BrokerRecorded(LIVE),
    CapacityGranted("broker-1", "s-1", 10),
    CapacityLeased("broker-1", "s-1", 1, 4, 99),
    CapacityLeased("broker-1", "s-1", 2, 4, 99),
)
RELEASES = tuple(
    CapacityLeaseReleased("broker-1", "s-1", shard_id, "session_ended") for shard_id in (1, 2)
)


def test_the_node_that_completes_the_initial_ones_brings_the_map_in_the_same_record() -> None:
    state = fold_events(INITIAL, [NodeRegistered(FIRST)])

    decision = decide_register(state, SECOND, PLAN)

    assert isinstance(decision, Accepted)
    registered, changed = decision.events
    assert registered == NodeRegistered(SECOND)
    assert isinstance(changed, ShardMapChanged)
    assert changed.shard_map.shard_ids == (1, 2, 3)


def test_a_known_node_that_comes_back_changes_nothing() -> None:
    decision = decide_register(INITIAL, FIRST, PLAN)
    assert decision == Accepted((NodeRegistered(FIRST),))
    state = fold_events(INITIAL, [NodeRegistered(FIRST)])

    assert decide_register(state, FIRST, PLAN) == Accepted(())


def test_more_nodes_than_planned_do_not_change_the_map() -> None:
    state = fold_events(INITIAL, [NodeRegistered(FIRST)])
    second = decide_register(state, SECOND, PLAN)
    assert isinstance(second, Accepted)
    third = Node("c", "shard", "c:1", "c", 2)

    decision = decide_register(fold_events(state, second.events), third, PLAN)

    assert decision == Accepted((NodeRegistered(third),))


def test_a_node_that_cannot_be_a_member_is_refused() -> None:
    decision = decide_register(INITIAL, replace(FIRST, raft_host=""), PLAN)

    assert isinstance(decision, Rejected)


def test_a_map_that_cannot_be_made_does_not_keep_the_node_out() -> None:
    plan = FirstMapPlan(initial_shard_nodes=1, shards=3, replication_factor=2)

    assert decide_register(INITIAL, FIRST, plan) == Accepted((NodeRegistered(FIRST),))


def test_the_end_of_a_session_frees_its_leases_in_the_same_record() -> None:
    ended = replace(LIVE, is_live=False)

    decision = decide_broker_report(fold_events(INITIAL, GIVEN_LEASES), ended)

    assert decision == Accepted((*RELEASES, BrokerRecorded(ended)))


def test_a_successor_frees_the_leases_of_the_session_it_replaces() -> None:
    successor = replace(LIVE, session_id="s-2", epoch=2)
    state = fold_events(INITIAL, GIVEN_LEASES)

    decision = decide_broker_report(state, successor)

    assert decision == Accepted((*RELEASES, BrokerRecorded(successor)))
    assert isinstance(decision, Accepted)
    account = fold_events(state, decision.events).ledger.accounts["broker-1"]
    assert (account.session_id, account.granted_units, account.leases) == ("s-2", 0, {})


def test_another_address_of_a_living_session_keeps_its_leases() -> None:
    moved = replace(LIVE, grpc="elsewhere:1")

    decision = decide_broker_report(fold_events(INITIAL, GIVEN_LEASES), moved)

    assert decision == Accepted((BrokerRecorded(moved),))


def test_a_stale_report_is_refused_and_a_repeated_one_changes_nothing() -> None:
    state = fold_events(INITIAL, GIVEN_LEASES)

    assert decide_broker_report(state, LIVE) == Accepted(())
    stale = decide_broker_report(state, replace(LIVE, session_id="s-0"))
    assert isinstance(stale, Rejected)
    assert stale.code is RejectionCode.STALE_EPOCH


def _mapped() -> ClusterState:
    """Return a cluster of two shard nodes with a map, and one node that came later."""
    state = INITIAL
    for node in (FIRST, SECOND, Node("c", "shard", "c:1", "c", 2), Node("d", "discovery", "d:1")):
        decision = decide_register(state, node, PLAN)
        assert isinstance(decision, Accepted)
        state = fold_events(state, decision.events)
    return state


def _wish(node_id: str, change: Change = Change.ADD) -> ChangeReplicas:
    return ChangeReplicas(1, node_id, change, frozenset("abc"))


def test_only_a_shard_node_that_has_joined_gets_a_replica() -> None:
    state = _mapped()

    stranger, discovery = (decide_change_replicas(state, _wish(node)) for node in ("x", "d"))

    assert isinstance(stranger, Rejected)
    assert stranger.code is RejectionCode.NOT_FOUND
    assert isinstance(discovery, Rejected)
    assert discovery.code is RejectionCode.NOT_ALLOWED
    assert "discovery" in discovery.message


def test_a_wish_and_the_report_behind_it_change_the_map() -> None:
    state = _mapped()
    for command in (_wish("c"), _wish("a", Change.REMOVE)):
        decision = decide_change_replicas(state, command)
        assert isinstance(decision, Accepted)
        state = fold_events(state, decision.events)

    report = decide_members_report(state, TakeMembers(1, 9, ("b", "c"), ()))

    assert isinstance(report, Accepted)
    shard_map = fold_events(state, report.events).shard_map
    assert shard_map is not None
    assert shard_map.version == 4
    assert shard_map.placement(1) is not None
    assert set(shard_map.placement(1).named) == {"b", "c"}


def test_a_report_that_names_no_shard_node_is_refused() -> None:
    for stranger in ("x", "d"):
        decision = decide_members_report(_mapped(), TakeMembers(1, 9, ("a", "b"), (stranger,)))

        assert isinstance(decision, Rejected)
        assert stranger in decision.message
