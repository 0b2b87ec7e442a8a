"""A numbered series of topics, small enough to travel to another process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Topics ``first`` to ``first + count - 1`` of a namespace, by canonical name."""

    namespace: str
    stem: str
    first: int
    count: int

    def name(self, offset: int) -> str:
        """Return the canonical name of the topic at ``offset`` from the first."""
        return f"persistent://{self.namespace}/{self.stem}-{self.first + offset:07d}"

    def names(self) -> list[str]:
        return [self.name(offset) for offset in range(self.count)]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> TopicRange:
        return TopicRange(**fields)
