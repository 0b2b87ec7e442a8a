"""What is different at a shadow topic: nobody produces, and its source drops entries.

Its entries, their positions and its schema are those of its source. Its subscriptions are its own,
and the source does not wait for them, unless its policy says so.
"""

from __future__ import annotations

from collections.abc import Mapping

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
        for subscription in list(self._subscriptions.values()):
            if subscription.is_durable:
                self._skip(subscription, before(first), "its source dropped them")

    def recovered(self) -> None:
        """Skip what the source dropped while the topic was not open here."""
        first = self._ledger.first
        for subscription in list(self._subscriptions.values()):
            if BEFORE_ALL < subscription.mark_delete < before(first):
                _logger.warning(
                    "shadow subscription skips to the first kept entry",
                    topic=self._topic_name,
                    subscription=subscription.name,
                    behind=str(subscription.mark_delete),
                    first=str(first),
                )
        self.before_trim(first)

    def reset_backlogs(self, entries_max: int) -> None:
        """Have durable subscriptions with a larger backlog continue at the end; 0: none."""
        for subscription in list(self._subscriptions.values()) if entries_max else ():
            if subscription.is_durable and subscription.backlog_entries > entries_max:
                why = f"a backlog may have {entries_max} entries"
                self._skip(subscription, self._ledger.last, why)

    def _skip(self, subscription: Subscription, up_to: Position, why: str) -> None:
        behind, backlog = subscription.mark_delete, subscription.backlog_entries
        if behind >= up_to or not subscription.pass_over(up_to):
            return
        skipped = backlog - subscription.backlog_entries
        self.skipped_entries += skipped
        if skipped:
            _logger.warning(
                "shadow subscription skips entries",
                topic=self._topic_name,
                subscription=subscription.name,
                entries=skipped,
                behind=str(behind),
                up_to=str(up_to),
                reason=why,
            )
