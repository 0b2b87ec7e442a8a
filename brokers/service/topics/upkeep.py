"""The upkeep of topics: closes idle ones, limits backlogs, drops old messages.

One task checks all topics, so that they need no timers of their own. A topic without clients is
closed, and what its time to live and retention still have to drop is dropped all the same: it is
opened for that from time to time, and stays here until nothing is left (``PendingUpkeep``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from brokers.domain.holding import Assignment, UnitKey
from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.storage_policy import (
    NO_BOUND,
    StoragePolicy,
    entries_kept_at_eviction,
    position_before_newest,
)
from brokers.ports.ledger import StorageFailed
from brokers.service.storage_refusal import STORAGE_ERRORS
from brokers.service.topics.open_topics import Topics
from brokers.service.topics.topic import Topic
from nextgen.kernel.governance.policies import BacklogAction
from nextgen.kernel.limits.pulsar import (
    LEDGER_SEGMENT_BYTES,
    TOPIC_IDLE_MS_MAX,
    TOPIC_RATES_MS,
    TOPIC_TRIM_MS,
    TOPIC_UPKEEP_MS,
    UPKEEP_CLOSED_MS,
    UPKEEP_OPENED_MAX,
)
from nextgen.kernel.routing.names import Domain, InvalidName, parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY

_SEGMENT_END = 2**62
"""Above the last entry of any segment."""

_SUBSCRIPTIONS_PER_STEP = 1_000
"""Subscriptions that are checked before the event loop runs other work: some milliseconds."""

_DONE = -1
"""Stands for no time: nothing is pending."""

_TOPIC_COST = 5
"""What a topic itself costs, in subscriptions."""

_logger = structlog.get_logger(__name__)


_Content = tuple[int, Position]
"""Entries stored since the topic was opened, and up to where every subscription acknowledged."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a unit without clients."""

    epoch: int
    next_ms: int
    """When to look next; ``_DONE``: never."""

    content: _Content | None = None
    """Of the topic as it was looked at; None: it was not open."""


class PendingUpkeep:
    """What time still has to drop of units without clients. Soft state of one broker process.

    A unit whose messages neither expire nor are kept for a limited time has nothing pending. Of any
    other one it is known once its topic was open here without clients. The shard may take a unit
    from this broker only when it has nothing pending, else its old messages would stay for ever.
    """

    def __init__(self, topics: Topics, clock: Callable[[], int]) -> None:
        self._topics = topics
        self._clock = clock
        self._known: dict[UnitKey, _Known] = {}

    def __repr__(self) -> str:
        return f"<PendingUpkeep units={len(self._known)}>"

    def has(self, unit: Assignment) -> bool:
        """Return whether a unit may have upkeep left. A unit of which that is not known is opened
        soon, so ask only about units that are about to leave."""
        if not _drops_by_time(self._topics.policy_of(unit)) or not _has_messages(unit):
            return False
        known, topic = self._known.get(unit.key), self._topics.get(unit.name)
        if (
            known is None
            or known.epoch != unit.epoch
            # A client came and went between two looks.
            or (topic is not None and known.content != _content(topic))
        ):
            self._known[unit.key] = _Known(unit.epoch, self._clock())
            return True
        return known.next_ms != _DONE

    def saw(self, topic: Topic) -> None:
        """Forget what was known of a topic that has clients: it may change."""
        if topic.has_clients:
            self._known.pop(topic.unit.key, None)

    async def note(self, topic: Topic, now_ms: int) -> None:
        """Note what a topic without clients, which was just trimmed, has left. ``now_ms`` is the
        wall clock's.

        Raises:
            LedgerDamaged, StorageFailed: The ledger cannot be read.
        """
        next_ms = self._clock() + UPKEEP_CLOSED_MS if await is_pending(topic, now_ms) else _DONE
        self._known[topic.unit.key] = _Known(topic.unit.epoch, next_ms, _content(topic))

    def give_up(self, unit: Assignment) -> None:
        """Note that a unit's topic cannot be opened, so nothing of it can be dropped."""
        self._known[unit.key] = _Known(unit.epoch, _DONE)

    def postpone(self, topic: Topic) -> None:
        """Note that a topic could not be trimmed, and may be later."""
        next_ms = self._clock() + UPKEEP_CLOSED_MS
        self._known[topic.unit.key] = _Known(topic.unit.epoch, next_ms, _content(topic))

    def due(self) -> list[Assignment]:
        """Return units to be looked at, at most ``UPKEEP_OPENED_MAX``; forget units of others."""
        now_ms = self._clock()
        found: list[Assignment] = []
        for key, known in list(self._known.items()):
            unit = self._topics.assignment_of(key)
            if unit is None or unit.epoch != known.epoch:
                del self._known[key]
            elif _DONE != known.next_ms <= now_ms and len(found) < UPKEEP_OPENED_MAX:
                found.append(unit)
        return found


