"""Turns narrow rows into events: the columns of exports, with the payload of each type.

A field that is not named here has the default of an unset protobuf field, as in real exports. The
same holds for fields that ``events.proto`` gets later.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from nextgen.client.wire.policies import pack_policies
from nextgen.kernel.governance.policies import Policies, Retention
from pipelines.columns.lookup_verdict import slow_of, too_slow_of, why_bad
from pipelines.durations import DAY_MS, HOUR_MS
from pipelines.exports.event_schema import ENVELOPE_COLUMNS, spark_schema
from pipelines.generate.chance import below, fraction, hex_digits, one_of
from pipelines.generate.cluster_events import NODES, latency_counts, window_errors
from pipelines.generate.layout_events import layout_payloads
from pipelines.generate.scaling.scaled_events import SCALED_TYPES, payload_in
from pipelines.generate.world import STARTS_MS, World

EVENT_VERSION = 1
"""``schema_version`` of the events, as this release writes it."""

TERM_MS = 3 * DAY_MS
"""Approximate length of a leader's term."""

BY_COMMAND = (
    "tenant_created",
    "tenant_properties_set",
    "tenant_deletion_started",
    "namespace_created",
    "namespace_properties_set",
    "namespace_deletion_started",
    "topic_created",
    "topic_properties_set",
    "topic_deleted",
    "policy_set",
    "policy_cleared",
    "parent_gate_opened",
    "broker_session_established",
    "broker_drain_set",
)
"""Event types that a client's command causes. Assignments are added for these reasons:"""

REASONS_BY_COMMAND = ("first_lookup", "moved", "pinned")

POLICIES = (
    Policies(message_ttl_ms=HOUR_MS),
    Policies(message_ttl_ms=DAY_MS, deduplication=True),
    Policies(retention=Retention(7 * DAY_MS, -1)),
    Policies(idle_time_ms=HOUR_MS),
    Policies(deduplication=False, retention=Retention(DAY_MS, 10**9)),
)

TEAMS = ("payments", "search", "growth", "platform", "data")
ZONES = ("a", "b", "c")

_ACK_MS = 600_000


def events(narrow: DataFrame, brokers: DataFrame, world: World) -> DataFrame:
    """Return the events of numbered narrow rows, in the columns of exports, in the same order.

    Two more columns, ``file_shard`` and ``file_day``, say which file they belong to.
    """
    homes = brokers.select(
        "broker", "broker_id", f.lpad(f.lower(f.hex(f.col("slot").cast("long"))), 4, "0").alias("s")
    )
    known = narrow.join(f.broadcast(homes), "broker", "left").withColumns(
        {"session_id": _session_id(world), "unit": _unit()}
    )
    lookups = f.col("event_type") == "lookup_window_recorded"
    known = known.withColumn("latency_counts", f.when(lookups, latency_counts(world)))
    known = known.withColumn("errors", f.when(lookups, window_errors(world)))
    schema, payloads = spark_schema(), _payloads(world)
    columns = [_envelope(world)[name].alias(name) for name in ENVELOPE_COLUMNS]
    for field in schema:
        is_kind = f.col("event_type") == field.name
        if world.auto_scaled_percent and field.name in SCALED_TYPES:
            payload = payload_in(field.dataType)
            if field.name in payloads:
                payload = f.coalesce(payload, _message(field.dataType, payloads[field.name]))
            columns.append(f.when(is_kind, payload).alias(field.name))
        elif field.name in payloads:
            payload = _message(field.dataType, payloads[field.name])
            columns.append(f.when(is_kind, payload).alias(field.name))
        elif field.name not in ENVELOPE_COLUMNS:
            columns.append(f.lit(None).cast(field.dataType).alias(field.name))
    return known.select(*columns, "file_shard", "file_day")


