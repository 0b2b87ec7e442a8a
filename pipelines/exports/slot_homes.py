"""Events of slots that moved between shards, as if each slot had always been where it is.

    shard 2, position 80   ─▶  shard 5, order (leg 1, shard 2, position 80)
    shard 5, position 12   ─▶  shard 5, order (leg 2, shard 5, position 12)

A fold by shard and position over such events needs to know nothing of moves. ``position`` is then
an order that sorts as the history went, from which ``real_shard`` and ``real_position`` are read
back. Events of slots that never moved stay as they are, and an export without moves is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.audit.slot_legs import HomeLeg, SlotMove
from nextgen.export.format.manifest import ExportFile
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.ids import ID_DIGITS
from pipelines.columns.name_parts import path_of, topic_path_of
from pipelines.columns.slots import with_slot
from pipelines.errors import JobRefused
from pipelines.exports.event_schema import spark_schema
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, ExportInput

POSITION_BITS, SHARD_BITS, LEG_BITS = 40, 16, 7
"""Bits of an order: room for 10^12 events a shard and 127 legs of a slot."""

_ORDERS_FROM = 1 << (POSITION_BITS + SHARD_BITS)
"""Orders with a leg are from here on; a position is below."""

_HOME, _KEY, _SLOT = "_home", "_routing_key", "_slot"
_UNITS = ("topic_assigned", "topic_unassigned")
_BY_ID = (
    *(f"topic_{what}" for what in ("created", "properties_set", "partitions_grown")),
    *(f"topic_{what}" for what in ("renamed", "deleted")),
    *(f"shadow_{what}" for what in ("source_created", "shard_recorded")),
    *(f"shadow_{what}" for what in ("source_held", "source_removed")),
    *_UNITS,
)
"""Events about a topic, which is at home where the slot in its id is, whatever it is called."""

_POLICIES = ("policy_set", "policy_cleared")
_OF_PARENTS = ("parent_gate_opened", "parent_gate_closed")
"""They concern a shard, not a slot."""


def moves_in(spark: SparkSession, export: ExportInput) -> tuple[SlotMove, ...]:
    """Return the moves of slots that the export tells of. Reads the files that have any."""
    return moves_of(export.events(spark, files_with_moves(export.shard_files)))


def files_with_moves(files: Iterable[ExportFile]) -> list[ExportFile]:
    """Return the files in which slots come from another shard."""
    return [file for file in files if file.adoptions]


def moves_of(events: DataFrame) -> tuple[SlotMove, ...]:
    """Return the moves of slots among ``events``."""
    adopted = events.where(f.col("event_type") == "slots_adopted").where(
        "slots_adopted.move_id > 0"
    )
    rows = adopted.select("shard_id", "position", "slots_adopted.*").collect()
    return tuple(
        SlotMove(
            row["move_id"],
            tuple((each["first"], each["last"]) for each in row["came"]),
            row["from_shard"],
            row["from_position"],
            row["shard_id"],
            row["position"],
        )
        for row in rows
    )


def needed_positions(homes: Sequence[HomeLeg]) -> dict[int, int]:
    """Return up to which position of each shard ``at_home`` needs its events."""
    needed: dict[int, int] = {}
    for each in homes:
        needed[each.leg.shard] = max(each.up_to, needed.get(each.leg.shard, 0))
    return needed


def check_reached(homes: Sequence[HomeLeg], exported: Mapping[int, int]) -> None:
    """Refuse an export in which the earlier history of a slot is missing.

    Raises:
        JobRefused: It is; the message has the shard and the position.
    """
    for shard_id, position in sorted(needed_positions(homes).items()):
        if position > exported.get(shard_id, 0):
            raise JobRefused(
                f"slots moved away from shard {shard_id} at position {position}, its export ends "
                f"at {exported.get(shard_id, 0)}: export again"
            )


def event_home() -> Column:
    """Return ``home_of`` with the routing key of what an event is about, null of events about
    shards and nodes."""
    return home_of(_routing_key())


def home_of(routing_key: Column) -> Column:
    """Return what an event's slot follows from: a struct of ``slot`` or ``key``, the other null.

    A topic and its units are of the slot in the topic's id, everything else is of the slot of
    ``routing_key``.
    """
    of_topic = [
        f.when(f.col(f"{each}.scope") == "topic", f.col(f"{each}.object_id")) for each in _POLICIES
    ]
    slot = slot_in_id(f.coalesce(*(f.col(f"{each}.topic_id") for each in _BY_ID), *of_topic))
    key = f.when(slot.isNull(), routing_key)
    return f.struct(slot.alias("slot"), key.alias("key"))


def with_home_slot(frame: DataFrame, home: str, slot: str) -> DataFrame:
    """Return ``frame`` with a column ``slot`` (int) in place of ``home``, an ``event_home``."""
    keyed = with_slot(frame.withColumn(_KEY, f.col(home)["key"]), _KEY, slot)
    return keyed.withColumn(slot, f.coalesce(f.col(home)["slot"], slot)).drop(home, _KEY)


def slot_in_id(topic_id: Column) -> Column:
    """Return the slot (int) that an id was made in, null of a text that is no internal id."""
    slot = f.conv(f.substring(topic_id, 1, 4), 16, 10).cast("int")
    is_id = topic_id.rlike(f"^[0-9a-f]{{{ID_DIGITS}}}$") & (slot < SLOT_COUNT)
    return f.when(is_id, slot)


def at_home(spark: SparkSession, events: DataFrame, homes: Sequence[HomeLeg]) -> DataFrame:
    """Return ``events`` with those of moved slots at the shard that has the slot: see above.

    Events of a moved slot that are in none of ``homes`` are left out: they are behind the positions
    that ``homes`` were made for, or in a log in which they do not belong.
    """
    if not homes:
        return events
    keyed = with_home_slot(events.withColumn(_HOME, event_home()), _HOME, _SLOT)
    return placed_at_home(spark, keyed, _SLOT, homes).drop(_SLOT)


def placed_at_home(
    spark: SparkSession, frame: DataFrame, slot: str, homes: Sequence[HomeLeg]
) -> DataFrame:
    """Do what ``at_home`` does to any frame with shard_id, position and a column with the slot."""
    legs = f.broadcast(_legs_by_slot(spark, homes))
    joined = frame.join(legs, frame[slot] == legs["_of_slot"], "left").drop("_of_slot")
    is_of_leg = f.filter(
        "_legs",
        lambda leg: (
            (leg["shard"] == f.col("shard_id"))
            & f.col("position").between(leg["first_position"], leg["up_to"])
        ),
    )
    # The log of the cluster manager says things about brokers, whose slots it does not have.
    is_moved = f.col("_legs").isNotNull() & (f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID)
    leg = f.explode(f.when(is_moved, is_of_leg).otherwise(f.array(f.lit(None))))
    order = (
        f.shiftleft(f.col("_leg.number").cast("long"), POSITION_BITS + SHARD_BITS)
        .bitwiseOR(f.shiftleft(f.col("shard_id").cast("long"), POSITION_BITS))
        .bitwiseOR(f.col("position"))
    )
    others = [name for name in frame.columns if name not in ("shard_id", "position")]
    return joined.withColumn("_leg", leg).select(
        f.coalesce("_leg.home", "shard_id").alias("shard_id"),
        f.coalesce(f.when(f.col("_leg").isNotNull(), order), f.col("position")).alias("position"),
        *others,
    )


def real_position(position: Column) -> Column:
    """Return the position in its log of an event that ``at_home`` gave this position."""
    low = position.bitwiseAND(f.lit((1 << POSITION_BITS) - 1))
    return f.when(is_ordered(position), low).otherwise(position)


def real_shard(shard: Column, position: Column) -> Column:
    """Return the shard in whose log an event is that ``at_home`` gave this shard and position."""
    packed = f.shiftright(position, POSITION_BITS).bitwiseAND(f.lit((1 << SHARD_BITS) - 1))
    return f.when(is_ordered(position), packed.cast("int")).otherwise(shard)


def is_ordered(position: Column) -> Column:
    """Return whether ``at_home`` made this position, of an event of a slot that moved."""
    return position >= _ORDERS_FROM


def _routing_key() -> Column:
    """Return the routing key of what an event is about, null of events about shards and nodes."""
    fields = {field.name: field for field in spark_schema()}
    names = [
        f.col(f"{name}.{part}")
        for name, field in fields.items()
        for part in ("name", "broker_id", "topic")
        if part in getattr(field.dataType, "names", ()) and name not in (*_OF_PARENTS, *_UNITS)
    ]
    named = f.coalesce(*names)
    unit = f.coalesce(*(f.col(f"{name}.unit") for name in _UNITS))
    unit_name = f.coalesce(*(f.col(f"{name}.name") for name in _UNITS))
    return f.when(unit.isNotNull(), topic_path_of(unit_name, unit)).otherwise(
        f.when(f.contains(named, f.lit("://")), path_of(named)).otherwise(named)
    )


def _legs_by_slot(spark: SparkSession, homes: Sequence[HomeLeg]) -> DataFrame:
    longest = max(each.leg.number for each in homes)
    if longest >= 1 << LEG_BITS:
        raise JobRefused(f"a slot moved {longest - 1} times, at most {(1 << LEG_BITS) - 2} fit")
    rows = [
        (
            each.leg.first,
            each.leg.last,
            each.leg.number,
            each.leg.shard,
            each.leg.first_position,
            each.up_to,
            each.home,
        )
        for each in homes
    ]
    frame = spark.createDataFrame(
        rows,
        "first int, last int, number int, shard int, first_position long, up_to long, home int",
    )
    leg = f.struct("number", "shard", "first_position", "up_to", "home")
    return (
        frame.select(f.explode(f.sequence("first", "last")).alias("_of_slot"), leg.alias("leg"))
        .groupBy("_of_slot")
        .agg(f.collect_list("leg").alias("_legs"))
    )
