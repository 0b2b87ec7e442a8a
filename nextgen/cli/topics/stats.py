"""Statistics of topics: locates them through discovery, then calls their brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from nextgen.cli.console.output import as_dict, print_line, print_table
from nextgen.client import Client, TopicLocation
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
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
        *(_ask(endpoint, asked) for endpoint, asked in by_broker.items())
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
    """Print the topics that could be shown: a line each, and a table of its subscriptions."""
    for shown in documents:
        if shown.get("error"):
            continue
        print_line(_line(shown))
        if shown.get("subscriptions"):
            print_table(
                "",
                ("subscription", "type", "consumers", "backlog", "unacked", "mark delete"),
                [_row(each) for each in shown["subscriptions"]],
            )


def _line(shown: dict[str, Any]) -> str:
    where = f"{shown['topic']} at {shown['broker_id']}"
    if not shown["is_open"]:
        return f"{where}: not open, it has no clients"
    state = "fenced" if shown["is_fenced"] else "open"
    return (
        f"{where}: {state}, epoch {shown['epoch']}, {shown['producers']:,} producers, "
        f"{shown['entries']:,} entries of {shown['bytes']:,} bytes, "
        f"{shown['messages_in']:,} messages in, {shown['messages_out']:,} out"
    )


def _row(shown: dict[str, Any]) -> tuple[Any, ...]:
    mark = shown.get("mark_delete", {"ledger_id": -1, "entry_id": -1})
    return (
        *(shown["name"], shown["kind"].lower(), shown["consumers"]),
        *(shown["backlog_entries"], shown["unacked_messages"]),
        f"{mark['ledger_id']}:{mark['entry_id']}",
    )