def _envelope(world: World) -> dict[str, Column]:
    place = (f.col("shard_id"), f.col("position"))
    is_asked = f.col("event_type").isin(*BY_COMMAND) | (
        (f.col("event_type") == "topic_assigned") & f.col("detail").isin(*REASONS_BY_COMMAND)
    )
    term = f.floor((f.col("time_ms") + below(world, TERM_MS, "term", place[0])) / TERM_MS)
    return {
        "position": f.col("position"),
        "term": term.cast("long") + 1,
        "shard_id": f.col("shard_id"),
        "time": f.timestamp_millis(f.col("time_ms") + STARTS_MS),
        "causation_id": f.when(is_asked, f.unhex(hex_digits(world, 32, "command", *place))),
        "schema_version": f.lit(EVENT_VERSION),
        "event_type": f.col("event_type"),
        "raw": f.lit(None).cast("binary"),
    }


def _message(type_: t.StructType, fields: Mapping[str, Column]) -> Column:
    """Return a struct of ``type_``: ``fields`` as given, the others with their defaults."""
    unknown = set(fields) - set(type_.names)
    assert not unknown, f"no field is called {sorted(unknown)}"
    return f.struct(
        *(
            (fields[one.name] if one.name in fields else _unset(one.dataType))
            .cast(one.dataType)
            .alias(one.name)
            for one in type_
        )
    )


def _unset(type_: t.DataType) -> Column:
    if isinstance(type_, t.StringType):
        return f.lit("")
    if isinstance(type_, t.BinaryType):
        return f.lit(bytearray())
    if isinstance(type_, t.BooleanType):
        return f.lit(False)
    if isinstance(type_, t.ArrayType):
        return f.array().cast(type_)
    if isinstance(type_, t.MapType):
        return f.create_map().cast(type_)
    if isinstance(type_, t.StructType):
        return f.lit(None)
    return f.lit(0)


def _payloads(world: World) -> dict[str, dict[str, Column]]:
    """Return the fields of each type of event, from the columns of narrow rows."""
    return {
        **_inventory_payloads(world),
        **_session_payloads(world),
        **_cluster_payloads(world),
        **layout_payloads(),
        "topic_assigned": {**_unit_fields(), "decision": _decision(world)}
        | {"broker_id": f.col("broker_id"), "session_id": f.col("session_id")},
        "topic_unassigned": _unit_fields(),
        "broker_load_reported": {**_session(), "load": _load(world)},
    }


def _inventory_payloads(world: World) -> dict[str, dict[str, Column]]:
    name, own = {"name": f.col("name")}, f.col("id")
    team = f.when(
        below(world, 3, "labelled", f.col("object")) == 0,
        f.create_map(f.lit("team"), one_of(world, TEAMS, "team", f.col("object"))),
    ).otherwise(f.create_map().cast("map<string,string>"))
    again = {"properties": f.create_map(f.lit("revision"), f.lit("2")), **name}
    gate = {
        "parent_kind": f.col("detail"),
        "parent_name": f.col("name"),
        "parent_id": own,
        "attempt": f.col("number"),
    }
    version = {"scope": f.col("detail"), **name, "version": f.col("number"), "object_id": own}
    packed = f.array(*(f.lit(bytearray(pack_policies(one))) for one in POLICIES))
    place = f.pmod(f.col("object") + f.col("number"), f.lit(len(POLICIES))).cast("int") + 1
    parent = f.col("parent_id")
    return {
        "tenant_created": {**name, "tenant_id": own, "properties": team},
        "tenant_properties_set": again,
        "tenant_deletion_started": name,
        "tenant_deleted": {**name, "tenant_id": own},
        "namespace_created": {**name, "namespace_id": own, "tenant_id": parent}
        | {"properties": team},
        "namespace_properties_set": again,
        "namespace_deletion_started": name,
        "namespace_deleted": {**name, "namespace_id": own},
        "topic_created": {**name, "topic_id": own, "namespace_id": parent}
        | {"partitions": f.col("number"), "properties": team},
        "topic_properties_set": again,
        "topic_deleted": {**name, "topic_id": own},
        "policy_set": {**version, "policy": f.element_at(packed, place)},
        "policy_cleared": version,
        "parent_gate_opened": gate,
        "parent_gate_closed": gate,
    }


