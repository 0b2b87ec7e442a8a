"""Writes and reads of tenants, namespaces and topics against the log: lost, phantom, twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nextgen.audit.verdict import Finding, FindingKind, named
from nextgen.harness.history.checks.effects import Effects, in_scope, names_in, policies_of
from nextgen.harness.history.log_fold import LogIndex, Properties, TopicNames, properties_of
from nextgen.harness.history.model import (
    READS,
    FinalItem,
    History,
    LogEvent,
    ObjectKind,
    Operation,
    OperationKind,
    object_kind,
)
from nextgen.kernel.events.decider import RejectionCode

ACKED_SET = "acked set"
PARENTS = "parents"


def check_effects(effects: Effects) -> Iterator[Finding]:
    """Check that every acknowledged write is in the log once, and every event was requested."""
    for operation in effects.without_effect:
        yield Finding(
            FindingKind.LOST,
            ACKED_SET,
            f"{operation.kind} of {operation.key} was acknowledged and the log does not have it",
            operation.key,
            operation.shard,
            (operation.name,),
            at_ns=operation.returned_ns,
        )
    for operation, events in effects.repeated:
        yield Finding(
            FindingKind.VIOLATION,
            ACKED_SET,
            f"one {operation.kind} of {operation.key} took effect {len(events)} times",
            operation.key,
            events[0].shard,
            (operation.name,),
            named([event.name for event in events]),
            operation.invoked_ns,
        )
    for event, denied in effects.unasked:
        yield _phantom_event(event, denied)


def _phantom_event(event: LogEvent, denied: Operation | None) -> Finding:
    why = f": {denied.name} got {denied.outcome}" if denied is not None else ""
    return Finding(
        FindingKind.PHANTOM,
        ACKED_SET,
        f"{event.type} of {event.key} is in the log, and no operation may have caused it{why}",
        event.key,
        event.shard,
        (denied.name,) if denied is not None else (),
        (event.name,),
        denied.returned_ns if denied is not None else None,
    )


def check_reads(history: History) -> Iterator[Finding]:
    """Check that every read value was written by a recorded operation."""
    names = names_in(history.operations)
    yield from _check_policies_read(history, names)
    wishes: dict[str, set[Properties]] = {}
    ids: dict[str, str] = {}
    for operation in history.operations:
        if operation.kind in (OperationKind.CREATE, OperationKind.SET_PROPERTIES):
            if operation.may_have_happened:
                wanted = properties_of(operation.argument.get("properties"))
                wishes.setdefault(names.first_of(operation.key), set()).add(wanted)
            if operation.is_ok and operation.kind is OperationKind.CREATE:
                ids[str(operation.value.get("id"))] = names.first_of(operation.key)
    for read in history.operations:
        if read.kind is not OperationKind.GET or not (read.is_ok and read.value.get("id")):
            continue
        if not in_scope(read.key, history.run.scopes):
            continue
        read_properties = properties_of(read.value.get("properties"))
        first = names.first_of(read.key)
        made_for = ids.get(str(read.value["id"]), first)
        if made_for != first or read_properties not in wishes.get(first, ()):
            yield Finding(
                FindingKind.PHANTOM,
                "reads",
                f"{read.key} was read as {dict(read.value)}, which no operation wrote",
                read.key,
                operations=(read.name,),
                at_ns=read.returned_ns,
            )


def _check_policies_read(history: History, names: TopicNames) -> Iterator[Finding]:
    wishes: dict[str, set[str]] = {}
    for operation in history.operations:
        if operation.kind is OperationKind.SET_POLICIES and operation.may_have_happened:
            first = names.first_of(operation.key)
            wishes.setdefault(first, set()).add(policies_of(operation.argument))
    for read in history.operations:
        reported = policies_of(read.value)
        if read.kind not in READS or not (read.is_ok and reported):
            continue
        wished = wishes.get(names.first_of(read.key), ())
        if in_scope(read.key, history.run.scopes) and reported not in wished:
            yield Finding(
                FindingKind.PHANTOM,
                "reads",
                f"{read.key} was read with the policies {reported}, which no operation wrote",
                read.key,
                operations=(read.name,),
                at_ns=read.returned_ns,
            )


def check_final(history: History, index: LogIndex) -> Iterator[Finding]:
    """Check that the final listing equals the fold of the log."""
    listed = {item.key: item for item in history.final_items}
    prefixes = [listing.prefix for listing in history.final_listings]
    for key, known in index.keys.items():
        last = known.last
        if last is None or not last.exists or not in_scope(key, prefixes):
            continue
        item = listed.get(key)
        if item is None:
            yield _final(FindingKind.LOST, key, f"{key} is in the log and not listed", last.event)
        elif not _is_item(item, last.id, last.version, last.properties):
            reported = f"{item.id} version {item.version} properties {dict(item.properties)}"
            kept = f"{last.id} version {last.version} properties {dict(last.properties)}"
            message = f"{key} is listed as {reported}, by the log it is {kept}"
            yield _final(FindingKind.VIOLATION, key, message, last.event)
    if not index.by_shard:
        return
    for key in listed:
        known_log = index.keys.get(key)
        last = known_log.last if known_log is not None else None
        if last is None or not last.exists:
            event = last.event if last is not None else None
            yield _final(
                FindingKind.PHANTOM, key, f"{key} is listed and by the log it is not there", event
            )


def _is_item(item: FinalItem, object_id: str, version: int, properties: Properties) -> bool:
    return (item.id, item.version, properties_of(item.properties)) == (
        object_id,
        version,
        properties,
    )


def _final(kind: FindingKind, key: str, message: str, event: LogEvent | None) -> Finding:
    return Finding(
        kind,
        "final state",
        message,
        key,
        event.shard if event is not None else 0,
        events=(event.name,) if event is not None else (),
    )


def check_parents(operations: Sequence[Operation]) -> Iterator[Finding]:
    """Check that no create was refused for a missing parent that existed all the time."""
    there_from: dict[str, int] = {}
    going_from: dict[str, int] = {}
    for operation in operations:
        if object_kind(operation.key) is ObjectKind.TOPIC:
            continue
        if operation.kind is OperationKind.CREATE and operation.is_ok:
            assert operation.returned_ns is not None, f"{operation.name} has no time of its answer"
            _lower(there_from, operation.key, operation.returned_ns)
        if operation.kind is OperationKind.DELETE:
            # A deletion that is refused, or given up, closes the parent for a while too.
            _lower(going_from, operation.key, operation.invoked_ns)
    for operation in operations:
        if operation.refusal != RejectionCode.PARENT_NOT_FOUND:
            continue
        parent = parent_of(operation.key)
        since = there_from.get(parent)
        if since is None or since > operation.invoked_ns:
            continue
        gone_since = going_from.get(parent)
        if gone_since is not None and gone_since <= (operation.returned_ns or gone_since):
            continue
        yield Finding(
            FindingKind.VIOLATION,
            PARENTS,
            f"{operation.key} was refused because {parent} is not there; it was there all the time",
            operation.key,
            operation.shard,
            (operation.name,),
            at_ns=operation.returned_ns,
        )


def parent_of(key: str) -> str:
    """Return the tenant of a namespace, the namespace of a topic, "" of a tenant."""
    match object_kind(key):
        case ObjectKind.TOPIC:
            return key.partition("://")[2].rpartition("/")[0]
        case ObjectKind.NAMESPACE:
            return key.partition("/")[0]
        case _:
            return ""


def _lower(times: dict[str, int], key: str, at_ns: int) -> None:
    times[key] = min(at_ns, times.get(key, at_ns))


def check_view_hashes(history: History) -> Iterable[Finding]:
    """Check that replicas of a shard have equal views at equal positions."""
    first: dict[tuple[int, int], tuple[str, str]] = {}
    for view in history.view_hashes:
        node, digest = first.setdefault((view.shard, view.position), (view.node, view.digest))
        if digest != view.digest:
            yield Finding(
                FindingKind.VIOLATION,
                "view hashes",
                f"the views of {node} and {view.node} differ at position {view.position}",
                shard=view.shard,
                events=(f"{view.shard}:{view.position}",),
            )
