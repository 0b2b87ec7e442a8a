"""Removes the messages of units that are gone for good."""

from __future__ import annotations

import structlog

from brokers.domain.holding import UnitKey
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import LedgerStore, StorageFailed
from brokers.service.topics.name_locks import NameLocks
from nextgen.kernel.routing.names import Domain, parse_topic

_logger = structlog.get_logger(__name__)


async def remove_messages(
    store: LedgerStore, locks: NameLocks, name: str, key: UnitKey, epoch: int
) -> None:
    """Remove a unit's messages, in the generation of ``epoch`` and all before it.

    The caller MUST have closed it here. One that is not persistent has none.

    Raises:
        Refusal: Storage failed; some of them may be left.
    """
    if parse_topic(name).domain is Domain.NON_PERSISTENT:
        return
    # An opening of the unit may be running. It ends with a close, as the unit is not held.
    async with locks.held(name):
        pass
    topic_id, unit = key
    try:
        await store.remove(topic_id, unit, epoch)
    except StorageFailed as error:
        _logger.warning("messages not removed", topic=name, error=str(error))
        raise Refusal(ServerError.PERSISTENCE, f"messages of {name} are left: {error}") from error
    _logger.info("messages removed", topic=name, topic_id=topic_id)
