"""Assignments of one shard as they change, for the caches that answer lookups.

    log ──on_commit──▶ recent deltas ──▶ a cursor per subscription ──▶ updates
                          │ too old                                      │
                          └──────────── read from the log       acks ◀───┘

A subscriber may use what it has until ``ASSIGNMENT_TTL_MS`` after it asked for that: each update
says up to which of its questions a majority has confirmed, afterwards, that this leader leads. So a
leader that was replaced, or slept, prolongs nothing, and the next one has waited long enough when
it has led for one time-to-live (ADR 0029). A confirmation is of the position that was committed
then and goes out with the update that reaches it: the first pages of a subscriber that catches up
may end before a move that became effective without it. Updates come in order, so once a delta has
been sent no later one can prolong what it replaced: after one time-to-live every subscriber has
either taken the delta in or stopped answering. ``EffectiveWrites`` rests on that: its wait for a
leased subscription ends one time-to-live after it began, whatever the subscriber does.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from nextgen.client.changes.index import Change
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.cluster import (
    ASSIGNMENT_BACKLOG_MAX,
    ASSIGNMENT_CREATIONS_MS,
    ASSIGNMENT_DELTAS_PER_UPDATE_MAX,
    ASSIGNMENT_SUBSCRIBERS_MAX,
    ASSIGNMENT_TTL_MS,
    ASSIGNMENT_UPDATE_MS,
    EVENTS_BATCH_BYTES_MAX,
)
from nextgen.replication.ports import Entry, PositionCompacted, ReplicatedLog
from protos.nextgen.v1.events_pb2 import Event, TopicAssigned, TopicUnassigned
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from shards.ports import Cancellable, Clock
from shards.watches.decoded_entries import DecodedEntries
from shards.watches.effective_writes import EffectiveWrites, Subscription

_CREATIONS_SECONDS = ASSIGNMENT_CREATIONS_MS / 1000

_CONFIRMATIONS_MAX = ASSIGNMENT_TTL_MS // ASSIGNMENT_UPDATE_MS
"""Confirmations that wait until their subscriber has caught up. An earlier one is of no use: the
time that it gives is over."""


class Creation(NamedTuple):
    """A topic came into being: what a subscriber remembered as absent no longer is."""

    position: int
    name: str


class LeasedCursor:
    """One subscriber's place in the feed. Made by ``AssignmentFeed.subscribe``."""

    def __init__(
        self, feed: AssignmentFeed, subscriber_id: str, cursor: int, *, names_creations: bool
    ) -> None:
        self._feed = feed
        self.names_creations = names_creations
        """Whether its updates name the topics that came into being."""
        self.subscriber_id = subscriber_id
        self.cursor = cursor
        """Everything up to it has been sent."""
        self.acked = 0
        self.subscription: Subscription | None = None
        """Its place among those that effective writes and moves wait for."""
        self.asked_at_ms = 0
        """The subscriber's clock when its last message left."""
        self.confirmed_at_ms = 0
        """The same, of the latest message behind which leadership was confirmed at a position that
        the updates have reached."""
        self.error: MetadataError | None = None
        self.changed = asyncio.Event()
        """Set when there is something to send, or when ``error`` was set."""
        self._is_first = True
        self._unreached: deque[tuple[int, int]] = deque(maxlen=_CONFIRMATIONS_MAX)
        """Confirmations beyond ``cursor``: their position, and when their message left."""

    def __repr__(self) -> str:
        return f"<LeasedCursor {self.subscriber_id} sent={self.cursor} acked={self.acked}>"

    def take_update(self) -> WatchShardUpdate:
        """Return what is to be sent at this moment, deltas or none; ``changed`` says if more waits.

        Raises:
            MetadataError: The subscription ended.
        """
        if self.error is not None:
            raise self.error
        update = self._feed.advance(self)
        while self._unreached and self._unreached[0][0] <= update.position:
            _, self.confirmed_at_ms = self._unreached.popleft()
        update.confirmed_at_ms = self.confirmed_at_ms
        if self._is_first:
            self._is_first = False
            update.ttl_ms = ASSIGNMENT_TTL_MS
        return update

    async def confirm(self) -> None:
        """Let the update that reaches the feed's position, and those behind it, prolong what the
        subscriber may use, if this replica still leads.

        Raises:
            NotLeader: It does not.
        """
        asked_at_ms = self.asked_at_ms
        await self._feed.confirm_leadership()
        if asked_at_ms > self.confirmed_at_ms:
            self._unreached.append((self._feed.commit_position, asked_at_ms))

    def acknowledge(self, position: int) -> None:
        """Note that everything up to ``position`` has taken effect at the subscriber."""
        if position > self.acked:
            self.acked = position
            if self.subscription is not None:
                self.subscription.heard()

    def has_taken_in(self, _changes: Collection[Change], position: int) -> bool:
        """Return whether everything up to ``position`` was acknowledged: a lease has no filter."""
        return self.acked >= position

    def prompt(self) -> None:
        """Have an update sent now instead of when it is due."""
        self.changed.set()

    def fail(self, error: MetadataError) -> None:
        """End the subscription: the next ``take_update`` raises ``error``."""
        if self.error is None:
            self.error = error
            self.changed.set()

    def close(self) -> None:
        """The stream is gone. Its subscriber may go on using what it has for one time-to-live."""
        self._feed.leave(self)


