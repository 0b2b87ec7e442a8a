"""What open topics need from time to time: idle ones closed, backlogs limited, old messages gone.

One task goes through all topics, so that their number costs no timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import StorageFailed
from brokers.service.storage_refusal import STORAGE_ERRORS
from brokers.service.topic import Topic
from brokers.service.topics import Topics
from nextgen.kernel.pulsar_limits import (
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
            limit_backlog(topic, self._topics.surroundings.policy.backlog_bytes_max)
            if is_trimming and topic.is_usable:
                await self._trim(topic)
            if number % _TOPICS_PER_STEP == 0:
                await asyncio.sleep(0)

    async def _trim(self, topic: Topic) -> None:
        policy = self._topics.surroundings.policy
        try:
            await trim(
                topic,
                published_before_ms=self._topics.surroundings.now_ms() - policy.retention_ms,
                retention_bytes=policy.retention_bytes,
            )
        except STORAGE_ERRORS as error:
            topic.storage_failed(error)
            level = _logger.warning if isinstance(error, StorageFailed) else _logger.info
            level("topic not trimmed", topic=topic.unit.name, error=str(error))


def limit_backlog(topic: Topic, backlog_bytes_max: int) -> None:
    """Have publishing refused while the slowest durable subscription is too far behind."""
    backlog_bytes = topic.backlog_bytes
    if backlog_bytes <= backlog_bytes_max:
        topic.refuse_publishing(None)
        return
    topic.refuse_publishing(
        Refusal(
            ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION,
            f"topic {topic.unit.name} has a backlog of {backlog_bytes} bytes, "
            f"at most {backlog_bytes_max} may be",
        )
    )


async def trim(topic: Topic, *, published_before_ms: int, retention_bytes: int) -> None:
    """Drop whole segments that every durable subscription has behind it and that are old, or
    beyond the newest ``retention_bytes``.

    Raises:
        Fenced, StorageFailed, LedgerDamaged: As the ledger says.
    """
    ledger = topic.ledger
    done = topic.acknowledged_by_all
    await ledger.trim(min(await ledger.before_time(published_before_ms), done))
    # A segment may be that much larger than what there is too much of: it is kept then.
    while ledger.byte_count - LEDGER_SEGMENT_BYTES >= max(retention_bytes, 1):
        first = ledger.first
        await ledger.trim(min(Position(first.ledger_id, _SEGMENT_END), done))
        if ledger.first == first:
            return
