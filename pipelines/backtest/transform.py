"""From events to the rows of a backtest: DataFrame to DataFrame, without actions.

    events ─▶ facts: narrow, sorted by topic ─▶ Python, topic by topic ─▶ rows of tables

The decision is a function of Python, and a copy of it in expressions would be another one. So facts
go through Python, in Arrow batches (ADR 0142).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from nextgen.kernel.governance.auto_scale_policy import AUTO_SCALE_POLICY
from pipelines.backtest.facts import (
    FACT_COLUMNS,
    LOAD_COLUMNS,
    LOADS,
    NAMESPACE_POLICY,
    PLAIN_COLUMNS,
)
from pipelines.backtest.model import (
    CHANGED,
    RECORDED,
    SCENARIOS,
    SCHEMAS,
    LogFacts,
    Question,
)
from pipelines.backtest.recorded_topic import (
    CREATED,
    KINDS,
    POLICY_CLEARED,
    POLICY_SET,
    RESTORED,
)
from pipelines.backtest.run_topics import ROWS, backtest_of

_POLICIES = (POLICY_SET, POLICY_CLEARED)
_OF_TOPICS = tuple(kind for kind in KINDS if kind not in (*_POLICIES, LOADS))
_NAMESPACE_DELETED = "namespace_deleted"

USED_TYPES = (*KINDS, _NAMESPACE_DELETED)

_SCALABLE = "topic://"


def facts(events: DataFrame, again: DataFrame) -> DataFrame:
    """Return the facts of ``pipelines.backtest.facts``: columns of ``Fact``, and ``LOAD_COLUMNS``.

    A change of a namespace's policies is a fact of each of its scalable topics, at position -1.
    ``again`` has the same events: ``events`` may be observed, and is read once.
    """
    return _own_facts(events).unionByName(_namespace_facts(again))


def backtested(facts: DataFrame, question: Question, log: LogFacts) -> DataFrame:
    """Return the rows of all tables as ``table``, its name, and ``row``, in JSON."""
    shuffled = facts.repartition(_tasks(facts), "topic_id")
    in_order = shuffled.sortWithinPartitions("topic_id", "position", "time_ms")
    decides = backtest_of(question, log)

    def decided(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        yield from decides(batches)

    # Spark would evaluate it once more below an operator that repeats it, were it deterministic.
    given = f.arrow_udf(decided, ROWS).asNondeterministic()(*FACT_COLUMNS)
    return in_order.select(given.alias("given")).select(f.inline("given"))


def table_of(rows: DataFrame, table: str) -> DataFrame:
    """Return one table out of ``rows``."""
    of_table = rows.where(f.col("table") == table)
    return of_table.select(f.from_json("row", SCHEMAS[table]).alias("row")).select("row.*")


def terms_of(events: DataFrame) -> DataFrame:
    """Return shard_id, term and began_ms, the time of the term's first event."""
    return events.groupBy("shard_id", "term").agg(f.min(f.unix_millis("time")).alias("began_ms"))


# -------------------------------------------------------------------------------------------------


def _tasks(frame: DataFrame) -> int:
    """Return a number of tasks that is not made smaller by their bytes: Python is what takes time,
    and topics are of very different sizes."""
    return 2 * int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _own_facts(events: DataFrame) -> DataFrame:
    kind = f.col("event_type")
    is_own_policy = kind.isin(*_POLICIES) & f.coalesce(
        *(
            (f.col(f"{each}.scope") == "topic") & f.col(f"{each}.name").startswith(_SCALABLE)
            for each in _POLICIES
        )
    )
    of_topic = kind.isin(LOADS, *_OF_TOPICS) | is_own_policy
    topic_id = f.coalesce(
        *(f.col(f"{each}.topic_id") for each in (LOADS, *_OF_TOPICS)),
        *(f.col(f"{each}.object_id") for each in _POLICIES),
    )
    body = f.coalesce(*(f.to_json(each) for each in (*_OF_TOPICS, *_POLICIES)))
    loads = f.col(f"{LOADS}.loads")
    of_loads = {
        "segment_ids": loads["segment_id"],
        "messages_in": loads["rates"]["messages_in"],
        "messages_out": loads["rates"]["messages_out"],
        "bytes_in": loads["rates"]["bytes_in"],
        "bytes_out": loads["rates"]["bytes_out"],
        "recorded_at_ms": loads["recorded_at_ms"],
        "cold_since_ms": loads["cold_since_ms"],
    }
    return events.where(of_topic).select(
        *_placed(topic_id, f.col("position"), kind, body),
        *(of_loads[name].alias(name) for name in LOAD_COLUMNS),
    )


