"""What open topics need from time to time: idle ones closed, backlogs limited, old messages gone.

One task goes through all topics, so that their number costs no timers.
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
    TOPIC_TRIM_MS,
    TOPIC_UPKEEP_MS,
)

_SEGMENT_END = 2**62
"""Behind the last entry of any segment."""

_TOPICS_PER_STEP = 200
"""Topics looked at before others get the event loop: some milliseconds."""

_logger = structlog.get_logger(__name__)


class Upkeep:
    """Keeps the topics of one broker in order. ``idle_ms_max`` and so on as in the limits."""

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

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(TOPIC_UPKEEP_MS / 1000)
            try:
                await self.look()
            except Exception:
                _logger.exception("upkeep of topics failed")

    async def look(self) -> None:
        """Go through all topics once."""
        now_ms = self._clock()
        is_trimming = now_ms - self._trimmed_at_ms >= self._trim_ms
        if is_trimming:
            self._trimmed_at_ms = now_ms
            self._topics.relocate_strays()
        for number, topic in enumerate(self._topics, start=1):
            if topic.idle_for_ms(now_ms) > self._idle_ms_max:
                await self._topics.close_idle(topic)
                continue
            if topic.is_usable:
                limit_backlog(topic)
                if is_trimming:
                    await self._trim(topic)
            if number % _TOPICS_PER_STEP == 0:
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
    """Act on a backlog of the slowest durable subscription that is larger than it may be."""
    policy, backlog_bytes = topic.policy, topic.backlog_bytes
    if policy.allows_backlog(backlog_bytes):
        topic.refuse_publishing(None)
    elif policy.backlog_action is BacklogAction.CONSUMER_BACKLOG_EVICTION:
        topic.refuse_publishing(None)
        _evict(topic)
    elif policy.backlog_action is BacklogAction.PRODUCER_REQUEST_HOLD:
        # Clients that get this refusal at CREATE keep their messages until they may produce again.
        # Connected producers are closed, so that they reconnect and get it.
        topic.refuse_publishing(
            _refusal(topic, backlog_bytes, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR)
        )
        topic.producers.send_away()
    else:
        topic.refuse_publishing(
            _refusal(topic, backlog_bytes, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION)
        )


async def expire(topic: Topic, now_ms: int) -> None:
    """Have every durable subscription go on behind what is older than the time to live.

    Raises:
        LedgerDamaged, StorageFailed: As the ledger says.
    """
    ttl_ms = topic.policy.message_ttl_ms
    if ttl_ms != NO_BOUND and topic.backlog_bytes:
        topic.pass_over(await topic.ledger.before_time(now_ms - ttl_ms))


async def trim(topic: Topic, policy: StoragePolicy, now_ms: int) -> None:
    """Drop whole segments that every durable subscription has behind it and that are old, or
    beyond the newest bytes that are kept.

    Raises:
        Fenced, StorageFailed, LedgerDamaged: As the ledger says.
    """
    ledger = topic.ledger
    if policy.keeps_by_time:
        old = await ledger.before_time(now_ms - policy.retention_ms)
        await ledger.trim(min(old, topic.acknowledged_by_all))
    if not policy.keeps_by_size:
        return
    done = topic.acknowledged_by_all
    # A segment may be that much larger than what there is too much of: it is kept then.
    while ledger.byte_count - LEDGER_SEGMENT_BYTES >= max(policy.retention_bytes, 1):
        first = ledger.first
        await ledger.trim(min(Position(first.ledger_id, _SEGMENT_END), done))
        if ledger.first == first:
            return


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
