"""What operators do to one open topic: its subscriptions, its cursors, its messages.

Every operation is durable when it returns. All but ``skip`` may be repeated without harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.cursor import before
from brokers.domain.subscriptions.open_entries import nth_behind, nth_open
from brokers.ports.ledger import Entry, LedgerReader
from brokers.service.storage_refusal import STORAGE_ERRORS
from brokers.service.subscriptions.start import SubscriptionStart
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics.topic import Topic
from nextgen.kernel.errors import InvalidRequest, ProposalLost, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import (
    BACKLOG_ANALYSIS_CHUNK_BYTES,
    BACKLOG_ANALYSIS_CHUNK_ENTRIES,
    BACKLOG_ANALYSIS_ENTRIES_MAX,
    BACKLOG_ANALYSIS_MS_MAX,
    SUBSCRIPTION_NAME_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_MAX,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a topic: exactly one of the fields is set, else it is the end of the topic."""

    is_earliest: bool = False
    behind: Position | None = None
    """Everything up to and including this position lies before the place."""
    publish_time_ms: int | None = None


LATEST = Place()


@dataclass(slots=True)
class BacklogAnalysis:
    """The unacknowledged entries that an analysis has read."""

    entries: int = 0
    messages: int = 0
    """Of batches all messages, also if some of them are acknowledged, as in Pulsar."""
    is_aborted: bool = False
    """Whether a bound ended the analysis before the end of the topic."""
    first: Position | None = None
    last: Position | None = None

    def count(self, entry: Entry) -> None:
        """Add one entry."""
        self.entries += 1
        self.messages += entry.message_count
        self.first = self.first or entry.position
        self.last = entry.position


async def create_subscription(
    topic: Topic, name: str, place: Place, properties: Mapping[str, str]
) -> None:
    """Create a durable subscription without a consumer; it begins behind ``place``.

    Raises:
        Refused: ALREADY_EXISTS; NOT_ALLOWED for a topic that is not persistent.
        InvalidRequest: The name or the properties exceed a limit.
        Refusal: The topic has too many subscriptions, or it is closing.
        ProposalLost, Fenced, StorageFailed, LedgerDamaged: It may have been created, or not.
    """
    _check_name(name)
    _check_properties(properties)
    check_persistent(topic)
    mark_delete = await mark_delete_of(place, topic.ledger)
    was_there = topic.has_subscription(name)
    if not (was_there or topic.is_usable):
        raise _closing(topic)
    start = SubscriptionStart(mark_delete=mark_delete, properties=properties)
    try:
        if name not in topic.subscriptions:
            # One that is being created may not come to be: it is there once it is stored.
            await topic.create_subscription(name, start)
    except Refusal as refusal:
        if topic.is_usable:
            raise
        raise ProposalLost(f"{topic.unit.name} closed meanwhile: {refusal.message}") from refusal
    if was_there:
        raise Refused(
            RejectionCode.ALREADY_EXISTS, f"{topic.unit.name} has a subscription {name!r}"
        )


async def delete_subscription(topic: Topic, name: str, *, is_forced: bool) -> None:
    """Delete a subscription; ``is_forced`` disconnects its consumers, who may create it anew.

    Raises:
        Refused: NOT_FOUND; NOT_EMPTY: consumers are connected, and it is not forced.
        Refusal: The subscription is being reset, or the topic is closing.
        Fenced, StorageFailed: It may have been deleted, or not.
    """
    subscription = subscription_of(topic, name)
    if subscription.consumers and not is_forced:
        raise Refused(
            RejectionCode.NOT_EMPTY,
            f"subscription {name!r} of {topic.unit.name} has {len(subscription.consumers)} "
            "connected consumers",
        )
    await topic.delete_subscription(subscription, is_forced=is_forced)


async def update_subscription(topic: Topic, name: str, properties: Mapping[str, str]) -> None:
    """Replace a subscription's properties.

    Raises:
        Refused: NOT_FOUND.
        InvalidRequest: The properties exceed a limit.
        Refusal: The subscription is being reset, or the topic is closing.
        Fenced, StorageFailed: They may have been replaced, or not.
    """
    _check_properties(properties)
    await subscription_of(topic, name).use_properties(properties)


async def skip(topic: Topic, name: str, entries: int | None) -> None:
    """Acknowledge so many of the oldest unacknowledged entries, all of them with None.

    Raises:
        Refused: NOT_FOUND.
        InvalidRequest: ``entries`` is 0.
        Refusal: The subscription is being reset, or the topic is closing.
        ProposalLost, Fenced, StorageFailed: They may have been acknowledged, or not.
    """
    if entries == 0:
        raise InvalidRequest("at least one entry has to be skipped")
    subscription, ledger = subscription_of(topic, name), topic.ledger
    up_to = None if entries is None else _nth_open(subscription, entries, ledger)
    await _pass_over([subscription], ledger.last if up_to is None else up_to)


