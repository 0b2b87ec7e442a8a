"""What is different at a shadow topic: nobody produces, and its source drops entries.

Its entries, their positions and its schema are those of its source. Its subscriptions are its own,
and the source does not wait for them, unless its policy says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import structlog

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.cursor import before
from brokers.ports.ledger import TopicLedger
from brokers.ports.shadows import ShadowLedger
from brokers.service.producing.publishing import Publishing
from brokers.service.shadows.acknowledged import KEEPS_NOTHING
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics.schemas import TopicSchemas
from brokers.service.topics.termination import Termination

_NAMES_LOGGED = 10
"""Subscriptions that a line of the log names."""

_logger = structlog.get_logger(__name__)


def shadow_of(
    topic_name: str,
    ledger: TopicLedger,
    subscriptions: Mapping[str, Subscription],
    schemas: TopicSchemas,
    termination: Termination,
    publishing: Publishing,
) -> Shadow | None:
    """Return the part of a topic that follows its source; None if the topic has none."""
    if not isinstance(ledger, ShadowLedger):
        return None
    return Shadow(topic_name, ledger, subscriptions, schemas, termination, publishing)


class Shadow:
    """The part of one open shadow topic that follows its source. A ``ShadowListener``.

    ``subscriptions`` and the others are parts of the topic.
    """

    def __init__(
        self,
        topic_name: str,
        ledger: ShadowLedger,
        subscriptions: Mapping[str, Subscription],
        schemas: TopicSchemas,
        termination: Termination,
        publishing: Publishing,
    ) -> None:
        self._topic_name = topic_name
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._schemas = schemas
        self._termination = termination
        self.skipped_entries = 0
        """Entries that subscriptions have skipped here, as far as they are known."""
        self.refusal = Refusal(
            ServerError.NOT_ALLOWED,
            f"topic {topic_name} is a shadow of {self.source}: publish there",
        )
        publishing.refusal = self.refusal
        ledger.listen(self)

    @property
    def source(self) -> str:
        """The name of the source's unit."""
        return self._ledger.source.text

    @property
    def away(self) -> str:
        """Why the source sends nothing at present; empty: it does."""
        return self._ledger.away

    @property
    def acknowledged(self) -> Position:
        """Up to where the source may drop entries for all that is subscribed here."""
        durable = (each for each in self._subscriptions.values() if each.is_durable)
        return min((each.mark_delete for each in durable), default=KEEPS_NOTHING)

    def facts_changed(self) -> None:
        try:
            self._schemas.reload()
        except ValueError as error:
            _logger.error("schema of a source", topic=self._topic_name, error=str(error))
        if self._termination.look():
            for subscription in list(self._subscriptions.values()):
                subscription.topic_terminated()

    def before_trim(self, first: Position) -> None:
        durable = [each for each in self._subscriptions.values() if each.is_durable]
        self._skip(durable, before(first), "its source dropped them")

    def recovered(self) -> None:
        """Skip what the source dropped while the topic was not open here."""
        first = self._ledger.first
        behind = [
            each
            for each in self._subscriptions.values()
            if BEFORE_ALL < each.mark_delete < before(first)
        ]
        if behind:
            _logger.warning(
                "shadow subscriptions skip to the first kept entry",
                topic=self._topic_name,
                subscriptions=len(behind),
                examples=[each.name for each in behind[:_NAMES_LOGGED]],
                behind=str(min(each.mark_delete for each in behind)),
                first=str(first),
            )
        self.before_trim(first)

    def reset_backlogs(self, entries_max: int) -> None:
        """Have durable subscriptions with a larger backlog continue at the end; 0: none."""
        if not entries_max or self._ledger.entry_count <= entries_max:
            # No backlog is larger than what the source keeps.
            return
        late = [
            each
            for each in self._subscriptions.values()
            if each.is_durable and each.backlog_entries > entries_max
        ]
        self._skip(late, self._ledger.last, f"a backlog may have {entries_max} entries")

    def _skip(self, subscriptions: Sequence[Subscription], up_to: Position, why: str) -> None:
        """Have these continue behind ``up_to``; count what they skip, and log it in one line:
        there may be thousands, and all behind."""
        skipped: dict[str, int] = {}
        for subscription in subscriptions:
            if subscription.mark_delete >= up_to:
                continue
            backlog = subscription.backlog_entries
            if subscription.pass_over(up_to) and (
                entries := backlog - subscription.backlog_entries
            ):
                skipped[subscription.name] = entries
        self.skipped_entries += sum(skipped.values())
        if skipped:
            _logger.warning(
                "shadow subscriptions skip entries",
                topic=self._topic_name,
                subscriptions=len(skipped),
                entries=sum(skipped.values()),
                examples=dict(islice(skipped.items(), _NAMES_LOGGED)),
                up_to=str(up_to),
                reason=why,
            )
