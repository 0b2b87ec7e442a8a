"""A live cluster as Spark reads it: one partition for each shard, each as of one position.

This is the one place where Python runs beside Spark's executors: docs/adr/0043. Two readings of a
live cluster differ, so one reading is written to disk, and only that copy is used.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from nextgen.kernel.errors import Unavailable
from nextgen.runtime.security.cluster_proof import (
    ClusterCredentials,
    credentials_in_use,
    credentials_of_environment,
    use_credentials,
)
from pipelines.rebuild.shard_snapshot import Snapshot, spool_snapshot, spooled_items
from pipelines.rebuild.tables import ACTIVE, DELETING, FORMER_NAMES, LAYOUT_STATE
from protos.nextgen.v1.inventory_pb2 import LIFE_STATE_DELETING, Item
from protos.nextgen.v1.layouts_pb2 import ScalableSubscription, ScalableTopic, TopicSegment

FORMAT = "nextgen-live"

COMPLETE = "complete"
"""Kind of each shard's last row, which marks a whole snapshot and has its number of items."""

LIVE_SCHEMA = t.StructType(
    [
        t.StructField("shard_id", t.IntegerType(), False),
        t.StructField("as_of_position", t.LongType(), False),
        t.StructField("kind", t.StringType(), False),
        t.StructField("items", t.LongType()),
        t.StructField("name", t.StringType()),
        t.StructField("object_id", t.StringType()),
        t.StructField("parent_id", t.StringType()),
        t.StructField("partitions", t.LongType()),
        t.StructField("created_time_ms", t.LongType()),
        t.StructField("properties", t.MapType(t.StringType(), t.StringType())),
        t.StructField("version", t.LongType()),
        t.StructField("life", t.StringType()),
        t.StructField("policies", t.BinaryType()),
        t.StructField("policies_version", t.LongType()),
        t.StructField("unit", t.StringType()),
        t.StructField("epoch", t.LongType()),
        t.StructField("broker_id", t.StringType()),
        t.StructField("session_id", t.StringType()),
        t.StructField("layout", LAYOUT_STATE),
        t.StructField("former_names", FORMER_NAMES),
    ]
)
"""``kind`` is tenant, namespace, topic, assignment, scalable_topic, or ``COMPLETE``.
``as_of_position`` is the position of the snapshot. ``object_id`` of an assignment and of a layout
is its topic's id."""

_WIDTH = len(LIVE_SCHEMA)


def live_snapshots(spark: SparkSession, targets: Sequence[str], shards: Sequence[int]) -> DataFrame:
    """Return the objects of the cluster behind these discovery nodes: ``LIVE_SCHEMA``.

    Each action on the frame reads the cluster anew: write it to disk once, and use the copy.
    Executors read the cluster secret from the file that this process' environment names, so the
    file must exist on their machines too.

    Raises:
        RefusesToStart: The environment names a secret that cannot be used.
    """
    spark.dataSource.register(LiveSource)
    reader = spark.read.format(FORMAT).option("targets", ",".join(targets))
    credentials = credentials_in_use() or credentials_of_environment(os.environ)
    if credentials is not None:
        reader = reader.options(cluster=credentials.cluster_id, secret=str(credentials.file))
    return reader.option("shards", ",".join(map(str, shards))).load()


def unavailable(error: PySparkException) -> Unavailable:
    """Return the error for a shard that was not read: the last line of the executor's error."""
    lines = [line.strip() for line in str(error).splitlines() if "nextgen." in line]
    return Unavailable(f"the cluster cannot be read: {lines[-1] if lines else error}"[:500])


class LiveSource(DataSource):  # type: ignore[misc]
    """Options: ``targets`` (host:port, with commas) and ``shards`` (ids, with commas); ``cluster``
    and ``secret``, if the cluster has a secret: its id, and the file.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> t.StructType:
        return LIVE_SCHEMA

    def reader(self, schema: t.StructType) -> LiveReader:
        return LiveReader(
            self.options["targets"].split(","),
            [int(it) for it in self.options["shards"].split(",")],
            self.options.get("cluster", ""),
            self.options.get("secret", ""),
        )


class LiveReader(DataSourceReader):  # type: ignore[misc]
    """See the module."""

    def __init__(
        self, targets: Sequence[str], shards: Sequence[int], cluster_id: str, secret_file: str
    ) -> None:
        self._targets = targets
        self._shards = shards
        self._cluster_id = cluster_id
        self._secret_file = secret_file

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(shard_id) for shard_id in self._shards]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield a shard's items, then the row ``COMPLETE``.

        Raises:
            MetadataError: No replica of the shard answers.
        """
        shard_id = partition.value
        if self._secret_file:
            use_credentials(ClusterCredentials.load(self._cluster_id, Path(self._secret_file)))
        with tempfile.TemporaryFile() as spool:
            snapshot = asyncio.run(spool_snapshot(self._targets, shard_id, spool))
            for item in spooled_items(spool):
                yield _row(shard_id, snapshot, item)
        end = (shard_id, snapshot.position, COMPLETE, snapshot.items)
        yield end + (None,) * (_WIDTH - len(end))


