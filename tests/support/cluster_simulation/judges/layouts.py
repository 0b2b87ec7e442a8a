"""The segments of scalable topics, folded from what is committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.cluster_simulation.judges.freshness import Freshness


class Layouts:
    """The part of the invariants that knows segments. Methods are named by the events they fold."""

    freshness: Freshness
    deleted_topics: dict[str | tuple[str, str], float]

    def __init__(self) -> None:
        self.segments: dict[str, set[str]] = {}
        """By the id of a scalable topic: the units that may have messages."""
        self.changing: dict[str, Any] = {}
        """By the id of a topic: the plan of the change of its layout that is under way."""

    def _scalable_topic_created(self, _shard: int, event: Any) -> None:
        self.segments[event.topic_id] = {f"s{each.segment_id}" for each in event.segments}

    def _layout_change_planned(self, _shard: int, event: Any) -> None:
        self.segments[event.topic_id] |= {f"s{each.segment_id}" for each in event.children}
        self.changing[event.topic_id] = event

    def _layout_changed(self, _shard: int, event: Any) -> None:
        self._removed(event.topic_id, event.removed)
        if event.operation_id:
            self.changing.pop(event.topic_id, None)

    def is_unlisted_child(self, topic_id: str, unit: str) -> bool:
        """Return whether a unit is a child of a change that is under way.

        Residents produce to whatever is open. A client does not know a child before the commit.
        """
        plan = self.changing.get(topic_id)
        return plan is not None and unit in {f"s{each.segment_id}" for each in plan.children}

    def _layout_change_abandoned(self, _shard: int, event: Any) -> None:
        plan = self.changing.pop(event.topic_id)
        self._removed(event.topic_id, (each.segment_id for each in plan.children))

    def _scalable_topic_deleted(self, _shard: int, event: Any) -> None:
        self.changing.pop(event.topic_id, None)

    def _segment_storage_removed(self, _shard: int, event: Any) -> None:
        self.segments[event.topic_id].discard(f"s{event.segment_id}")

    def _removed(self, topic_id: str, segments: Iterable[int]) -> None:
        for each in segments:
            self.deleted_topics[topic_id, f"s{each}"] = self.freshness.now()
