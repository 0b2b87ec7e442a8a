"""Checks messages: acknowledged ones are stored once and in order, and stored ones were sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history.checks.effects import in_scope
from nextgen.harness.history.model import History, Publish, Received

CHECK = "messages"

Key = tuple[str, str, int]
Place = tuple[int, int, int]


def check_messages(history: History) -> Iterator[Finding]:
    """Compare each drained topic with the records of its producers."""
    sent = {_key(publish): publish for publish in history.publishes}
    by_reader: dict[tuple[str, str], list[Received]] = {}
    for received in history.received:
        by_reader.setdefault((received.consumer, received.topic), []).append(received)
    yield from _check_sent(history, sent)
    acked: dict[str, list[Publish]] = {}
    for publish in history.publishes:
        if publish.acked_ns is not None:
            acked.setdefault(publish.topic, []).append(publish)
    for drained in history.drained:
        if drained.subscription:
            continue  # See group_check.
        read = by_reader.get((drained.consumer, drained.topic), [])
        yield from _check_once_in_order(read)
        yield from _check_acked(drained.consumer, acked.get(drained.topic, []), read)


def _check_sent(history: History, sent: dict[Key, Publish]) -> Iterator[Finding]:
    reported: set[Key] = set()
    for received in history.received:
        key = _key(received)
        if key in sent or key in reported or not in_scope(received.topic, history.run.scopes):
            continue
        reported.add(key)
        yield _finding(
            FindingKind.PHANTOM, f"{_name(key)} was received and was never sent", received, key
        )


def _check_once_in_order(read: Sequence[Received]) -> Iterator[Finding]:
    places: dict[Key, Place] = {}
    last_of_producer: dict[str, int] = {}
    last_place: Place = (-1, -1, -1)
    for received in read:
        key, place = _key(received), _place(received)
        if key in places:
            message = f"{_name(key)} is stored twice, at {places[key]} and {place}"
            yield _finding(FindingKind.VIOLATION, message, received, key)
            continue
        places[key] = place
        before = last_of_producer.get(received.producer, -1)
        if received.sequence < before:
            message = f"{_name(key)} came behind its producer's message {before}"
            yield _finding(FindingKind.VIOLATION, message, received, key)
        last_of_producer[received.producer] = max(before, received.sequence)
        if place <= last_place:
            message = f"{_name(key)} at {place} was read behind {last_place}"
            yield _finding(FindingKind.VIOLATION, message, received, key)
        last_place = max(last_place, place)


def _check_acked(
    consumer: str, acked: Sequence[Publish], read: Sequence[Received]
) -> Iterator[Finding]:
    places = {_key(received): received for received in read}
    for publish in acked:
        received = places.get(_key(publish))
        if received is None:
            yield Finding(
                FindingKind.LOST,
                CHECK,
                f"{publish.name} was acknowledged and {consumer}, who read everything, misses it",
                publish.topic,
                operations=(publish.name,),
                at_ns=publish.acked_ns,
            )
        elif publish.ledger >= 0 and (received.ledger, received.entry) != (
            publish.ledger,
            publish.entry,
        ):
            message = (
                f"{publish.name} was acknowledged as {publish.ledger}:{publish.entry} and is at "
                f"{received.ledger}:{received.entry}"
            )
            yield _finding(FindingKind.VIOLATION, message, received, _key(publish))


def _key(message: Publish | Received) -> Key:
    return (message.topic, message.producer, message.sequence)


def _place(received: Received) -> Place:
    return (received.ledger, received.entry, received.batch_index)


def _name(key: Key) -> str:
    topic, producer, sequence = key
    return f"{producer}#{sequence} of {topic}"


def _finding(kind: FindingKind, message: str, received: Received, key: Key) -> Finding:
    at_ns = received.received_ns or None
    return Finding(kind, CHECK, message, received.topic, operations=(_name(key),), at_ns=at_ns)
