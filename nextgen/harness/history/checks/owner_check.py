"""Checks that a unit has one owner at a time, by acknowledged messages and by lookups.

The owner of a unit is the broker that may acknowledge its messages. So after an acknowledgement
under a later epoch, no message that is sent afterwards may be acknowledged under an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history.log_fold import LogIndex
from nextgen.harness.history.model import Operation, OperationKind, Publish
from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX
from nextgen.kernel.routing.names import parse_topic

T = TypeVar("T")

CHECK = "single owner"

_STALENESS_NS = LOOKUP_STALENESS_MS_MAX * 1_000_000


@dataclass(frozen=True, slots=True)
class _Seen(Generic[T]):
    """An operation that saw ``epoch``, with its beginning and end."""

    began_ns: int
    ended_ns: int
    epoch: int
    what: T


def check_publishes(publishes: Sequence[Publish]) -> Iterator[Finding]:
    """Check that no two owners acknowledged at one time, and no two messages have one entry."""
    by_unit: dict[tuple[str, str], list[Publish]] = {}
    for publish in publishes:
        if publish.acked_ns is not None:
            by_unit.setdefault((publish.unit, publish.topic_id), []).append(publish)
    for of_unit in by_unit.values():
        yield from _check_epochs(of_unit)
        yield from _check_entries(of_unit)


def check_publish_epochs(publishes: Iterable[Publish], index: LogIndex) -> Iterator[Finding]:
    """Check that the log assigned every epoch that acknowledged messages."""
    known = {(name, event.epoch) for name, events in index.units.items() for event in events}
    # A client goes on by the name that it knows, whatever the topic is called by then.
    names = index.names
    first = {(names.first_of_unit(name), epoch) for name, epoch in known} if names.first else known
    reported: set[tuple[str, int]] = set()
    for publish in publishes:
        claim = (publish.unit, publish.epoch)
        if publish.acked_ns is None or not publish.epoch or claim in known or claim in reported:
            continue
        if names.first and (names.first_of_unit(publish.unit), publish.epoch) in first:
            continue
        reported.add(claim)
        message = f"{publish.unit} was acknowledged under epoch {publish.epoch}, never assigned"
        yield _overlap(message, publish)


def check_lookups(operations: Sequence[Operation], index: LogIndex | None) -> Iterator[Finding]:
    """Check that no answer is older than ADR 0051 allows, and that each is in the log.

    A fresh lookup or a move must not return an older epoch than any answer before it began. A
    lookup at one node must not return an older epoch than that node's earlier answers. Any other
    lookup must not return an epoch that was replaced for longer than ``LOOKUP_STALENESS_MS_MAX``.
    """
    answered: dict[tuple[str, str], list[_Seen[Operation]]] = {}
    for operation in operations:
        if operation.kind not in (OperationKind.LOOKUP, OperationKind.MOVE):
            continue
        if not operation.is_ok or operation.returned_ns is None:
            continue
        epoch = operation.value.get("epoch")
        assert isinstance(epoch, int), f"{operation.name} has no epoch"
        seen = _Seen(operation.invoked_ns, operation.returned_ns, epoch, operation)
        of_unit = (_unit_of(operation), str(operation.value.get("topic_id")))
        answered.setdefault(of_unit, []).append(seen)
        if index is not None:
            yield from _check_answer(operation, epoch, index)
    for of_key in answered.values():
        yield from _check_age(of_key)


def _check_age(of_unit: list[_Seen[Operation]]) -> Iterator[Finding]:
    linearizable = [each for each in of_unit if _is_linearizable(each.what)]
    by_node: dict[tuple[object, str], list[_Seen[Operation]]] = {}
    for each in of_unit:
        if (node := each.what.argument.get("node")) is not None:
            # A node keeps answers by name.
            by_node.setdefault((node, each.what.key), []).append(each)
    found: dict[str, tuple[_Seen[Operation], _Seen[Operation], str]] = {}
    for late, earlier in _gone_back(linearizable, behind=of_unit):
        found[late.what.name] = late, earlier, "although it is linearizable"
    for (node, _), of_node in by_node.items():
        for late, earlier in _gone_back(of_node):
            found.setdefault(late.what.name, (late, earlier, f"by the same node {node}"))
    for late, earlier in _gone_back(of_unit, allowed_ns=_STALENESS_NS):
        why = f"more than {LOOKUP_STALENESS_MS_MAX} ms before"
        found.setdefault(late.what.name, (late, earlier, why))
    for late, earlier, why in found.values():
        yield Finding(
            FindingKind.VIOLATION,
            "lookups",
            f"{late.what.key} was answered with epoch {late.epoch} "
            f"after epoch {earlier.epoch} had been answered {why}",
            late.what.key,
            operations=(late.what.name, earlier.what.name),
            at_ns=late.ended_ns,
        )


def _is_linearizable(operation: Operation) -> bool:
    return operation.kind is OperationKind.MOVE or bool(operation.argument.get("fresh"))


def _check_answer(operation: Operation, epoch: int, index: LogIndex) -> Iterator[Finding]:
    topic_id = str(operation.value.get("topic_id"))
    event = index.owners.get((topic_id, _unit_of(operation), epoch))
    reported = (operation.value.get("broker_id"), operation.value.get("session_id"))
    if event is not None and reported == (event.broker_id, event.session_id):
        return
    kept = "never given" if event is None else f"of {event.broker_id} {event.session_id}"
    yield Finding(
        FindingKind.VIOLATION,
        "lookups",
        f"{operation.key} was answered with {reported[0]} {reported[1]} for epoch {epoch}, "
        f"which is {kept}",
        operation.key,
        event.shard if event is not None else 0,
        (operation.name,),
        (event.name,) if event is not None else (),
        operation.returned_ns,
    )


def _unit_of(operation: Operation) -> str:
    """Return which part of a topic was looked up, whatever the topic is called."""
    return parse_topic(operation.key).unit.text


def _check_epochs(publishes: Iterable[Publish]) -> Iterator[Finding]:
    seen = [
        _Seen(publish.sent_ns, publish.acked_ns, publish.epoch, publish)
        for publish in publishes
        if publish.epoch and publish.acked_ns is not None
    ]
    for late, earlier in _gone_back(seen):
        message = (
            f"{late.what.unit}: {late.what.name} was sent and acknowledged under epoch "
            f"{late.epoch} after {earlier.what.name} had been under epoch {earlier.epoch}"
        )
        yield _overlap(message, late.what, earlier.what)


def _check_entries(publishes: Iterable[Publish]) -> Iterator[Finding]:
    entries: dict[tuple[int, int, int], Publish] = {}
    ledgers: dict[int, Publish] = {}
    for publish in publishes:
        if publish.ledger < 0:
            continue
        other = ledgers.setdefault(publish.ledger, publish)
        if other.epoch != publish.epoch:
            message = f"epochs {other.epoch} and {publish.epoch} both claim ledger {publish.ledger}"
            yield _overlap(message, publish, other)
        place = (publish.ledger, publish.entry, publish.batch_index)
        other = entries.setdefault(place, publish)
        if other is not publish:
            message = f"{other.name} and {publish.name} were both acknowledged as {place}"
            yield _overlap(message, publish, other)


def _gone_back(
    seen: list[_Seen[T]], *, behind: list[_Seen[T]] | None = None, allowed_ns: int = 0
) -> Iterator[tuple[_Seen[T], _Seen[T]]]:
    """Yield each of ``seen`` that began more than ``allowed_ns`` after an operation with a later
    epoch had ended, with that operation: one of ``behind``, or else of ``seen`` itself."""
    by_end = sorted(seen if behind is None else behind, key=lambda each: each.ended_ns)
    highest: _Seen[T] | None = None
    ended = 0
    for each in sorted(seen, key=lambda each: each.began_ns):
        while ended < len(by_end) and by_end[ended].ended_ns + allowed_ns < each.began_ns:
            if highest is None or by_end[ended].epoch > highest.epoch:
                highest = by_end[ended]
            ended += 1
        if highest is not None and each.epoch < highest.epoch:
            yield each, highest


def _overlap(message: str, *publishes: Publish) -> Finding:
    return Finding(
        FindingKind.OWNER_OVERLAP,
        CHECK,
        message,
        publishes[0].topic,
        operations=tuple(publish.name for publish in publishes),
        at_ns=publishes[0].acked_ns,
    )