def _session() -> dict[str, Column]:
    return {"broker_id": f.col("broker_id"), "session_id": f.col("session_id")}


def _session_payloads(world: World) -> dict[str, dict[str, Column]]:
    epoch = {**_session(), "epoch": f.col("session")}
    units = f.lit(world.capacity_units)
    zone = f.element_at(f.array(*map(f.lit, ZONES)), f.pmod(f.col("broker"), f.lit(len(ZONES))) + 1)
    about = {"endpoints": _endpoints(), "capacity_units": units, "zone": zone}
    started = f.col("time_ms") + STARTS_MS
    lease = {**_session(), "shard_id": f.col("number")}
    return {
        "broker_session_established": {**epoch, **about, "established_at_ms": started},
        "broker_session_ended": {**epoch, "reason": f.col("detail")},
        "broker_drain_set": {
            **_session(),
            "draining": f.lit(True),
            "revision": f.col("number"),
        },
        "capacity_granted": {**_session(), "units": units},
        "broker_recorded": {**epoch, **about, "is_live": f.col("number") == 1},
        "capacity_leased": {
            **lease,
            "units": f.lit(world.capacity_units // world.shards),
            "expires_at_ms": started + _ACK_MS,
            "version": f.lit(1),
            "term": f.lit(1),
        },
        "capacity_lease_released": {**lease, "reason": f.col("detail")},
    }


def _cluster_payloads(world: World) -> dict[str, dict[str, Column]]:
    counts = f.col("latency_counts")
    too_slow = too_slow_of(counts)
    why = why_bad(f.col("rate"), slow_of(counts), too_slow, f.col("errors"))
    replicas = f.array(*map(f.lit, NODES))
    placements = f.transform(
        f.sequence(f.lit(1), f.lit(world.shards)),
        lambda shard: f.struct(
            shard.cast("long").alias("shard_id"),
            replicas.alias("replicas"),
            f.array().cast("array<string>").alias("joining"),
            f.array().cast("array<string>").alias("leaving"),
            f.lit(0).cast("long").alias("configuration_index"),
            f.lit(False).alias("has_led"),
        ),
    )
    return {
        "slots_adopted": {"ranges": f.col("ranges"), "shard_map_version": f.lit(1)},
        "node_registered": {
            "node_id": f.col("name"),
            "kind": f.col("detail"),
            "grpc": f.concat("name", f.lit(":7000")),
            "raft_host": f.col("name"),
            "raft_port": f.when(f.col("detail") == "shard", 7100).otherwise(0),
            "http": f.concat("name", f.lit(":8080")),
        },
        "shard_map_changed": {
            "version": f.lit(1),
            "slot_owners": f.lit(bytearray(world.slot_table.to_bytes())),
            "shards": placements,
        },
        "lookup_window_recorded": {
            "node_id": f.col("name"),
            "process": f.concat(f.lit("1-"), f.lit(STARTS_MS // 1_000)),
            "began_at_ms": f.col("number") + STARTS_MS,
            "lookups": f.col("rate"),
            "errors": f.col("errors"),
            "too_slow": too_slow,
            "latency_counts": counts,
            "is_bad": f.length(why) > 0,
            "why_bad": why,
        },
    }


def _unit_fields() -> dict[str, Column]:
    suffix = f.when(f.col("part") < 0, "").otherwise(f.concat(f.lit("-partition-"), "part"))
    return {
        "topic_id": f.col("id"),
        "unit": f.col("unit"),
        "name": f.concat("name", suffix),
        "epoch": f.col("number"),
        "reason": f.col("detail"),
    }


def _decision(world: World) -> Column:
    """Return a placement decision: two brokers were compared, and the chosen one had less load."""
    key = (f.col("object"), f.col("part"), f.col("number"))
    used = below(world, world.capacity_units // 2, "seen", *key)
    leased = f.lit(world.capacity_units)
    other = (f.col("broker") + 1 + below(world, world.brokers - 1, "other", *key)) % world.brokers

    def seen(broker: Column, units: Column) -> Column:
        return f.struct(
            broker.alias("broker_id"),
            units.cast("long").alias("units_used"),
            leased.cast("long").alias("units_leased"),
            f.lit(0).cast("long").alias("load_permille"),
        )

    other_id = f.concat(f.lit("broker-"), other.cast("string"))
    compared = f.array(seen(f.col("broker_id"), used), seen(other_id, used + 7))
    rule = f.when(f.col("detail") == "pinned", "pinned").otherwise("two_choices")
    fields = {
        "rule": rule,
        "candidates": f.lit(world.brokers - 1),
        "excluded": f.lit(0),
        "compared": compared,
        "asked_by": f.when(f.col("detail").isin("rebalanced", "drained"), "rebalance").otherwise(
            ""
        ),
    }
    return _message(spark_schema()["topic_assigned"].dataType["decision"].dataType, fields)


def _load(world: World) -> Column:
    """Return a load report: sums over all units, and a few ``busiest`` ones."""
    noise = f.lit(0.95) + fraction(world, "load", f.col("broker"), f.col("seq")) * 0.1
    bytes_in = f.floor(f.col("rate") * noise)
    measured = f.col("seq") + STARTS_MS
    cores = 8
    cpu = f.least(f.lit(float(cores)), f.lit(0.05) + bytes_in / f.lit(50_000_000.0))
    busiest = f.transform("busiest", lambda one: _topic_load(one, measured))
    fields = {
        "topics": f.col("number"),
        "cpu_fraction": f.round(cpu, 4),
        "memory_bytes": f.lit(2**29) + f.col("number") * 20_000,
        "messages_in_per_second": f.floor(bytes_in / 1_000).cast("double"),
        "messages_out_per_second": f.floor(bytes_in / 500).cast("double"),
        "bytes_in_per_second": bytes_in.cast("double"),
        "bytes_out_per_second": (bytes_in * 2).cast("double"),
        "connections": f.ceil(f.col("number") / 10),
        "measured_at_ms": measured,
        "memory_limit_bytes": f.lit(2**35),
        "cores": f.lit(cores),
        "busiest": f.coalesce(busiest, f.array()),
        "open_topics": f.col("number"),
        "producers": f.col("number"),
        "consumers": f.col("number") * 2,
    }
    load = spark_schema()["broker_load_reported"].dataType["load"].dataType
    return _message(load, fields)


def _topic_load(one: Column, measured: Column) -> Column:
    unit = one["unit"]
    partition = f.when(unit == "", "").otherwise(
        f.concat(f.lit("-partition-"), f.substring(unit, 2, 10))
    )
    rate = one["rate"].cast("double")
    return f.struct(
        f.concat(one["name"], partition).alias("name"),
        unit.alias("unit"),
        f.floor(rate / 1_000).cast("double").alias("messages_in_per_second"),
        f.floor(rate / 500).cast("double").alias("messages_out_per_second"),
        rate.alias("bytes_in_per_second"),
        (rate * 2).alias("bytes_out_per_second"),
        f.lit(1).cast("long").alias("producers"),
        f.lit(2).cast("long").alias("consumers"),
        measured.alias("measured_at_ms"),
    )


def _endpoints() -> Column:
    host = f.col("broker_id")
    return f.struct(
        f.concat(f.lit("pulsar://"), host, f.lit(":6650")).alias("pulsar_url"),
        f.concat(host, f.lit(":7000")).alias("grpc"),
        f.concat(host, f.lit(":8080")).alias("http"),
    )


def _unit() -> Column:
    """Return the text form of a unit: empty for a whole topic, p3 for partition 3."""
    return f.when(f.col("part") < 0, "").otherwise(f.concat(f.lit("p"), "part"))


def _session_id(world: World) -> Column:
    entropy = hex_digits(world, 20, "session id", f.col("broker"), f.col("session"))
    return f.concat(f.col("s"), entropy)
