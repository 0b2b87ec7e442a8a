"""Why a topic is where it is: the chain of events behind its place, each with its reason.

Pure: events of several logs in, lines out. Within a log the order is that of its positions; events
of different logs are put in order by the clocks of their leaders, which may differ a little.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nextgen.cli.topics.policy_fields import explicit_fields
from nextgen.client.log.event_keys import event_key
from protos.nextgen.v1.events_pb2 import (
    BalanceSeen,
    CandidateSeen,
    Event,
    PlacementDecision,
    TopicAssigned,
)
from protos.nextgen.v1.policies_pb2 import Policies

TOPIC_EVENTS = (
    "topic_created",
    "topic_partitions_grown",
    "topic_renamed",
    "topic_deleted",
    "policy_set",
    "policy_cleared",
    "topic_assigned",
    "topic_unassigned",
)
"""Event types that are read from the topic's own shard."""

CAUSE_EVENTS = (
    *("broker_session_ended", "broker_drain_set", "broker_capacity_set"),
    *("policy_set", "policy_cleared"),
)
"""Event types that are read from the home shards of its brokers, namespace and tenant."""

_REASONS = {
    "first_lookup": "no broker had it when it was looked up",
    "broker_lost": "its broker's session had ended",
    "broker_full": "its broker had no room for it",
    "moved": "an operator moved it",
    "drained": "its broker was being emptied",
    "capacity_lowered": "its broker had more units than its capacity",
    "rebalanced": "brokers were uneven",
    "pinned": "it was pinned elsewhere",
    "epoch_used": "its ledger knew a later epoch than the shard",
    "idle": "no client used it",
    "unloaded": "an operator unloaded it",
    "renamed": "the topic was renamed",
    "topic_deleted": "the topic was deleted",
}

