"""Chooses a broker for a unit: of those that its rules allow, the better of two random ones.

    live sessions ─▶ rules ─▶ room ─▶ affinity: the first of the group's own order
                                  ├─▶ created there: the broker whose client created the topic
                                  └─▶ spread: those with fewest partitions of this topic
                                        └─▶ two at random, the emptier by capacity

The better of two random candidates spreads units nearly as evenly as the best of all, and two
shards that see the same loads do not both choose the same broker. Candidates are compared as a
balance weighs brokers (``rebalance.UNIT_WEIGHT``, by capacity): a placement by another score would
be undone by the balance. A shard counts its own units, which it knows exactly, and of the brokers'
traffic, which reports tell seconds late, the part that its units are of all units.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.broker_kind import shown_kind
from nextgen.kernel.governance.policies import AntiAffinity, PlacementRules
from nextgen.kernel.limits.placement import (
    COMPARED_MAX,
    EQUAL_USE_PERMILLE,
    LOAD_DIFFERENCE_PERMILLE,
    SPREAD_COST_PERMILLE,
)
from nextgen.kernel.routing.hashing import hash64
from shards.domain.placement.rebalance import UNIT_WEIGHT
from shards.domain.placement.rules import (
    NO_PEERS,
    RULE_KIND,
    Candidate,
    Peers,
    allowed_places,
    forbids,
)

RULE_TWO_CHOICES = "two_choices"
RULE_PINNED = "pinned"
RULE_AFFINITY = "affinity"
RULE_SPREAD = "spread"
RULE_ONLY_ONE = "only_one"
RULE_ASKED_FOR = "asked_for"
RULE_CREATED_THERE = "created_there"


@dataclass(frozen=True, slots=True)
class CandidateSeen:
    """One broker with its numbers at the time of the comparison."""

    broker_id: str
    units_used: int
    units_leased: int
    load_permille: int = 0


@dataclass(frozen=True, slots=True)
class BalanceSeen:
    """The imbalance that a move is to reduce. A broker's load is its traffic, and a little for each
    unit; its share is its part of all load, by capacity."""

    from_permille: int
    """What the broker that had the unit carried, in permille of its share."""

    to_permille: int
    """What the broker that gets it carried. 1,000 is its share."""

    unit_permille: int = 0
    """What the unit carried, in permille of the first broker's share; 0: no report named it."""


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """Why this broker was chosen: for operators and for analyses of the log. No code acts on it."""

    rule: str
    candidates: int
    """Live sessions with room that the rules allow."""

    excluded: int
    """Live sessions that the rules do not allow."""

    compared: tuple[CandidateSeen, ...] = ()
    """At most ``COMPARED_MAX``, the chosen one first."""

    asked_by: str = ""
    """The origin of a move."""

    balance: BalanceSeen | None = None
    """Of a move that evens brokers out by itself."""


@dataclass(frozen=True, slots=True)
class Choice:
    """``place`` is the index of the chosen candidate."""

    place: int
    decision: PlacementDecision


def place(
    candidates: Sequence[Candidate],
    rules: PlacementRules,
    draw: tuple[int, int],
    *,
    peers: Peers = NO_PEERS,
    prefer: str = "",
    avoid: Container[str] = (),
    asked_by: str = "",
    keeps_reserve: bool = False,
    kind: str = "",
) -> Choice | Rejected:
    """Choose a broker for one unit, which only brokers of ``kind`` can serve.

    NO_BROKER: no such broker lives, or a rule forbids each of them. NO_CAPACITY: of the allowed
    brokers none has room, is open and is not among the session ids to ``avoid``. With
    ``keeps_reserve`` a broker has room only beyond its reserve, see ``tenant_share``.

    Of the brokers that may be chosen, ``prefer`` is, unless the unit is of an affinity group.

    ``draw`` is two random integers of any size, from outside.
    """
    allowed = allowed_places(candidates, rules, peers, kind)
    if isinstance(allowed, Rejected):
        return allowed
    roomy = [
        each
        for each in allowed
        if (candidates[each].has_idle_room if keeps_reserve else candidates[each].has_room)
        and candidates[each].session_id not in avoid
    ]
    if not roomy:
        return Rejected(
            RejectionCode.NO_CAPACITY, _why_none([candidates[each] for each in allowed], avoid)
        )
    preferred = [each for each in roomy if candidates[each].broker_id == prefer] if prefer else []
    if preferred and not rules.affinity_group:
        rule, compared = RULE_CREATED_THERE, preferred
    else:
        rule, compared = _choose(candidates, roomy, rules, draw, peers)
    decision = PlacementDecision(
        rule,
        len(roomy),
        len(candidates) - len(allowed),
        tuple([_seen(candidates[each]) for each in compared]),
        asked_by,
    )
    return Choice(compared[0], decision)


def place_at(
    candidates: Sequence[Candidate],
    broker_id: str,
    rules: PlacementRules,
    *,
    peers: Peers = NO_PEERS,
    avoid: Container[str] = (),
    asked_by: str = "",
    kind: str = "",
) -> Choice | Rejected:
    """Choose the requested broker, or return why it cannot be chosen.

    NO_BROKER: it is not live, or is closed. NOT_ALLOWED: it is not of ``kind``, or a rule forbids
    it; the message names the rule. NO_CAPACITY: it has no room.
    """
    for at, candidate in enumerate(candidates):
        if candidate.broker_id != broker_id:
            continue
        rule = forbids(candidate, rules, peers, kind)
        if rule == RULE_KIND:
            why = (
                f"broker {broker_id} is {shown_kind(candidate.kind)}, "
                f"the topic is served by {shown_kind(kind)} ones only"
            )
            return Rejected(RejectionCode.NOT_ALLOWED, why)
        if rule:
            why = f"placement.{rule} does not allow broker {broker_id}"
            return Rejected(RejectionCode.NOT_ALLOWED, why)
        if candidate.closed:
            why = f"broker {broker_id} {candidate.closed}"
            return Rejected(RejectionCode.NO_BROKER, why)
        if not candidate.has_room or candidate.session_id in avoid:
            why = f"broker {broker_id} has no capacity left"
            return Rejected(RejectionCode.NO_CAPACITY, why)
        decision = PlacementDecision(RULE_ASKED_FOR, 1, 0, (_seen(candidate),), asked_by)
        return Choice(at, decision)
    return Rejected(RejectionCode.NO_BROKER, f"broker {broker_id} is not alive")


