"""The end of a topic: nothing is published any more, at this owner and at all later ones.

    publications are refused ─▶ earlier ones are answered ─▶ the end is durable

The end is a fact in the ledger, so it moves with the unit and is ordered by epochs. A crash before
it is durable leaves a topic that goes on.
"""

from __future__ import annotations

import asyncio

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.topic_facts import TERMINATED_KEY
from brokers.ports.ledger import TopicLedger
from brokers.service.producing.publishing import Publishing
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.pulsar import TOPIC_TERMINATION_MS_MAX
from nextgen.tasks.background import join


class Termination:
    """The end of one topic at its present owner. Refuses publications of a topic that has ended."""

    def __init__(self, topic_name: str, ledger: TopicLedger, publishing: Publishing) -> None:
        self._ledger = ledger
        self._publishing = publishing
        self._refusal = Refusal(
            ServerError.TOPIC_TERMINATED, f"topic {topic_name} is terminated: nothing is published"
        )
        self._ending: asyncio.Task[None] | None = None
        self.is_over = TERMINATED_KEY in ledger.state
        """Whether the end is durable."""
        if self.is_over:
            publishing.refusal = self._refusal

    @property
    def has_begun(self) -> bool:
        """Whether publications are refused because of it."""
        return self._publishing.refusal is self._refusal

    def look(self) -> bool:
        """Return whether a shadow's source has ended, which was not known before."""
        was_over, self.is_over = self.is_over, TERMINATED_KEY in self._ledger.state
        return self.is_over and not was_over

    async def end(self) -> None:
        """Return when the end is durable. Concurrent calls share one; a repetition does nothing.

        Raises:
            Unavailable: Storage has not answered earlier publications. The topic goes on.
            Fenced, StorageFailed: The topic may have ended, or not.
        """
        if self.is_over:
            return
        if self._ending is None:
            self._ending = join(self._end())
            self._ending.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Callers share it: a cancelled caller must not cancel it for the others.
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        before, self._publishing.refusal = self._publishing.refusal, self._refusal
        try:
            if not await self._publishing.drained(TOPIC_TERMINATION_MS_MAX):
                self._publishing.refusal = before
                raise Unavailable("earlier messages of the topic are not stored yet")
            await self._ledger.put_state(TERMINATED_KEY, b"")
            self.is_over = True
        finally:
            self._ending = None
