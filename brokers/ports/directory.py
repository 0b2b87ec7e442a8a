"""Where topics are, for a broker: as for everybody who speaks Pulsar, and for their owners."""

from __future__ import annotations

from typing import Protocol

from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located, TopicDirectory


class OwnersDirectory(TopicDirectory, Protocol):
    """A ``TopicDirectory`` that gives owners higher epochs."""

    async def raise_epoch(
        self, name: TopicName, *, topic_id: str, epoch: int, used_epoch: int
    ) -> Located:
        """Have a unit assigned above ``used_epoch``, which its ledger knows; return where it is.

        Nothing happens if another assignment than that of ``epoch`` holds by now.

        Raises:
            Refused: ``LIMIT_EXCEEDED``: so high an epoch is taken for damage.
            MetadataError: It may have been assigned, or not.
        """
