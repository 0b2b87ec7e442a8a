"""Histories at random, and what a shard's own view makes of them: what a rebuild must equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import create_engine

from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.placement import SESSIONS_STARTED_MAX
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from nextgen.replication.ports import Entry, Record
from pipelines.rebuild.job import read_table
from pipelines.rebuild.tables import (
    ASSIGNMENTS,
    LAYOUTS,
    NAMESPACES,
    SEGMENTS,
    SESSIONS,
    SUBSCRIPTIONS,
    TENANTS,
    TOPICS,
)
from protos.nextgen.v1.events_pb2 import DecidedCommand, Event
from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession
from shards.domain.namespace import Namespace
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    CreateSubscription,
    DeleteSubscription,
    FinishSubscriptionDeletion,
    MarkChildrenReady,
    MarkDrained,
    MarkSubscriptionReady,
    PlanLayoutChange,
    PostponePrune,
    PruneSegments,
    RegisterConsumer,
    RemoveConsumer,
    RemoveSegmentStorage,
    ScalableTopicCommand,
    SealSegment,
    SeekSubscription,
)
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType
from shards.domain.states import StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections.fold import fold
from shards.projections.rows import MAPPINGS
from shards.projections.tables import METADATA
from tests.support.spark.histories import HOUR_MS, MINUTE_MS, History
from tests.support.spark.renames import is_free, rename_topic

ENTRY_EVENTS = 7
"""What one entry of the log holds here: the fold must not depend on it."""

Rows = dict[str, list[dict[str, Any]]]
States = dict[int, dict[StateKind, list[Any]]]


def random_history(
    seed: int,
    steps: int = 400,
    between: Callable[[History], None] = lambda _: None,
    history: History | None = None,
) -> History:
    """Return a history of objects created, changed, renamed, deleted and created again, under few
    names. ``history`` is what was before, if anything.

    ``between`` is called after each step.
    """
    rng = random.Random(seed)
    history = history or History()
    story = _Story(history, rng)
    for _ in range(steps):
        rng.choice(story.acts)()
        between(history)
        if rng.random() < 0.02:
            history.wait(rng.randrange(3_600_000))
    return history


class _Story:
    """What may happen next, in a cluster that keeps its rules."""

    def __init__(self, history: History, rng: random.Random) -> None:
        self._history = history
        self._rng = rng
        self._live: dict[str, list[str]] = {"tenant": [], "namespace": [], "topic": []}
        self._versions: dict[str, int] = {}
        self._brokers: dict[str, int] = {}
        """Revision of the live session, by broker."""
        self._has_renames = False
        self.acts: list[Callable[[], None]] = [
            self._create_tenant,
            *[self._create_namespace] * 2,
            *[self._create_topic] * 6,
            *[self._assign] * 8,
            *[self._unassign] * 3,
            *[self._set_properties] * 3,
            *[self._set_policies] * 3,
            *[self._delete_topic] * 3,
            *[self._rename_topic] * 4,
            self._delete_parent,
            self._hesitate,
            *[self._broker] * 3,
            self._load,
            *[self._create_scalable] * 3,
            *[self._change_layout] * 12,
            *[self._remove_storage] * 2,
            *[self._assign_segment] * 4,
        ]

    def _create_tenant(self) -> None:
        name = f"tenant-{self._rng.randrange(4)}"
        if name not in self._live["tenant"]:
            self._history.create_tenant(name, owner=name, **self._properties())
            self._born("tenant", name)

    def _create_namespace(self) -> None:
        if self._live["tenant"]:
            name = f"{self._rng.choice(self._live['tenant'])}/ns-{self._rng.randrange(3)}"
            if name not in self._live["namespace"]:
                self._history.create_namespace(name, **self._properties())
                self._born("namespace", name)

    def _create_topic(self) -> None:
        if self._live["namespace"]:
            space = self._rng.choice(self._live["namespace"])
            name = f"persistent://{space}/tøpic-{self._rng.randrange(6)}"
            if is_free(self._history, name):
                partitions = self._rng.choice([0, 0, 3])
                self._history.create_topic(name, partitions, **self._properties())
                self._born("topic", name)

    def _rename_topic(self) -> None:
        classic = [name for name in self._live["topic"] if name not in self._history.layouts]
        if not classic:
            return
        name, space = self._rng.choice(classic), self._rng.choice(self._live["namespace"])
        new_name = f"persistent://{space}/tøpic-{self._rng.randrange(6)}"
        grace_ms = self._rng.choice([0, MINUTE_MS, HOUR_MS])
        if is_free(self._history, new_name) and rename_topic(
            self._history, name, new_name, grace_ms
        ):
            self._has_renames = True
            self._live["topic"].remove(name)
            self._live["topic"].append(new_name)
            self._versions[new_name] = self._versions.pop(name)

    # Scalable topics ------------------------------------------------------------------------

    def _create_scalable(self) -> None:
        if self._live["namespace"]:
            space = self._rng.choice(self._live["namespace"])
            name = f"topic://{space}/scåled-{self._rng.randrange(3)}"
            if name not in self._live["topic"]:
                others = list(self._history.layouts.values())
                if others and self._rng.random() < 0.3:
                    self._history.restore_scalable(name, self._rng.choice(others))
                else:
                    self._history.create_scalable(name, self._rng.choice([1, 2]))
                self._born("topic", name)

    def _change_layout(self) -> None:
        """Give a layout three commands at random, whether its state allows them or not."""
        if self._history.layouts:
            name = self._rng.choice(list(self._history.layouts))
            for command in self._rng.choices(self._commands(self._history.layouts[name]), k=3):
                self._history.change_layout(name, command)

    def _commands(self, topic: ScalableTopic) -> list[ScalableTopicCommand]:
        rng, now_ms = self._rng, self._history.now_ms
        subscription = rng.choice(["s", "t"])
        type_ = rng.choice(list(SubscriptionType))
        at = rng.randrange(len(topic.active))
        active = topic.active[at].segment_id
        number = rng.choice(list(topic.segments))
        consumer = rng.choice("abc")
        commands: list[ScalableTopicCommand] = [
            PlanLayoutChange(ChangeKind.SPLIT, (active,), now_ms),
            PlanLayoutChange(ChangeKind.REBUCKET, (active,), now_ms, rng.randrange(1, 4)),
            PruneSegments((number,)),
            PostponePrune(number, now_ms + rng.randrange(9)),
            CreateSubscription(subscription, type_, now_ms),
            RegisterConsumer(subscription, consumer, type_, rng.random() < 0.5, now_ms),
            RemoveConsumer(subscription, consumer, "left"),
            SeekSubscription(subscription, rng.randrange(1, 9), rng.random() < 0.5),
            DeleteSubscription(subscription),
            FinishSubscriptionDeletion(subscription),
            MarkDrained(subscription, number),
            MarkDrained(subscription, min(topic.segments)),
            *self._next(topic),
        ]
        if at:
            parents = (topic.active[at - 1].segment_id, active)
            commands.append(PlanLayoutChange(ChangeKind.MERGE, parents, now_ms))
        planned = () if topic.operation is None else topic.operation.children
        numbers = tuple(_ids([*topic.segments.values(), *planned]))
        for each in topic.subscriptions.values():
            ready = MarkSubscriptionReady(each.name, numbers, each.seek_to_ms, each.skips_all)
            commands.append(ready)
        return commands

    def _next(self, topic: ScalableTopic) -> list[ScalableTopicCommand]:
        operation = topic.operation
        if operation is None:
            return []
        number = operation.operation_id
        if not operation.are_children_ready:
            ready = MarkChildrenReady(number, tuple(topic.subscriptions))
            return [*[ready] * 5, AbandonLayoutChange(number, "asked")]
        left = [each for each in operation.parents if each not in operation.sealed]
        end = SegmentEnd(self._rng.randrange(-9, 9), self._rng.randrange(-1, 9))
        size = self._rng.choice([0, 4_711])
        return [SealSegment(number, left[0], end, self._history.now_ms, size)] * 6

    def _remove_storage(self) -> None:
        for name, topic in self._history.layouts.items():
            if topic.removals:
                segment = self._rng.choice(topic.removals)
                if self._history.epochs.get((topic.topic_id, segment.unit.text), 0) > 0:
                    self._history.unassign(name, segment.unit.text, "segment_removed")
                self._history.change_layout(name, RemoveSegmentStorage(segment.segment_id))
                return

    def _assign_segment(self) -> None:
        if self._history.layouts and self._brokers:
            name = self._rng.choice(list(self._history.layouts))
            segment = self._rng.choice(list(self._history.layouts[name].segments.values()))
            broker_id = self._rng.choice(list(self._brokers))
            self._history.assign(name, broker_id, segment.unit.text, reason="moved")

    def _born(self, scope: str, name: str) -> None:
        self._live[scope].append(name)
        self._versions[name] = 0

    def _properties(self) -> dict[str, str]:
        return {key: str(self._rng.randrange(9)) for key in "zab" if self._rng.random() < 0.4}

    def _any(self) -> tuple[str, str] | None:
        scope = self._rng.choice(list(self._live))
        return (scope, self._rng.choice(self._live[scope])) if self._live[scope] else None

    def _set_properties(self) -> None:
        found = self._any()
        if found:
            scope, name = found
            event = self._history.add(self._history.home(name), by_command=True)
            stored = getattr(event, f"{scope}_properties_set")
            stored.name = name
            # A log from before names changed does not say which topic it is.
            if scope == "topic" and (self._has_renames or self._rng.random() < 0.5):
                stored.topic_id = self._history.ids[name]
            stored.properties.update(self._properties())

    def _set_policies(self) -> None:
        found = self._any()
        if found:
            scope, name = found
            self._versions[name] += 1
            if self._rng.random() < 0.3:
                self._history.clear_policies(scope, name, self._versions[name])
            else:
                said = Policies(message_ttl_ms=self._rng.randrange(1, 99) * 1_000)
                self._history.set_policies(scope, name, self._versions[name], said)

    def _delete_topic(self) -> None:
        if self._live["topic"]:
            name = self._live["topic"].pop(self._rng.randrange(len(self._live["topic"])))
            self._history.delete_topic(name)

    def _delete_parent(self) -> None:
        for scope, below in (("namespace", "topic"), ("tenant", "namespace")):
            empty = [
                name
                for name in self._live[scope]
                if not any(f"{name}/" in child for child in self._live[below])
            ]
            if empty:
                name = self._rng.choice(empty)
                self._live[scope].remove(name)
                getattr(self._history, f"delete_{scope}")(name)
                return

    def _hesitate(self) -> None:
        """Begin to delete something that has children; give it up, mostly."""
        scope = self._rng.choice(["tenant", "namespace"])
        if self._live[scope]:
            name = self._rng.choice(self._live[scope])
            home = self._history.home(name)
            started = self._history.add(home, by_command=True)
            getattr(started, f"{scope}_deletion_started").name = name
            if self._rng.random() < 0.8:
                getattr(self._history.add(home), f"{scope}_deletion_aborted").name = name

    def _unit(self, name: str) -> str:
        topic_id = self._history.ids[name]
        partitions = next(
            event.topic_created.partitions
            for log in self._history.logs.values()
            for event in reversed(log)
            if event.topic_created.topic_id == topic_id
        )
        return f"p{self._rng.randrange(partitions)}" if partitions else ""

    def _assign(self) -> None:
        classic = [name for name in self._live["topic"] if name not in self._history.layouts]
        if classic and self._brokers:
            name = self._rng.choice(classic)
            broker_id = self._rng.choice(list(self._brokers))
            self._history.assign(name, broker_id, self._unit(name), reason="moved")

    def _unassign(self) -> None:
        held = [
            (name, unit)
            for name in self._live["topic"]
            for (topic_id, unit), epoch in self._history.epochs.items()
            if topic_id == self._history.ids[name] and epoch > 0
        ]
        if held:
            self._history.unassign(*self._rng.choice(held))

    def _broker(self) -> None:
        broker_id = f"broker-{self._rng.randrange(4)}"
        if broker_id not in self._brokers:
            self._history.start_broker(broker_id, self._rng.randrange(1, 50))
            self._brokers[broker_id] = 0
        elif self._rng.random() < 0.5:
            self._brokers[broker_id] += 1
            is_draining = self._rng.random() < 0.5
            self._history.drain(broker_id, self._brokers[broker_id], draining=is_draining)
        else:
            del self._brokers[broker_id]
            self._history.end_broker(broker_id)

    def _load(self) -> None:
        if self._brokers:
            self._history.report_load(self._rng.choice(list(self._brokers)), 3, {})


# The view's rows -----------------------------------------------------------------------------


def view_states(logs: Mapping[int, Iterable[Event]], directory: Path) -> States:
    """Return what every shard's view holds, by shard and kind of state.

    The views are real ones, in files in ``directory``.
    """
    states: States = {}
    for shard_id, log in logs.items():
        if not shard_id:
            continue
        engine = create_engine(f"sqlite:///{directory / f'view-{shard_id}.sqlite'}")
        with engine.begin() as connection:
            METADATA.create_all(connection)
            for entry in entries_of_log(list(log)):
                fold(connection, [entry])
            states[shard_id] = {
                kind: [
                    MAPPINGS[kind].from_row(tuple(row))
                    for row in connection.exec_driver_sql(MAPPINGS[kind].select)
                ]
                for kind in _WORDS
            }
        engine.dispose()
    return states


def view_rows(states: States) -> Rows:
    """Return the states in the words of the rebuilt tables, by table."""
    rows: Rows = {
        table: [
            {"shard_id": shard_id, **words(state)}
            for shard_id, held in states.items()
            for state in held[kind]
        ]
        for kind, (table, words) in _WORDS.items()
    }
    for table, parts in ((SEGMENTS, _segments), (SUBSCRIPTIONS, _subscriptions)):
        rows[table] = [
            {"shard_id": shard_id, **row}
            for shard_id, held in states.items()
            for topic in held[StateKind.SCALABLE_TOPIC]
            for row in parts(topic)
        ]
    return rows


def entries_of_log(log: list[Event]) -> list[Entry]:
    """Return the events of a log as entries, each of several records."""
    entries = []
    for start in range(0, len(log), ENTRY_EVENTS):
        records = [
            Record(DecidedCommand(time_ms=event.time_ms, events=[event]).SerializeToString(), 1)
            for event in log[start : start + ENTRY_EVENTS]
        ]
        entries.append(Entry(len(entries) + 1, 1, start + 1, tuple(records)))
    return entries


def _tenant(state: Tenant) -> dict[str, Any]:
    return {
        "name": state.name,
        "tenant_id": state.tenant_id,
        "life": state.life.name.lower(),
        **_object_columns(state),
    }


def _namespace(state: Namespace) -> dict[str, Any]:
    return {
        "name": state.name,
        "namespace_id": state.namespace_id,
        "tenant_id": state.tenant_id,
        "life": state.life.name.lower(),
        **_object_columns(state),
    }


def _topic(state: Topic) -> dict[str, Any]:
    return {
        "name": state.name,
        "topic_id": state.topic_id,
        "namespace_id": state.namespace_id,
        "partitions": state.partitions,
        "created_time_ms": state.created_time_ms,
        "former_names": [(each.name, each.until_ms) for each in state.former_names],
        **_object_columns(state),
    }


def _object_columns(state: Tenant | Namespace | Topic) -> dict[str, Any]:
    return {
        "properties": dict(state.properties),
        "version": state.version,
        "policies": state.policies or None,
        "policies_version": state.policies_version,
    }


def _assignment(state: Assignment) -> dict[str, Any]:
    return {
        name: getattr(state, name)
        for name in ("topic_id", "unit", "name", "epoch", "broker_id", "session_id")
    }


def _session(state: BrokerSession) -> dict[str, Any]:
    assert len(state.started_at_ms) <= SESSIONS_STARTED_MAX
    endpoints = state.endpoints
    return {
        "broker_id": state.broker_id,
        "session_id": state.session_id,
        "epoch": state.epoch,
        "is_live": state.is_live,
        "pulsar_url": endpoints.pulsar_url,
        "grpc": endpoints.grpc,
        "http": endpoints.http,
        "capacity_units": state.capacity_units,
        "granted_units": state.granted_units,
        "zone": state.zone,
        "rack": state.rack,
        "quarantined_until_ms": state.quarantined_until_ms,
        "draining": state.draining,
        "drain_units_per_second": state.drain_units_per_second,
        "revision": state.revision,
        "started_at_ms": list(state.started_at_ms),
    }


def _layout(state: ScalableTopic) -> dict[str, Any]:
    operation = state.operation
    planned = {
        "operation_id": 0 if operation is None else operation.operation_id,
        "operation_kind": None if operation is None else operation.kind.value,
        "operation_parents": [] if operation is None else [*operation.parents],
        "operation_children": [] if operation is None else _ids(operation.children),
        "are_children_ready": operation is not None and operation.are_children_ready,
        "operation_sealed": [] if operation is None else sorted(operation.sealed),
    }
    return {
        "name": state.name,
        "topic_id": state.topic_id,
        "epoch": state.epoch,
        "next_segment_id": state.next_segment_id,
        "version": state.version,
        "last_operation_id": state.last_operation_id,
        "removals": sorted(_ids(state.removals)),
        **planned,
    }


def _ids(segments: Iterable[Segment]) -> list[int]:
    return [each.segment_id for each in segments]


def _segments(state: ScalableTopic) -> Iterator[dict[str, Any]]:
    plain = (
        "segment_id",
        "hash_start",
        "hash_end",
        "is_sealed",
        "created_at_epoch",
        "created_at_ms",
        "sealed_at_epoch",
        "sealed_at_ms",
        "merge_depth",
        "legacy_topic_name",
    )
    for each in state.segments.values():
        yield {
            "name": state.name,
            "topic_id": state.topic_id,
            **{name: getattr(each, name) for name in plain},
            **{name: [*getattr(each, name)] for name in ("parents", "children", "bucket_starts")},
            "end_ledger_id": None if each.end is None else each.end.ledger_id,
            "end_entry_id": None if each.end is None else each.end.entry_id,
            "stored_bytes": state.sealed_bytes.get(each.segment_id, 0),
            "postponed_until_ms": state.postponed.get(each.segment_id, 0),
        }


def _subscriptions(state: ScalableTopic) -> Iterator[dict[str, Any]]:
    for each in state.subscriptions.values():
        yield {
            "name": state.name,
            "topic_id": state.topic_id,
            "subscription": each.name,
            "type": each.type.value,
            "phase": each.phase.value,
            "created_at_ms": each.created_at_ms,
            "seek_to_ms": each.seek_to_ms,
            "skips_all": each.skips_all,
            "consumers": [tuple(pair) for pair in each.consumers.items()],
            "drained": sorted(each.drained),
            "assigned": [
                (one.consumer_name, [*one.segments], [*one.shared]) for one in each.assigned
            ],
        }


_WORDS: dict[StateKind, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    StateKind.TENANT: (TENANTS, _tenant),
    StateKind.NAMESPACE: (NAMESPACES, _namespace),
    StateKind.TOPIC: (TOPICS, _topic),
    StateKind.ASSIGNMENT: (ASSIGNMENTS, _assignment),
    StateKind.BROKER_SESSION: (SESSIONS, _session),
    StateKind.SCALABLE_TOPIC: (LAYOUTS, _layout),
}


# The rebuilt rows ----------------------------------------------------------------------------

FOLDED = (
    TENANTS,
    NAMESPACES,
    TOPICS,
    ASSIGNMENTS,
    SESSIONS,
    LAYOUTS,
    SEGMENTS,
    SUBSCRIPTIONS,
)


def rebuilt_rows(spark: SparkSession, folder: Path) -> Rows:
    """Return the rows of rebuilt tables, to be compared with ``view_rows``."""
    return {
        name: [_plain(row.asDict()) for row in read_table(spark, folder, name).collect()]
        for name in FOLDED
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    del row["position"]
    if "created_time" in row:
        created = row.pop("created_time").astimezone(UTC)
        row["created_time_ms"] = round(created.timestamp() * 1_000)
    for name in ("consumers", "assigned", "former_names"):
        if name in row:
            row[name] = [tuple(each) for each in row[name]]
    if row.get("policies") is not None:
        row["policies"] = bytes(row["policies"])
    return row


def in_order(rows: Rows) -> Rows:
    """Return the same rows sorted."""
    return {
        name: sorted(
            some, key=lambda row: repr(sorted((k, v) for k, v in row.items() if k != "properties"))
        )
        for name, some in rows.items()
    }
