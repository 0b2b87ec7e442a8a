"""The upkeep of open topics: closes idle ones, limits backlogs, drops old messages.

One task checks all topics, so that they need no timers of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

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
)

_SEGMENT_END = 2**62
"""Above the last entry of any segment."""

_SUBSCRIPTIONS_PER_STEP = 1_000
"""Subscriptions that are checked before the event loop runs other work: some milliseconds."""

_TOPIC_COST = 5
"""What a topic itself costs, in subscriptions."""

_logger = structlog.get_logger(__name__)


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

    async def _trim(self, topic: Topic) -> None:
        now_ms = self._topics.dependencies.now_ms()
        try:
            await expire(topic, now_ms)
            await trim(topic, topic.policy, now_ms)
        except STORAGE_ERRORS as error:
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