_RULES = {
    "two_choices": "the emptier of two random brokers",
    "pinned": "the rules name the brokers it may be on",
    "affinity": "the first broker in its group's order that had room",
    "spread": "a broker with fewest partitions of its topic",
    "only_one": "the only broker that could take it",
    "asked_for": "the broker that was asked for",
    "created_there": "the broker whose client created the topic by its first use",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One event of the chain."""

    time_ms: int
    shard_id: int
    position: int
    what: str
    why: str = ""
    compared: tuple[str, ...] = ()
    """The brokers that the decision compared, the chosen one first."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps, oldest first, and the present owner. ``broker_id`` is "" for an unowned unit, and
    ``why_none`` says why it has no owner, "" if it never had one."""

    name: str
    steps: tuple[Step, ...]
    broker_id: str
    epoch: int
    why_none: str = ""


def broker_ids(name: str, topic_events: Iterable[Event], former: Iterable[str] = ()) -> list[str]:
    """Return the brokers that had the unit, in order, each once."""
    units = {name, *former}
    return list(dict.fromkeys(each.broker_id for each in _assigned(units, topic_events)))


def chain_of(
    name: str,
    parents: Sequence[str],
    topic_events: Sequence[Event],
    causes: Sequence[Event] = (),
    former: Sequence[str] = (),
) -> Chain:
    """Return the chain behind the present place of ``name``, a canonical name of one unit.

    Args:
        parents: The names of its tenant, its namespace and its topic, whose rules apply; of a topic
            that was renamed also those that it had.
        topic_events: From the topic's shards, ``TOPIC_EVENTS`` of names that begin as it does, and
            the adoptions of its slot.
        causes: ``CAUSE_EVENTS`` of other shards; unrelated ones are left out.
        former: The names that the unit had before its topic was renamed.
    """
    units = {name, *former}
    sessions = {each.session_id for each in _assigned(units, topic_events)}
    seen: dict[tuple[int, int], Event] = {}
    for event in (*topic_events, *causes):
        if _concerns(event, units, parents, sessions):
            seen[event.shard_id, event.position] = event
    ordered = sorted(seen.values(), key=lambda one: (one.time_ms, one.shard_id, one.position))
    steps: list[Step] = []
    in_force: dict[str, Step] = {}
    broker_id, epoch, why_none = "", 0, ""
    for event in ordered:
        kind = event.WhichOneof("payload")
        if kind in ("policy_set", "policy_cleared"):
            steps += _policy_step(event, in_force)
            continue
        if kind == "topic_created":
            # Earlier events explain only the rules that were in force at its first assignment.
            in_force.pop(event.topic_created.name, None)
            steps = list(in_force.values())
        steps.append(_step(event, broker_id))
        if kind == "topic_assigned":
            broker_id, epoch = event.topic_assigned.broker_id, event.topic_assigned.epoch
            why_none = ""
        elif kind == "topic_unassigned":
            broker_id, why_none = "", steps[-1].why
        elif kind == "topic_deleted":
            broker_id, why_none = "", _REASONS["topic_deleted"]
        elif kind == "topic_created":
            broker_id, epoch, why_none = "", 0, ""
    return Chain(name, tuple(steps), broker_id, epoch, why_none)


def lines(chain: Chain) -> Iterator[str]:
    """Yield the chain for people, one step after the other."""
    for step in chain.steps:
        time = datetime.fromtimestamp(step.time_ms / 1000, tz=UTC)
        when = time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        yield f"{when}  {step.shard_id}:{step.position:<8} {step.what}"
        if step.why:
            yield f"{'':25}  because {step.why}"
        for at, seen in enumerate(step.compared):
            yield f"{'':25}  {'chose  ' if not at else 'before '} {seen}"
    if chain.broker_id:
        yield f"{chain.name} is at {chain.broker_id}, epoch {chain.epoch}"
    else:
        because = f" because {chain.why_none}" if chain.why_none else ""
        yield f"{chain.name} is at no broker{because}; its next lookup assigns it"


def _assigned(units: Container[str], events: Iterable[Event]) -> Iterator[TopicAssigned]:
    for event in events:
        if event.WhichOneof("payload") == "topic_assigned" and event.topic_assigned.name in units:
            yield event.topic_assigned


def _concerns(
    event: Event, units: Container[str], parents: Sequence[str], sessions: set[str]
) -> bool:
    kind = event.WhichOneof("payload")
    if kind == "slots_adopted":
        return True
    if kind in ("topic_assigned", "topic_unassigned"):
        return event_key(event) in units
    if kind == "broker_session_ended":
        return event.broker_session_ended.session_id in sessions
    if kind == "broker_drain_set":
        return event.broker_drain_set.session_id in sessions
    if kind == "broker_capacity_set":
        return event.broker_capacity_set.session_id in sessions
    return event_key(event) in parents


def _step(event: Event, owner: str) -> Step:
    """Return the step of an event; ``owner`` is the broker that had the unit before it."""
    what, why = "", ""
    match event.WhichOneof("payload"):
        case "topic_created":
            partitions = event.topic_created.partitions
            what = f"created{f' with {partitions} partitions' if partitions else ''}"
        case "topic_partitions_grown":
            what = f"grown to {event.topic_partitions_grown.partitions} partitions"
        case "topic_renamed":
            renamed = event.topic_renamed
            what = f"renamed from {renamed.name} to {renamed.new_name}"
        case "topic_deleted":
            what = "deleted"
        case "slots_adopted":
            adopted = event.slots_adopted
            what = f"its slot came from shard {adopted.from_shard}, up to {adopted.from_position}"
        case "topic_assigned":
            return _assignment_step(event, owner)
        case "topic_unassigned":
            ended = event.topic_unassigned
            what = f"taken from {owner or 'its broker'}, epoch {ended.epoch} ended"
            why = _REASONS.get(ended.reason, ended.reason)
        case _:
            what, why = _of_broker(event)
    return Step(event.time_ms, event.shard_id, event.position, what, why)


def _of_broker(event: Event) -> tuple[str, str]:
    """Return what happened to a broker, and why."""
    match event.WhichOneof("payload"):
        case "broker_session_ended":
            session = event.broker_session_ended
            return f"session of {session.broker_id} ended", session.reason
        case "broker_drain_set":
            drain = event.broker_drain_set
            again = "is to be emptied" if drain.draining else "is no longer to be emptied"
            return f"{drain.broker_id} {again}", ""
        case "broker_capacity_set":
            changed = event.broker_capacity_set
            return f"{changed.broker_id} may have {changed.capacity_units:,} units", ""
        case other:
            return f"{other}", ""


def _assignment_step(event: Event, owner: str) -> Step:
    assigned = event.topic_assigned
    what = f"assigned to {assigned.broker_id}, epoch {assigned.epoch}"
    if owner and owner != assigned.broker_id:
        what = f"{what}, from {owner}"
    why = _REASONS.get(assigned.reason, assigned.reason)
    if not assigned.HasField("decision"):
        return Step(event.time_ms, event.shard_id, event.position, what, why)
    decision = assigned.decision
    if decision.HasField("balance"):
        why = f"{why}: {_imbalance(decision.balance, owner, assigned.broker_id)}"
    return Step(
        event.time_ms,
        event.shard_id,
        event.position,
        what,
        f"{why}; {_choice(decision)}",
        tuple(map(_candidate, decision.compared)),
    )


def _choice(decision: PlacementDecision) -> str:
    parts = [_RULES.get(decision.rule, decision.rule), f"{decision.candidates} could have it"]
    if decision.excluded:
        parts.append(f"rules kept it from {decision.excluded}")
    if decision.asked_by:
        parts.append(f"asked for by {decision.asked_by}")
    return ", ".join(parts)


def _imbalance(seen: BalanceSeen, owner: str, chosen: str) -> str:
    """Return what two brokers carried before a move between them, and what was moved."""
    carried = (
        f"{owner or 'its broker'} carried {seen.from_permille / 10:g} % of its share, "
        f"{chosen} {seen.to_permille / 10:g} %"
    )
    if not seen.unit_permille:
        return f"{carried}, the topic so little that no report named it"
    return f"{carried}, the topic {seen.unit_permille / 10:g} % of the first share"


def _candidate(seen: CandidateSeen) -> str:
    load = f", load {seen.load_permille / 10:g} %" if seen.load_permille else ""
    return f"{seen.broker_id}: {seen.units_used} of {seen.units_leased} units{load}"


def _policy_step(event: Event, in_force: dict[str, Step]) -> list[Step]:
    """Return the step of a placement change, None for other changes; ``in_force`` has the present
    rules by name."""
    name, is_cleared = event_key(event), event.WhichOneof("payload") == "policy_cleared"
    said = []
    if not is_cleared:
        policies = Policies.FromString(event.policy_set.policy)
        said = [pair for pair in explicit_fields(policies) if pair[0].startswith("placement.")]
    if not said and name not in in_force:
        return []
    rules = ", ".join(f"{path.removeprefix('placement.')} {value}" for path, value in said)
    what = f"rules of {name}: {rules or 'none any more'}"
    step = Step(event.time_ms, event.shard_id, event.position, what)
    in_force.pop(name, None)
    if said:
        in_force[name] = step
    return [step]
