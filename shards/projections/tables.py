"""The tables of a shard's view. WITHOUT ROWID: every read is by key or by a range of keys."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text, text

from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY

METADATA = MetaData()


def _key(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _id(name: str) -> Column[bytes]:
    """An internal id, packed: see ``rows``. Text that is no id stays text."""
    return Column(name, LargeBinary, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _policies() -> tuple[Column[bytes], Column[int]]:
    """The policies of an object, NULL if there are none, and their version, 0 if never set."""
    return Column("policies", LargeBinary), _number("policies_version")


TENANTS = Table(
    "tenants",
    METADATA,
    _key("name"),
    _text("tenant_id"),
    Column("properties", Text),  # JSON object; NULL when empty, as it nearly always is.
    _number("version"),
    _number("life"),
    *_policies(),
    sqlite_with_rowid=False,
)

NAMESPACES = Table(
    "namespaces",
    METADATA,
    _key("name"),
    _text("namespace_id"),
    _text("tenant_id"),
    Column("properties", Text),
    _number("version"),
    _number("life"),
    *_policies(),
    sqlite_with_rowid=False,
)

TOPICS = Table(
    "topics",
    METADATA,
    _key("name"),
    _id("topic_id"),
    _number("partitions"),
    _number("version"),
    _id("namespace_id"),
    _number("created_time_ms"),
    Column("properties", Text),
    *_policies(),
    Column("former_names", Text),  # JSON list of [name, until_ms]; NULL of all but renamed topics.
    sqlite_with_rowid=False,
)

SOURCE_OF_TOPIC = f"json_extract(properties, '$.\"{SHADOW_SOURCE_PROPERTY}\"')"
"""The source of a topic that is a shadow, NULL of any other."""

SHADOWS_BY_SOURCE = Index(
    "shadows_by_source",
    text(SOURCE_OF_TOPIC),
    TOPICS.c.name,
    sqlite_where=text(f"{SOURCE_OF_TOPIC} IS NOT NULL"),
)

SCALABLE_TOPICS = Table(
    "scalable_topics",
    METADATA,
    _key("name"),
    _number("has_work"),  # Something that was begun is to be finished.
    _number("has_consumers"),
    Column("state", LargeBinary, nullable=False),  # A serialised ScalableTopic.
    _number("prune_at_ms"),  # When a segment is to be examined for pruning; 0: none is.
    sqlite_with_rowid=False,
)

SCALABLE_TOPICS_WITH_WORK = Index(
    "scalable_topics_with_work",
    SCALABLE_TOPICS.c.name,
    sqlite_where=SCALABLE_TOPICS.c.has_work == 1,
)
"""What a new leader has to go on with, found without a look at the others."""

SCALABLE_TOPICS_WITH_CONSUMERS = Index(
    "scalable_topics_with_consumers",
    SCALABLE_TOPICS.c.name,
    sqlite_where=SCALABLE_TOPICS.c.has_consumers == 1,
)

SCALABLE_TOPICS_TO_PRUNE = Index(
    "scalable_topics_to_prune",
    SCALABLE_TOPICS.c.prune_at_ms,
    sqlite_where=SCALABLE_TOPICS.c.prune_at_ms > 0,
)
"""The topics with sealed segments that nobody needs any more, by the time of the next look."""

TOPIC_LOADS = Table(
    "topic_loads",
    METADATA,
    _key("name"),
    Column("state", LargeBinary, nullable=False),  # A serialised TopicLoads.
    sqlite_with_rowid=False,
)
"""Beside the scalable topics: loads change more often, and a topic's row may be large."""

PARENT_GATES = Table(
    "parent_gates",
    METADATA,
    _key("key"),  # parent_gate.gate_key: kind/name.
    _text("parent_id"),
    _number("is_open"),
    _number("attempt"),
    _number("version"),
    sqlite_with_rowid=False,
)

SHADOW_SOURCES = Table(
    "shadow_sources",
    METADATA,
    _key("name"),
    _id("topic_id"),
    _text("shards"),  # Separated by spaces; 0 stands for all.
    _number("is_deleting"),
    _number("growing_to"),
    sqlite_with_rowid=False,
)

TOPIC_NAMES = Table(
    "topic_names",
    METADATA,
    _key("name"),
    _id("topic_id"),
    sqlite_with_rowid=False,
)
"""Pointers from names to the homes of the topics that may have them."""

FORMER_NAMES = Table(
    "former_names",
    METADATA,
    _key("name"),
    _id("topic_id"),
    _text("current"),
    _number("until_ms"),
    sqlite_with_rowid=False,
)
"""Former names of topics that have their home here."""

ASSIGNMENTS = Table(
    "assignments",
    METADATA,
    _key("key"),  # names.assignment_key: topic id/unit.
    _text("name"),
    _number("epoch"),
    _text("broker_id"),  # "" while the unit has no owner.
    _id("session_id"),  # "" while the unit has no owner.
    sqlite_with_rowid=False,
)

ASSIGNMENTS_BY_SESSION = Index("assignments_by_session", ASSIGNMENTS.c.session_id)
"""A session's units in the order of their keys: an index of a table WITHOUT ROWID ends with the
primary key."""

BROKER_SESSIONS = Table(
    "broker_sessions",
    METADATA,
    _key("broker_id"),
    _text("session_id"),
    _number("epoch"),
    _number("is_live"),
    _text("pulsar_url"),
    _text("grpc"),
    _text("http"),
    _number("capacity_units"),
    _text("zone"),
    _number("granted_units"),
    _text("rack"),
    _number("quarantined_until_ms"),
    _number("draining"),
    _number("drain_units_per_second"),
    _number("revision"),
    _text("started_at_ms"),  # Separated by spaces: of this session and those before.
    _number("announced_units"),
    _text("kind"),
    sqlite_with_rowid=False,
)

BROKER_USAGE = Table(
    "broker_usage",
    METADATA,
    _key("session_id"),
    _number("units"),  # Assigned to the session by this shard; no row for none.
    sqlite_with_rowid=False,
)

TENANT_USAGE = Table(
    "tenant_usage",
    METADATA,
    _key("tenant"),
    _number("units"),  # Of its topics, assigned in this shard; no row for none.
    sqlite_with_rowid=False,
)

TOTALS = Table(
    "totals",
    METADATA,
    _key("kind"),
    _number("total"),
    sqlite_with_rowid=False,
)

SHARD_META = Table(
    "shard_meta",
    METADATA,
    _key("key"),
    _text("slot_ranges"),  # JSON list of [first, last].
    _number("shard_map_version"),
    _text("restore_id"),
    _text("restore_phase"),
    _number("least_epoch"),
    _text(
        "slot_moves"
    ),  # JSON of moves under way and past: see ``rows``. "" if there never was one.
    sqlite_with_rowid=False,
)

OUTCOMES = Table(
    "outcomes",
    METADATA,
    Column("command_id", LargeBinary, primary_key=True),
    _number("position"),  # The shard's last event position after the command.
    _number("sequence"),  # Counts recorded outcomes from 1.
    Column("outcome", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

OUTCOME_ORDER = Index("outcome_order", OUTCOMES.c.sequence, OUTCOMES.c.position)
"""Oldest first, covering the position: forgetting reads no outcome that is kept."""

OUTCOME_COUNT = Table(
    "outcome_count",
    METADATA,
    Column("id", Integer, primary_key=True),  # 1: outcomes ever recorded. 2: the last order.
    _number("recorded"),  # Of row 2: the position from which on outcomes are kept.
    sqlite_with_rowid=False,
)
