"""Tenants, namespaces and topics of a generated history: names, ids, homes, and their lives.

Times called ``*_even_ms`` are on the even clock, ``*_ms`` on that of events
(``pipelines.generate.clock``). ``slot`` and ``shard_id`` are an object's home.
"""

from __future__ import annotations

import math
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.routing.ids import ID_ENTROPY_BYTES
from pipelines.columns.slots import slot_owners, topic_routing_key, with_slot
from pipelines.durations import HOUR_MS, MINUTE_MS
from pipelines.generate.chance import below, fraction, happens, hex_digits, one_of
from pipelines.generate.clock import by_day, on_clock
from pipelines.generate.world import (
    NAMESPACE_STRIDE,
    NAMESPACES_PER_TENANT_MAX,
    World,
)

TENANT_WORDS = ("acme", "bank", "cargo", "data", "energy", "fleet", "games", "health", "media")
NAMESPACE_WORDS = (
    "orders",
    "payments",
    "events",
    "audit",
    "metrics",
    "logs",
    "billing",
    "sessions",
    "mail",
    "search",
    "stock",
    "users",
)
SCALABLE = "topic://"
"""What the name of a scalable topic begins with."""

TOPIC_WORDS = ("created", "changed", "paid", "sent", "failed", "clicks", "views", "updates", "dlq")

OBJECTS_PER_TASK = 100_000

ID_ENTROPY_DIGITS = 2 * ID_ENTROPY_BYTES

_EARLY_TENANTS_SHARE = 0.75
_TENANTS_DELETED_SHARE = 0.04
_NAMESPACES_DELETED_SHARE = 0.04
_TOPICS_DELETED_SHARE = 0.12
_NON_PERSISTENT_SHARE = 0.05
_BURST_SHARE = 0.35

_CHILDREN_GONE_MS = HOUR_MS
"""Time by the even clock between the end of the last child and that of its parent, at least."""

_CHILDREN_MADE_MS = 2 * HOUR_MS
"""Time between the creation of the last child and the end of its parent, at least."""


def tenants(spark: SparkSession, world: World) -> DataFrame:
    """Return tenant_no, tenant_name, created_even_ms, deleted_even_ms (null: lives)."""
    number, end = f.col("tenant_no"), f.lit(world.length_ms)
    early = f.lit(5 * MINUTE_MS) + below(world, 10 * MINUTE_MS, "tenant early", number)
    late = f.lit(HOUR_MS) + below(world, int(0.6 * world.length_ms) - HOUR_MS, "late", number)
    # The largest three exist for the whole history.
    is_early = (number < 3) | happens(world, _EARLY_TENANTS_SHARE, "tenant is early", number)
    is_deleted = (number >= 3) & happens(world, _TENANTS_DELETED_SHARE, "tenant goes", number)
    share = f.lit(0.5) + fraction(world, "tenant end", number) * 0.4
    life = end - f.col("created_even_ms")
    word = f.element_at(
        f.array(*map(f.lit, TENANT_WORDS)),
        f.pmod(number, f.lit(len(TENANT_WORDS))).cast("int") + 1,
    )
    made = spark.range(world.tenants, numPartitions=1).select(
        f.col("id").alias("tenant_no"),
    )
    made = made.withColumn("tenant_name", f.concat(word, f.lit("-"), number))
    made = made.withColumn("created_even_ms", f.when(is_early, early).otherwise(late))
    gone = f.floor(f.col("created_even_ms") + life * share).cast("long")
    return made.withColumn("deleted_even_ms", f.when(is_deleted, gone))