def _content(topic: Topic) -> _Content:
    return topic.entries_added, topic.acknowledged_by_all


def _drops_by_time(policy: StoragePolicy) -> bool:
    return _longest_ms(policy) > 0


def _longest_ms(policy: StoragePolicy) -> int:
    """Return the age at which the last message that time drops is dropped; 0: time drops none."""
    retention_ms = policy.retention_ms if policy.keeps_by_time else 0
    return max(policy.message_ttl_ms, retention_ms)


def _has_messages(unit: Assignment) -> bool:
    """Return whether a unit has messages of its own: a shadow's are its source's."""
    is_shadow = SHADOW_SOURCE_PROPERTY in unit.topic.properties
    return not is_shadow and not unit.name.startswith(f"{Domain.NON_PERSISTENT}://")


async def is_pending(topic: Topic, now_ms: int) -> bool:
    """Return whether messages of a topic without clients will be dropped by their age.

    Raises:
        LedgerDamaged, StorageFailed: The ledger cannot be read.
    """
    longest_ms = _longest_ms(topic.policy)
    if not longest_ms or topic.as_shadow is not None or not topic.ledger.entry_count:
        return False
    # Without a time to live, what a subscription has not acknowledged is kept for ever.
    last = topic.ledger.last if topic.policy.message_ttl_ms else topic.acknowledged_by_all
    return last >= topic.ledger.first and await topic.ledger.before_time(now_ms - longest_ms) < last


