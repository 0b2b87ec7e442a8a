"""The answers that clients get when storage fails."""

from __future__ import annotations

from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import Fenced, LedgerDamaged, StorageFailed

STORAGE_ERRORS = (Fenced, LedgerDamaged, StorageFailed)


def storage_refusal(error: Exception, topic_name: str) -> Refusal:
    """Return the answer for one of ``STORAGE_ERRORS``.

    Fenced: the client has to look the topic up again. Otherwise it may retry here. Damage lasts
    until an operator repairs it, and the message has its place.
    """
    if isinstance(error, Fenced):
        return Refusal(
            ServerError.SERVICE_NOT_READY,
            f"topic {topic_name} has a later owner: look it up again",
        )
    return Refusal(ServerError.PERSISTENCE, f"topic {topic_name}: {error}")
