"""Parts of names as columns are those that the kernel's parser finds."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.routing.names import Domain, TopicName, UnitKind, parse_topic
from pipelines.columns import name_parts

NAMES = (
    "persistent://acme/orders/in",
    "non-persistent://acme/orders/in",
    "persistent://acme/orders/in-partition-12",
    "persistent://acme/orders/in-partition-x",
    "persistent://a:b/c=d/in-partition-x-partition-0",
    "topic://acme/orders/in/part",
    "segment://acme/orders/in/part/0000-7fff-3",
    "segment://acme/orders/in/0000-ffff-17",
)


def topic_of(name: TopicName) -> str:
    domain = Domain.TOPIC if name.unit.kind is UnitKind.SEGMENT else name.domain
    return f"{domain.value}://{name.routing_key}"


def test_tenant_namespace_and_topic_are_those_of_the_parser(spark: SparkSession) -> None:
    parsed = [parse_topic(name) for name in NAMES]
    rows = [(name, one.unit.text) for name, one in zip(NAMES, parsed, strict=True)]
    name, unit = f.col("name"), f.col("unit")
    frame = spark.createDataFrame(rows, "name string, unit string").coalesce(1)

    found = frame.select(
        name_parts.tenant_of(name).alias("tenant"),
        name_parts.namespace_of(name).alias("namespace"),
        name_parts.tenant_of_namespace(name_parts.namespace_of(name)).alias("of_namespace"),
        name_parts.topic_path_of(name, unit).alias("path"),
        name_parts.topic_of(name, unit).alias("topic"),
    ).collect()

    assert [tuple(row) for row in found] == [
        (one.tenant, f"{one.tenant}/{one.namespace}", one.tenant, one.routing_key, topic_of(one))
        for one in parsed
    ]


def test_nothing_has_no_parts(spark: SparkSession) -> None:
    nothing = f.lit(None).cast("string")
    parts = (name_parts.path_of, name_parts.tenant_of, name_parts.namespace_of)
    (row,) = spark.range(1).select(*(part(nothing) for part in parts)).collect()
    assert tuple(row) == (None, None, None)
