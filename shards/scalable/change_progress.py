"""Counts and times the operations on one topic's layout, as its leader carries them on.

It sees the states that the work goes by, so it knows nothing that was not decided.
"""

from __future__ import annotations

from shards.domain.scalable.state import LayoutOperation, ScalableTopic
from shards.metrics import ShardMetrics
from shards.ports import Clock


class ChangeProgress:
    """The operation that is under way. Make one for each topic and term."""

    def __init__(self, metrics: ShardMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._operation: LayoutOperation | None = None
        self._since = 0.0
        """When the last step ended, or this leader began with the operation."""

    def see(self, topic: ScalableTopic | None) -> None:
        """Take in the present state, None once the topic is deleted."""
        before = self._operation
        present = None if topic is None else topic.operation
        if before is not None:
            if present is None or present.operation_id != before.operation_id:
                self._end(before, topic)
                before = None
            elif present.are_children_ready and not before.are_children_ready:
                self._note_step("ready")
        if before is None and present is not None:
            self._metrics.note_layout_change(present.kind, "begun")
            self._since = self._clock.monotonic()
        self._operation = present

    def note_parent_ended(self) -> None:
        """Take in that a parent takes no messages any more, which is not recorded yet."""
        self._note_step("sealed")

    def _end(self, operation: LayoutOperation, topic: ScalableTopic | None) -> None:
        if topic is None:
            outcome = "deleted"
        elif any(each.segment_id in topic.segments for each in operation.children):
            outcome = "committed"
            self._note_step("committed")
        else:
            outcome = "taken_back"
        self._metrics.note_layout_change(operation.kind, outcome)

    def _note_step(self, step: str) -> None:
        now = self._clock.monotonic()
        self._metrics.note_layout_step(step, now - self._since)
        self._since = now