def even_parts(traffic: Sequence[int], *, units_used: int, units_reported: int) -> list[int]:
    """Return one shard's part of each broker's traffic: its part of all units.

    Its units are spread like those of all shards, and so is the traffic: what it has of a broker's
    traffic need not be known.
    """
    return [each * min(units_used, units_reported) // max(1, units_reported) for each in traffic]


def _choose(
    candidates: Sequence[Candidate],
    roomy: list[int],
    rules: PlacementRules,
    draw: tuple[int, int],
    peers: Peers,
) -> tuple[str, list[int]]:
    """Return the rule that decided, and the places of the compared candidates, the chosen first."""
    if rules.affinity_group:
        return RULE_AFFINITY, _by_affinity(candidates, roomy, rules.affinity_group)
    pool = roomy
    if peers.units and rules.anti_affinity is not AntiAffinity.NONE:
        pool = _with_fewest_peers(candidates, roomy, peers)
    if rules.pinned_brokers:
        rule = RULE_PINNED
    elif len(roomy) == 1:
        rule = RULE_ONLY_ONE
    else:
        rule = RULE_TWO_CHOICES if len(pool) == len(roomy) else RULE_SPREAD
    first, second = _two_places(len(pool), draw)
    return rule, _better_first(candidates, pool[first], pool[second])


def _by_affinity(candidates: Sequence[Candidate], roomy: list[int], group: str) -> list[int]:
    """Return the group's own order of brokers, which every shard computes alike."""
    ranked = sorted(
        roomy, key=lambda each: hash64(f"{group}/{candidates[each].broker_id}"), reverse=True
    )
    return ranked[:COMPARED_MAX]


def _with_fewest_peers(
    candidates: Sequence[Candidate], roomy: list[int], peers: Peers
) -> list[int]:
    """Return those with fewest partitions of the topic, unless each of them is much fuller."""
    counts = [peers.units.get(candidates[each].session_id, 0) for each in roomy]
    fewest = min(counts)
    if fewest == max(counts):
        return roomy
    bound = min(_used_permille(candidates[each]) for each in roomy) + SPREAD_COST_PERMILLE
    spread = [
        each
        for each, count in zip(roomy, counts, strict=True)
        if count == fewest and _used_permille(candidates[each]) <= bound
    ]
    return spread or roomy


def _used_permille(candidate: Candidate) -> int:
    return 1000 * candidate.units_used // candidate.weight


def _two_places(count: int, draw: tuple[int, int]) -> tuple[int, int]:
    first = draw[0] % count
    if count == 1:
        return first, first
    # The second is drawn among the others, so that two different ones are compared.
    return first, (first + 1 + draw[1] % (count - 1)) % count


def _better_first(candidates: Sequence[Candidate], first: int, second: int) -> list[int]:
    if first == second:
        return [first]
    if _is_better(candidates[second], candidates[first]):
        return [second, first]
    return [first, second]


def _is_better(one: Candidate, other: Candidate) -> bool:
    """Return whether ``one`` is emptier than ``other``; False if they are equal."""
    # Compares by capacity, multiplied by both capacities to avoid rounding.
    mine, its = _burden(one) * other.weight, _burden(other) * one.weight
    if 1000 * abs(mine - its) > EQUAL_USE_PERMILLE * max(mine, its):
        return mine < its
    if one.units_reported >= 0 and other.units_reported >= 0:
        mine_all = _burden_of_all(one) * other.weight
        its_all = _burden_of_all(other) * one.weight
        if 1000 * abs(mine_all - its_all) > LOAD_DIFFERENCE_PERMILLE * max(mine_all, its_all):
            return mine_all < its_all
    if abs(one.load_permille - other.load_permille) >= LOAD_DIFFERENCE_PERMILLE:
        return one.load_permille < other.load_permille
    return mine < its


def _burden(candidate: Candidate) -> int:
    return candidate.units_used * UNIT_WEIGHT + candidate.traffic_here


def _burden_of_all(candidate: Candidate) -> int:
    return candidate.units_reported * UNIT_WEIGHT + candidate.traffic


def _seen(candidate: Candidate) -> CandidateSeen:
    return CandidateSeen(
        candidate.broker_id,
        candidate.units_used,
        candidate.units_leased,
        candidate.load_permille,
    )


def _why_none(allowed: Sequence[Candidate], avoid: Container[str]) -> str:
    """Return why none of the allowed brokers can take a unit."""
    if len(allowed) == 1:
        (only,) = allowed
        if only.closed:
            return f"broker {only.broker_id}, the only one allowed, {only.closed}"
        if only.session_id in avoid:
            return f"no broker but {only.broker_id} is there that could take it"
        return f"broker {only.broker_id}, the only one allowed, has no capacity left"
    if all(candidate.closed for candidate in allowed):
        return f"all {len(allowed)} brokers that it may go to are draining or in quarantine"
    return "no broker has capacity left for this shard"
