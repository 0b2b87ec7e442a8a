"""What a backtest is asked for, and the tables that it writes. Does not use Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE, AutoScalePolicy
from nextgen.kernel.limits.scalable import AUTO_SCALE_TICK_MS
from pipelines.scaling.scaled_topic import Durations

RECORDED, SAME, CHANGED = "recorded", "same_policy", "changed_policy"
"""Scenarios: what happened, what the model makes of the same policies, and of the changed ones."""

SCENARIOS = (RECORDED, SAME, CHANGED)

SLACK_MS = AUTO_SCALE_TICK_MS + 30_000
"""How long an action may be due before it is taken, unless another time is asked for: a refused
operation is tried again after ``AUTO_SCALE_TICK_MS``."""

DIFFERENCES, ACTIONS, TOPICS, HOURS, COUNTS = "differences", "actions", "topics", "hours", "counts"
"""Tables."""

BY_KIND, SUMS, OPERATIONS = "differences by kind", "sums by scenario", "operations"
"""What is shown besides tables."""

SCHEMAS: Mapping[str, str] = {
    DIFFERENCES: "topic string, topic_id string, shard_id int, position bigint, time_ms bigint, "
    "what string, recorded string, decided string, recorded_arguments string, "
    "decided_arguments string",
    ACTIONS: "scenario string, topic string, topic_id string, shard_id int, position bigint, "
    "time_ms bigint, kind string, segments array<bigint>, buckets bigint, reason string, "
    "asked_by string",
    TOPICS: "scenario string, topic string, topic_id string, shard_id int, lived_ms bigint, "
    "splits bigint, merges bigint, rebuckets bigint, segments_first bigint, segments_last bigint, "
    "segments_max bigint, segment_ms bigint, hot_ms bigint, own_hot_ms bigint, short_ms bigint, "
    "skipped_operations bigint, unresolved_policies bigint",
    HOURS: "scenario string, hour_ms bigint, segment_ms bigint, hot_ms bigint, short_ms bigint, "
    "operations bigint",
    COUNTS: "facts bigint, topics bigint, unknown_topics bigint, decided bigint, "
    "reproduced bigint, evaluations bigint",
}
"""Columns of each table. Lengths of time are in milliseconds.

``hot_ms``: some segment had a rate above the recorded policy's threshold for a split, whatever the
scenario; ``own_hot_ms``: above that of the scenario's own policy. ``short_ms``: a group had more
consumers than there were active segments.
"""


@dataclass(frozen=True, slots=True)
class ChangedPolicy:
    """Overrides as JSON under Pulsar's names: of the service, and by namespace. The one of a
    namespace replaces what the namespace had."""

    service: str = ""
    namespaces: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Without ``changed`` only what happened is looked at."""

    changed: ChangedPolicy | None = None
    slack_ms: int = SLACK_MS
    durations: Durations = field(default_factory=Durations)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What is known of the shards' logs as wholes, and of the service level."""

    last_time_ms: Mapping[int, int]
    """By shard: the time of its last exported event."""
    terms: Mapping[int, Sequence[tuple[int, int]]]
    """By shard: each term's first time and number, ascending by term."""
    service: Sequence[tuple[int, AutoScalePolicy]] = ((0, DEFAULT_AUTO_SCALE),)
    """The service level by the times from which on it holds, ascending from 0."""