class AssignmentFeed:
    """The feed of one shard, for as long as this replica leads it."""

    def __init__(
        self,
        shard_id: int,
        log: ReplicatedLog,
        clock: Clock,
        effective: EffectiveWrites,
        decoded: DecodedEntries | None = None,
    ) -> None:
        self._shard_id = shard_id
        # Shared with the change streams of the replica, who look at the same entries next.
        self._decoded = decoded or DecodedEntries(shard_id)
        self._log = log
        self._clock = clock
        self._effective = effective
        self._position = log.status.commit_position
        self._floor = self._position
        self._recent: list[Event | Creation] = []
        self._creations_due: Cancellable | None = None
        self._subscriptions: dict[str, LeasedCursor] = {}
        self._unsubscribe = log.on_commit(self._on_commit)

    def __repr__(self) -> str:
        return (
            f"<AssignmentFeed shard={self._shard_id} position={self._position} "
            f"subscribers={len(self._subscriptions)}>"
        )

    @property
    def position(self) -> int:
        """The last committed event position that the feed has seen."""
        return self._position

    @property
    def commit_position(self) -> int:
        """The last committed event position, whether the feed has seen it or not."""
        return max(self._position, self._log.commit_position)

    @property
    def subscriber_count(self) -> int:
        return len(self._subscriptions)

    def subscribe(
        self, subscriber_id: str, from_position: int, *, names_creations: bool = False
    ) -> LeasedCursor:
        """Start or resume behind ``from_position``; 0 means from the present on.

        An older subscription of the same subscriber ends. With ``names_creations`` updates also
        name the topics that came into being.

        Raises:
            Overloaded: There are ``ASSIGNMENT_SUBSCRIBERS_MAX`` already.
        """
        older = self._subscriptions.pop(subscriber_id, None)
        if older is not None:
            older.fail(Unavailable(f"{subscriber_id} subscribed again elsewhere"))
        if len(self._subscriptions) >= ASSIGNMENT_SUBSCRIBERS_MAX:
            raise Overloaded(f"shard {self._shard_id} has {ASSIGNMENT_SUBSCRIBERS_MAX} subscribers")
        subscription = LeasedCursor(
            self, subscriber_id, from_position or self._position, names_creations=names_creations
        )
        # What it took in before, here or at another leader, it has not forgotten. What is to come
        # it has not taken in, whatever it followed before.
        subscription.acked = min(subscription.cursor, self._position)
        self._subscriptions[subscriber_id] = subscription
        subscription.subscription = self._effective.join(subscription, is_leased=True)
        subscription.changed.set()
        return subscription

    def leave(self, subscription: LeasedCursor) -> None:
        """Forget a subscription; what its subscriber holds counts for one time-to-live more."""
        if self._subscriptions.get(subscription.subscriber_id) is not subscription:
            return
        del self._subscriptions[subscription.subscriber_id]
        if subscription.subscription is not None:
            subscription.subscription.leave()

    async def confirm_leadership(self) -> None:
        """Return once a majority has confirmed that this replica leads; subscribers share that.

        Raises:
            NotLeader: It does not.
        """
        await self._log.read_index()

    def close(self, error: MetadataError) -> None:
        """End every subscription with ``error``."""
        self._unsubscribe()
        if self._creations_due is not None:
            self._creations_due.cancel()
        for subscription in tuple(self._subscriptions.values()):
            subscription.fail(error)

    def advance(self, subscription: LeasedCursor) -> WatchShardUpdate:
        """Return the update behind the subscription's cursor and move the cursor."""
        subscription.changed.clear()
        if subscription.cursor > self._position:
            return self._reset(subscription)
        if subscription.cursor < self._floor:
            update = self._advance_by_log(subscription)
        else:
            update = self._advance_by_recent(subscription)
        subscription.cursor = update.position
        if update.position < self._position:
            subscription.changed.set()
        return update

    def _advance_by_recent(self, subscription: LeasedCursor) -> WatchShardUpdate:
        start = bisect_right(self._recent, subscription.cursor, key=lambda d: d.position)
        changes = self._recent[start : start + ASSIGNMENT_DELTAS_PER_UPDATE_MAX]
        is_all = start + len(changes) == len(self._recent)
        position = self._position if is_all else changes[-1].position
        return _update(position, changes, names_creations=subscription.names_creations)

    def _advance_by_log(self, subscription: LeasedCursor) -> WatchShardUpdate:
        try:
            entries = self._log.read(
                subscription.cursor + 1,
                events_max=ASSIGNMENT_DELTAS_PER_UPDATE_MAX,
                bytes_max=EVENTS_BATCH_BYTES_MAX,
            )
        except PositionCompacted:
            return self._reset(subscription)
        if not entries:
            return WatchShardUpdate(position=self._position)
        changes = [
            change
            for entry in entries
            for change in assignment_changes(self._decoded.events(entry))
            if change.position > subscription.cursor
        ]
        position = entries[-1].next_position - 1
        return _update(position, changes, names_creations=subscription.names_creations)

    def _reset(self, subscription: LeasedCursor) -> WatchShardUpdate:
        subscription.cursor = self._position
        return WatchShardUpdate(position=self._position, reset=True)

    def _on_commit(self, entries: Sequence[Entry]) -> None:
        known = len(self._recent)
        if self._subscriptions:
            for entry in entries:
                self._recent.extend(assignment_changes(self._decoded.events(entry)))
        assignments = [each for each in self._recent[known:] if type(each) is Event]
        has_creations = len(self._recent) > known + len(assignments)
        replaced = any(map(_replaces_an_answer, assignments))
        self._position = max(self._position, entries[-1].next_position - 1)
        if not self._subscriptions:
            # Nobody listens: not worth decoding. Whoever resumes later is served from the log.
            self._recent.clear()
            self._floor = self._position
            return
        if len(self._recent) > 2 * ASSIGNMENT_BACKLOG_MAX:
            self._floor = self._recent[-ASSIGNMENT_BACKLOG_MAX - 1].position
            del self._recent[:-ASSIGNMENT_BACKLOG_MAX]
        # A position alone, or a first assignment, can wait for the regular update, unless
        # somebody waits for it: nobody answers anything else than that until then.
        if replaced or self._effective.has_waits:
            self._prompt()
        elif has_creations and any(s.names_creations for s in self._subscriptions.values()):
            self._prompt_soon()

    def _prompt_soon(self) -> None:
        """Let creations of a while share an update: each alone costs as much as a commit."""
        if self._creations_due is None:
            due = self._clock.monotonic() + _CREATIONS_SECONDS
            self._creations_due = self._clock.call_at(due, self._prompt)

    def _prompt(self) -> None:
        if self._creations_due is not None:
            self._creations_due.cancel()
            self._creations_due = None
        for subscription in self._subscriptions.values():
            subscription.changed.set()


