"""Checks what the members of a group receive: the messages of a key in order, and none missing.

A group is a subscription that keeps the order of keys, such as the stream of a scalable topic. Its
members record a message before they acknowledge it. So if a segment, or a bucket of one, goes from
one member to another when everything in flight is acknowledged, the times of the records are in
order too, whichever member wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history.model import Drained, History, Publish, Received

CHECK = "groups"

_Group = tuple[str, str]
"""Topic and subscription."""
_Message = tuple[str, int]
"""Producer and sequence."""


def check_groups(history: History) -> Iterator[Finding]:
    """Compare what each group received with what producers sent, and in which order."""
    groups: dict[_Group, list[Received]] = {}
    for received in history.received:
        if received.subscription:
            groups.setdefault((received.topic, received.subscription), []).append(received)
    for (_, subscription), read in groups.items():
        yield from _check_order(subscription, read)
    wanted = {(each.topic, each.subscription): each for each in history.drained}
    for drained in wanted.values():
        if drained.subscription:
            read = groups.get((drained.topic, drained.subscription), [])
            yield from _check_complete(drained, history.publishes, read)


def _check_order(subscription: str, read: Iterable[Received]) -> Iterator[Finding]:
    """Check the first receipt of each message; later ones are redeliveries."""
    seen: set[_Message] = set()
    last: dict[tuple[str, str], Received] = {}
    for received in sorted(read, key=lambda each: each.received_ns):
        message = (received.producer, received.sequence)
        if not received.key or message in seen:
            continue
        seen.add(message)
        of_key = (received.producer, received.key)
        before = last.get(of_key)
        if before is None or before.sequence < received.sequence:
            last[of_key] = received
            continue
        yield Finding(
            FindingKind.VIOLATION,
            CHECK,
            f"{received.consumer} of {subscription} received {_name(received)} with key "
            f"{received.key!r} after {before.consumer} had received {_name(before)}",
            received.topic,
            operations=(_name(received), _name(before)),
            at_ns=received.received_ns,
        )


def _check_complete(
    drained: Drained, publishes: Iterable[Publish], read: Iterable[Received]
) -> Iterator[Finding]:
    got = {(each.producer, each.sequence) for each in read}
    for publish in publishes:
        is_due = publish.topic == drained.topic and publish.acked_ns is not None
        if is_due and (publish.producer, publish.sequence) not in got:
            yield Finding(
                FindingKind.LOST,
                CHECK,
                f"{publish.name} was acknowledged and {drained.subscription}, which read "
                "everything, misses it",
                publish.topic,
                operations=(publish.name,),
                at_ns=publish.acked_ns,
            )


def _name(received: Received) -> str:
    return f"{received.producer}#{received.sequence} of {received.topic}"