class Upkeep:
    """Runs the upkeep of one broker's topics. ``idle_ms_max`` and others as in the limits."""

    def __init__(
        self,
        topics: Topics,
        clock: Callable[[], int],
        *,
        idle_ms_max: int = TOPIC_IDLE_MS_MAX,
        trim_ms: int = TOPIC_TRIM_MS,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._idle_ms_max = idle_ms_max
        self._trim_ms = trim_ms
        self._trimmed_at_ms = clock()
        self._measured_at_ms = clock()
        self.pending = PendingUpkeep(topics, clock)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(TOPIC_UPKEEP_MS / 1000)
            try:
                await self.look()
            except Exception:
                _logger.exception("upkeep of topics failed")

    async def look(self) -> None:
        """Check all topics once."""
        now_ms = self._clock()
        is_trimming = now_ms - self._trimmed_at_ms >= self._trim_ms
        if is_trimming:
            self._trimmed_at_ms = now_ms
            self._topics.relocate_strays()
        is_measuring = now_ms - self._measured_at_ms >= TOPIC_RATES_MS
        if is_measuring:
            self._measured_at_ms = now_ms
        checked = 0
        for topic in self._topics:
            if topic.idle_for_ms(now_ms) > self._idle_ms_max:
                await self._topics.close_idle(topic)
                continue
            self.pending.saw(topic)
            if is_measuring:
                topic.rates.measure(now_ms)
            if topic.is_usable:
                limit_backlog(topic)
                if is_trimming:
                    await self._trim(topic)
            checked += _TOPIC_COST + len(topic.subscriptions)
            if checked >= _SUBSCRIPTIONS_PER_STEP:
                checked = 0
                await asyncio.sleep(0)
        for unit in self.pending.due():
            await self._look_at(unit)

    async def _look_at(self, unit: Assignment) -> None:
        """Trim a unit without clients; its topic is opened for that if it is closed."""
        was_open = self._topics.get(unit.name) is not None
        try:
            topic = await self._topics.open_assigned(parse_topic(unit.name), unit.key, unit.epoch)
        except (Refusal, InvalidName) as error:
            _logger.info("upkeep of a closed topic left out", topic=unit.name, why=str(error))
            self.pending.give_up(unit)
            return
        await self._trim(topic)
        self.pending.saw(topic)
        if not was_open:
            await self._topics.close_idle(topic)

    async def _trim(self, topic: Topic) -> None:
        now_ms = self._topics.dependencies.now_ms()
        try:
            await expire(topic, now_ms)
            await trim(topic, topic.policy, now_ms)
            if not topic.has_clients:
                await self.pending.note(topic, now_ms)
        except STORAGE_ERRORS as error:
            self.pending.postpone(topic)
            topic.storage_failed(error)
            level = _logger.warning if isinstance(error, StorageFailed) else _logger.info
            level("topic not trimmed", topic=topic.unit.name, error=str(error))


def limit_backlog(topic: Topic) -> None:
    """Apply the policy if the backlog of the slowest durable subscription is too large."""
    policy = topic.policy
    # No backlog is larger than what the ledger keeps, so most topics need not count theirs.
    is_small = policy.allows_backlog(topic.ledger.byte_count)
    backlog_bytes = 0 if is_small else topic.backlog_bytes
    if topic.as_shadow is not None:
        topic.as_shadow.reset_backlogs(policy.backlog_reset_entries)
    if policy.allows_backlog(backlog_bytes):
        topic.refuse_publishing(None)
    elif topic.as_shadow or policy.backlog_action is BacklogAction.CONSUMER_BACKLOG_EVICTION:
        # A shadow has no producers to hold back.
        topic.refuse_publishing(None)
        _evict(topic)
    elif policy.backlog_action is BacklogAction.PRODUCER_REQUEST_HOLD:
        # Clients that get this refusal at PRODUCER keep their messages until they may produce
        # again. So connected producers are closed: they reconnect and get it.
        topic.refuse_publishing(
            _refusal(topic, backlog_bytes, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR)
        )
        topic.producers.send_away()
    else:
        topic.refuse_publishing(
            _refusal(topic, backlog_bytes, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION)
        )


async def expire(topic: Topic, now_ms: int) -> None:
    """Acknowledge messages older than the time to live in every durable subscription.

    Raises:
        LedgerDamaged, StorageFailed: The ledger cannot be read.
    """
    ttl_ms = topic.policy.message_ttl_ms
    if ttl_ms != NO_BOUND and topic.backlog_bytes:
        topic.pass_over(await topic.ledger.before_time(now_ms - ttl_ms))


async def trim(topic: Topic, policy: StoragePolicy, now_ms: int) -> None:
    """Drop segments that every durable subscription has acknowledged and whose retention, by age
    or size, is over. The topic's policy may keep them for its shadows.

    Raises:
        Fenced, StorageFailed, LedgerDamaged: The ledger failed.
    """
    before = topic.ledger.first
    topic.shadows.forget_all_but(policy.shadow_topics)
    topic.shadows.store(policy.shadow_topics if policy.keeps_for_shadows else ())
    try:
        await _trim(topic, policy, now_ms)
    finally:
        if topic.ledger.first != before:
            topic.followers.changed()


async def _trim(topic: Topic, policy: StoragePolicy, now_ms: int) -> None:
    ledger = topic.ledger
    if topic.as_shadow is not None:
        # Its ledger drops nothing, and reports to the source what is not needed here.
        await ledger.trim(topic.as_shadow.acknowledged)
        return
    if policy.keeps_by_time:
        old = await ledger.before_time(now_ms - policy.retention_ms)
        await ledger.trim(min(old, _kept_behind(topic, policy)))
    if not policy.keeps_by_size:
        return
    done = _kept_behind(topic, policy)
    # If the segment is larger than the excess, keep it.
    while ledger.byte_count - LEDGER_SEGMENT_BYTES >= max(policy.retention_bytes, 1):
        first = ledger.first
        await ledger.trim(min(Position(first.ledger_id, _SEGMENT_END), done))
        if ledger.first == first:
            return


def _kept_behind(topic: Topic, policy: StoragePolicy) -> Position:
    """Return behind what entries are kept for subscriptions, and for shadows if it is a policy."""
    if not policy.keeps_for_shadows:
        return topic.acknowledged_by_all
    return min(topic.acknowledged_by_all, topic.shadows.by_all(policy.shadow_topics))


def _evict(topic: Topic) -> None:
    ledger = topic.ledger
    kept = entries_kept_at_eviction(topic.policy, ledger.entry_count, ledger.byte_count)
    up_to = position_before_newest(kept, ledger.first, ledger.last, ledger.entries_between)
    topic.pass_over(up_to)
    _logger.info("backlog evicted", topic=topic.unit.name, up_to=str(up_to))


def _refusal(topic: Topic, backlog_bytes: int, code: ServerError) -> Refusal:
    return Refusal(
        code,
        f"topic {topic.unit.name} has a backlog of {backlog_bytes} bytes, "
        f"at most {topic.policy.backlog_bytes_max} may be",
    )