def namespaces(tenants: DataFrame, world: World) -> DataFrame:
    """Return namespaces with columns like those of ``tenants``, and tenant_no and tenant_name.

    The column ``namespaces`` is the tenant's number of them: larger tenants have more.
    """
    number, end = f.col("namespace_no"), f.lit(world.length_ms)
    parents = tenants.select(
        "tenant_no",
        "tenant_name",
        f.col("created_even_ms").alias("tenant_created"),
        f.col("deleted_even_ms").alias("tenant_deleted"),
        _namespaces_of(f.col("tenant_no")).alias("namespaces"),
    )
    places = f.explode(f.sequence(f.lit(0), f.col("namespaces").cast("int") - 1))
    made = parents.withColumn("place", places)
    made = made.withColumn("namespace_no", f.col("tenant_no") * NAMESPACE_STRIDE + f.col("place"))
    word = f.element_at(f.array(*map(f.lit, NAMESPACE_WORDS)), f.col("place") + 1)
    made = made.withColumn("namespace_name", f.concat("tenant_name", f.lit("/"), word))
    delay = f.lit(MINUTE_MS) + below(world, 10 * MINUTE_MS, "namespace early", number)
    later = (end - f.col("tenant_created")) * fraction(world, "namespace late", number) * 0.3
    is_late = (
        (f.col("place") > 2)
        & f.col("tenant_deleted").isNull()
        & happens(world, 0.4, "namespace is late", number)
    )
    created = f.col("tenant_created") + delay + f.when(is_late, f.floor(later)).otherwise(0)
    made = made.withColumn("created_even_ms", created.cast("long"))
    made = made.withColumn("deleted_even_ms", _namespace_deleted(world))
    return made.drop("tenant_created", "tenant_deleted", "place")


def is_scalable(name: Column) -> Column:
    """Return whether a topic is scalable."""
    return name.startswith(SCALABLE)


def brokers(spark: SparkSession, world: World) -> DataFrame:
    """Return broker (number) and broker_id."""
    return spark.range(world.brokers, numPartitions=1).select(
        f.col("id").cast("int").alias("broker"), f.concat(f.lit("broker-"), "id").alias("broker_id")
    )


def homes(tenants: DataFrame, namespaces: DataFrame, brokers: DataFrame, world: World) -> DataFrame:
    """Return kind, number, slot, shard_id and object_id of all objects, hashed in one pass."""
    named = (
        ("tenant", tenants, "tenant_no", "tenant_name"),
        ("namespace", namespaces, "namespace_no", "namespace_name"),
        ("broker", brokers, "broker", "broker_id"),
    )
    keys = [
        frame.select(
            f.lit(kind).alias("kind"),
            f.col(number).cast("long").alias("number"),
            f.col(key).alias("key"),
            hex_digits(world, ID_ENTROPY_DIGITS, f"{kind} id", f.col(number)).alias("entropy"),
        )
        for kind, frame, number, key in named
    ]
    return _at_home(reduce(DataFrame.unionByName, keys).coalesce(1), world).drop("key")


def with_home(frame: DataFrame, homes: DataFrame, kind: str, number: str) -> DataFrame:
    """Add slot, shard_id and object_id of the objects of ``kind`` that ``number`` gives."""
    own = homes.where(f.col("kind") == kind).drop("kind")
    joined = frame.join(f.broadcast(own), frame[number].cast("long") == own["number"])
    return joined.drop("number")


def with_tenant_ids(namespaces: DataFrame, homes: DataFrame) -> DataFrame:
    """Add tenant_id to namespaces."""
    ids = homes.where(f.col("kind") == "tenant").select(
        f.col("number").alias("tenant_no"), f.col("object_id").alias("tenant_id")
    )
    return namespaces.join(f.broadcast(ids), "tenant_no")


