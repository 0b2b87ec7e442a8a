"""Lookups of renamed topics: each name that led to a topic all the time has to find it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history.checks.effects import names_in
from nextgen.harness.history.model import Operation, OperationKind
from nextgen.kernel.events.decider import RejectionCode


def check_names(operations: Sequence[Operation]) -> Iterator[Finding]:
    """Check that no lookup by a name of a renamed topic was refused because there is no such topic,
    while the topic was there and had the name, or had had it."""
    names = names_in(operations)
    since: dict[str, int] = {}
    going: dict[str, int] = {}
    for operation in operations:
        first = names.first_of(operation.key)
        if first not in names.first:
            continue
        if operation.kind is OperationKind.DELETE:
            going[first] = min(operation.invoked_ns, going.get(first, operation.invoked_ns))
        name = _name_given(operation)
        if name and operation.returned_ns is not None:
            since[name] = min(operation.returned_ns, since.get(name, operation.returned_ns))
    for lookup in operations:
        if lookup.kind is not OperationKind.LOOKUP or lookup.refusal != RejectionCode.NOT_FOUND:
            continue
        led_since = since.get(lookup.key)
        if led_since is None or led_since > lookup.invoked_ns:
            continue
        gone_since = going.get(names.first_of(lookup.key))
        if gone_since is not None and gone_since <= (lookup.returned_ns or gone_since):
            continue
        yield Finding(
            FindingKind.VIOLATION,
            "names",
            f"{lookup.key} was not found; it is a name of {names.first_of(lookup.key)}, which was "
            "there all the time",
            lookup.key,
            operations=(lookup.name,),
            at_ns=lookup.returned_ns,
        )


def _name_given(operation: Operation) -> str:
    """Return the name that a topic has since ``operation`` was acknowledged, "" for none."""
    if not operation.is_ok:
        return ""
    match operation.kind:
        case OperationKind.CREATE:
            return operation.key
        case OperationKind.RENAME:
            return str(operation.argument["new_name"])
        case _:
            return ""
