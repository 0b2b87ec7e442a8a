"""The topic directory of a broker, with requests that only owners of units make."""

from __future__ import annotations

from typing import Protocol

from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located, TopicDirectory


class OwnersDirectory(TopicDirectory, Protocol):
    """A ``TopicDirectory`` that also requests higher epochs for owners."""

    async def raise_epoch(
        self, name: TopicName, *, topic_id: str, epoch: int, used_epoch: int
    ) -> Located:
        """Request an epoch above ``used_epoch``, which the unit's ledger has; return its broker.

        Nothing changes if the present assignment is not that of ``epoch``.

        Raises:
            Refused: ``LIMIT_EXCEEDED``: such a high epoch is regarded as damage.
            MetadataError: The unit may have been assigned, or not.
        """