async def reset(topic: Topic, name: str, place: Place) -> None:
    """Set a cursor. The consumers are closed, and connect again.

    Raises:
        Refused: NOT_FOUND.
        Refusal: The subscription is being reset already, or the topic is closing.
        Fenced, StorageFailed, LedgerDamaged: It may have been set, or not.
    """
    subscription = subscription_of(topic, name)
    await subscription.reset(await mark_delete_of(place, topic.ledger))


async def expire(topic: Topic, name: str, place: Place) -> None:
    """Acknowledge everything before ``place``, in one subscription or in all durable ones ("").

    Raises:
        As ``skip``, and LedgerDamaged.
    """
    up_to = await mark_delete_of(place, topic.ledger)
    await _pass_over([subscription_of(topic, name)] if name else _durable(topic), up_to)


async def truncate(topic: Topic) -> None:
    """Acknowledge everything in every durable subscription, and drop all ledgers but the last.

    Retention does not count here.

    Raises:
        Refused: NOT_ALLOWED: the topic is not persistent.
        Refusal: A subscription is being reset, or the topic is closing.
        Fenced, StorageFailed: It may have happened, in part or not at all.
    """
    check_persistent(topic)
    last = topic.ledger.last
    await _pass_over(_durable(topic), last)
    await topic.ledger.trim(last)
    topic.followers.changed()


async def last_message(topic: Topic) -> tuple[Position, int]:
    """Return the last entry's position and its number of messages.

    Raises:
        Refusal: The entry cannot be read.
    """
    last = topic.ledger.last
    if last == BEFORE_ALL:
        return last, 0
    try:
        entries = await topic.ledger.read(before(last), entries_max=1, bytes_max=1)
    except STORAGE_ERRORS as error:
        raise topic.storage_failed(error) from error
    return last, entries[0].message_count if entries else 0


def durable_names(topic: Topic) -> list[str]:
    """Return the names of the topic's durable subscriptions."""
    return [name for name, each in topic.subscriptions.items() if each.is_durable]


async def terminate(topic: Topic) -> None:
    """End publishing for ever: see ``Topic.terminate``.

    Raises:
        Refused: NOT_ALLOWED: the topic is not persistent, or it is a shadow.
    """
    check_persistent(topic)
    if topic.as_shadow is not None:
        raise Refused(RejectionCode.NOT_ALLOWED, topic.as_shadow.refusal.message)
    await topic.terminate()


async def peek(topic: Topic, name: str, number: int) -> Entry:
    """Return the ``number``-th entry, from 1, that the subscription has not acknowledged.

    Raises:
        Refused: NOT_FOUND: there is no such subscription or entry.
        InvalidRequest: ``number`` is 0.
        LedgerDamaged, StorageFailed: It cannot be read.
    """
    _check_number(number)
    position = _nth_open(subscription_of(topic, name), number, topic.ledger)
    return await entry_at(topic, position)


async def examine(topic: Topic, number: int, *, is_from_latest: bool) -> Entry:
    """Return the ``number``-th kept entry, from 1, counted from the first or from the last.

    Raises:
        Refused: NOT_FOUND; NOT_ALLOWED: the topic is not persistent.
        InvalidRequest: ``number`` is 0.
        LedgerDamaged, StorageFailed: It cannot be read.
    """
    check_persistent(topic)
    _check_number(number)
    ledger = topic.ledger
    if is_from_latest:
        number = max(ledger.entry_count - number + 1, 0)
    position = None
    if number:
        begin = before(ledger.first)
        position = nth_behind(begin, number, ledger.first, ledger.last, ledger.entries_between)
    return await entry_at(topic, position)


async def entry_at(topic: Topic, position: Position | None) -> Entry:
    """Return the entry at a position.

    Raises:
        Refused: NOT_FOUND: there is none, or it was dropped; NOT_ALLOWED: the topic is not
            persistent.
        LedgerDamaged, StorageFailed: It cannot be read.
    """
    check_persistent(topic)
    if position is not None:
        found = await topic.ledger.read(before(position), entries_max=1, bytes_max=1)
        if found and found[0].position == position:
            return found[0]
    where = "" if position is None else f" at {position}"
    raise Refused(RejectionCode.NOT_FOUND, f"{topic.unit.name} has no such entry{where}")


async def find_by_time(topic: Topic, publish_time_ms: int) -> Position:
    """Return the first kept entry published at or after the time, one behind the last if none was.

    Raises:
        Refused: NOT_ALLOWED: the topic is not persistent.
        LedgerDamaged, StorageFailed: The ledger cannot be read.
    """
    check_persistent(topic)
    ledger = topic.ledger
    earlier = await ledger.before_time(publish_time_ms)
    found = await ledger.read(earlier, entries_max=1, bytes_max=1)
    if found:
        return found[0].position
    last = ledger.last
    return last if last == BEFORE_ALL else Position(last.ledger_id, last.entry_id + 1)


