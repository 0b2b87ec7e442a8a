"""Membership: who may be a member, and the four properties of an aggregate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.domain.membership import (
    INITIAL,
    Membership,
    Node,
    NodeRegistered,
    NodeState,
    NodeStateSet,
    RegisterNode,
    SetNodeState,
    decide,
    decide_state,
    evolve,
)
from cluster_manager.projections import tables
from cluster_manager.projections.fold import fold_event
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import ADDRESS_BYTES_MAX, CLUSTER_NODES_MAX

SHARD_NODE = Node("shard-node-1", "shard", "127.0.0.1:5001", "127.0.0.1", 5002, "127.0.0.1:5003")
DISCOVERY = Node("discovery-1", "discovery", "127.0.0.1:6001")

nodes = st.builds(
    Node,
    node_id=st.sampled_from(["", "a", "b", "c"]),
    kind=st.sampled_from(["shard", "discovery", "broker", "nonsense"]),
    grpc=st.sampled_from(["h:1", "h:2"]),
    raft_host=st.sampled_from(["", "h"]),
    raft_port=st.sampled_from([0, 1, 70_000]),
)
states = st.builds(
    SetNodeState,
    node_id=st.sampled_from(["a", "b", "c", "d"]),
    state=st.sampled_from(NodeState),
    at_ms=st.integers(1, 5),
    connected=st.frozensets(st.sampled_from(["a", "b", "c"])),
    active_needed=st.integers(0, 2),
)
commands = st.one_of(st.builds(RegisterNode, nodes), states)
Command = RegisterNode | SetNodeState
NODES = [Node(node_id, "shard", "h:1", "h", 1) for node_id in "abcd"]
FOUR = Membership({node.node_id: node for node in NODES})


def _decide(
    state: Membership, command: Command
) -> Accepted[NodeRegistered] | Accepted[NodeStateSet] | Rejected:
    if isinstance(command, RegisterNode):
        return decide(state, command)
    return decide_state(state, command)


def _apply(state: Membership, command: Command) -> Membership:
    decision = _decide(state, command)
    return fold(evolve, state, decision.events) if isinstance(decision, Accepted) else state


def set_state(
    node_id: str, state: NodeState, *, connected: str = "abcd", needed: int = 3
) -> SetNodeState:
    return SetNodeState(node_id, state, 7, frozenset(connected), needed)


def test_a_node_that_says_hello_for_the_first_time_is_registered() -> None:
    assert decide(INITIAL, RegisterNode(SHARD_NODE)) == Accepted((NodeRegistered(SHARD_NODE),))


def test_a_node_that_comes_back_with_another_address_is_registered_anew() -> None:
    moved = Node("discovery-1", "discovery", "127.0.0.1:6002")

    state = fold(evolve, INITIAL, [NodeRegistered(DISCOVERY), NodeRegistered(moved)])

    assert state == Membership({"discovery-1": moved})


@pytest.mark.parametrize(
    "node",
    [
        Node("", "shard", "h:1", "h", 1),
        Node("x", "broker", "h:1"),
        Node("x", "", "h:1"),
        Node("x", "shard", "h:1"),
        Node("x", "shard", "h:1", "h", 0),
        Node("x", "shard", "h:1", "", 1),
        Node("x", "shard", "h:1", "h", 65_536),
    ],
)
def test_what_is_no_member_is_refused(node: Node) -> None:
    decision = decide(INITIAL, RegisterNode(node))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_ALLOWED


def test_a_node_keeps_its_kind_for_ever() -> None:
    state = fold(evolve, INITIAL, [NodeRegistered(SHARD_NODE)])

    decision = decide(state, RegisterNode(Node("shard-node-1", "discovery", "h:1")))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_ALLOWED


def test_the_number_of_nodes_has_a_limit_that_known_nodes_do_not_meet() -> None:
    full = Membership(
        {f"d-{n}": Node(f"d-{n}", "discovery", "h:1") for n in range(CLUSTER_NODES_MAX - 1)}
    )
    last = Node("last", "discovery", "h:1")
    assert decide(full, RegisterNode(last)) == Accepted((NodeRegistered(last),))

    over = evolve(full, NodeRegistered(last))

    beyond = decide(over, RegisterNode(Node("one-more", "discovery", "h:1")))
    assert isinstance(beyond, Rejected)
    assert beyond.code is RejectionCode.LIMIT_EXCEEDED
    moved = Node("last", "discovery", "h:2")
    assert decide(over, RegisterNode(moved)) == Accepted((NodeRegistered(moved),))


@pytest.mark.parametrize("state", [NodeState.LEAVING, NodeState.REMOVED])
def test_a_node_gives_up_its_replicas_if_enough_others_are_there(state: NodeState) -> None:
    assert decide_state(FOUR, set_state("a", state)) == Accepted((NodeStateSet("a", state, 7),))

    refused = decide_state(FOUR, set_state("a", state, connected="abc"))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NOT_ALLOWED
    assert "only 2 active shard nodes are connected, and each shard needs 3" in refused.message


def test_not_all_nodes_can_be_drained() -> None:
    state, refused = FOUR, []
    for node in NODES:
        decision = decide_state(state, set_state(node.node_id, NodeState.LEAVING, needed=2))
        if isinstance(decision, Rejected):
            refused.append(node.node_id)
        else:
            state = fold(evolve, state, decision.events)

    assert refused == ["c", "d"]
    assert state.active_shard_nodes() == ("c", "d")


def test_a_lost_node_is_lost_however_many_are_left() -> None:
    lost = set_state("a", NodeState.LOST, connected="b")
    state = _apply(FOUR, lost)

    assert state.state_of("a") is NodeState.LOST
    removed = decide_state(state, set_state("a", NodeState.REMOVED, connected="b"))
    assert removed == Accepted((NodeStateSet("a", NodeState.REMOVED, 7),))
    back = _apply(state, set_state("a", NodeState.ACTIVE, connected="b"))
    assert back.active_shard_nodes() == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("node_id", "code"),
    [("nobody", RejectionCode.NOT_FOUND), ("discovery-1", RejectionCode.NOT_ALLOWED)],
)
def test_only_shard_nodes_have_states(node_id: str, code: RejectionCode) -> None:
    state = evolve(FOUR, NodeRegistered(DISCOVERY))

    refused = decide_state(state, set_state(node_id, NodeState.LEAVING))

    assert isinstance(refused, Rejected)
    assert refused.code is code


@given(history=st.lists(commands, max_size=12), command=commands)
def test_retry(history: list[Command], command: Command) -> None:
    state = INITIAL
    for earlier in history:
        state = _apply(state, earlier)

    if isinstance(_decide(state, command), Accepted):
        assert _decide(_apply(state, command), command) == Accepted(())


@given(history=st.lists(commands, max_size=12), cut=st.integers(0, 12))
def test_replay(history: list[Command], cut: int) -> None:
    state, events = INITIAL, []
    for command in history:
        decision = _decide(state, command)
        if isinstance(decision, Accepted):
            events.extend(decision.events)
        state = _apply(state, command)

    assert fold(evolve, fold(evolve, INITIAL, events[:cut]), events[cut:]) == state


@pytest.mark.parametrize("field", ["grpc", "raft_host", "http", "zone"])
def test_an_address_has_a_limit(field: str) -> None:
    at_limit = replace(SHARD_NODE, **{field: "h" * ADDRESS_BYTES_MAX})
    beyond = replace(SHARD_NODE, **{field: "h" * (ADDRESS_BYTES_MAX + 1)})

    assert decide(INITIAL, RegisterNode(at_limit)) == Accepted((NodeRegistered(at_limit),))
    refused = decide(INITIAL, RegisterNode(beyond))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.LIMIT_EXCEEDED


@given(history=st.lists(commands, max_size=12))
@settings(max_examples=40)
def test_snapshot(history: list[Command]) -> None:
    state, engine = INITIAL, sql.create_engine("sqlite://")
    with engine.begin() as connection:
        tables.METADATA.create_all(connection)
        for command in history:
            decision = _decide(state, command)
            for event in decision.events if isinstance(decision, Accepted) else ():
                fold_event(connection, event)
            state = _apply(state, command)
        restored = tables.load_state(connection).membership
    engine.dispose()

    assert restored == state


@given(history=st.lists(commands, max_size=12), event=st.builds(NodeRegistered, nodes))
def test_total(history: list[Command], event: NodeRegistered) -> None:
    state = INITIAL
    for command in history:
        assert isinstance(_decide(state, command), Accepted | Rejected)
        state = _apply(state, command)

    assert isinstance(evolve(state, event), Membership)
