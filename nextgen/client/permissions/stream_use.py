"""One shard's stream as the table of permissions uses it."""

from __future__ import annotations

from nextgen.client.permissions.known_object import KnownObject, ShardStream


class StreamUse:
    """A stream, and the objects by which names may be looked up without a question."""

    __slots__ = ("breaks", "lookers", "stream")

    def __init__(self, stream: ShardStream) -> None:
        self.stream = stream
        self.breaks = stream.breaks
        self.lookers: dict[KnownObject, None] = {}

    def drop_lookers(self) -> None:
        lookers, self.lookers = self.lookers, {}
        self.breaks = self.stream.breaks
        for known in lookers:
            known.drop_lookers()
