"""Facts of a backtest straight from events, without Spark: what the job's columns would have."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from pipelines.backtest.facts import LOADS, NAMESPACE_POLICY, Fact, loads_in
from pipelines.backtest.model import LogFacts, Question
from pipelines.backtest.recorded_topic import (
    CREATED,
    KINDS,
    POLICY_CLEARED,
    POLICY_SET,
    namespace_in,
)
from pipelines.backtest.run_topics import _Task

Tables = dict[str, list[dict[str, Any]]]


def facts_of_events(events: Iterable[Any]) -> list[Fact]:
    """Return the facts of one shard's events, by topic and position."""
    found: list[Fact] = []
    topics: dict[str, str] = {}
    namespaces: list[tuple[str, Fact]] = []
    for event in events:
        kind = event.WhichOneof("payload")
        if kind not in KINDS:
            continue
        payload = getattr(event, kind)
        body = plain(payload)
        if kind in (POLICY_SET, POLICY_CLEARED) and payload.scope != "topic":
            of_namespace = Fact("", event.shard_id, -1, event.term, event.time_ms, NAMESPACE_POLICY)
            of_namespace.body = body
            namespaces.append((payload.name, of_namespace))
            continue
        if kind == CREATED:
            topics[payload.topic_id] = namespace_in(payload.name)
        topic_id = body.get("topic_id") or body.get("object_id")
        fact = Fact(topic_id, event.shard_id, event.position, event.term, event.time_ms, kind)
        if kind == LOADS:
            fact.loads = list(loads_in(body))
        else:
            fact.body = body
        found.append(fact)
    for topic_id, namespace in topics.items():
        of_it = [fact for name, fact in namespaces if name == namespace]
        found += [replace(fact, topic_id=topic_id) for fact in of_it]
    return sorted(found, key=lambda each: (each.topic_id, each.position, each.time_ms))


def facts_of_history(topic_id: str, history: Iterable[tuple[int, str, str]]) -> list[Fact]:
    """Return the facts of a generated topic's events: times, types, payloads as JSON."""
    found = []
    in_order = sorted(history, key=lambda each: each[0])
    for place, (at_ms, kind, payload) in enumerate(in_order):
        fact = Fact(topic_id, 1, place + 1, 1, at_ms, kind, body=json.loads(payload))
        if kind == LOADS:
            fact.loads = list(loads_in(fact.body))
        if kind in KINDS:
            found.append(fact)
    return found


def plain(message: Any) -> dict[str, Any]:
    """Return a message as an export's columns have it, and Spark's JSON of them."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                found[field.name] = dict(value)
            else:
                found[field.name] = [_single(field, each) for each in value]
        elif field.message_type is None or message.HasField(field.name):
            found[field.name] = _single(field, value)
    return found


def _single(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def log_facts(events: Iterable[Any]) -> LogFacts:
    """Return what is known of one shard's log as a whole."""
    last, terms = 0, {}
    shard_id = 0
    for event in events:
        shard_id, last = event.shard_id, event.time_ms
        terms.setdefault(event.term, event.time_ms)
    return LogFacts({shard_id: last}, {shard_id: [(at, term) for term, at in terms.items()]})


def tables_of(facts: Iterable[Fact], question: Question, log: LogFacts) -> Tables:
    """Return the rows of all tables, as one task gives them."""
    task = _Task(question, log)
    rows = [row for fact in facts for row in task.take(fact)]
    tables: Tables = {}
    for table, row in [*rows, *task.end()]:
        tables.setdefault(table, []).append(json.loads(row))
    return tables