def _namespace_facts(events: DataFrame) -> DataFrame:
    """Return the policies of namespaces that ever had an override, for each of their topics."""
    kind = f.col("event_type")
    name = f.coalesce(
        *(
            f.when(f.col(f"{each}.scope") == "namespace", f.col(f"{each}.name"))
            for each in _POLICIES
        ),
        f.col(f"{_NAMESPACE_DELETED}.name"),
    )
    changes = events.where(kind.isin(*_POLICIES, _NAMESPACE_DELETED)).select(
        name.alias("namespace"),
        "term",
        f.unix_millis("time").alias("time_ms"),
        f.col(f"{POLICY_SET}.policy").alias("policy"),
        f.to_json(POLICY_SET).alias("body"),
    )
    has_override = f.contains(f.col("policy"), f.lit(AUTO_SCALE_POLICY.encode()))
    ever = changes.where(has_override).select("namespace").distinct()
    topics = events.where(kind.isin(CREATED, RESTORED)).select(
        f.coalesce(f"{CREATED}.topic_id", f"{RESTORED}.topic_id").alias("topic_id"),
        "shard_id",
        _namespace_of(f.coalesce(f"{CREATED}.name", f"{RESTORED}.name")).alias("namespace"),
    )
    of_topics = (
        changes.where(f.col("namespace").isNotNull())
        .join(ever, "namespace", "left_semi")
        .join(topics, "namespace")
    )
    nothing = {name: "array<bigint>" for name in LOAD_COLUMNS} | {
        name: "array<double>" for name in LOAD_COLUMNS if "_in" in name or "_out" in name
    }
    return of_topics.select(
        "topic_id",
        "shard_id",
        f.lit(-1).cast("long").alias("position"),
        "term",
        "time_ms",
        f.lit(NAMESPACE_POLICY).alias("kind"),
        "body",
        *(f.lit(None).cast(nothing[name]).alias(name) for name in LOAD_COLUMNS),
    )


def _placed(topic_id: Column, position: Column, kind: Column, body: Column) -> list[Column]:
    values = (
        topic_id,
        f.col("shard_id"),
        position,
        f.col("term"),
        f.unix_millis("time"),
        kind,
        body,
    )
    return [value.alias(name) for name, value in zip(PLAIN_COLUMNS, values, strict=True)]


def _namespace_of(name: Column) -> Column:
    """Return tenant/namespace of a scalable topic's name, whose own part may have slashes."""
    path = f.substring_index(name, "://", -1)
    return f.substring_index(path, "/", 2)


def hours_of(hours: DataFrame) -> DataFrame:
    """Return one row for each scenario and hour, in their order."""
    sums = ("segment_ms", "hot_ms", "short_ms", "operations")
    added = hours.groupBy("scenario", "hour_ms").agg(*(f.sum(each).alias(each) for each in sums))
    return added.orderBy("scenario", "hour_ms")


def most_changed(topics: DataFrame) -> DataFrame:
    """Return topics with their sums of each scenario side by side, those first of which the
    scenarios differ most in their segments; without other scenarios, those with most segments."""
    of_scenario = topics.groupBy("topic", "topic_id").pivot("scenario", list(SCENARIOS))
    side_by_side = of_scenario.agg(
        f.first("segment_ms").alias("segment_ms"),
        f.first("hot_ms").alias("hot_ms"),
        f.first(f.col("splits") + f.col("merges") + f.col("rebuckets")).alias("operations"),
    )
    recorded = f.col(f"{RECORDED}_segment_ms")
    differs = f.abs(f.coalesce(f"{CHANGED}_segment_ms", recorded) - recorded)
    return side_by_side.orderBy(differs.desc(), recorded.desc(), "topic")