async def analyze_backlog(topic: Topic, name: str, start: Position | None) -> BacklogAnalysis:
    """Count what a subscription has not acknowledged, from ``start`` on, by reading it.

    Ends after ``BACKLOG_ANALYSIS_ENTRIES_MAX`` entries or ``BACKLOG_ANALYSIS_MS_MAX``.

    Raises:
        Refused: NOT_FOUND; NOT_ALLOWED: the topic is not persistent.
        Refusal: The topic is closing.
        LedgerDamaged, StorageFailed: The ledger cannot be read.
    """
    check_persistent(topic)
    cursor, ledger = subscription_of(topic, name).cursor, topic.ledger
    after = cursor.mark_delete
    if start is not None:
        after = max(after, before(start))
    end_ms = topic.now_ms() + BACKLOG_ANALYSIS_MS_MAX
    found = BacklogAnalysis()
    while entries := await ledger.read(
        after,
        entries_max=BACKLOG_ANALYSIS_CHUNK_ENTRIES,
        bytes_max=BACKLOG_ANALYSIS_CHUNK_BYTES,
    ):
        for entry in entries:
            if cursor.is_acked(entry.position):
                continue
            if found.entries == BACKLOG_ANALYSIS_ENTRIES_MAX:
                found.is_aborted = True
                return found
            found.count(entry)
        after = entries[-1].position
        if topic.now_ms() >= end_ms:
            found.is_aborted = after < ledger.last
            break
    return found


def _durable(topic: Topic) -> list[Subscription]:
    if not topic.is_usable:
        raise _closing(topic)
    return [each for each in topic.subscriptions.values() if each.is_durable]


async def _pass_over(subscriptions: Sequence[Subscription], up_to: Position) -> None:
    """Acknowledge everything up to ``up_to``; return when that is durable."""
    for subscription in subscriptions:
        if not subscription.pass_over(up_to):
            raise Refusal(
                ServerError.METADATA, f"subscription {subscription.name!r} is being reset"
            )
    stored = [each.stored() for each in subscriptions]
    try:
        for future in stored:
            await future
    except Refusal as refusal:
        raise ProposalLost(f"the topic closed meanwhile: {refusal.message}") from refusal


def _nth_open(subscription: Subscription, number: int, ledger: LedgerReader) -> Position | None:
    return nth_open(subscription.cursor, number, ledger.first, ledger.last, ledger.entries_between)


def _closing(topic: Topic) -> Refusal:
    return Refusal(ServerError.SERVICE_NOT_READY, f"{topic.unit.name} is closing: look it up again")


def _check_number(number: int) -> None:
    if number < 1:
        raise InvalidRequest("entries are counted from 1")


def subscription_of(topic: Topic, name: str) -> Subscription:
    """Return a subscription.

    Raises:
        Refused: NOT_FOUND.
        Refusal: The topic is closing.
    """
    if not topic.is_usable:
        raise _closing(topic)
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise Refused(RejectionCode.NOT_FOUND, f"{topic.unit.name} has no subscription {name!r}")
    return subscription


async def mark_delete_of(place: Place, ledger: LedgerReader) -> Position:
    """Return the mark-delete position of a subscription that begins at ``place``.

    Raises:
        LedgerDamaged, StorageFailed: The ledger cannot be read.
    """
    if place.is_earliest:
        return before(ledger.first)
    if place.publish_time_ms is not None:
        return await ledger.before_time(place.publish_time_ms)
    return ledger.last if place.behind is None else min(place.behind, ledger.last)


def check_persistent(topic: Topic) -> None:
    """Return if the topic stores messages.

    Raises:
        Refused: NOT_ALLOWED.
    """
    if not topic.unit.is_persistent:
        raise Refused(
            RejectionCode.NOT_ALLOWED, f"{topic.unit.name} is not persistent: it stores nothing"
        )


def _check_name(name: str) -> None:
    if not name:
        raise InvalidRequest("a subscription needs a name")
    if len(name.encode()) > SUBSCRIPTION_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"a subscription's name has at most {SUBSCRIPTION_NAME_BYTES_MAX} bytes"
        )


def _check_properties(properties: Mapping[str, str]) -> None:
    # Check the number first: empty properties have no bytes.
    if len(properties) > SUBSCRIPTION_PROPERTIES_MAX:
        raise InvalidRequest(f"a subscription has at most {SUBSCRIPTION_PROPERTIES_MAX} properties")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > SUBSCRIPTION_PROPERTIES_BYTES_MAX:
        raise InvalidRequest(
            f"a subscription's properties have at most {SUBSCRIPTION_PROPERTIES_BYTES_MAX} bytes"
        )
