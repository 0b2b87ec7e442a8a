"""The ledgers of units: which store has them, and which ones show the entries of a source."""

from __future__ import annotations

import asyncio

import structlog

from brokers.domain.holding import Assignment, UnitKey
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import LedgerStore, StorageFailed, TopicLedger
from brokers.ports.shadows import ShadowLedgers
from brokers.service.topics.open_units import UnitLocks
from nextgen.kernel.limits.pulsar import TOPICS_OPENING_MAX
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.kernel.routing.shadows import shadow_source_of

_logger = structlog.get_logger(__name__)


class UnitLedgers:
    """Opens, prepares and removes the ledgers of one broker's units.

    ``volatile`` is the store of topics that are not persistent. Without ``shadows`` no shadow can
    be opened.
    """

    def __init__(
        self, persistent: LedgerStore, volatile: LedgerStore, shadows: ShadowLedgers | None
    ) -> None:
        self._persistent = persistent
        self._volatile = volatile
        self._shadows = shadows
        self._openings = asyncio.Semaphore(TOPICS_OPENING_MAX)
        self._reading_ahead = asyncio.Lock()

    async def open(self, name: TopicName, assignment: Assignment) -> TopicLedger:
        """Become the owner of a unit, see ``LedgerStore.open``.

        Raises:
            Fenced, LedgerDamaged, StorageFailed: As there, and of a shadow as of ``ShadowLedgers``.
        """
        is_persistent = name.domain is not Domain.NON_PERSISTENT
        store = self._persistent if is_persistent else self._volatile
        async with self._openings:
            ledger = await store.open(
                assignment.topic.topic_id,
                assignment.unit,
                assignment.epoch,
                topic_name=name.text,
            )
        source = shadow_source_of(assignment.topic.properties)
        if not source or not is_persistent:
            return ledger
        # Not within the number of openings: the source may have to be opened here first.
        return await self._shadow(ledger, name, source)

    async def prepare(self, assignment: Assignment) -> None:
        """Read ahead what opening a unit will need."""
        if parse_topic(assignment.name).domain is not Domain.NON_PERSISTENT:
            # One at a time, so that openings, for which clients wait, have the disk.
            async with self._reading_ahead:
                await self._persistent.prepare(assignment.topic.topic_id, assignment.unit)

    async def remove(self, name: str, key: UnitKey, epoch: int, locks: UnitLocks) -> None:
        """Remove a unit's messages, in the generation of ``epoch`` and all before it.

        The caller MUST have closed it here. One that is not persistent has none.

        Raises:
            Refusal: Storage failed; some of them may be left.
        """
        if parse_topic(name).domain is Domain.NON_PERSISTENT:
            return
        # An opening of the unit may be running. It ends with a close, as the unit is not held.
        async with locks.held(key):
            pass
        topic_id, unit = key
        try:
            await self._persistent.remove(topic_id, unit, epoch)
        except StorageFailed as error:
            _logger.warning("messages not removed", topic=name, error=str(error))
            raise Refusal(
                ServerError.PERSISTENCE, f"messages of {name} are left: {error}"
            ) from error
        _logger.info("messages removed", topic=name, topic_id=topic_id)

    async def _shadow(self, own: TopicLedger, name: TopicName, source: str) -> TopicLedger:
        try:
            if self._shadows is None:
                raise StorageFailed("this broker opens no shadow topics")
            unit = _source_unit(name, source)
        except (StorageFailed, InvalidName) as error:
            await own.close()
            raise StorageFailed(f"a shadow of {source}: {error}") from error
        return await self._shadows.open(own, name, unit)


def _source_unit(shadow: TopicName, source: str) -> TopicName:
    """Return the unit of a source that a unit of a shadow follows.

    Shards check what they are given. A property that is older than shadow topics may say anything.

    Raises:
        InvalidName: It can be the source of no topic, or not of this one.
    """
    found = parse_topic(source)
    is_topic = found.domain is Domain.PERSISTENT and found.partition is None
    if not is_topic or found.base_text == shadow.base_text:
        raise InvalidName("it cannot be the source")
    return found if shadow.partition is None else found.of_partition(shadow.partition)
