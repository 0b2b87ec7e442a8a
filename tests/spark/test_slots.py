"""Slots that Spark computes are those that every process routes by."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import initial_table
from pipelines.columns.slots import slot_owners, topic_routing_key, unit_routing_key, with_slot
from tests.support.spark.plans import plan_of, unwanted_in

ALPHABETS = ("abcdefghijklmnopqrstuvwxyz0123456789-_./:=", "aé漢😀\x00 ~", "0")


def odd_keys() -> list[str]:
    """Return 10,000 keys: each length up to 260 bytes, the limits of blocks, and random ones."""
    source = random.Random(8)
    edges = [639, 640, 641, 1023, 1024, 1025, 1087, 1088, 1089, 1536, 2047, 2048, 2049, 2113]
    lengths = [*range(260), *edges]
    keys = ["".join(source.choices(ALPHABETS[0], k=length)) for length in lengths]
    keys += ["".join(source.choices(ALPHABETS[1], k=length // 3)) for length in lengths]
    while len(keys) < 10_000:
        alphabet = ALPHABETS[len(keys) % 3]
        keys.append("".join(source.choices(alphabet, k=source.randrange(1, 80))))
    return keys


def test_the_slot_of_ten_thousand_odd_keys_is_that_of_the_kernel(spark: SparkSession) -> None:
    rows = [(key, slot_of(key)) for key in odd_keys()]
    expected = spark.createDataFrame(rows, "key string, slot_of int").repartition(2)

    computed = with_slot(expected, "key")

    wrong = computed.where("slot <> slot_of or slot is null")
    assert wrong.select("key", "slot", "slot_of").limit(3).collect() == []
    assert computed.columns == ["key", "slot_of", "slot"]


def test_a_filter_on_the_slot_hashes_keys_once_and_shuffles_nothing(spark: SparkSession) -> None:
    slots = with_slot(spark.range(10).select(f.col("id").cast("string").alias("key")), "key")
    plan = plan_of(slots.where("slot > 5 and slot <> 9"))

    assert unwanted_in(plan, hashes=1) == []
    assert "Exchange" not in plan


@pytest.mark.parametrize("kind", [partial(f.udf, useArrow=False), f.arrow_udf])
def test_any_other_function_of_python_is_unwanted_in_a_plan(
    spark: SparkSession, kind: Callable[..., Any]
) -> None:
    keys = spark.range(10).select(f.col("id").cast("string").alias("key"))
    other = with_slot(keys, "key").withColumn("other", kind(_other, returnType="string")("key"))

    assert len(unwanted_in(plan_of(other), hashes=1)) == 1
    assert len(unwanted_in(plan_of(with_slot(keys, "key")))) == 1
    assert len(unwanted_in(plan_of(keys), hashes=1)) == 1


def _other(keys: pa.Array) -> pa.Array:
    return keys


def test_a_null_key_has_no_slot(spark: SparkSession) -> None:
    found = with_slot(spark.sql("select cast(null as string) as key"), "key").collect()

    assert [row.slot for row in found] == [None]


def test_each_slot_has_the_owner_that_the_table_says(spark: SparkSession) -> None:
    table = initial_table([1, 2, 300])

    owners = slot_owners(spark, table)

    packed = owners.orderBy("slot").agg(f.collect_list("shard_id").alias("owners")).first()
    assert packed is not None
    assert tuple(packed.owners) == table.owners
    assert len(packed.owners) == SLOT_COUNT


def test_names_of_topics_and_units_have_the_routing_key_of_their_topic(
    spark: SparkSession,
) -> None:
    names = [
        ("persistent://acme/orders/in", ""),
        ("non-persistent://acme/orders/a://b", ""),
        ("persistent://acme/orders/in-partition-3", "p3"),
        ("persistent://acme/orders/in-partition-x-partition-12", "p12"),
        ("persistent://acme/orders/in-partition-x", ""),
        ("segment://acme/orders/in/part/0000-7fff-3", "s3"),
        ("topic://acme/orders/in/part", ""),
    ]
    frame = spark.createDataFrame(names, "name string, unit string")
    keys = frame.select(unit_routing_key(f.col("name"), f.col("unit")).alias("key"))
    whole = frame.where("unit = ''").select(topic_routing_key(f.col("name")).alias("key"))

    expected = ["acme/orders/a://b" if "://b" in name else _key(name) for name, _ in names]
    assert [row.key for row in keys.collect()] == expected
    assert [row.key for row in whole.collect()] == [
        key for key, (_, unit) in zip(expected, names, strict=True) if not unit
    ]


def _key(name: str) -> str:
    return parse_topic(name).routing_key