def _replaces_an_answer(event: Event) -> bool:
    """Return whether a subscriber may have an answer that ``event`` outdates."""
    return event.HasField("topic_unassigned") or event.topic_assigned.epoch > 1


def _update(
    position: int, changes: Sequence[Event | Creation], *, names_creations: bool
) -> WatchShardUpdate:
    update = WatchShardUpdate(position=position)
    for change in changes:
        if isinstance(change, Event):
            update.events.append(change)
        elif names_creations:
            update.created.append(change.name)
    return update


def assignment_changes(events: Iterable[Event]) -> Iterator[Event | Creation]:
    """Yield what ``events`` of the log change of answers to lookups, in order.

    Only what a cache of answers needs is kept: an assignment without its placement decision.
    """
    for event in events:
        make = _CHANGES.get(event.WhichOneof("payload"))
        if make is not None:
            yield make(event)


def _assigned(event: Event) -> Event:
    assigned = event.topic_assigned
    kept = TopicAssigned(
        topic_id=assigned.topic_id,
        unit=assigned.unit,
        name=assigned.name,
        epoch=assigned.epoch,
        broker_id=assigned.broker_id,
        session_id=assigned.session_id,
    )
    return Event(position=event.position, shard_id=event.shard_id, topic_assigned=kept)


def _unassigned(event: Event) -> Event:
    ended = event.topic_unassigned
    kept = TopicUnassigned(
        topic_id=ended.topic_id, unit=ended.unit, name=ended.name, epoch=ended.epoch
    )
    return Event(position=event.position, shard_id=event.shard_id, topic_unassigned=kept)


def _created(event: Event) -> Creation:
    return Creation(event.position, event.topic_created.name)


_CHANGES: dict[str | None, Callable[[Event], Event | Creation]] = {
    "topic_created": _created,
    "topic_assigned": _assigned,
    "topic_unassigned": _unassigned,
}
