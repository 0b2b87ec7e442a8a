"""The port by which a broker has topics assigned to itself."""

from __future__ import annotations

from typing import Protocol

from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located


class TopicClaims(Protocol):
    """Assigns units that nobody has to this broker."""

    async def claim(self, name: TopicName) -> Located:
        """Return where a unit is served; if nobody has it, it is assigned to this broker.

        It goes to another broker if its rules forbid this one, or if this one has no room. An
        absent topic is created if its namespace allows that.

        Raises:
            MetadataError: It has no broker, or it is not known.
        """
        ...
