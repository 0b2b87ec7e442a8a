"""Spreading leaders: one at a time, only what is stable, only to who is there."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.domain.leader_spread import (
    STABLE_MS,
    TRANSFER_MS_MAX,
    Attempt,
    Leadership,
    Step,
    Transfer,
    next_step,
)
from cluster_manager.domain.shard_map import Placement, place_replicas
from nextgen.kernel.limits.cluster import SESSION_RETURN_MS

SLACK_MS = 300
PLACEMENTS = (Placement(1, ("a", "b")), Placement(2, ("b", "a")), Placement(3, ("a", "b")))
BOTH = frozenset({"a", "b"})
NOW = 10_000


def test_a_leader_has_ended_what_did_not_return_to_it_before_it_may_be_moved() -> None:
    # The next one would wait for the dead all over again. The rest is for recording the end.
    assert SESSION_RETURN_MS + SLACK_MS <= STABLE_MS


def test_nothing_is_to_do_where_every_preferred_replica_leads() -> None:
    leaders = {1: Leadership("a", 0), 2: Leadership("b", 0), 3: Leadership("a", 0)}

    assert next_step(PLACEMENTS, leaders, BOTH, {}, NOW) == Step(None, None)


def test_a_misplaced_leadership_that_is_stable_moves() -> None:
    leaders = {1: Leadership("b", NOW - STABLE_MS)}

    step = next_step(PLACEMENTS, leaders, BOTH, {}, NOW)

    assert step == Step(Transfer(1, "b", "a"), NOW + TRANSFER_MS_MAX)


def test_a_young_leadership_is_left_alone_until_it_is_stable() -> None:
    leaders = {1: Leadership("b", NOW - STABLE_MS + 1)}

    assert next_step(PLACEMENTS, leaders, BOTH, {}, NOW) == Step(None, NOW + 1)


def test_nothing_moves_to_or_from_a_node_that_is_not_connected() -> None:
    leaders = {1: Leadership("b", 0)}

    assert next_step(PLACEMENTS, leaders, frozenset("b"), {}, NOW) == Step(None, None)
    assert next_step(PLACEMENTS, leaders, frozenset("a"), {}, NOW) == Step(None, None)


def test_only_one_transfer_is_under_way() -> None:
    leaders = {1: Leadership("b", 0), 3: Leadership("b", 0)}
    attempts = {1: Attempt("b", NOW)}

    step = next_step(PLACEMENTS, leaders, BOTH, attempts, NOW + 1)

    assert step == Step(None, NOW + TRANSFER_MS_MAX)


def test_the_next_goes_as_soon_as_the_one_under_way_has_moved_the_leader() -> None:
    leaders = {1: Leadership("a", NOW), 3: Leadership("b", 0)}
    attempts = {1: Attempt("b", NOW)}

    step = next_step(PLACEMENTS, leaders, BOTH, attempts, NOW + 1)

    assert step.transfer == Transfer(3, "b", "a")


def test_a_transfer_that_keeps_failing_lets_the_others_go_first() -> None:
    leaders = {1: Leadership("b", 0), 3: Leadership("b", 0)}
    attempts = {1: Attempt("b", NOW - TRANSFER_MS_MAX)}

    assert next_step(PLACEMENTS, leaders, BOTH, attempts, NOW).transfer == Transfer(3, "b", "a")


@given(
    shards=st.integers(1, 8),
    choices=st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
def test_carried_out_steps_end_with_leaders_that_differ_by_at_most_one(
    shards: int, choices: list[int]
) -> None:
    nodes = ["a", "b", "c"]
    placements = place_replicas(range(1, shards + 1), nodes, 3)
    leaders = {shard: Leadership(nodes[choices[shard - 1]], 0) for shard in range(1, shards + 1)}
    attempts: dict[int, Attempt] = {}
    now_ms, moves = STABLE_MS, 0
    while (step := next_step(placements, leaders, frozenset(nodes), attempts, now_ms)).transfer:
        attempts[step.transfer.shard_id] = Attempt(step.transfer.leader, now_ms)
        now_ms, moves = now_ms + 300, moves + 1
        leaders[step.transfer.shard_id] = Leadership(step.transfer.target, now_ms)

    counts = Counter(leadership.node_id for leadership in leaders.values())
    assert max(counts[node] for node in nodes) - min(counts[node] for node in nodes) <= 1
    assert moves <= shards


@given(shards=st.integers(1, 12), nodes=st.integers(3, 6), data=st.data())
def test_while_a_node_is_away_the_leaders_end_up_spread_over_the_others(shards, nodes, data):
    """Every replica set is all nodes, so that an even spread is possible at all."""
    names = [f"n{number}" for number in range(nodes)]
    placements = [
        Placement(shard, tuple(names[(shard + step) % nodes] for step in range(nodes)))
        for shard in range(shards)
    ]
    away = data.draw(st.sampled_from(names))
    connected = frozenset(names) - {away}
    leaders = {
        shard: Leadership(data.draw(st.sampled_from(sorted(connected))), 0)
        for shard in range(shards)
    }

    for _ in range(2 * shards):
        transfer = next_step(placements, leaders, connected, {}, NOW).transfer
        if transfer is None:
            break
        leaders[transfer.shard_id] = Leadership(transfer.target, 0)

    assert next_step(placements, leaders, connected, {}, NOW).transfer is None
    led = Counter(leadership.node_id for leadership in leaders.values())
    preferred = Counter(placement.replicas[0] for placement in placements)
    most = max(led[node] for node in connected)
    least = min(led[node] for node in connected)
    assert most - least <= max(1, max(preferred.values()) - min(preferred.values()))


def test_a_replica_that_leaves_leads_nothing_and_one_that_joins_does_not_lead_yet() -> None:
    leaving_first = (Placement(1, ("a", "b"), joining=("c",), leaving=("a",)),)
    leaders = {1: Leadership("a", 0)}

    step = next_step(leaving_first, leaders, frozenset("abc"), {}, NOW)

    assert step.transfer == Transfer(1, "a", "b")
    assert next_step(leaving_first, leaders, frozenset("ac"), {}, NOW) == Step(None, None)
