"""Requests higher epochs for units whose ledgers have a later one than the shard gave (ADR 0054).

That happens when a shard has lost a part of its log, for example by restoring a backup. It then
gives out epochs that earlier owners have used, and storage fences every new owner. Without a higher
epoch the unit would stay unserved.
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
    """One broker's requests for higher epochs.

    A unit's request is repeated after ``HIGHER_EPOCH_ASKED_MS`` at the earliest. ``on_refused`` is
    called with the topic's name and the reason of a refusal.
    """

    def __init__(self, directory: OwnersDirectory, on_refused: Callable[[str, str], None]) -> None:
        self._directory = directory
        self._on_refused = on_refused
        self._requested_at: dict[UnitKey, float] = {}

    def __repr__(self) -> str:
        return f"<HigherEpochs units={len(self._requested_at)}>"

    def ask(self, assignment: Assignment, used_epoch: int) -> Coroutine[Any, Any, None] | None:
        """Return a request for an epoch above ``used_epoch``; None if none is needed now.

        ``assignment`` is an assignment of the present session that was fenced. The shard decides
        whether it is still the present one; if the unit has another owner, nothing changes.
        """
        if used_epoch < assignment.epoch:
            return None
        now, requested_at = (
            asyncio.get_running_loop().time(),
            self._requested_at.pop(assignment.key, None),
        )
        if requested_at is not None and now - requested_at < HIGHER_EPOCH_ASKED_MS / 1_000:
            self._requested_at[assignment.key] = requested_at
            return None
        self._requested_at[assignment.key] = now
        if len(self._requested_at) > TOPIC_FAILURES_REMEMBERED_MAX:
            del self._requested_at[next(iter(self._requested_at))]
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
            # The next client of the topic causes another request.
            _logger.warning("no higher epoch yet", **facts, why=str(error))
        else:
            _logger.warning("ledger knew a later epoch", **facts, given=located.epoch)
