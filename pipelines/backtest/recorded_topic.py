"""A scalable topic as its events say it was, as far as decisions look at it.

The fold is that of the shards: ``shards/domain/scalable/state.py`` and ``loads.py``. A test folds
the same events both ways.
"""

from __future__ import annotations

import base64
from typing import Any

from nextgen.client.wire.policies import unpack_policies
from nextgen.kernel.governance.auto_scale_policy import AUTO_SCALE_POLICY
from nextgen.kernel.scalable.auto_scale import (
    NEVER_CHANGED,
    GroupSizes,
    ScaleClocks,
    group_sizes,
)
from nextgen.kernel.scalable.layout_operations import clocks_after
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment
from pipelines.backtest.facts import LOADS, Fact, segments_in

CREATED, RESTORED, DELETED = (
    "scalable_topic_created",
    "scalable_topic_restored",
    "scalable_topic_deleted",
)
PLANNED, CHANGED, ABANDONED = (
    "layout_change_planned",
    "layout_changed",
    "layout_change_abandoned",
)
DECIDED = "auto_scale_decided"
SUBSCRIBED, ENDING, UNSUBSCRIBED = (
    "scalable_subscription_created",
    "scalable_subscription_deletion_started",
    "scalable_subscription_deleted",
)
JOINED, LEFT = "scalable_consumer_registered", "scalable_consumer_left"
POLICY_SET, POLICY_CLEARED = "policy_set", "policy_cleared"

KINDS = (
    *(CREATED, RESTORED, DELETED, PLANNED, CHANGED, ABANDONED, DECIDED, LOADS),
    *(SUBSCRIBED, ENDING, UNSUBSCRIBED, JOINED, LEFT, POLICY_SET, POLICY_CLEARED),
)
"""Event types that a backtest reads."""

_STREAM = "stream"


class RecordedTopic:
    """``segments`` has sealed ones too, by id; ``own_policy`` is the topic's override as JSON."""

    def __init__(self, topic_id: str, shard_id: int) -> None:
        self.topic_id = topic_id
        self.shard_id = shard_id
        self.name = ""
        self.exists = False
        self.segments: dict[int, Segment] = {}
        self.active: tuple[Segment, ...] = ()
        self.loads: dict[int, SegmentLoad] = {}
        self.clocks: ScaleClocks = NEVER_CHANGED
        self.groups = GroupSizes()
        self.operation_id = 0
        """Of the operation that is under way, 0 for none."""
        self.own_policy = ""
        self._has_loads = False
        self._subscriptions: dict[str, tuple[bool, dict[str, bool]]] = {}

    def apply(self, fact: Fact) -> None:
        """Change it by one event."""
        kind, body = fact.kind, fact.body
        if kind == LOADS:
            self._has_loads = True
            self.loads.update({each.segment_id: each for each in fact.loads})
        elif kind in (CREATED, RESTORED):
            self.name, self.exists = body["name"], True
            self._take(segments_in(body, "segments"))
        elif kind == DELETED:
            self.exists = False
        elif kind == PLANNED:
            self.operation_id = body["operation_id"]
        elif kind == ABANDONED:
            self.operation_id = 0
        elif kind == CHANGED:
            self._changed(body)
        elif kind == POLICY_SET:
            self.own_policy = override_in(body)
        elif kind == POLICY_CLEARED:
            self.own_policy = ""
        elif kind != DECIDED:
            self._subscribed(kind, body)

    def _take(self, segments: list[Segment]) -> None:
        self.segments.update({each.segment_id: each for each in segments})
        self.active = tuple([each for each in self.segments.values() if not each.is_sealed])

    def _changed(self, body: dict[str, Any]) -> None:
        changed = segments_in(body, "changed")
        removed = body.get("removed") or ()
        for number in removed:
            self.segments.pop(number, None)
        self._take(changed)
        if body.get("operation_id", 0):
            self.operation_id = 0
        if not self._has_loads:
            return  # Clocks begin with the first loads.
        for each in changed:
            if each.is_sealed:
                self.loads.pop(each.segment_id, None)
        for number in removed:
            self.loads.pop(number, None)
        made = [each.created_at_ms for each in changed if not each.is_sealed]
        self.clocks = clocks_after(self.clocks, body.get("kind", ""), max(made, default=0))

    def _subscribed(self, kind: str, body: dict[str, Any]) -> None:
        name = body["subscription"]
        if kind == SUBSCRIBED:
            self._subscriptions[name] = (body.get("type") == _STREAM, {})
        elif kind == UNSUBSCRIBED:
            self._subscriptions.pop(name, None)
        elif name in self._subscriptions:
            consumers = self._subscriptions[name][1]
            if kind == JOINED:
                consumers[body["consumer_name"]] = body.get("takes_buckets", False)
            elif kind == LEFT:
                consumers.pop(body["consumer_name"], None)
            else:
                consumers.clear()
        self.groups = group_sizes(self._subscriptions.values())


def override_in(body: dict[str, Any]) -> str:
    """Return the override in the policies that a ``policy_set`` has, "" for none."""
    policies = unpack_policies(base64.b64decode(body.get("policy", "")))
    return dict(policies.stored).get(AUTO_SCALE_POLICY, "")


def namespace_in(name: str) -> str:
    """Return tenant/namespace of a scalable topic's name, whose own part may have slashes."""
    return "/".join(name.partition("://")[2].split("/")[:2])
