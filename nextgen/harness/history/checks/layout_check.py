"""Checks that every layout change ends once, and as it was answered to its caller.

A change begins with its plan, and ends with a new layout or is abandoned; meanwhile there is no
other one of its topic. When a run is over none is under way. An acknowledged change is in the
layout at the position of its acknowledgement, one that was refused or failed never is, and none
took place that nobody requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history.checks.effects import in_scope
from nextgen.harness.history.log_fold import LogIndex
from nextgen.harness.history.model import History, LogEvent, Operation, OperationKind

CHECK = "layouts"

PLANNED = "layout_change_planned"
CHANGED = "layout_changed"
ABANDONED = "layout_change_abandoned"
_OPERATOR = "operator"
_SUBSCRIPTION_EVENTS = {
    OperationKind.CREATE_SUBSCRIPTION: "scalable_subscription_created",
    OperationKind.DELETE_SUBSCRIPTION: "scalable_subscription_deleted",
}


@dataclass(slots=True)
class _Topic:
    name: str
    shard: int
    under_way: LogEvent | None = None
    """The plan of the change that has not ended."""
    plans: dict[str, LogEvent] = field(default_factory=dict)
    """By the id of the command that requested it."""
    changes: dict[int, LogEvent] = field(default_factory=dict)
    """By number of operation: the new layouts."""
    sealed: dict[int, int] = field(default_factory=dict)
    """Segments that take no messages, with the order of the layout that says so."""
    subscriptions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Event's type and subscription, with its first order."""


def check_layouts(history: History, index: LogIndex) -> Iterator[Finding]:
    """Compare each scalable topic's events with what was requested, and with each other. A topic
    whose creation is not in the log is left out."""
    topics: dict[str, _Topic] = {}
    for events in index.folded():
        yield from _fold(topics, events)
    for drained in {each.topic for each in history.drained}:
        topic = topics.get(drained)
        if topic is not None and topic.under_way is not None:
            number = topic.under_way.facts["operation"]
            text = f"operation {number} of {topic.name} has not ended"
            yield _finding(FindingKind.VIOLATION, text, topic, topic.under_way)
    asked: dict[str, dict[str, Operation]] = {}
    for operation in history.operations:
        topic = topics.get(operation.key)
        if topic is not None:
            asked.setdefault(topic.name, {})[operation.command_id] = operation
            yield from _check_told(topic, operation, index)
    for topic in topics.values():
        if in_scope(topic.name, history.run.scopes):
            yield from _check_asked(topic, asked.get(topic.name, {}))


def _fold(topics: dict[str, _Topic], events: Iterable[LogEvent]) -> Iterator[Finding]:
    for event in events:
        if event.type == "scalable_topic_created":
            topics[event.key] = _Topic(event.key, event.shard)
        topic = topics.get(event.key)
        if topic is not None and event.type == "scalable_topic_deleted":
            topic.under_way = None  # It went with its topic.
        elif topic is not None and event.facts:
            yield from _take(topic, event, event.facts)


def _take(topic: _Topic, event: LogEvent, facts: Mapping[str, Any]) -> Iterator[Finding]:
    under_way = topic.under_way
    number = facts.get("operation", 0)
    match event.type:
        case "layout_change_planned":
            if under_way is not None:
                other = under_way.facts["operation"]
                text = f"operation {number} of {topic.name} began before {other} had ended"
                yield _finding(FindingKind.VIOLATION, text, topic, event, under_way)
            topic.under_way = event
            if facts["asked_by"] == _OPERATOR:
                topic.plans[event.causation_id] = event
        case "layout_changed" | "layout_change_abandoned" if number:
            if under_way is None or under_way.facts["operation"] != number:
                text = f"operation {number} of {topic.name} ended and was not under way"
                yield _finding(FindingKind.VIOLATION, text, topic, event)
            topic.under_way = None
            if event.type == CHANGED:
                topic.changes[number] = event
    for each in facts.get("segments", ()):
        if each["sealed"]:
            topic.sealed.setdefault(each["id"], event.order)
    if "subscription" in facts:
        topic.subscriptions.setdefault((event.type, facts["subscription"]), event.order)


def _check_told(topic: _Topic, operation: Operation, index: LogIndex) -> Iterator[Finding]:
    """Check that what was acknowledged had happened."""
    if not operation.is_ok:
        return
    argument: Mapping[str, Any] = operation.argument
    positions: list[int | None] = []
    if operation.kind is OperationKind.CHANGE_LAYOUT:
        positions = [topic.sealed.get(each) for each in argument["segments"]]
    elif operation.kind in _SUBSCRIPTION_EVENTS:
        event = (_SUBSCRIPTION_EVENTS[operation.kind], argument["subscription"])
        positions = [topic.subscriptions.get(event)]
    told = index.order_at(topic.name, operation.shard, operation.position)
    # An answer behind a move may name a shard that has not the topic there: it is the first one.
    if any(each is None or (told is not None and each > told) for each in positions):
        text = (
            f"{operation.name}, {operation.kind} {dict(argument)} of {topic.name}, was "
            f"acknowledged at position {operation.position} and had not happened"
        )
        yield Finding(
            FindingKind.LOST,
            CHECK,
            text,
            topic.name,
            topic.shard,
            operations=(operation.name,),
            at_ns=operation.returned_ns,
        )


def _check_asked(topic: _Topic, asked: Mapping[str, Operation]) -> Iterator[Finding]:
    for command_id, plan in topic.plans.items():
        number: Any = plan.facts["operation"]
        operation = asked.get(command_id)
        if operation is None:
            text = f"operation {number} of {topic.name} was requested by nobody"
            yield _finding(FindingKind.PHANTOM, text, topic, plan)
        elif not operation.may_have_happened and number in topic.changes:
            text = (
                f"operation {number} of {topic.name} took place, and {operation.name} had been "
                f"answered {operation.outcome}"
            )
            yield _finding(FindingKind.VIOLATION, text, topic, topic.changes[number], plan)


def _finding(kind: FindingKind, text: str, topic: _Topic, *events: LogEvent) -> Finding:
    named = tuple(each.name for each in events)
    return Finding(kind, CHECK, text, topic.name, topic.shard, events=named)
