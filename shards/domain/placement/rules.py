"""The brokers that a unit may go to: of its topic's kind, and not forbidden by a placement rule.

A broker of another kind keeps messages elsewhere. No rule allows one, and none is needed to forbid
it: the topic would seem to be empty there. Each placement rule of tenant, namespace and topic
forbids some of the others. If all are forbidden, the refusal names the first rule that left none.
Room is not considered here: a full broker may get room, a forbidden one stays forbidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.broker_kind import shown_kind
from nextgen.kernel.governance.policies import NO_RULES, AntiAffinity, PlacementRules
from shards.domain.placement.tenant_share import reserve_units

RULE_KIND = "kind"
"""Not a rule that can be set: it always holds."""

_NAMES_SHOWN_MAX = 3
"""Names of a rule that a refusal lists: a whole rule may be kilobytes long."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live broker session, with this shard's units and lease on it."""

    broker_id: str
    session_id: str
    units_used: int
    """Units that this shard has assigned there, those still on their way included."""

    units_leased: int
    """Units that this shard may have assigned there in all; 0 without a lease in force."""

    zone: str = ""
    rack: str = ""
    capacity_units: int = 0
    """Capacity of the whole broker; 0: unknown, and the lease is used instead."""

    units_reported: int = -1
    """Units of all shards by the broker's last report; -1: no report."""

    load_permille: int = 0
    """Load of the broker's busiest resource, by its last report."""

    closed: str = ""
    """Why it gets no units even if it has room; "" if it may get some."""

    traffic: int = 0
    """Traffic of the whole broker by its last report, in bytes a second."""

    traffic_here: int = 0
    """This shard's part of it: see ``choice.even_parts``."""

    kind: str = ""
    """Where it keeps messages: a ``BrokerKind``."""

    @property
    def has_room(self) -> bool:
        return not self.closed and self.units_used < self.units_leased

    @property
    def has_idle_room(self) -> bool:
        """Whether it has room beyond the reserve of tenants below their share."""
        idle = self.units_leased - reserve_units(self.units_leased)
        return not self.closed and self.units_used < idle

    @property
    def weight(self) -> int:
        """The capacity that its used units are compared with."""
        return self.capacity_units or self.units_leased


@dataclass(frozen=True, slots=True)
class Peers:
    """Where the other partitions of a unit's topic are."""

    units: Mapping[str, int] = field(default_factory=dict)
    """Their number by session id."""

    zones: frozenset[str] = frozenset()
    """Zones of the brokers that have a partition. Brokers without a zone share the zone ""."""


NO_PEERS = Peers()


def allowed_places(
    candidates: Sequence[Candidate], rules: PlacementRules, peers: Peers, kind: str = ""
) -> list[int] | Rejected:
    """Return the places of the candidates of ``kind`` that no rule forbids, at least one.

    NO_BROKER if there is none: the message names the rule that left none.
    """
    places = [place for place, one in enumerate(candidates) if one.kind == kind]
    if not places:
        which = f"{shown_kind(kind)} broker" if candidates or kind else "broker"
        return Rejected(RejectionCode.NO_BROKER, f"no {which} is alive")
    if rules == NO_RULES:
        return places
    for rule, what, allows in _tests(rules, peers):
        kept = [place for place in places if allows(candidates[place])]
        if not kept:
            # The message names the brokers that the earlier rules allow.
            left = shown_names([candidates[place].broker_id for place in places])
            return Rejected(
                RejectionCode.NO_BROKER, f"placement.{rule} ({what}) leaves none of {left}"
            )
        places = kept
    return places


def forbids(candidate: Candidate, rules: PlacementRules, peers: Peers, kind: str = "") -> str:
    """Return the name of the first rule that forbids ``candidate``, "" if none does.

    ``RULE_KIND`` if it is of another kind than the topic's, ``kind``.
    """
    if candidate.kind != kind:
        return RULE_KIND
    for rule, _, allows in _tests(rules, peers):
        if not allows(candidate):
            return rule
    return ""


_Test = tuple[str, str, Callable[[Candidate], bool]]
"""A rule's name, its text for messages, and whether it allows a candidate."""


def _tests(rules: PlacementRules, peers: Peers) -> list[_Test]:
    return [*_broker_tests(rules), *_peer_tests(rules, peers)]


def _broker_tests(rules: PlacementRules) -> list[_Test]:
    pinned, excluded = frozenset(rules.pinned_brokers), frozenset(rules.excluded_brokers)
    zones, racks = frozenset(rules.zones), frozenset(rules.racks)
    tests: list[_Test] = []
    if pinned:
        says = f"only {shown_names(rules.pinned_brokers)}"
        tests.append(("pinned_brokers", says, lambda one: one.broker_id in pinned))
    if excluded:
        says = f"not {shown_names(rules.excluded_brokers)}"
        tests.append(("excluded_brokers", says, lambda one: one.broker_id not in excluded))
    if zones:
        tests.append(("zones", f"only {shown_names(rules.zones)}", lambda one: one.zone in zones))
    if racks:
        tests.append(("racks", f"only {shown_names(rules.racks)}", lambda one: one.rack in racks))
    return tests


def _peer_tests(rules: PlacementRules, peers: Peers) -> list[_Test]:
    units, zones, most = peers.units, peers.zones, rules.units_per_broker_max
    tests: list[_Test] = []
    if rules.anti_affinity is AntiAffinity.BROKER:
        says = "no two partitions on one broker"
        tests.append(("anti_affinity", says, lambda one: not units.get(one.session_id)))
    elif rules.anti_affinity is AntiAffinity.ZONE:
        says = "no two partitions in one zone"
        tests.append(
            (
                "anti_affinity",
                says,
                lambda one: not units.get(one.session_id) and one.zone not in zones,
            )
        )
    if most:
        says = f"at most {most} of a topic on a broker"
        tests.append(
            ("units_per_broker_max", says, lambda one: units.get(one.session_id, 0) < most)
        )
    return tests


def shown_names(names: Sequence[str]) -> str:
    """Return names for a message: all of them, or the first few and how many there are more."""
    more = len(names) - _NAMES_SHOWN_MAX
    text = ", ".join(names[:_NAMES_SHOWN_MAX])
    return f"{text} and {more} more" if more > 0 else text