def topics(namespaces: DataFrame, world: World) -> DataFrame:
    """Return topic_no, name, partitions, created_even_ms, created_ms, ends_even_ms, deleted_ms.

    With the namespace's namespace_no, namespace_name, namespace_id, and the home. ``ends_even_ms``
    is the end of the history for topics that live on; ``deleted_ms`` is null for those.
    """
    number = f.col("topic_no")
    tasks = max(2, world.topics // OBJECTS_PER_TASK)
    spark = namespaces.sparkSession
    made = spark.range(world.topics, numPartitions=tasks).select(f.col("id").alias("topic_no"))
    burst = below(world, world.bursts, "topic's burst", number)
    made = made.withColumn("origin", fraction(world, "topic's origin", number))
    first = world.import_share
    is_burst = (f.col("origin") >= first) & (f.col("origin") < first + _BURST_SHARE)
    made = made.withColumn("burst", f.when(is_burst, burst))
    tenant = f.when(is_burst, _zipf_tenant(world, "burst's tenant", f.col("burst"))).otherwise(
        _zipf_tenant(world, "topic's tenant", number)
    )
    made = made.withColumn("tenant_no", tenant)
    made = made.withColumn("namespace_no", _namespace_of_topic(world, is_burst))
    made = made.join(f.broadcast(_parents(namespaces)), "namespace_no")
    made = made.withColumn("created_even_ms", _topic_created(world))
    made = made.withColumn("deleted_even_ms", _topic_deleted(world))
    made = made.withColumn("created_ms", by_day(f.col("created_even_ms")))
    made = on_clock(made, world, {"deleted_even_ms": "deleted_ms"})
    ends = f.coalesce(f.col("deleted_even_ms"), f.lit(world.length_ms - MINUTE_MS))
    made = made.withColumn("ends_even_ms", ends)
    made = made.withColumn("partitions", _partitions(world))
    made = made.withColumn("name", _topic_name(world))
    made = made.withColumn("key", topic_routing_key(f.col("name")))
    made = made.withColumn("entropy", hex_digits(world, ID_ENTROPY_DIGITS, "topic id", number))
    made = _at_home(made, world)
    kept = ("topic_no", "name", "partitions", "created_even_ms", "created_ms", "ends_even_ms")
    parents = ("deleted_ms", "namespace_no", "namespace_name", "namespace_id")
    return made.select(*kept, *parents, "slot", "shard_id", "object_id")


def _at_home(made: DataFrame, world: World) -> DataFrame:
    """Replace entropy by slot, shard_id and object_id; ``key`` is the routing key.

    An id begins with its birth slot.
    """
    owners = slot_owners(made.sparkSession, world.slot_table)
    found = with_slot(made, "key").join(f.broadcast(owners), "slot")
    slot_digits = f.lpad(f.lower(f.hex(f.col("slot").cast("long"))), 4, "0")
    return found.withColumn("object_id", f.concat(slot_digits, "entropy")).drop("entropy")


def _namespaces_of(tenant: Column) -> Column:
    """Return the number of a tenant's namespaces, from twelve for the largest down to one."""
    more = f.floor(f.lit(NAMESPACES_PER_TENANT_MAX - 1) / (f.lit(1.0) + tenant * 0.25))
    return (f.lit(1) + more).cast("long")


def _namespace_deleted(world: World) -> Column:
    number, end = f.col("namespace_no"), f.lit(world.length_ms)
    with_tenant = (
        f.col("tenant_deleted") - HOUR_MS // 2 - below(world, HOUR_MS // 2, "with", number)
    )
    share = f.lit(0.5) + fraction(world, "namespace end", number) * 0.45
    alone = f.floor(f.col("created_even_ms") + (end - f.col("created_even_ms")) * share)
    is_alone = (number % NAMESPACE_STRIDE > 0) & happens(
        world, _NAMESPACES_DELETED_SHARE, "namespace goes", number
    )
    return f.when(f.col("tenant_deleted").isNotNull(), with_tenant).otherwise(
        f.when(is_alone, alone.cast("long"))
    )


def _parents(namespaces: DataFrame) -> DataFrame:
    return namespaces.select(
        "namespace_no",
        "namespace_name",
        f.col("object_id").alias("namespace_id"),
        f.col("created_even_ms").alias("parent_created"),
        f.col("deleted_even_ms").alias("parent_deleted"),
    )


def _zipf_tenant(world: World, purpose: str, key: Column) -> Column:
    """Draw a tenant; that of rank k is about k times rarer than the first."""
    rank = f.floor(f.exp(fraction(world, purpose, key) * math.log(world.tenants + 1)))
    return f.least(rank - 1, f.lit(world.tenants - 1)).cast("long")


def _namespace_of_topic(world: World, is_burst: Column) -> Column:
    """Draw a namespace of the topic's tenant; the first ones get most topics."""
    drawn = f.when(is_burst, fraction(world, "burst's namespace", f.col("burst"))).otherwise(
        fraction(world, "topic's namespace", f.col("topic_no"))
    )
    place = f.floor(_namespaces_of(f.col("tenant_no")) * drawn * drawn).cast("long")
    return f.col("tenant_no") * NAMESPACE_STRIDE + place


def _topic_created(world: World) -> Column:
    """Return when a topic is created: on the first day, in a burst, or at any other time."""
    number = f.col("topic_no")
    import_ms = min(6 * HOUR_MS, world.length_ms // 8)
    imported = f.lit(HOUR_MS) + below(world, import_ms, "topic imported", number)
    began = f.lit(world.length_ms) * (
        f.lit(0.06) + fraction(world, "burst begins", f.col("burst")) * 0.9
    )
    within = fraction(world, "topic in burst", number)
    burst = began + within * within * (3 * MINUTE_MS)
    steady = f.pow(fraction(world, "topic steady", number), f.lit(0.7)) * world.length_ms
    chosen = (
        f.when(f.col("origin") < world.import_share, imported)
        .when(f.col("burst").isNotNull(), burst)
        .otherwise(steady)
    )
    earliest = f.col("parent_created") + MINUTE_MS
    latest = f.coalesce(
        f.col("parent_deleted") - _CHILDREN_MADE_MS, f.lit(world.length_ms - 10 * MINUTE_MS)
    )
    anywhen = earliest + fraction(world, "topic anywhen", number) * (latest - earliest)
    fits = (chosen >= earliest) & (chosen <= latest)
    return f.floor(f.when(fits, chosen).otherwise(anywhen)).cast("long")


def _topic_deleted(world: World) -> Column:
    number, created = f.col("topic_no"), f.col("created_even_ms")
    share = f.lit(0.02) + fraction(world, "topic end", number) * 0.97
    latest = f.coalesce(
        f.col("parent_deleted") - _CHILDREN_GONE_MS, f.lit(world.length_ms - HOUR_MS)
    )
    # A topic that is created close to the end of the history is not deleted in it.
    is_deleted = f.col("parent_deleted").isNotNull() | (
        happens(world, _TOPICS_DELETED_SHARE, "topic goes", number)
        & (latest - created > f.lit(HOUR_MS))
    )
    return f.when(is_deleted, f.floor(created + (latest - created) * share).cast("long"))


def _partitions(world: World) -> Column:
    number = f.col("topic_no")
    exponent = f.lit(1) + below(world, 4, "topic's partitions", number)
    count = f.pow(f.lit(2.0), exponent)
    is_partitioned = happens(world, world.partitioned_share, "topic is partitioned", number)
    return f.when(is_partitioned, count.cast("int")).otherwise(f.lit(0))


def _topic_name(world: World) -> Column:
    number = f.col("topic_no")
    may_be_scalable = happens(world, world.scalable_share, "topic is scalable", number)
    domain = (
        f.when((f.col("partitions") == 0) & may_be_scalable, SCALABLE)
        .when(happens(world, _NON_PERSISTENT_SHARE, "topic's domain", number), "non-persistent://")
        .otherwise("persistent://")
    )
    word = one_of(world, TOPIC_WORDS, "topic's word", number)
    return f.concat(domain, "namespace_name", f.lit("/"), word, f.lit("-"), number)