def _row(shard_id: int, snapshot: Snapshot, item: Item) -> tuple[Any, ...]:
    kind = item.WhichOneof("value") or "unknown"
    return (shard_id, snapshot.position, kind, None, item.name, *_VALUES[kind](item))


_NOT_ASSIGNED = (None,) * 5
"""Of an object without unit, epoch, broker, session and layout."""


def _tenant(item: Item) -> tuple[Any, ...]:
    columns = _common_columns(item.tenant)
    return (item.tenant.tenant_id, None, None, None, *columns, *_NOT_ASSIGNED, None)


def _namespace(item: Item) -> tuple[Any, ...]:
    value = item.namespace
    return (
        value.namespace_id,
        value.tenant_id,
        None,
        None,
        *_common_columns(value),
        *_NOT_ASSIGNED,
        None,
    )


def _topic(item: Item) -> tuple[Any, ...]:
    value = item.topic
    return (
        value.topic_id,
        value.namespace_id,
        value.partitions,
        value.created_time_ms,
        *_common_columns(value),
        *_NOT_ASSIGNED,
        [(each.name, each.until_ms) for each in value.former_names],
    )


def _common_columns(value: Any) -> tuple[Any, ...]:
    """Return the columns that tenants, namespaces and topics have in common."""
    life = None
    if hasattr(value, "state"):
        life = DELETING if value.state == LIFE_STATE_DELETING else ACTIVE
    # Pack policies as clients and events do, so that equal policies are equal texts.
    packed = value.policies.SerializeToString(deterministic=True)
    return (dict(value.properties), value.version, life, packed or None, value.policies_version)


def _assignment(item: Item) -> tuple[Any, ...]:
    value = item.assignment
    unset = (None,) * 8
    owner = (value.unit, value.epoch, value.broker_id, value.session_id)
    return (value.topic_id, *unset, *owner, None, None)


def _scalable_topic(item: Item) -> tuple[Any, ...]:
    value = item.scalable_topic
    before, behind = (None,) * 4, (None,) * 3
    layout = layout_of(value)
    unit = (None, value.epoch, None, None)
    return (value.topic_id, *before, value.version, *behind, *unit, layout, None)


def layout_of(value: ScalableTopic) -> tuple[Any, ...]:
    """Return a layout as a value of ``LAYOUT_STATE``."""
    operation = value.operation
    return (
        value.next_segment_id,
        value.last_operation_id,
        operation.operation_id,
        operation.kind or None,
        [*operation.parents],
        [each.segment_id for each in operation.children],
        operation.are_children_ready,
        sorted(each.segment_id for each in operation.sealed),
        sorted(each.segment_id for each in value.removals),
        [_segment(value, each) for each in value.segments],
        [_subscription(each) for each in value.subscriptions],
    )


def _segment(topic: ScalableTopic, value: TopicSegment) -> tuple[Any, ...]:
    has_end = value.HasField("end")
    return (
        value.segment_id,
        value.hash_start,
        value.hash_end,
        value.is_sealed,
        value.created_at_epoch,
        value.created_at_ms,
        value.sealed_at_epoch,
        value.sealed_at_ms,
        [*value.parents],
        [*value.children],
        value.end.ledger_id if has_end else None,
        value.end.entry_id if has_end else None,
        [*value.bucket_starts],
        value.merge_depth,
        value.legacy_topic_name,
        topic.sealed_bytes.get(value.segment_id, 0),
        topic.postponed.get(value.segment_id, 0),
    )


def _subscription(value: ScalableSubscription) -> tuple[Any, ...]:
    return (
        value.name,
        value.type,
        value.phase,
        value.created_at_ms,
        value.seek_to_ms,
        value.skips_all,
        [(each.name, each.takes_buckets) for each in value.consumers],
        sorted(value.drained),
        [(each.consumer_name, [*each.segments], [*each.shared]) for each in value.assigned],
    )


def _unknown(_: Item) -> tuple[Any, ...]:
    return (None,) * (_WIDTH - 5)


_VALUES = {
    "tenant": _tenant,
    "namespace": _namespace,
    "topic": _topic,
    "assignment": _assignment,
    "scalable_topic": _scalable_topic,
    "unknown": _unknown,
}
