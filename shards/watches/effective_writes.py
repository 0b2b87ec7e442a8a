"""Effective writes: answered once whoever subscribes to what they changed has taken that in.

    commit at a position ─▶ leased watches are prompted ──────────▶ every one has acknowledged it
                          └ acknowledged watches that want a name ─▶ every one has acknowledged it
                          └ readers that will watch a name ────────▶ they do, or their time passed

A subscriber counts from when its watch is added until it was silent for one time-to-live, a broker
manager longer: its brokers go on, and its successor has to hear from them what they hold. A new
leader does not know the subscribers of the one before it. It answers nothing until it has led for
one time-to-live, and until the broker manager of each shard is back (``returning_managers``).
A broker manager sends metadata on before it watches the name, and a topic
controller decides by it: that they will watch it is expected from when the metadata left here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

import structlog

from nextgen.client.changes.index import Change
from nextgen.kernel.errors import MetadataError, Overloaded, ProposalLost
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS
from nextgen.kernel.limits.placement import (
    EFFECTIVE_MANAGER_MS,
    EFFECTIVE_READERS_MAX,
    EFFECTIVE_WAITS_MAX,
)
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import Command, ExecuteRequest, ExecuteResponse
from shards.ports import Cancellable, Clock
from shards.watches.expected_readers import FOR_EVER, ExpectedReaders
from shards.watches.returning_managers import ReturningManagers
from shards.watches.subscriber_ids import managed_shard, manager_reader, reader_of
from shards.wire.command import (
    NewTopic,
    OnNamespace,
    OnNewTopics,
    OnTenant,
    OnTopic,
    parse_command,
)

_TTL_SECONDS = ASSIGNMENT_TTL_MS / 1000
_MANAGER_SECONDS = EFFECTIVE_MANAGER_MS / 1000
_ANY_POSITION = 2**63
"""Beyond every position: who has taken in so much watches nothing of it."""

_SLOW_SECONDS = 1.0
"""A write that waits longer is spoken of in the log."""

_SHOWN_MAX = 8
"""Subscribers named there."""

_logger = structlog.get_logger(__name__)


class LeasedSubscribers(Protocol):
    """Those who hold leased watches; ``AssignmentFeed`` is it."""

    async def wait_effective(self, position: int) -> None:
        """Return once none of them relies on anything older than ``position``."""

    async def confirm_leadership(self) -> None:
        """Return once a majority has confirmed that this replica leads."""


class AcknowledgingStream(Protocol):
    """A change stream that has acknowledged watches."""

    @property
    def subscriber_id(self) -> str: ...

    def has_taken_in(self, changes: Collection[Change], position: int) -> bool:
        """Say whether each acknowledged watch that wants one of ``changes`` is at ``position``."""
        ...

    def prompt(self) -> None:
        """Have the subscriber told at once how far it was told."""
        ...

    def fail(self, error: MetadataError) -> None:
        """End the stream with ``error``."""
        ...


class Subscriber:
    """Somebody with acknowledged watches, by the stream they are on. Made by ``join``."""

    __slots__ = ("_writes", "counts_s", "heard_at", "is_known", "read", "stream")

    def __init__(
        self, writes: EffectiveWrites, stream: AcknowledgingStream, now: float, *, is_known: bool
    ) -> None:
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
        """Take in an acknowledgement, which follows every watch that it had added.

        ``complete_term`` as in ``WatchRenew``.
        """
        self.is_known = True
        self._writes.note_heard(self, complete_term)

    def watches(self, changes: Iterable[Change]) -> None:
        """It watches these from here on."""
        self._writes.note_watched(self, changes)

    def is_watching(self, change: Change) -> bool:
        return not self.stream.has_taken_in((change,), _ANY_POSITION)

    def lose_watch(self) -> None:
        """A watch of it was ended here: until it has added another, what it knows is not told."""
        self._writes.note_lost(self)

    def leave(self) -> None:
        """The stream is gone. What it knew counts for a while."""
        self._writes.note_left(self)


class _Waiter:
    __slots__ = ("blocker", "changes", "future", "position")

    def __init__(
        self, position: int, changes: Collection[Change], future: asyncio.Future[None]
    ) -> None:
        self.position = position
        self.changes = changes
        self.future = future
        self.blocker: Subscriber | None = None
        """Somebody who was still to take it in when it was looked at last."""


class EffectiveWrites:
    """Who must have taken in what, at the leader of one shard, for one term."""

    def __init__(self, shard_id: int, leased: LeasedSubscribers, clock: Clock) -> None:
        self._shard_id = shard_id
        self._leased = leased
        self._clock = clock
        self._counts_from = clock.monotonic() + _TTL_SECONDS
        """Before, somebody may rely on what the former leader told them, or on a watch that was
        ended."""
        self.returning = ReturningManagers(clock.monotonic() + _MANAGER_SECONDS)
        self._subscribers: dict[str, Subscriber] = {}
        self._departed: dict[str, float] = {}
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
        return len(self._waiters)

    # Subscribers ------------------------------------------------------------------------------

    def join(self, stream: AcknowledgingStream) -> Subscriber:
        """Count a stream from its first acknowledged watch on; an earlier one of the same
        subscriber counts no longer."""
        known = self._subscribers.pop(stream.subscriber_id, None)
        departed = self._departed.pop(stream.subscriber_id, None)
        is_known = known is None and departed is None
        subscriber = Subscriber(self, stream, self._clock.monotonic(), is_known=is_known)
        self._subscribers[stream.subscriber_id] = subscriber
        return subscriber

    def expect_managers(self, shard_ids: Iterable[int], term: int) -> None:
        """Wait for the broker managers of these shards, all of the map. This leader's term is
        ``term``."""
        self.returning.expect(shard_ids, term)
        self.settle()

    def manager_is_back(self, shard_id: int) -> None:
        """Wait no longer for the broker manager of a shard: it follows nothing of this one."""
        self.returning.note_back(shard_id)
        self.settle()

    def note_heard(self, subscriber: Subscriber, complete_term: int = 0) -> None:
        if self._subscribers.get(subscriber.stream.subscriber_id) is not subscriber:
            return
        subscriber.heard_at = self._clock.monotonic()
        for change in subscriber.read:
            # What it acknowledges of its watch says when it does not rely on the read any more.
            if subscriber.is_watching(change):
                self._readers.forget(change, subscriber.stream.subscriber_id)
        subscriber.read.clear()
        shard_id = managed_shard(subscriber.stream.subscriber_id)
        is_back = shard_id is not None and self.returning.note_complete(shard_id, complete_term)
        self._settle(None if is_back else subscriber)

    def note_left(self, subscriber: Subscriber) -> None:
        subscriber_id = subscriber.stream.subscriber_id
        if self._subscribers.get(subscriber_id) is not subscriber:
            return
        del self._subscribers[subscriber_id]
        now = self._clock.monotonic()
        self._departed = {each: until for each, until in self._departed.items() if until > now}
        self._departed[subscriber_id] = subscriber.counts_until
        self._schedule()

    def note_lost(self, subscriber: Subscriber) -> None:
        self._counts_from = max(self._counts_from, self._clock.monotonic() + _TTL_SECONDS)
        self._schedule()

    def note_watched(self, subscriber: Subscriber, changes: Iterable[Change]) -> None:
        # Who is expected no more because it watches has to count for as long as the expectation.
        subscriber.heard_at = self._clock.monotonic()
        reader = reader_of(subscriber.stream.subscriber_id)
        if reader is None or not self._readers:
            return
        for change in changes:
            self._readers.forget(change, reader)
        self.settle()

    # Readers ----------------------------------------------------------------------------------

    def expect(self, changes: Iterable[Change], manager_shard_id: int) -> None:
        """A broker manager is being given these objects: until it watches them, or
        ``stop_expecting`` says for how long, no change of theirs is effective."""
        self._readers.begin(changes, manager_reader(manager_shard_id))

    def stop_expecting(
        self, changes: Collection[Change], manager_shard_id: int, *, are_watched: bool
    ) -> None:
        """It has them: ``are_watched`` if it watched all of them before, else it is going to.

        One that it is being given once more counts until that is over as well.
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
        """Somebody is about to be told of these objects, which it is going to watch, if it does
        not yet: a broker manager, or a topic controller."""
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
        """A reader that is forgotten is waited for all the same, by every write."""
        self._counts_from = max(self._counts_from, until)

    # Waiting ----------------------------------------------------------------------------------

    async def wait_all(self, request: ExecuteRequest, response: ExecuteResponse) -> None:
        """Return once what ``request`` wrote is effective; what was refused is not waited for.

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
            await self.wait(max(result.position for _, result in accepted), changes)

    async def wait(self, position: int, changes: Collection[Change]) -> None:
        """Return once everybody whom ``changes`` concern has taken in the log up to ``position``.

        Raises:
            ProposalLost: Leadership moved meanwhile, or too many wait. The write is committed.
        """
        try:
            await asyncio.gather(
                self._leased.wait_effective(position), self._wait_acknowledged(position, changes)
            )
            # Who is not here any more may be at another leader, and not yet at this position.
            await self._leased.confirm_leadership()
        except MetadataError as error:
            raise ProposalLost(
                f"it is committed, but not known to be effective: {error}"
            ) from error

    def settle(self) -> None:
        """Let those go for whom nobody is waited for any more."""
        self._settle(None)

    def close(self, error: MetadataError) -> None:
        """Stop leading: subscribers go to the next leader, those who wait fail with ``error``."""
        self._closed = error
        if self._timer is not None:
            self._timer.cancel()
        for subscriber in tuple(self._subscribers.values()):
            subscriber.stream.fail(error)
        for waiter in self._waiters.values():
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _settle(self, heard: Subscriber | None) -> None:
        """Look at who waits, or only at who waits for ``heard``."""
        now = self._clock.monotonic()
        for waiter in tuple(self._waiters.values()):
            if waiter.future.done():
                continue
            if heard is not None and waiter.blocker not in (None, heard):
                continue
            if self._is_effective(waiter, now):
                waiter.future.set_result(None)
        self._schedule()

    async def _wait_acknowledged(self, position: int, changes: Collection[Change]) -> None:
        if self._closed is not None:
            raise self._closed
        if len(self._waiters) >= EFFECTIVE_WAITS_MAX:
            raise Overloaded(f"{EFFECTIVE_WAITS_MAX} writes wait to be effective")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(position, changes, future)
        if self._is_effective(waiter, self._clock.monotonic()):
            return
        self._next_waiter += 1
        number = self._next_waiter
        self._waiters[number] = waiter
        for subscriber in self._subscribers.values():
            if not subscriber.stream.has_taken_in(changes, position):
                # What was written may be no event of its own, and then nothing else is told.
                subscriber.stream.prompt()
        self._schedule()
        slow = self._clock.call_at(
            self._clock.monotonic() + _SLOW_SECONDS, lambda: self._report(waiter)
        )
        try:
            await future
        finally:
            slow.cancel()
            del self._waiters[number]

    def _report(self, waiter: _Waiter) -> None:
        """Say whom a write waits for that takes long: an operator may know why."""
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
            departed=[each for each, until in self._departed.items() if until > now][:_SHOWN_MAX],
            not_watched_yet=sum(until > now for until in self._readers.ends(waiter.changes)),
        )

    def _is_effective(self, waiter: _Waiter, now: float) -> bool:
        waiter.blocker = None
        if now < self._counts_from or not self.returning.are_back(now):
            return False
        if any(until > now for until in self._departed.values()):
            return False
        waiter.blocker = next(
            (each for each in self._subscribers.values() if self._is_awaited(each, waiter, now)),
            None,
        )
        return waiter.blocker is None and self._readers.are_over(waiter.changes, now)

    def _is_awaited(self, subscriber: Subscriber, waiter: _Waiter, now: float) -> bool:
        if subscriber.counts_until <= now:
            return False
        if not subscriber.is_known:
            return True
        return not subscriber.stream.has_taken_in(waiter.changes, waiter.position)

    def _schedule(self) -> None:
        """Look again when the next thing that is waited for is over by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiters or self._closed is not None:
            return
        now = self._clock.monotonic()
        ends = [self._counts_from, self.returning.until, *self._departed.values()]
        ends += [each.counts_until for each in self._subscribers.values()]
        for waiter in self._waiters.values():
            ends += self._readers.ends(waiter.changes)
        later = [end for end in ends if now < end < FOR_EVER]
        if later:
            self._timer = self._clock.call_at(min(later), self.settle)


def changed_by(command: Command) -> Iterator[Change]:
    """Yield what a command that was accepted may have changed."""
    parsed = parse_command(command)
    match parsed:
        case OnTenant():
            yield KIND_TENANT, parsed.name
        case OnNamespace():
            yield KIND_NAMESPACE, parsed.name.text
        case OnTopic():
            yield KIND_TOPIC, parsed.name.base_text
        case OnNewTopics():
            for topic in parsed.topics:
                if isinstance(topic, NewTopic):
                    yield KIND_TOPIC, topic.name.base_text
        case _:
            return


def _counted_s(*, is_manager: bool) -> float:
    """Return how long a subscriber counts that is silent, or has not come yet."""
    return max(_TTL_SECONDS, _MANAGER_SECONDS) if is_manager else _TTL_SECONDS
