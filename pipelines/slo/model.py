"""The parameters of the job, and the part of its result that the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Row

OBJECTIVE_PER_CENT = 99.9
"""Default objective: percent of a month's minutes with lookups that must be good."""


@dataclass(frozen=True, slots=True)
class Question:
    """The parameters of a run: windows that begin at ``since_ms`` or later, before ``until_ms``."""

    objective_per_cent: float = OBJECTIVE_PER_CENT
    since_ms: int | None = None
    until_ms: int | None = None
    is_checked: bool = False
    """Whether a month of the cluster that misses the objective is a finding."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that the page shows, bounded. The files have all rows."""

    months: Sequence[Row]
    """Of the cluster and of nodes, by node and month."""
    days: Sequence[Row]
    """Of the cluster, in order."""
    worst_minutes: Sequence[Row]
    worst_topics: Sequence[Row]
    reasons: Sequence[Row]
