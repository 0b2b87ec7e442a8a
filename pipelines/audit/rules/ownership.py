"""Units and their owners, brokers and their sessions: which broker may own a unit, and when."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nextgen.kernel.events.generations import GENERATION_BITS
from pipelines.audit.facts import (
    CAPACITY,
    DRAIN,
    ENDED,
    ESTABLISHED,
    GRANTED,
    GROWN,
    LOAD,
    RENAMED,
)
from pipelines.audit.finding import Broken, findings

ASSIGNED, UNASSIGNED = "topic_assigned", "topic_unassigned"

FIRST_LOOKUP = "first_lookup"
BROKER_LOST = "broker_lost"
EPOCH_USED = "epoch_used"
TAKEN_OVER = (
    BROKER_LOST,
    "broker_full",
    "moved",
    "drained",
    "capacity_lowered",
    "rebalanced",
    "pinned",
    EPOCH_USED,
)
"""Reasons to move an owned unit to another owner."""
LEFT = ("topic_deleted", "idle", "unloaded", "segment_removed", "renamed")
"""Reasons to unassign a unit."""


def unit_findings(facts: DataFrame, sessions: DataFrame, settled_ms: int, lag_ms: int) -> DataFrame:
    """Return findings about each assigned unit and its topic, by the topic's id.

    ``sessions`` is the small, broadcast result of ``sessions_of``. There is one shuffle, because
    the events of a unit and of its topic lie in one partition. ``lag_ms`` is how much later than
    its consequences a session may seem to end, because clocks differ.
    """
    wanted = ("topic_created", "topic_deleted", ASSIGNED, UNASSIGNED, GROWN, RENAMED)
    events = facts.where(f.col("event_type").isin(*wanted)).select(
        "shard_id",
        "position",
        "time_ms",
        "object",
        "unit",
        "partition",
        "session",
        "number",
        "reason",
        f.coalesce("details.used_epoch", f.lit(0)).alias("used_epoch"),
        _code("event_type", wanted).alias("kind"),
    )
    # By topic, so that one shuffle serves both windows: of a topic and of each of its units.
    events = events.repartition("object")
    frame = _with_unit_state(events)
    topic = Window.partitionBy("object").orderBy("shard_id", "position")
    before = topic.rowsBetween(Window.unboundedPreceding, -1)
    kind = f.col("kind")
    alive = f.when(kind == 0, f.lit(True)).when(kind == 1, f.lit(False))
    gained = f.when((kind == 2) & ~f.col("had_owner"), 1).when((kind == 3) & f.col("had_owner"), -1)
    frame = frame.withColumns(
        {
            "is_there": f.coalesce(f.last(alive, ignorenulls=True).over(before), f.lit(False)),
            "topic_position": f.last(
                f.when(kind.isin(0, 1), f.col("position")), ignorenulls=True
            ).over(before),
            "topic_shard": f.last(f.when(kind == 0, f.col("shard_id")), ignorenulls=True).over(
                before
            ),
            "partitions": f.last(f.when(kind.isin(0, 4), f.col("number")), ignorenulls=True).over(
                before
            ),
            "owners": f.coalesce(f.sum(gained).over(before), f.lit(0)),
        }
    )
    frame = frame.drop("session").join(
        f.broadcast(sessions), f.col("lost_session") == f.col("session"), "left"
    )
    rules = [*_epoch_rules(), *_reason_rules(settled_ms, lag_ms), *_topic_rules()]
    return findings(frame, rules)


def _with_unit_state(events: DataFrame) -> DataFrame:
    unit = Window.partitionBy("object", "unit").orderBy("shard_id", "position")
    frame = events.withColumns(
        {
            "before_kind": f.lag("kind").over(unit),
            "before_epoch": f.lag("number").over(unit),
            "before_session": f.lag("session").over(unit),
            "before_shard": f.lag("shard_id").over(unit),
            "before_position": f.lag("position").over(unit),
        }
    )
    is_lost = (f.col("kind") == 2) & (f.col("reason") == BROKER_LOST)
    return frame.withColumns(
        {
            "had_owner": f.coalesce(f.col("before_kind") == 2, f.lit(False)),
            "is_other_session": f.col("session") != f.col("before_session"),
            "lost_session": f.when(is_lost, f.col("before_session")),
        }
    )


def _epoch_rules() -> list[Broken]:
    """Return the rules about a unit's owner and the one before it: at most one has the unit.

    Epochs are dense, except where an assignment skipped the epochs that the unit's ledger had
    already seen. The event then carries ``used_epoch``. Behind a restore or the promotion of a last
    survivor they go on at the beginning of a generation (``nextgen.kernel.events.generations``).
    """
    is_assigned = f.col("kind") == 2
    had_owner, epoch = f.col("had_owner"), f.col("number")
    before = f.col("before_position")
    before_epoch = f.coalesce(f.col("before_epoch"), f.lit(0))
    expected = f.greatest(before_epoch, f.col("used_epoch")) + 1
    is_first = f.col("reason") == FIRST_LOOKUP
    is_raised = f.col("reason") == EPOCH_USED
    is_here = f.coalesce(f.col("before_shard") == f.col("shard_id"), f.lit(True))
    is_other = f.col("is_other_session")
    same_epoch = had_owner & is_other & (epoch == before_epoch)
    return [
        Broken(
            "overlap",
            is_assigned & ~is_here & had_owner,
            before,
            f.col("before_shard"),
            found=epoch,
            expected=before_epoch,
        ),
        Broken(
            "overlap",
            is_assigned & is_here & had_owner & (same_epoch | is_first),
            before,
            found=epoch,
            expected=before_epoch + 1,
        ),
        Broken(
            "epoch",
            is_assigned
            & is_here
            & ~same_epoch
            & (epoch != expected)
            & ~_begins_generation(epoch, before_epoch),
            before,
            found=epoch,
            expected=expected,
        ),
        Broken(
            "epoch",
            is_assigned & is_here & (epoch == expected) & (is_raised != (f.col("used_epoch") > 0)),
            before,
            found=epoch,
            expected=before_epoch + 1,
        ),
        Broken(
            "given_to_its_owner",
            is_assigned & is_here & had_owner & ~is_other & ~is_first & ~is_raised,
            before,
        ),
        Broken("raised_elsewhere", is_assigned & is_here & is_raised & is_other, before),
        Broken(
            "not_owned",
            (f.col("kind") == 3) & (~had_owner | (epoch != before_epoch)),
            before,
            found=epoch,
            expected=before_epoch,
        ),
    ]


def _reason_rules(settled_ms: int, lag_ms: int) -> list[Broken]:
    """Return the rules about the reason of an assignment or unassignment."""
    is_assigned, is_unassigned = f.col("kind") == 2, f.col("kind") == 3
    reason, before = f.col("reason"), f.col("before_position")
    taken = f.col("lost_session").isNotNull() & (f.col("time_ms") < settled_ms)
    early_ms = f.col("ended_at_ms") - f.col("time_ms")
    return [
        Broken(
            "takeover_of_nothing",
            is_assigned & ~f.col("had_owner") & reason.isin(*TAKEN_OVER),
            before,
        ),
        Broken("unknown_reason", is_assigned & ~reason.isin(FIRST_LOOKUP, *TAKEN_OVER)),
        Broken("unknown_reason", is_unassigned & ~reason.isin(*LEFT)),
        Broken("not_lost", taken & f.col("ended_position").isNull(), before),
        Broken(
            "not_lost",
            taken & (early_ms > lag_ms),
            f.col("ended_position"),
            f.col("session_shard"),
            found=early_ms,
            expected=f.lit(lag_ms),
        ),
    ]


def _topic_rules() -> list[Broken]:
    """Return the rules about a unit and its topic."""
    is_assigned = f.col("kind") == 2
    partition, partitions = f.col("partition"), f.col("partitions")
    # A whole topic has no partition number: it is assigned if the topic has no partitions.
    is_beyond = f.when(partition.isNull(), partitions > 0).otherwise(partition >= partitions)
    return [
        Broken(
            "two_homes",
            is_assigned & ~f.col("had_owner") & (f.col("topic_shard") != f.col("shard_id")),
            f.col("topic_position"),
            f.col("topic_shard"),
        ),
        Broken("orphan_assignment", is_assigned & ~f.col("is_there"), f.col("topic_position")),
        Broken(
            "no_such_partition",
            is_assigned & f.col("is_there") & is_beyond,
            f.col("topic_position"),
            f.col("topic_shard"),
            found=partition,
            expected=partitions,
        ),
        *(
            Broken(
                rule,
                (f.col("kind") == kind) & (f.col("owners") > 0),
                f.col("topic_position"),
                found=f.col("owners"),
                expected=f.lit(0),
            )
            for rule, kind in (("deleted_with_owners", 1), ("renamed_with_owners", 5))
        ),
    ]


def sessions_of(facts: DataFrame) -> DataFrame:
    """Return one row per session of a broker: session, session_broker, session_shard,
    began_position, began_at_ms, ended_position, ended_at_ms. A beginning or end that is not in the
    log is null."""
    is_begin, is_end = f.col("event_type") == ESTABLISHED, f.col("event_type") == ENDED
    events = facts.where((is_begin | is_end) & (f.col("shard_id") != 0))
    return events.groupBy("session").agg(
        f.max(f.when(is_begin, f.col("broker"))).alias("session_broker"),
        f.max("shard_id").alias("session_shard"),
        f.min(f.when(is_begin, f.col("position"))).alias("began_position"),
        f.min(f.when(is_begin, f.col("time_ms"))).alias("began_at_ms"),
        f.min(f.when(is_end, f.col("position"))).alias("ended_position"),
        f.min(f.when(is_end, f.col("time_ms"))).alias("ended_at_ms"),
    )


def assigned_sessions(
    facts: DataFrame, sessions: DataFrame, settled_ms: int, lag_ms: int
) -> DataFrame:
    """Return findings: assignments to sessions that never were, are of another broker, or ended.

    One finding per session and shard: the first assignment, or the latest to an ended session.
    ``lag_ms`` is how long after a session's end a leader may still assign to it: it has not learned
    of the end yet, or clocks differ.
    """
    used = (
        facts.where(f.col("event_type") == ASSIGNED)
        .groupBy("session", "broker", "shard_id")
        .agg(
            f.count("*").alias("rows"),
            f.min("position").alias("position"),
            f.min("time_ms").alias("first_at_ms"),
            f.max("time_ms").alias("last_at_ms"),
            f.max_by("position", "time_ms").alias("last_position"),
        )
        .join(f.broadcast(sessions), "session", "left")
    )
    began = f.col("began_position")
    ahead_ms = f.col("began_at_ms") - f.col("first_at_ms")
    behind_ms = f.col("last_at_ms") - f.col("ended_at_ms")
    is_late = f.coalesce(behind_ms > lag_ms, f.lit(False))
    used = used.withColumn(
        "position", f.when(is_late, f.col("last_position")).otherwise(f.col("position"))
    )
    rules = [
        Broken(
            "unknown_session",
            began.isNull() & (f.col("first_at_ms") < settled_ms),
            found=f.col("rows"),
        ),
        Broken(
            "unknown_session",
            ahead_ms > lag_ms,
            began,
            f.col("session_shard"),
            found=ahead_ms,
            expected=f.lit(lag_ms),
        ),
        Broken(
            "session_of_another",
            f.col("session_broker") != f.col("broker"),
            began,
            f.col("session_shard"),
            found=f.col("rows"),
        ),
        Broken(
            "ended_session",
            is_late,
            f.col("ended_position"),
            f.col("session_shard"),
            found=behind_ms,
            expected=f.lit(lag_ms),
        ),
    ]
    return findings(used, rules)


def broker_findings(facts: DataFrame) -> DataFrame:
    """Return findings about each broker's sessions, in the log of the broker's own shard."""
    events = facts.where(f.col("shard_id") != 0).select(
        "shard_id", "position", "event_type", "subject", "session", "number", "units"
    )
    # Brokers report load all the time. A session's first and last report bound all the others.
    loads = events.where(f.col("event_type") == LOAD).groupBy("shard_id", "subject", "session")
    ends = loads.agg(f.array(f.min("position"), f.max("position")).alias("ends"))
    rows = ends.select(
        "shard_id",
        f.explode(f.array_distinct("ends")).alias("position"),
        f.lit(LOAD).alias("event_type"),
        "subject",
        "session",
        f.lit(None).cast("long").alias("number"),
        f.lit(None).cast("long").alias("units"),
    )
    kinds = (ESTABLISHED, ENDED, GRANTED, DRAIN, CAPACITY)
    others = events.where(f.col("event_type").isin(*kinds))
    frame = _with_session_state(others.unionByName(rows))
    return findings(frame, _broker_rules())


def _with_session_state(frame: DataFrame) -> DataFrame:
    in_order = Window.partitionBy("subject").orderBy("shard_id", "position")
    in_shard = Window.partitionBy("subject", "shard_id").orderBy("position")
    before = in_shard.rowsBetween(Window.unboundedPreceding, -1)
    kind = f.col("event_type")
    is_begin = kind == ESTABLISHED
    # A lowered capacity lowers the grant.
    has_capacity = kind.isin(ESTABLISHED, CAPACITY)
    is_revision = kind.isin(DRAIN, CAPACITY)

    def last(value: Column) -> Column:
        return f.last(value, ignorenulls=True).over(before)

    return frame.withColumns(
        {
            "previous_shard": f.lag("shard_id").over(in_order),
            "previous_position": f.lag("position").over(in_order),
            "at_session": last(f.when(is_begin, f.col("session"))),
            "at_epoch": f.coalesce(last(f.when(is_begin, f.col("number"))), f.lit(0)),
            "is_live": f.coalesce(
                last(f.when(is_begin, f.lit(True)).when(kind == ENDED, f.lit(False))),
                f.lit(False),
            ),
            "since": last(f.when(kind.isin(ESTABLISHED, ENDED), f.col("position"))),
            "capacity": last(f.when(has_capacity, f.col("units"))),
            "granted": last(f.when(has_capacity, f.lit(0)).when(kind == GRANTED, f.col("number"))),
            "revision": last(f.when(is_begin, f.lit(0)).when(is_revision, f.col("number"))),
        }
    )


def _broker_rules() -> list[Broken]:
    kind, number, since = f.col("event_type"), f.col("number"), f.col("since")
    is_begin = kind == ESTABLISHED
    is_latest = f.coalesce(f.col("session") == f.col("at_session"), f.lit(False))
    is_live = is_latest & f.col("is_live")
    wants_live = kind.isin(ENDED, GRANTED, DRAIN, CAPACITY)
    granted, capacity = f.col("granted"), f.col("capacity")
    epoch_after = f.col("at_epoch") + 1
    return [
        Broken(
            "two_homes",
            f.col("previous_shard") != f.col("shard_id"),
            f.col("previous_position"),
            f.col("previous_shard"),
        ),
        Broken(
            "session_epoch",
            is_begin & (number != epoch_after) & ~_begins_generation(number, f.col("at_epoch")),
            since,
            found=number,
            expected=epoch_after,
        ),
        Broken("session_overlap", is_begin & f.col("is_live"), since),
        Broken("session_not_live", (wants_live & ~is_live) | ((kind == LOAD) & ~is_latest), since),
        Broken(
            "session_epoch",
            (kind == ENDED) & is_live & (number != f.col("at_epoch")),
            since,
            found=number,
            expected=f.col("at_epoch"),
        ),
        Broken(
            "grant",
            (kind == GRANTED) & is_live & ((number < granted) | (number > capacity)),
            since,
            found=number,
            expected=f.when(number < granted, granted).otherwise(capacity),
        ),
        Broken(
            "drain_revision",
            kind.isin(DRAIN, CAPACITY) & is_live & (number != f.col("revision") + 1),
            since,
            found=number,
            expected=f.col("revision") + 1,
        ),
    ]


def _code(column: str, values: tuple[str, ...]) -> Column:
    """Return the index of a value in ``values``: an int, which has a fixed width in a sort."""
    return (f.array_position(f.array(*map(f.lit, values)), f.col(column)) - 1).cast("int")


def _begins_generation(epoch: Column, before: Column) -> Column:
    """Return whether an epoch is the first of a later generation than ``before``."""
    generation = f.shiftright(epoch, GENERATION_BITS)
    return (generation > f.shiftright(before, GENERATION_BITS)) & (
        epoch == f.shiftleft(generation, GENERATION_BITS)
    )
