"""Commands: a shard executes each one once, however often a client sends it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from nextgen.kernel.limits.write import OUTCOME_WINDOW_POSITIONS
from pipelines.audit.finding import Broken, findings


def command_findings(facts: DataFrame) -> DataFrame:
    """Return findings: commands whose events do not have consecutive positions.

    All events of a command are in one record of its shard. A shard remembers its commands for
    ``OUTCOME_WINDOW_POSITIONS``; a repetition after that is not judged. ``position`` is the last
    event, ``other_position`` the first.
    """
    by_command = (
        facts.where(f.col("command").isNotNull())
        .groupBy("shard_id", "command")
        .agg(
            f.count("*").alias("events"),
            f.min("position").alias("first"),
            f.max("position").alias("position"),
        )
    )
    span = f.col("position") - f.col("first")
    is_twice = (span >= f.col("events")) & (span <= OUTCOME_WINDOW_POSITIONS)
    return findings(by_command, [Broken("command_twice", is_twice, f.col("first"))])
