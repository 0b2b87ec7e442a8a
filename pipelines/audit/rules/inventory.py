"""Tenants, namespaces, topics and the gates of their parents: the allowed orders of events."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pipelines.audit.facts import GATE_TYPES, LIFE_TYPES, POLICY_TYPES, RENAMED
from pipelines.audit.finding import Broken, findings
from pipelines.audit.rules.place_number import place_of, shard_and_position

_NOBODY = 0
"""Stands for "no id". An id hashes to 0 with a chance of 2^-64."""


def life_findings(facts: DataFrame, deleted: DataFrame, settled_ms: int, lag_ms: int) -> DataFrame:
    """Return findings about each tenant, namespace and topic, by its name.

    A rename ends a topic under its former name and is its creation under the new one, in the shard
    that has the slot in its id. So a name may be in several shards in turn, and in one shard of
    topics of several slots, whose events have an order among themselves only once slots have moved.

    ``deleted`` has the ids (object, deleted_shard_id, deleted_position, deleted_at_ms) of deleted
    tenants and namespaces. It is small and is broadcast. The counterpart of an event after
    ``settled_ms`` may be in another shard's log and not exported yet. ``lag_ms`` is by how much the
    clocks of two leaders may differ.
    """
    place = ("shard_id", *(["slot"] if "slot" in facts.columns else ()))
    events = facts.where(f.col("event_type").isin(*LIFE_TYPES, *POLICY_TYPES)).select(
        *place, "position", "time_ms", "event_type", "object", "parent", "number", _by_name()
    )
    events = events.select("*", "named.*")
    in_order = Window.partitionBy("subject").orderBy(*place, "position")
    in_shard = Window.partitionBy("subject", *place).orderBy("position")
    before = in_shard.rowsBetween(Window.unboundedPreceding, -1)
    # In the order of the others, so that events are sorted once.
    whole = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    kind = f.col("kind")
    is_life = kind.isin("created", "deleted")
    is_topic = f.col("event_type").startswith("topic_")
    frame = events.withColumns(
        {
            "previous_shard": f.lag("shard_id").over(in_order),
            "previous_position": f.lag("position").over(in_order),
            "is_topic": f.max(is_topic).over(whole),
            "present": _last(
                f.when(kind == "created", f.col("object")).when(kind == "deleted", f.lit(_NOBODY)),
                before,
            ),
            "leads_until_ms": _last(f.coalesce("until_ms", f.when(is_life, 0)), before),
            "since": _last(f.when(is_life, f.col("position")), before),
            "is_ending": _last(_ending(), before),
            "version": _last(_policies_version(), before),
            "next_position": f.lead("position").over(in_shard),
            "of_parent": _last(
                f.when(kind == "created", f.col("parent")),
                in_shard.rowsBetween(Window.unboundedPreceding, 0),
            ),
        }
    ).withColumn("is_there", f.coalesce(f.col("present") != _NOBODY, f.lit(False)))
    remains = (kind != "deleted") & ((kind != "freed") | f.col("is_there"))
    is_left = f.col("next_position").isNull() & remains
    settled = f.when(is_left & (f.col("time_ms") < settled_ms), f.struct("shard_id", "position"))
    others = in_order.rowsBetween(Window.unboundedPreceding, -1)
    frame = (
        frame.withColumn("left_with", f.when(is_left, f.col("of_parent")))
        .withColumns({"left": settled, "left_too": _last(settled, others)})
        .join(f.broadcast(deleted), f.col("left_with") == f.col("deleted_object"), "left")
    )
    orphan = Broken(
        "orphan_parent_deleted",
        f.col("deleted_at_ms") < settled_ms,
        f.col("deleted_position"),
        f.col("deleted_shard_id"),
    )
    return findings(frame, [*_home_rules(), *_life_rules(), *_name_rules(lag_ms), orphan])


def _by_name() -> Column:
    """Return a struct of subject, kind and until_ms for each name that an event changes: a name is
    ``created``, ``deleted``, ..., or ``freed`` if it was a former one."""
    names = f.col("names")

    def named(subject: Column, kind: Column, until_ms: Column | None = None) -> Column:
        until = f.lit(None) if until_ms is None else until_ms
        return f.struct(
            subject.alias("subject"), kind.alias("kind"), until.cast("long").alias("until_ms")
        )

    own = named(f.col("subject"), _kind())
    ended = named(f.col("subject"), f.lit("deleted"), names["until_ms"])
    begun = named(names["new_subject"], f.lit("created"))
    both = f.when(f.col("event_type") == RENAMED, f.array(ended, begun)).otherwise(f.array(own))
    freed = f.array_except(names["freed"], f.array(f.coalesce(names["new_subject"], f.lit(0))))
    others = f.transform(freed, lambda each: named(each, f.lit("freed"), f.lit(0)))
    return f.explode(f.when(names.isNull(), f.array(own)).otherwise(f.concat(both, others))).alias(
        "named"
    )


def _home_rules() -> list[Broken]:
    """Return the rules about the shard of a name: that of its slot, of topics that were renamed
    another one. Two topics never have one name."""
    left = f.col("left_too")
    return [
        Broken(
            "two_homes",
            ~f.col("is_topic") & (f.col("previous_shard") != f.col("shard_id")),
            f.col("previous_position"),
            f.col("previous_shard"),
        ),
        Broken(
            "two_homes",
            f.col("is_topic") & f.col("left").isNotNull() & left.isNotNull(),
            left["position"],
            left["shard_id"],
        ),
    ]


def _name_rules(lag_ms: int) -> list[Broken]:
    """Return the rules about names that led to a renamed topic."""
    until_ms = f.col("leads_until_ms")
    is_early = f.col("time_ms") + lag_ms < until_ms
    is_new = (f.col("kind") == "created") & ~f.col("is_there")
    return [
        Broken(
            "name_still_leads",
            is_new & is_early,
            f.col("since"),
            found=f.col("time_ms"),
            expected=until_ms,
        )
    ]


def _life_rules() -> list[Broken]:
    kind, is_there, since = f.col("kind"), f.col("is_there"), f.col("since")
    is_policy = f.col("event_type").isin(*POLICY_TYPES)
    has_sides = ~f.col("event_type").startswith("topic_")
    is_ending = f.coalesce(f.col("is_ending"), f.lit(False))
    names_id = kind.isin("deleted", "policies")
    version = f.coalesce(f.col("version"), f.lit(0))
    ends = (kind == "deleted") | (kind == "deletion_aborted")
    return [
        Broken("created_twice", (kind == "created") & is_there, since),
        Broken("not_there", ~kind.isin("created", "freed") & ~is_there, since),
        Broken("other_id", names_id & is_there & (f.col("object") != f.col("present")), since),
        Broken("deletion_not_started", ends & has_sides & is_there & ~is_ending, since),
        Broken(
            "being_deleted",
            kind.isin("properties_set", "policies", "deletion_started") & is_there & is_ending,
            since,
        ),
        Broken(
            "policies_version",
            is_policy & is_there & (f.col("number") != version + 1),
            found=f.col("number"),
            expected=version + 1,
        ),
    ]


def ids_given_twice(facts: DataFrame) -> DataFrame:
    """Return findings: ids that more than one tenant, namespace or topic was created with."""
    created = facts.where(
        f.col("event_type").isin("tenant_created", "namespace_created", "topic_created")
    )
    first = f.min(place_of())
    last = f.max(place_of())
    twice = (
        created.groupBy("object")
        .agg(f.count("*").alias("rows"), first.alias("first"), last.alias("last"))
        .where("rows > 1")
        .select(
            *shard_and_position("last", "shard_id", "position"),
            *shard_and_position("first", "other_shard", "other_position"),
        )
    )
    always = f.col("other_position").isNotNull()
    rule = Broken("id_given_twice", always, f.col("other_position"), f.col("other_shard"))
    return findings(twice, [rule])


def gate_findings(facts: DataFrame) -> DataFrame:
    """Return findings about gates: children are created and deleted only while theirs is open."""
    events = facts.where(f.col("gate").isNotNull()).select(
        "shard_id", "position", "event_type", "number", f.explode(_by_gate()).alias("gated")
    )
    events = events.select("*", "gated.*")
    before = (
        Window.partitionBy("shard_id", "gate")
        .orderBy("position")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    is_gate = f.col("event_type").isin(*GATE_TYPES)
    open_for = f.when(f.col("event_type") == "parent_gate_opened", f.col("parent")).when(
        f.col("event_type") == "parent_gate_closed", f.lit(_NOBODY)
    )
    frame = events.withColumns(
        {
            "open_for": f.coalesce(_last(open_for, before), f.lit(_NOBODY)),
            "gate_position": _last(f.when(is_gate, f.col("position")), before),
            "attempt": _last(f.when(is_gate, f.col("number")), before),
            "children": f.coalesce(f.sum("child").over(before), f.lit(0)),
        }
    )
    is_child = f.col("child") > 0
    is_closed = f.col("event_type") == "parent_gate_closed"
    gate_position = f.col("gate_position")
    rules = [
        Broken("gate_shut", is_child & (f.col("open_for") != f.col("parent")), gate_position),
        Broken(
            "gate_over_children",
            is_closed & (f.col("children") > 0),
            gate_position,
            found=f.col("children"),
            expected=f.lit(0),
        ),
        Broken(
            "attempt_back",
            is_gate & (f.col("number") < f.col("attempt")),
            gate_position,
            found=f.col("number"),
            expected=f.col("attempt"),
        ),
    ]
    return findings(frame, rules)


def _by_gate() -> Column:
    """Return a struct of gate, parent and child for each gate that an event concerns. ``child`` is
    1 for a new child, -1 for one that leaves; a renamed topic does both."""
    event_type, child = f.col("event_type"), f.lit(1)
    change = f.when(event_type.isin("namespace_created", "topic_created"), child).when(
        event_type.isin("namespace_deleted", "topic_deleted", RENAMED), -child
    )
    own = f.struct("gate", "parent", change.alias("child"))
    new = f.struct(f.col("names.new_gate").alias("gate"), "parent", child.alias("child"))
    return f.when(event_type == RENAMED, f.array(own, new)).otherwise(f.array(own))


def gates_left_open(facts: DataFrame, deleted: DataFrame, settled_ms: int) -> DataFrame:
    """Return findings: gates that are still open although their parent was deleted.

    All shards close their gates before the parent is deleted. ``deleted`` as for
    ``life_findings``.
    """
    is_opened = f.col("event_type") == "parent_gate_opened"
    last = (
        facts.where(f.col("event_type").isin(*GATE_TYPES))
        .groupBy("shard_id", "gate")
        .agg(
            f.max("position").alias("position"),
            f.max_by(f.when(is_opened, f.col("parent")), "position").alias("open_for"),
        )
        .join(f.broadcast(deleted), f.col("open_for") == f.col("deleted_object"))
    )
    rule = Broken(
        "gate_left_open",
        f.col("deleted_at_ms") < settled_ms,
        f.col("deleted_position"),
        f.col("deleted_shard_id"),
    )
    return findings(last, [rule])


def unknown_parents(facts: DataFrame, settled_ms: int) -> DataFrame:
    """Return findings: one for each parent that children name and no shard has created.

    ``position`` is the first child or gate in the lowest shard, ``found`` the number of events
    that name the parent.
    """
    is_made = f.col("event_type").isin("tenant_created", "namespace_created")
    made = f.when(is_made, f.struct(f.col("object").alias("id"), f.lit(True).alias("is_made")))
    named = f.when(
        f.col("time_ms") < settled_ms,
        f.struct(f.col("parent").alias("id"), f.lit(False).alias("is_made")),
    )
    claims = facts.where(is_made | f.col("parent").isNotNull()).select(
        place_of().alias("place"), f.explode(f.array_compact(f.array(made, named))).alias("claim")
    )
    by_id = (
        claims.where("claim.id is not null")
        .groupBy("claim.id")
        .agg(
            f.count_if("claim.is_made").alias("made"),
            f.count_if(~f.col("claim.is_made")).alias("named"),
            f.min(f.when(~f.col("claim.is_made"), f.col("place"))).alias("first"),
        )
        .where("made = 0 and named > 0")
        .select("named", *shard_and_position("first", "shard_id", "position"))
    )
    always = f.col("named") > 0
    return findings(by_id, [Broken("orphan_parent_unknown", always, found=f.col("named"))])


def deleted_parents(facts: DataFrame) -> DataFrame:
    """Return time, shard and position of the deletion of each tenant and namespace, by id."""
    return facts.where(f.col("event_type").isin("tenant_deleted", "namespace_deleted")).select(
        f.col("object").alias("deleted_object"),
        f.col("shard_id").alias("deleted_shard_id"),
        f.col("position").alias("deleted_position"),
        f.col("time_ms").alias("deleted_at_ms"),
    )


def _kind() -> Column:
    """Return the kind of change: created, deleted, ... whatever the subject is."""
    event_type = f.col("event_type")
    plain = f.regexp_replace(event_type, "^(tenant|namespace|topic)_", "")
    return f.when(event_type.isin(*POLICY_TYPES), f.lit("policies")).otherwise(plain)


def _ending() -> Column:
    kind = f.col("kind")
    return f.when(kind == "deletion_started", f.lit(True)).when(
        kind.isin("deletion_aborted", "created", "deleted"), f.lit(False)
    )


def _policies_version() -> Column:
    # A renamed topic keeps its policies.
    of_new = f.when(f.col("event_type") == RENAMED, f.col("number")).otherwise(0)
    return f.when(f.col("kind") == "policies", f.col("number")).when(
        f.col("kind") == "created", of_new
    )


def _last(value: Column, window: object) -> Column:
    """Return the last value that is not null in ``window``."""
    return f.last(value, ignorenulls=True).over(window)
