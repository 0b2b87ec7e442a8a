"""Matches operations with their effects: events in the log.

They match by command id if it is known, else by values that only the two can share: the id of the
created or deleted object, the version in the answer, and for operations without an answer their
arguments. An operation explains at most one event, and an event has at most one operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nextgen.harness.history.log_fold import (
    POLICY_CLEARED,
    POLICY_EVENTS,
    POLICY_SET,
    RENAMED,
    KeyLog,
    LogIndex,
    ObjectState,
    Properties,
    TopicNames,
    new_name_of,
    properties_of,
)
from nextgen.harness.history.model import WRITES, LogEvent, Operation, OperationKind

_EVENT_OF = {
    OperationKind.CREATE: "created",
    OperationKind.DELETE: "deleted",
    OperationKind.SET_PROPERTIES: "properties_set",
    OperationKind.RENAME: "renamed",
}
_SETS = frozenset({OperationKind.SET_PROPERTIES, OperationKind.SET_POLICIES})


@dataclass(slots=True)
class Effects:
    """The matches: ``events`` by operation name; and the unmatched operations and events."""

    is_log_complete: bool
    names: TopicNames
    events: dict[str, LogEvent] = field(default_factory=dict)
    guessed_keys: set[str] = field(default_factory=set)
    """Objects, by their first names, with an event that may belong to one of several operations
    without an answer."""
    without_effect: list[Operation] = field(default_factory=list)
    """Acknowledged writes that are not in the log."""
    repeated: list[tuple[Operation, list[LogEvent]]] = field(default_factory=list)
    """Commands that took effect more than once."""
    unasked: list[tuple[LogEvent, Operation | None]] = field(default_factory=list)
    """Events that no operation explains, with a failed operation that requested it, if any."""


def match_effects(
    index: LogIndex,
    operations: Sequence[Operation],
    scopes: Sequence[str],
    *,
    is_log_complete: bool = True,
) -> Effects:
    """Match all writes among ``operations`` with the log. Those of a renamed topic are matched
    together, by whichever name they were made."""
    names = names_in(operations, index)
    effects = Effects(is_log_complete, names)
    asked: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.kind in WRITES:
            asked.setdefault(names.first_of(operation.key), []).append(operation)
    for key, writes in asked.items():
        lives = filter(None, (index.life_of(each.key) for each in writes))
        _KeyMatch(effects, next(lives, None) or KeyLog(key, 0), writes).run()
    for known in index.all_lives():
        if names.first_of(known.key) not in asked and in_scope(known.key, scopes):
            effects.unasked += [(event, None) for event in _changes(known)]
    return effects


def names_in(operations: Sequence[Operation], index: LogIndex | None = None) -> TopicNames:
    """Return the names that topics got, by the log and by operations that may have happened."""
    names = TopicNames() if index is None else TopicNames(dict(index.names.first))
    renames = [op for op in operations if op.kind is OperationKind.RENAME and op.may_have_happened]
    for operation in sorted(renames, key=lambda op: op.invoked_ns):
        names.learn(operation.key, str(operation.argument["new_name"]))
    return names


def in_scope(key: str, scopes: Sequence[str]) -> bool:
    """Return whether every writer of ``key`` was recorded."""
    return any(key.startswith(prefix) for prefix in scopes)


def _changes(known: KeyLog) -> list[LogEvent]:
    # That a deletion began or was given up is the cluster's own business.
    wanted = set(_EVENT_OF.values())
    events = (state.event for state in known.states)
    return [e for e in events if e.type in POLICY_EVENTS or e.type.partition("_")[2] in wanted]


class _KeyMatch:
    def __init__(self, effects: Effects, known: KeyLog, writes: Sequence[Operation]) -> None:
        self._effects = effects
        self._known = known
        self._writes = sorted(writes, key=lambda operation: operation.invoked_ns)
        self._left = {event.order: event for event in _changes(known)}
        self._wishes = Counter(_wish(op) for op in writes if op.may_have_happened)

    def run(self) -> None:
        self._match_command_ids()
        for operation in self._unmatched():
            if operation.is_ok:
                self._match_answer(operation)
        for operation in self._unmatched():
            # With an id of its own, it would have been found by it.
            if operation.is_unknown and not operation.command_id:
                self._match_wish(operation)
        for operation in self._unmatched():
            if operation.is_ok and not self._changed_nothing(operation):
                self._effects.without_effect.append(operation)
        for event in self._left.values():
            denied = next((op for op in self._writes if _denied(op) and _fits(op, event)), None)
            self._effects.unasked.append((event, denied))

    def _unmatched(self) -> Iterable[Operation]:
        return [op for op in self._writes if op.name not in self._effects.events]

    def _match_command_ids(self) -> None:
        by_causation: dict[str, list[LogEvent]] = {}
        for event in self._left.values():
            if event.causation_id:
                by_causation.setdefault(event.causation_id, []).append(event)
        for operation in self._writes:
            found = by_causation.get(operation.command_id, [])
            found = [event for event in found if _is_of(operation, event)]
            if len(found) > 1:
                self._effects.repeated.append((operation, found))
            if found and operation.may_have_happened:
                self._take(operation, found[0])
                for event in found[1:]:
                    self._left.pop(event.order, None)

    def _match_answer(self, operation: Operation) -> None:
        answered = operation.value.get("id")
        for event in self._left.values():
            if not _is_of(operation, event):
                continue
            if operation.kind in _SETS:
                state = self._known.at(event.order)
                if state is None or not _is_state_told(operation, state):
                    continue
            elif event.id != answered:
                continue
            self._take(operation, event)
            return

    def _match_wish(self, operation: Operation) -> None:
        for event in self._left.values():
            if _fits(operation, event):
                self._take(operation, event)
                break
        if self._wishes[_wish(operation)] > 1:
            self._effects.guessed_keys.add(self._effects.names.first_of(operation.key))

    def _changed_nothing(self, operation: Operation) -> bool:
        """Return whether it set properties, or policies, that the object had already."""
        if operation.kind not in _SETS or is_conditional(operation):
            return False
        return any(_is_state_told(operation, state) for state in self._known.states)

    def _take(self, operation: Operation, event: LogEvent) -> None:
        self._effects.events[operation.name] = event
        self._left.pop(event.order, None)


def policies_of(given: Mapping[str, object]) -> str:
    """Return the policies that an argument or a value names, "" for none."""
    return str(given.get("policies") or "")


def is_conditional(operation: Operation) -> bool:
    """Return whether it sets policies only if they have a version: that is always an event."""
    asked = operation.argument
    if operation.kind is not OperationKind.SET_POLICIES:
        return False
    return bool(asked.get("expected_version") or asked.get("expects_none"))


def _wish(operation: Operation) -> tuple[OperationKind, Properties | str]:
    if operation.kind is OperationKind.SET_POLICIES:
        return operation.kind, policies_of(operation.argument)
    return operation.kind, properties_of(operation.argument.get("properties"))


def _is_of(operation: Operation, event: LogEvent) -> bool:
    if operation.kind is OperationKind.SET_POLICIES:
        wanted = POLICY_SET if policies_of(operation.argument) else POLICY_CLEARED
        return event.type == wanted
    if operation.kind is OperationKind.RENAME:
        return event.type == RENAMED and new_name_of(event) == operation.argument["new_name"]
    return event.type.partition("_")[2] == _EVENT_OF[operation.kind]


def _fits(operation: Operation, event: LogEvent) -> bool:
    """Return whether ``event`` is exactly what ``operation`` requested."""
    if not _is_of(operation, event):
        return False
    if operation.kind in (OperationKind.DELETE, OperationKind.RENAME):
        return True
    if operation.kind is OperationKind.SET_POLICIES:
        return policies_of(operation.argument) == event.policies
    return properties_of(operation.argument.get("properties")) == properties_of(event.properties)


def _is_state_told(operation: Operation, state: ObjectState) -> bool:
    answered = (operation.value.get("id"), operation.value.get("version"))
    if answered != (state.id, state.version):
        return False
    if operation.kind is OperationKind.SET_POLICIES:
        return state.policies == policies_of(operation.argument)
    return state.properties == properties_of(operation.argument.get("properties"))


def _denied(operation: Operation) -> bool:
    return operation.is_failed or operation.refusal != ""
