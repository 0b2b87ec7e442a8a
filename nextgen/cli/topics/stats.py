"""Statistics of topics: locates them through discovery, then calls their brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import grpc

from nextgen.cli.console.output import as_dict, print_table
from nextgen.client import Client, TopicLocation
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.kernel.limits.pulsar import TOPIC_STATS_NAMES_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX, parse_topic
from protos.nextgen.v1.broker_service_pb2 import GetTopicStatsRequest
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceStub

ANSWER_TIMEOUT_MS = 5_000


async def gather_topic_stats(
    discovery_endpoints: Sequence[str], topics: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one document per topic, in order; a partitioned topic becomes its partitions.

    This assigns a topic that no broker serves. Without clients its broker does not open it, and the
    document has only ``is_open``. A topic that cannot be shown has ``error`` and, if a rule
    rejected the request, ``rejection_code``.

    Raises:
        MetadataError: Discovery does not answer.
    """
    names = [parse_topic(topic).text for topic in topics]
    async with Client(discovery_endpoints) as client:
        located: list[TopicLocation] = []
        for found in await _look_up(client, names):
            if not found.partitions:
                located.append(found)
                continue
            units = [f"{found.topic}{PARTITION_SUFFIX}{n}" for n in range(found.partitions)]
            located += await _look_up(client, units)
    by_broker: dict[str, list[str]] = {}
    for one in located:
        if one.is_found:
            by_broker.setdefault(one.broker_grpc, []).append(one.topic)
    answers = await asyncio.gather(
        *(
            _ask(endpoint, asked[start : start + TOPIC_STATS_NAMES_MAX])
            for endpoint, asked in by_broker.items()
            for start in range(0, len(asked), TOPIC_STATS_NAMES_MAX)
        )
    )
    stats = {name: document for answer in answers for name, document in answer.items()}
    return [_document(one, stats) for one in located]


async def _look_up(client: Client, names: Sequence[str]) -> list[TopicLocation]:
    located: list[TopicLocation] = []
    for start in range(0, len(names), NAMES_PER_LOOKUP_MAX):
        located += await client.lookup(names[start : start + NAMES_PER_LOOKUP_MAX])
    return located


async def _ask(endpoint: str, topics: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the broker's statistics by topic; an error is repeated for each of them."""
    channel = open_channel(endpoint)
    try:
        response = await BrokerServiceStub(channel).GetTopicStats(
            GetTopicStatsRequest(topics=topics), timeout=ANSWER_TIMEOUT_MS / 1000
        )
    except grpc.RpcError as error:
        return {topic: {"error": str(error_of_rpc(error))} for topic in topics}
    finally:
        await close_channel(channel)
    return {one.topic: as_dict(one) for one in response.topics}


def _document(located: TopicLocation, stats: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if not located.is_found:
        return {
            "topic": located.topic,
            "error": located.message,
            "rejection_code": located.rejection_code,
        }
    shown = stats.get(located.topic)
    return {
        "topic": located.topic,
        "broker_id": located.broker_id,
        "is_open": shown is not None,
        **(shown or {}),
    }


def print_topic_stats(documents: Sequence[dict[str, Any]]) -> None:
    """Print two tables for each topic: its partitions and where they are, and subscriptions."""
    shown = [each for each in documents if not each.get("error")]
    for topic, units in groupby(shown, key=lambda each: _topic_and_unit(each["topic"])[0]):
        _print_topic(topic, list(units))


def _print_topic(topic: str, units: Sequence[dict[str, Any]]) -> None:
    columns = ("unit", "broker", "state", "epoch", "producers", "entries", "bytes", "in", "out")
    print_table(topic, columns, [_unit_row(each) for each in units], extra=("epoch",))
    rows = [
        _subscription_row(_topic_and_unit(unit["topic"])[1], each)
        for unit in units
        for each in unit.get("subscriptions", ())
    ]
    if rows:
        print_table(
            "subscriptions",
            ("unit", "subscription", "type", "consumers", "backlog", "unacked", "mark delete"),
            rows,
            extra=("mark delete",),
        )


def _topic_and_unit(name: str) -> tuple[str, str]:
    """Return the name of the topic, and "all" or the number of the partition."""
    base, suffix, number = name.rpartition(PARTITION_SUFFIX)
    return (base, number) if suffix and number.isdecimal() else (name, "all")


def _unit_row(shown: dict[str, Any]) -> tuple[Any, ...]:
    where = (_topic_and_unit(shown["topic"])[1], shown["broker_id"])
    if not shown["is_open"]:
        return (*where, "no clients", "", "", "", "", "", "")
    counts = ("epoch", "producers", "entries", "bytes", "messages_in", "messages_out")
    state = "fenced" if shown["is_fenced"] else "open"
    return (*where, state, *(shown[each] for each in counts))


def _subscription_row(unit: str, shown: dict[str, Any]) -> tuple[Any, ...]:
    mark = shown.get("mark_delete", {"ledger_id": -1, "entry_id": -1})
    return (
        *(unit, shown["name"], shown["kind"].lower(), shown["consumers"]),
        *(shown["backlog_entries"], shown["unacked_messages"]),
        f"{mark['ledger_id']}:{mark['entry_id']}",
    )
