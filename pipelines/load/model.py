"""The part of the job's tables that the report shows."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Row

HOURS_SHOWN_MAX = 24
"""Hours of the day: rows of the shape, and columns of the heat map."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows that the report shows. Each list is bounded."""

    skew: list[Row]
    shards: list[Row]
    brokers: list[Row]
    hot_topics: list[Row]
    tenants: list[Row]
    shape: list[Row]
    forecast: list[Row]
    heat: list[Row]
    """Broker, hour_of_day and mean bytes a second."""
