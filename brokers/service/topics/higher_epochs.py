"""Higher epochs for units whose ledgers know a later one than the shard has given (ADR 0054).

That happens when a shard lost a part of its log, as by a backup that was restored: it gives epochs
out again that owners have used, and storage fences every new owner. Without a higher epoch the unit
would stay unserved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from brokers.domain.holding import Assignment, UnitKey
from brokers.ports.directory import OwnersDirectory
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.limits.placement import HIGHER_EPOCH_ASKED_MS
from nextgen.kernel.limits.pulsar import TOPIC_FAILURES_REMEMBERED_MAX
from nextgen.kernel.routing.names import parse_topic

_logger = structlog.get_logger(__name__)


class HigherEpochs:
    """What one broker found in ledgers and asks the shards for.

    A unit is asked for again ``HIGHER_EPOCH_ASKED_MS`` later at the soonest. ``on_refused`` is
    called with the topic's name and why it gets no higher epoch.
    """

    def __init__(self, directory: OwnersDirectory, on_refused: Callable[[str, str], None]) -> None:
        self._directory = directory
        self._on_refused = on_refused
        self._asked_at: dict[UnitKey, float] = {}

    def __repr__(self) -> str:
        return f"<HigherEpochs units={len(self._asked_at)}>"

    def ask(self, assignment: Assignment, used_epoch: int) -> Coroutine[Any, Any, None] | None:
        """Return what asks for an epoch above ``used_epoch``; None if there is no reason to now.

        ``assignment`` is what the present session was assigned, and was fenced in. Whether it
        still holds the shard decides: where it gave the unit to somebody else it changes nothing.
        """
        if used_epoch < assignment.epoch:
            return None
        now, asked_at = asyncio.get_running_loop().time(), self._asked_at.pop(assignment.key, None)
        if asked_at is not None and now - asked_at < HIGHER_EPOCH_ASKED_MS / 1_000:
            self._asked_at[assignment.key] = asked_at
            return None
        self._asked_at[assignment.key] = now
        if len(self._asked_at) > TOPIC_FAILURES_REMEMBERED_MAX:
            del self._asked_at[next(iter(self._asked_at))]
        return self._ask(assignment, used_epoch)

    async def _ask(self, assignment: Assignment, used_epoch: int) -> None:
        name = assignment.name
        facts = {"topic": name, "epoch": assignment.epoch, "used_epoch": used_epoch}
        try:
            located = await self._directory.raise_epoch(
                parse_topic(name),
                topic_id=assignment.topic.topic_id,
                epoch=assignment.epoch,
                used_epoch=used_epoch,
            )
        except Refused as refusal:
            _logger.error("no higher epoch", **facts, why=str(refusal))
            self._on_refused(name, str(refusal))
        except MetadataError as error:
            # The next client that comes has it asked for again.
            _logger.warning("no higher epoch yet", **facts, why=str(error))
        else:
            _logger.warning("ledger knew a later epoch", **facts, given=located.epoch)
