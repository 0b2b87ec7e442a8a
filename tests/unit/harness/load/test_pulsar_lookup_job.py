"""The lookup generator against a small server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nextgen.harness.load.measure import summary_of_counts
from nextgen.harness.load.pulsar import lookup as pulsar_lookup_job
from nextgen.harness.load.pulsar.lookup import pulsar_lookup
from nextgen.harness.load.pulsar.lookup_requests import FIRST_REQUEST_ID
from nextgen.harness.load.reporter import Reporter
from nextgen.harness.load.topic_range import TopicRange
from nextgen.kernel.errors import Unavailable
from nextgen.pulsar.frames import FrameReader, encode_command, parse_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopicResponse, MetadataError
from protos.pulsar.PulsarApi_pb2 import CommandPartitionedTopicMetadataResponse as PartitionsAnswer

TOPICS = TopicRange("acme/orders", "topic", 0, 200)
URL = "pulsar://127.0.0.1:6650"

Answering = Callable[[BaseCommand], list[BaseCommand]]


def connect_to(request_id: int, url: str = URL) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    command.lookupTopicResponse.brokerServiceUrl = url
    command.lookupTopicResponse.response = CommandLookupTopicResponse.Connect
    command.lookupTopicResponse.request_id = request_id
    command.lookupTopicResponse.authoritative = True
    return command


def failed(request_id: int) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    command.lookupTopicResponse.response = CommandLookupTopicResponse.Failed
    command.lookupTopicResponse.error = MetadataError
    command.lookupTopicResponse.message = "no leader"
    command.lookupTopicResponse.request_id = request_id
    return command


def ping() -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PING)
    command.ping.SetInParent()
    return command


def answer_all(request: BaseCommand) -> list[BaseCommand]:
    if request.type == BaseCommand.PARTITIONED_METADATA:
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
        command.partitionMetadataResponse.partitions = 0
        command.partitionMetadataResponse.response = PartitionsAnswer.Success
        command.partitionMetadataResponse.request_id = request.partitionMetadata.request_id
        return [command]
    return [connect_to(request.lookupTopic.request_id)]


class SmallServer(asyncio.Protocol):
    """Greets, and answers as ``answering`` says, ``chunk`` bytes at a time."""

    def __init__(self, answering: Answering, chunk: int, heard: list[BaseCommand]) -> None:
        self._answering = answering
        self._chunk = chunk
        self._heard = heard
        self._reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            command = parse_command(frame.command)
            self._heard.append(command)
            if command.type == BaseCommand.CONNECT:
                connected = BaseCommand(type=BaseCommand.CONNECTED)
                connected.connected.server_version = "small"
                self._send([connected])
            elif command.type != BaseCommand.PONG:
                self._send(self._answering(command))

    def _send(self, commands: list[BaseCommand]) -> None:
        data = b"".join(map(encode_command, commands))
        for start in range(0, len(data), self._chunk):
            self._transport.write(data[start : start + self._chunk])


async def generate(
    answering: Answering,
    *,
    chunk: int = 65_536,
    heard: list[BaseCommand] | None = None,
    server_class: Callable[[], asyncio.Protocol] | None = None,
    **job: Any,
) -> dict[str, Any]:
    """Run the job for a moment against a server that answers so."""
    loop = asyncio.get_running_loop()
    commands: list[BaseCommand] = [] if heard is None else heard
    make = server_class or (lambda: SmallServer(answering, chunk, commands))
    server = await loop.create_server(make, "127.0.0.1", 0)
    async with server:
        described = {
            "pulsar": f"127.0.0.1:{server.sockets[0].getsockname()[1]}",
            "brokers": [],
            "topics": TOPICS.as_json(),
            "is_partition_metadata": False,
            "connections": 2,
            "in_flight": 8,
            "warm_seconds": 0.01,
            "seconds": 0.05,
            "check_every": 0,
        }
        return await pulsar_lookup(described | job, Reporter())


async def test_every_answer_is_counted_and_timed(monkeypatch: pytest.MonkeyPatch):
    heard: list[BaseCommand] = []
    # Its time goes by as it asks: it measures answers though this process stands still.
    clock = SimpleNamespace(perf_counter=lambda: len(heard) / 10_000)
    monkeypatch.setattr(pulsar_lookup_job, "time", clock)

    result = await generate(answer_all, heard=heard)

    asked = [one for one in heard if one.type == BaseCommand.LOOKUP]
    assert result["answers_total"] == len(asked) > TOPICS.count
    assert (result["errors"], result["unexpected"]) == (0, 0)
    assert 0 < result["answers"] <= result["answers_total"]
    assert sum(result["latency_us"].values()) == result["answers"]
    assert summary_of_counts([result["latency_us"]])["p50"] > 0


async def test_every_topic_is_asked_for_under_its_own_id():
    heard: list[BaseCommand] = []

    await generate(answer_all, heard=heard)

    asked = {(one.lookupTopic.request_id, one.lookupTopic.topic)
             for one in heard if one.type == BaseCommand.LOOKUP}  # fmt: skip
    assert {topic for _, topic in asked} == set(TOPICS.names())
    assert {request_id for request_id, _ in asked} == set(
        range(FIRST_REQUEST_ID, FIRST_REQUEST_ID + TOPICS.count)
    )


async def test_answers_in_small_pieces_are_put_together():
    result = await generate(answer_all, chunk=7)

    assert (result["errors"], result["unexpected"]) == (0, 0)
    assert result["answers_total"] >= TOPICS.count


async def test_partition_metadata_is_asked_for_and_checked():
    heard: list[BaseCommand] = []

    result = await generate(answer_all, heard=heard, is_partition_metadata=True)

    assert {one.type for one in heard} == {BaseCommand.CONNECT, BaseCommand.PARTITIONED_METADATA}
    assert (result["errors"], result["unexpected"]) == (0, 0)


async def test_a_failed_answer_is_an_error_that_is_quoted():
    def fail_one(request: BaseCommand) -> list[BaseCommand]:
        request_id = request.lookupTopic.request_id
        is_chosen = request_id == FIRST_REQUEST_ID + 7
        return [failed(request_id)] if is_chosen else [connect_to(request_id)]

    result = await generate(fail_one)

    assert result["errors"] >= 1
    assert "no leader" in result["first_error"]


async def test_an_answer_that_nobody_asked_for_is_noticed():
    result = await generate(
        lambda request: [
            connect_to(request.lookupTopic.request_id),
            connect_to(FIRST_REQUEST_ID + TOPICS.count),
        ]
    )

    assert result["unexpected"] >= TOPICS.count
    assert "never sent" in result["first_unexpected"]


async def test_a_second_answer_to_the_same_request_is_noticed():
    result = await generate(
        lambda request: [connect_to(request.lookupTopic.request_id)] * 2, in_flight=1
    )

    assert result["unexpected"] > 0
    assert "not in flight" in result["first_unexpected"]


async def test_a_ping_is_answered_and_is_no_answer():
    heard: list[BaseCommand] = []

    result = await generate(
        lambda request: [ping(), connect_to(request.lookupTopic.request_id)], heard=heard
    )

    assert result["unexpected"] == 0
    assert any(one.type == BaseCommand.PONG for one in heard)


async def test_an_answer_that_leads_to_no_broker_is_wrong():
    result = await generate(answer_all, check_every=1)

    assert result["checked"] == {"wrong": sum(result["checked"].values())}
    assert result["checked"]["wrong"] > 0
    assert "no broker has this URL" in result["wrong"][0]


async def test_a_late_topic_does_not_hold_the_others_up():
    asked: list[int] = []
    held: list[int] = []
    needed = 3 * TOPICS.count

    def hold_one_back(request: BaseCommand) -> list[BaseCommand]:
        request_id = request.lookupTopic.request_id
        asked.append(request_id)
        if request_id == FIRST_REQUEST_ID and not held:
            held.append(request_id)
            return []
        # The held one is answered once its whole round has gone by.
        if held and len(asked) == needed:
            return [connect_to(request_id), connect_to(held[0])]
        return [connect_to(request_id)]

    for seconds in (0.05, 1.0, 20.0):
        asked.clear()
        held.clear()
        try:
            result = await generate(hold_one_back, connections=1, seconds=seconds)
        except Unavailable:
            # A slow machine may end before it has asked so often: nobody answers the held one.
            if len(asked) >= needed:
                raise
        else:
            break
    else:
        raise AssertionError(f"only {len(asked)} requests in {seconds} s")

    assert (result["errors"], result["unexpected"]) == (0, 0)
    assert asked[:needed].count(FIRST_REQUEST_ID) == 1


class ClosingServer(asyncio.Protocol):
    """Closes each connection at its first frame."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, _data: bytes) -> None:
        self._transport.close()


async def test_a_connection_that_breaks_ends_the_run_with_a_sentence():
    with pytest.raises(Unavailable, match="connection lost"):
        await generate(answer_all, server_class=ClosingServer, warm_seconds=30)
