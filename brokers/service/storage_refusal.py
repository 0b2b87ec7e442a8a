"""The answers that clients get when storage fails."""

from __future__ import annotations

from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import Fenced, LedgerDamaged, StorageFailed

STORAGE_ERRORS = (Fenced, LedgerDamaged, StorageFailed)


def storage_refusal(error: Exception, topic_name: str) -> Refusal:
    """Return the answer for one of ``STORAGE_ERRORS``.

    Fenced: the client is to look the topic up again. Otherwise it may try again here; damage
    stays until somebody has repaired it, and the message says where it is.
    """
    if isinstance(error, Fenced):
        return Refusal(
            ServerError.SERVICE_NOT_READY,
            f"topic {topic_name} has a later owner: look it up again",
        )
    return Refusal(ServerError.PERSISTENCE, f"topic {topic_name}: {error}")
