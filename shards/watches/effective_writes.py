"""Decides when a position is effective, over the subscriptions of one shard's leader.

    commit at a position ─▶ leased subscriptions that cover it ─▶ acknowledged, or the lease is lost
                          └ acknowledged ones that match a name ─▶ acknowledged, or silent too long
                          └ expected readers of a name ──────────▶ subscribed, or their time is over

A leased subscription (discovery) loses its lease one time-to-live after a wait for it began. An
acknowledged one counts from when its watch is added until it was silent for one time-to-live. A
broker manager counts longer, because its successor must first learn what its brokers hold. A new
leader does not know the subscriptions of the one before it. Nothing is effective until it has led
for one time-to-live, and no write until the broker manager of each shard is back
(``returning_managers``). A broker manager forwards metadata, and a topic controller decides by it,
before its watch of the name has begun: each is an expected reader from the moment at which the
metadata left here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog

from nextgen.client.changes.index import Change
from nextgen.kernel.errors import MetadataError, Overloaded, ProposalLost, Unavailable
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS
from nextgen.kernel.limits.placement import (
    EFFECTIVE_MANAGER_MS,
    EFFECTIVE_READERS_MAX,
    EFFECTIVE_WAITS_MAX,
)
from protos.nextgen.v1.shard_service_pb2 import ExecuteRequest, ExecuteResponse
from shards.ports import Cancellable, Clock
from shards.watches.came_objects import CameObjects
from shards.watches.changed_objects import changed_by, slots_changed_by
from shards.watches.expected_readers import FOR_EVER, ExpectedReaders
from shards.watches.returning_managers import ReturningManagers
from shards.watches.subscriber_ids import (
    AcknowledgingStream,
    managed_shard,
    manager_reader,
    reader_of,
)

_TTL_SECONDS = ASSIGNMENT_TTL_MS / 1000
_MANAGER_SECONDS = EFFECTIVE_MANAGER_MS / 1000
_MARGIN_SECONDS = 0.1
"""A leased update that was sent just before a wait began may arrive this much later."""

_ANY_POSITION = 2**63
"""Beyond every position: the acknowledged position of a subscriber that watches none of the
names."""

_SLOW_SECONDS = 1.0
"""A write that waits longer is logged."""

_SHOWN_MAX = 8
"""Largest number of subscribers that an error names."""

_logger = structlog.get_logger(__name__)


class Leadership(Protocol):
    """Knows whether this replica still leads; its ``ReplicatedLog`` does."""

    async def read_index(self) -> int:
        """Return once a majority has confirmed that this replica leads."""
        ...


class Subscription:
    """A subscriber that acknowledges the positions it has applied. Made by
    ``EffectiveWrites.join``.

    Its stream knows the filter and the acknowledged positions. ``is_leased`` says which rule ends
    the wait for it when it does not acknowledge; see the module.
    """

    __slots__ = ("_writes", "counts_s", "heard_at", "is_known", "is_leased", "read", "stream")

    def __init__(
        self,
        writes: EffectiveWrites,
        stream: AcknowledgingStream,
        now: float,
        *,
        is_known: bool,
        is_leased: bool,
    ) -> None:
        self.is_leased = is_leased
        self._writes = writes
        self.stream = stream
        self.heard_at = now
        self.is_known = is_known
        """Whether all its watches were added: one that comes back adds them one by one."""
        self.counts_s = _counted_s(is_manager=managed_shard(stream.subscriber_id) is not None)
        """How long it counts behind what was heard of it last. Brokers go on without their
        manager, and hear of changes again from the one that follows it."""
        self.read: set[Change] = set()
        """What it read since it was heard."""

    @property
    def counts_until(self) -> float:
        return self.heard_at + self.counts_s

    def heard(self, complete_term: int = 0) -> None:
        """Apply an acknowledgement, which covers every watch that the subscriber had added before
        it.

        ``complete_term`` as in ``WatchRenew``.
        """
        self.is_known = True
        self._writes.note_heard(self, complete_term)

    def watches(self, changes: Iterable[Change]) -> None:
        """Note that it watches these objects from here on."""
        self._writes.note_watched(self, changes)

    def is_watching(self, change: Change) -> bool:
        return not self.stream.has_taken_in((change,), _ANY_POSITION)

    def lose_watch(self) -> None:
        """Note that one of its watches ended: it misses changes until it has added another."""
        self._writes.note_lost(self)

    def leave(self) -> None:
        """Note that the stream ended. The subscription counts for a limited time."""
        self._writes.note_left(self)


@dataclass(slots=True, eq=False)
class _Waiter:
    position: int
    changes: Collection[Change]
    slots: Collection[int]
    future: asyncio.Future[None]
    lease_ends: float
    """When a leased subscription that has not acknowledged the position stops answering."""
    is_move: bool
    """True for a move of units, which waits only for leased subscriptions; False for a write."""
    are_leases_over: bool = False
    blocker: Subscription | None = None
    """A subscription that had not acknowledged at the last check."""


class EffectiveWrites:
    """The subscriptions of one shard and the waits for them, at its leader, for one term."""

    def __init__(self, shard_id: int, leadership: Leadership, clock: Clock) -> None:
        self._shard_id = shard_id
        self._leadership = leadership
        self._clock = clock
        self._leads_from = clock.monotonic() + _TTL_SECONDS
        """Before, the former leader may have subscriptions that have not come here yet."""
        self._counts_from = self._leads_from
        """Before, a subscriber may rely on the former leader's updates, or on a watch that ended
        here."""
        self.returning = ReturningManagers(clock.monotonic() + _MANAGER_SECONDS)
        self._came = CameObjects()
        self._subscribers: dict[str, Subscription] = {}
        self._departed: dict[str, tuple[Subscription, float]] = {}
        """Subscriptions that left, and until when they count."""
        self._readers = ExpectedReaders(EFFECTIVE_READERS_MAX)
        self._waiters: dict[int, _Waiter] = {}
        self._next_waiter = 0
        self._timer: Cancellable | None = None
        self._closed: MetadataError | None = None

    def __repr__(self) -> str:
        return (
            f"<EffectiveWrites shard={self._shard_id} subscribers={len(self._subscribers)} "
            f"readers={len(self._readers)} waiting={len(self._waiters)}>"
        )

    @property
    def waiting(self) -> int:
        """Writes that are committed and not yet effective."""
        return sum(not waiter.is_move for waiter in self._waiters.values())

    # Subscribers ------------------------------------------------------------------------------

    def join(self, stream: AcknowledgingStream, *, is_leased: bool = False) -> Subscription:
        """Count a stream from its first acknowledged watch on, or from its leased one.

        An earlier subscription of the same subscriber no longer counts.
        """
        known = self._subscribers.pop(stream.subscriber_id, None)
        departed = self._departed.pop(stream.subscriber_id, None)
        is_known = is_leased or (known is None and departed is None)
        now = self._clock.monotonic()
        subscriber = Subscription(self, stream, now, is_known=is_known, is_leased=is_leased)
        self._subscribers[stream.subscriber_id] = subscriber
        return subscriber

    def expect_managers(self, shard_ids: Iterable[int], term: int) -> None:
        """Wait for the broker managers of these shards, all of the map. This leader's term is
        ``term``."""
        self.returning.expect(shard_ids, term)
        self.settle()

    def slots_came(self, ranges: Collection[tuple[int, int]]) -> None:
        """Wait for subscribers of the shard that had these slots. CALL it in the step of the loop
        that proposes their adoption."""
        now = self._clock.monotonic()
        leases_end = now + _TTL_SECONDS + _MARGIN_SECONDS
        managers_end = now + _MANAGER_SECONDS
        self._came.add(ranges, now=now, leases_end=leases_end, managers_end=managers_end)

    def manager_is_back(self, shard_id: int) -> None:
        """Stop waiting for the broker manager of a shard: it watches no objects of this shard."""
        self.returning.note_back(shard_id)
        self.settle()

    def note_heard(self, subscriber: Subscription, complete_term: int = 0) -> None:
        if self._subscribers.get(subscriber.stream.subscriber_id) is not subscriber:
            return
        subscriber.heard_at = self._clock.monotonic()
        for change in subscriber.read:
            # Its watch's acknowledgements show when it no longer relies on the read.
            if subscriber.is_watching(change):
                self._readers.forget(change, subscriber.stream.subscriber_id)
        subscriber.read.clear()
        shard_id = managed_shard(subscriber.stream.subscriber_id)
        is_back = shard_id is not None and self.returning.note_complete(shard_id, complete_term)
        self._settle(None if is_back else subscriber)

    def note_left(self, subscriber: Subscription) -> None:
        subscriber_id = subscriber.stream.subscriber_id
        if self._subscribers.get(subscriber_id) is not subscriber:
            return
        del self._subscribers[subscriber_id]
        now = self._clock.monotonic()
        self._departed = {each: left for each, left in self._departed.items() if left[1] > now}
        until = now + _TTL_SECONDS if subscriber.is_leased else subscriber.counts_until
        self._departed[subscriber_id] = (subscriber, until)
        self._schedule()

    def note_lost(self, subscriber: Subscription) -> None:
        self._counts_from = max(self._counts_from, self._clock.monotonic() + _TTL_SECONDS)
        self._schedule()

    def note_watched(self, subscriber: Subscription, changes: Iterable[Change]) -> None:
        # Its watch replaces the expectation, so it counts for as long from here on.
        subscriber.heard_at = self._clock.monotonic()
        reader = reader_of(subscriber.stream.subscriber_id)
        if reader is None or not self._readers:
            return
        for change in changes:
            self._readers.forget(change, reader)
        self.settle()

    # Readers ----------------------------------------------------------------------------------

    def expect(self, changes: Iterable[Change], manager_shard_id: int) -> None:
        """Note that these objects are being sent to a broker manager. No change of them is
        effective until it watches them, or until the time that ``stop_expecting`` sets."""
        self._readers.begin(changes, manager_reader(manager_shard_id))

    def stop_expecting(
        self, changes: Collection[Change], manager_shard_id: int, *, are_watched: bool
    ) -> None:
        """Note that the manager has the objects.

        ``are_watched``: it watched all of them before. Otherwise its watches are expected for as
        long as a manager counts. An object that is being sent to it again stays expected until that
        is over.
        """
        now = self._clock.monotonic()
        reader = manager_reader(manager_shard_id)
        until = now if are_watched else now + _counted_s(is_manager=True)
        self._wait_for_forgotten(self._readers.end(changes, reader, until, now))
        if are_watched:
            self.settle()
        else:
            self._schedule()

    def expect_reader(self, changes: Collection[Change], subscriber_id: str) -> None:
        """Note that a broker manager or a topic controller is about to read these objects, and
        will watch those that it does not watch yet."""
        reader = reader_of(subscriber_id)
        if reader is None:
            return
        now = self._clock.monotonic()
        until = now + _counted_s(is_manager=reader != subscriber_id)
        for change in changes:
            self._wait_for_forgotten(self._readers.note(change, reader, until, now))
        subscriber = self._subscribers.get(reader)
        if subscriber is not None:
            subscriber.read.update(changes)
            if any(map(subscriber.is_watching, changes)):
                subscriber.stream.prompt()

    def _wait_for_forgotten(self, until: float) -> None:
        """Have every write wait in place of a reader that was forgotten for lack of room."""
        self._counts_from = max(self._counts_from, until)

    # Waiting ----------------------------------------------------------------------------------

    async def wait_all(self, request: ExecuteRequest, response: ExecuteResponse) -> None:
        """Return once the accepted commands of ``request`` are effective.

        Raises:
            ProposalLost: See ``wait``.
        """
        accepted = [
            (command, result)
            for command, result in zip(request.commands, response.results, strict=True)
            if not result.rejection_code
        ]
        if accepted:
            changes = {change for command, _ in accepted for change in changed_by(command)}
            slots = {slot for each in accepted for slot in slots_changed_by(*each)}
            await self.wait(max(result.position for _, result in accepted), changes, slots)

    async def wait(
        self, position: int, changes: Collection[Change], slots: Collection[int]
    ) -> None:
        """Return once every subscription that matches ``changes`` has acknowledged ``position``,
        or has lost its lease. ``slots`` are those of the objects that were changed.

        Raises:
            ProposalLost: Leadership moved meanwhile, or too many wait. The write is committed.
        """
        try:
            # Counted only among so many: moves wait here too, and are not bounded by this.
            is_long = len(self._waiters) >= EFFECTIVE_WAITS_MAX
            if is_long and self.waiting >= EFFECTIVE_WAITS_MAX:
                raise Overloaded(f"{EFFECTIVE_WAITS_MAX} writes wait to be effective")
            await self._wait_acknowledged(position, changes, slots, is_move=False)
            # A subscriber that left may be at another leader, and not yet at this position.
            await self._leadership.read_index()
        except MetadataError as error:
            raise ProposalLost(
                f"it is committed, but not known to be effective: {error}"
            ) from error

    async def wait_assigned(
        self, position: int, ended: Collection[Change], slots: Collection[int]
    ) -> None:
        """Return once no leased subscription answers with the assignments ``ended``, which are of
        ``slots``, up to ``position``.

        Ends within one time-to-live. A subscriber that has not acknowledged by then is cut off.

        Raises:
            MetadataError: This replica does not lead any more.
        """
        await self._wait_acknowledged(position, ended, slots, is_move=True)

    def settle(self) -> None:
        """End the waits whose position is effective."""
        self._settle(None)

    def close(self, error: MetadataError) -> None:
        """Stop leading: subscriptions end and pending waits fail with ``error``."""
        self._closed = error
        if self._timer is not None:
            self._timer.cancel()
        for subscriber in tuple(self._subscribers.values()):
            subscriber.stream.fail(error)
        for waiter in self._waiters.values():
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _settle(self, heard: Subscription | None) -> None:
        """Check every wait, or only those that ``heard`` may have blocked."""
        now = self._clock.monotonic()
        for waiter in tuple(self._waiters.values()):
            if waiter.future.done():
                continue
            if heard is not None and waiter.blocker not in (None, heard):
                continue
            if now >= waiter.lease_ends and not waiter.are_leases_over:
                waiter.are_leases_over = True
                self._cut_off(waiter)
            if self._is_effective(waiter, now):
                waiter.future.set_result(None)
        self._schedule()

    def _cut_off(self, waiter: _Waiter) -> None:
        """End the leased subscriptions that have not acknowledged a wait's position in time."""
        for each in tuple(self._subscribers.values()):
            if each.is_leased and not each.stream.has_taken_in(waiter.changes, waiter.position):
                subscriber_id = each.stream.subscriber_id
                late = f"{subscriber_id} has not acknowledged position {waiter.position} in time"
                each.stream.fail(Unavailable(late))

    async def _wait_acknowledged(
        self, position: int, changes: Collection[Change], slots: Collection[int], *, is_move: bool
    ) -> None:
        if self._closed is not None:
            raise self._closed
        now = self._clock.monotonic()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lease_ends = now + _TTL_SECONDS + _MARGIN_SECONDS
        waiter = _Waiter(position, changes, slots, future, lease_ends, is_move)
        if self._is_effective(waiter, now):
            return
        self._next_waiter += 1
        number = self._next_waiter
        self._waiters[number] = waiter
        for subscriber in self._subscribers.values():
            if self._is_awaited(subscriber, waiter, now):
                # The write may have produced no event of its own: then no update would be due.
                subscriber.stream.prompt(position)
        self._schedule()
        slow = self._clock.call_at(now + _SLOW_SECONDS, lambda: self._report(waiter))
        try:
            await future
        finally:
            slow.cancel()
            del self._waiters[number]

    def _report(self, waiter: _Waiter) -> None:
        """Log the subscribers that a slow write waits for."""
        if waiter.is_move:
            return
        now = self._clock.monotonic()
        awaited = [
            subscriber_id
            for subscriber_id, each in self._subscribers.items()
            if self._is_awaited(each, waiter, now)
        ]
        _logger.warning(
            "a write is not effective yet",
            shard=self._shard_id,
            position=waiter.position,
            leads_too_short=now < self._counts_from,
            managers_not_back=self.returning.expected(now)[:_SHOWN_MAX],
            subscribers=awaited[:_SHOWN_MAX],
            departed=[each for each, (_, end) in self._departed.items() if end > now][:_SHOWN_MAX],
            not_watched_yet=sum(until > now for until in self._readers.ends(waiter.changes)),
        )

    def _is_effective(self, waiter: _Waiter, now: float) -> bool:
        waiter.blocker = None
        if now < self._leads_from:
            return False
        if not self._came.are_settled(waiter.slots, now, is_move=waiter.is_move):
            return False
        if not waiter.is_move and (now < self._counts_from or not self.returning.are_back(now)):
            return False
        if any(
            until > now and self._is_missed(each, waiter) for each, until in self._departed.values()
        ):
            return False
        waiter.blocker = next(
            (each for each in self._subscribers.values() if self._is_awaited(each, waiter, now)),
            None,
        )
        if waiter.blocker is not None:
            return False
        return waiter.is_move or self._readers.are_over(waiter.changes, now)

    def _is_missed(self, left: Subscription, waiter: _Waiter) -> bool:
        """Return whether a subscription that left may rely on what ``waiter`` replaces."""
        if not left.is_leased:
            return not waiter.is_move
        return not waiter.are_leases_over and not left.stream.has_taken_in(
            waiter.changes, waiter.position
        )

    def _is_awaited(self, subscriber: Subscription, waiter: _Waiter, now: float) -> bool:
        if subscriber.is_leased:
            is_lost = waiter.are_leases_over
        else:
            is_lost = waiter.is_move or subscriber.counts_until <= now
        if is_lost:
            return False
        if not subscriber.is_known:
            return True
        return not subscriber.stream.has_taken_in(waiter.changes, waiter.position)

    def _schedule(self) -> None:
        """Check the waits again when the next lease or expectation ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiters or self._closed is not None:
            return
        now = self._clock.monotonic()
        ends = [self._leads_from, self._counts_from, self.returning.until]
        ends += [*self._came.ends(), *(until for _, until in self._departed.values())]
        ends += [each.counts_until for each in self._subscribers.values() if not each.is_leased]
        for waiter in self._waiters.values():
            ends.append(waiter.lease_ends)
            if not waiter.is_move:
                ends += self._readers.ends(waiter.changes)
        later = [end for end in ends if now < end < FOR_EVER]
        if later:
            self._timer = self._clock.call_at(min(later), self.settle)


def _counted_s(*, is_manager: bool) -> float:
    """Return how long a silent or absent subscriber counts."""
    return max(_TTL_SECONDS, _MANAGER_SECONDS) if is_manager else _TTL_SECONDS
