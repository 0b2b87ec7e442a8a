"""What is asked of the job, and what of its answer a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Row

OBJECTIVE_PER_CENT = 99.9
"""Of the minutes with lookups of a month that are to be good."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Times are Unix time of windows' beginnings, ``until_ms`` excluded."""

    objective_per_cent: float = OBJECTIVE_PER_CENT
    since_ms: int | None = None
    until_ms: int | None = None
    is_checked: bool = False
    """Whether a month of the cluster that misses the objective is a finding."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person reads, bounded; the whole is in the files."""

    months: Sequence[Row]
    """Of the cluster and of nodes, by node and month."""
    days: Sequence[Row]
    """Of the cluster, in order."""
    worst_minutes: Sequence[Row]
    worst_topics: Sequence[Row]
    reasons: Sequence[Row]
