"""The sequential model of one tenant, namespace or topic: which answers fit which state.

A topic exists or not, and has an id for each creation, properties, and a version: 1 at its
creation, plus 1 with each change. Setting the present properties again changes nothing. Its
policies have a version of their own, 0 at its creation; a conditional write of them counts even if
they stay the same. A refusal has to be true at its moment; a code that is not about the object's
own state fits every state. Tenants and namespaces are judged more loosely: deleting them takes
several events, each of which counts in the version, and two deletions may meet and both succeed.

A renamed topic is one object by all the names that it ever got: by a name that it does not have yet
it is absent. Former names lead to it until the run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from nextgen.harness.history.checks.effects import is_conditional, policies_of
from nextgen.harness.history.checks.linearizability import NEVER_NS, Call
from nextgen.harness.history.log_fold import Properties, properties_of
from nextgen.harness.history.model import (
    READS,
    WRITES,
    ObjectKind,
    Operation,
    OperationKind,
    object_kind,
)
from nextgen.kernel.events.decider import RejectionCode

State = tuple[str, int, Properties, int, str, tuple[str, ...]]
"""Id, version, properties, version of the policies, policies, names."""

ABSENT: State = ("", 0, (), 0, "", ())

UNTOLD = "?"
"""Prefix of the id of an object whose create had no answer: the real id is not known."""

MODELLED = WRITES | READS

Apply = Callable[[State], State | None]


@dataclass(frozen=True, slots=True)
class ModelContext:
    """The facts that the model of one key needs besides the operation itself."""

    taken_ids: Collection[str]
    """Ids that creates were answered with: no create without an answer has made these."""
    bound_ids: dict[str, str]
    """Name of a create without an answer -> the id that it has made, by the log."""
    hints: dict[str, int]
    """Name of an operation -> position of its effect in the log."""


def call_of(operation: Operation, context: ModelContext) -> Call[State] | None:
    """Return ``operation`` for the search, None for one without information: a definite failure, or
    a read without an answer."""
    is_open = operation.is_unknown
    if operation.is_failed or (is_open and operation.kind in READS):
        return None
    returned_ns = NEVER_NS if is_open else operation.returned_ns
    assert returned_ns is not None, f"{operation.name} has an answer and no time of it"
    hint = context.hints.get(operation.name, 0)
    if not hint and (is_open or operation.is_ok):
        hint = 0 if operation.kind in READS else NEVER_NS
    return Call(
        operation.name,
        operation.invoked_ns,
        returned_ns,
        _by_name(operation.key, _apply_of(operation, context)),
        is_open,
        hint,
    )


def describe(state: State | None) -> str:
    """Return ``state`` in words."""
    if state is None or not state[0]:
        return "absent"
    policies = f" policies {state[4] or 'none'} version {state[3]}" if state[3] else ""
    return f"id {state[0]} version {state[1]} properties {dict(state[2])}{policies}"


def _by_name(name: str, apply: Apply) -> Apply:
    """Return ``apply`` for what is called ``name``: an object with other names is not there."""

    def by_name(state: State) -> State | None:
        if not state[0] or name in state[5]:
            return apply(state)
        return state if apply(ABSENT) == ABSENT else None

    return by_name


def _apply_of(operation: Operation, context: ModelContext) -> Apply:
    if operation.refusal:
        return _refused(operation)
    match operation.kind:
        case OperationKind.CREATE:
            return _create(operation, context)
        case OperationKind.DELETE:
            return _delete(operation, context)
        case OperationKind.SET_PROPERTIES:
            return _set_properties(operation, context)
        case OperationKind.GET:
            return _get(operation, context)
        case OperationKind.SET_POLICIES:
            return _set_policies(operation, context)
        case OperationKind.RENAME:
            return _rename(operation, context)
        case OperationKind.GET_POLICIES:
            return _get_policies(operation)
        case _:
            raise AssertionError(f"{operation.kind} is not an operation on an object's state")


def _create(operation: Operation, context: ModelContext) -> Apply:
    untold = context.bound_ids.get(operation.name, UNTOLD + operation.name)
    object_id = str(operation.value.get("id") or untold)
    properties = properties_of(operation.argument.get("properties"))
    created: State = (object_id, 1, properties, 0, "", (operation.key,))
    return lambda state: None if state[0] else created


def _delete(operation: Operation, context: ModelContext) -> Apply:
    answered = _text(operation, "id")
    may_be_absent = operation.is_ok and not _is_topic(operation)

    def apply(state: State) -> State | None:
        if not state[0]:
            return state if may_be_absent else None
        return ABSENT if _same_id(state[0], answered, context) else None

    return apply


def _set_properties(operation: Operation, context: ModelContext) -> Apply:
    told_id, told_version = _text(operation, "id"), _number(operation, "version")
    wanted = properties_of(operation.argument.get("properties"))
    expected = operation.argument.get("expected_version") or 0
    is_exact = _is_topic(operation)
    is_open = operation.is_unknown

    def apply(state: State) -> State | None:
        object_id, version, properties, *_ = state
        if not object_id or not _same_id(object_id, told_id, context):
            return None
        if properties != wanted:
            if expected not in (0, version):
                return None
            version += 1
        elif is_open:
            return None
        if told_version:
            if version != told_version and (is_exact or version > told_version):
                return None
            version = told_version
        return (told_id or object_id, version, wanted, *state[3:])

    return apply


def _rename(operation: Operation, context: ModelContext) -> Apply:
    told_id, told_version = _text(operation, "id"), _number(operation, "version")
    new_name = str(operation.argument["new_name"])

    def apply(state: State) -> State | None:
        object_id, version, *_, names = state
        if not object_id or not _same_id(object_id, told_id, context) or new_name in names:
            return None
        if told_version not in (0, version + 1):
            return None
        return (told_id or object_id, version + 1, *state[2:5], (*names, new_name))

    return apply


def _get(operation: Operation, context: ModelContext) -> Apply:
    told_id, told_version = _text(operation, "id"), _number(operation, "version")
    told_properties = properties_of(operation.value.get("properties"))
    is_exact = _is_topic(operation)
    tells_policies = "policies_version" in operation.value
    told_policies = (_number(operation, "policies_version"), policies_of(operation.value))

    def apply(state: State) -> State | None:
        object_id, version, properties, *_ = state
        if not told_id:
            return None if object_id else state
        if not object_id or properties != told_properties:
            return None
        if version != told_version and (is_exact or version > told_version):
            return None
        if not _same_id(object_id, told_id, context):
            return None
        if tells_policies and state[3:5] != told_policies:
            return None
        return (told_id, told_version, properties, *state[3:])

    return apply


def _set_policies(operation: Operation, context: ModelContext) -> Apply:
    told_id, told_version = _text(operation, "id"), _number(operation, "version")
    wanted = policies_of(operation.argument)
    expected = operation.argument.get("expected_version") or 0
    on_condition = is_conditional(operation)
    is_exact = _is_topic(operation)
    is_open = operation.is_unknown

    def apply(state: State) -> State | None:
        object_id, version, properties, policies_version, policies, names = state
        if not object_id or not _same_id(object_id, told_id, context):
            return None
        if on_condition and expected != policies_version:
            return None
        if on_condition or policies != wanted:
            version += 1
            policies_version += 1
        elif is_open:
            return None
        if told_version:
            if version != told_version and (is_exact or version > told_version):
                return None
            version = told_version
        return (told_id or object_id, version, properties, policies_version, wanted, names)

    return apply


def _get_policies(operation: Operation) -> Apply:
    answered = (_number(operation, "policies_version"), policies_of(operation.value))
    return lambda state: state if state[0] and state[3:5] == answered else None


def _refused(operation: Operation) -> Apply:
    match operation.refusal:
        case RejectionCode.ALREADY_EXISTS | RejectionCode.NOT_EMPTY:
            return lambda state: state if state[0] else None
        case RejectionCode.NOT_FOUND:
            return lambda state: None if state[0] else state
        case RejectionCode.VERSION_MISMATCH:
            return _version_mismatch(operation)
        case _:
            return lambda state: state


def _version_mismatch(operation: Operation) -> Apply:
    if operation.kind is OperationKind.SET_POLICIES:
        wanted_version = operation.argument.get("expected_version") or 0
        return lambda state: state if state[0] and state[3] != wanted_version else None
    wanted = properties_of(operation.argument.get("properties"))
    expected = operation.argument.get("expected_version")
    is_exact = _is_topic(operation)

    def apply(state: State) -> State | None:
        object_id, version, properties, *_ = state
        if not object_id or not expected:  # Any version would have done.
            return None
        return None if is_exact and (expected == version or wanted == properties) else state

    return apply


def _same_id(object_id: str, answered: str, context: ModelContext) -> bool:
    if not answered or object_id == answered:
        return True
    return object_id.startswith(UNTOLD) and answered not in context.taken_ids


def _is_topic(operation: Operation) -> bool:
    return object_kind(operation.key) is ObjectKind.TOPIC


def _text(operation: Operation, name: str) -> str:
    return str(operation.value.get(name) or "")


def _number(operation: Operation, name: str) -> int:
    given = operation.value.get(name)
    return given if isinstance(given, int) else 0
