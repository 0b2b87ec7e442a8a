"""Input that is legal and expensive, to live processes: what it costs them is bounded.

Costs are processor time, memory and bytes of log, never seconds: the machine may be busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass

import psutil
import pytest

from nextgen.cli.local.readiness import readiness
from nextgen.kernel.limits.inbound import HTTP_CONNECTIONS_PER_ADDRESS_MAX
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_command
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageIdData,
)
from tests.integration.bad_input.conftest import TOPIC, Site
from tests.support.pulsar.frames import connect_frame, lookup_command

READ_BYTES = 64 * 1024
RSS_GROWTH_BYTES_MAX = 32 * 1024 * 1024
CPU_S_MAX = 1.0
"""Of a process that also serves the good client; what is tested took seconds."""

OTHER_FILES_MAX = 64
"""Files that the process opens meanwhile for whatever else it does."""

NODES = ["discovery-1", "broker-1"]


@dataclass
class Cost:
    """What a process has used and written between two moments."""

    cpu_s: float
    rss_bytes: int
    log_bytes: int


class Meter:
    """Measures one process of the cluster from its making to ``cost``."""

    def __init__(self, site: Site, node_id: str) -> None:
        process_id = site.cluster.cluster.process_id(node_id)
        assert process_id is not None
        self._process = psutil.Process(process_id)
        self._log = site.cluster.cluster.log_path(node_id)
        self._before = self._now()

    def cost(self) -> Cost:
        now, before = self._now(), self._before
        return Cost(
            now.cpu_s - before.cpu_s,
            now.rss_bytes - before.rss_bytes,
            now.log_bytes - before.log_bytes,
        )

    def _now(self) -> Cost:
        times = self._process.cpu_times()
        rss_bytes = self._process.memory_info().rss
        return Cost(times.user + times.system, rss_bytes, self._log.stat().st_size)


async def wait_closed(reader: asyncio.StreamReader) -> None:
    """Return when the server has closed the connection."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(READ_BYTES):
            pass


def framed(body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(body), len(body)) + body


def producer_with_empty_metadata(entries: int) -> bytes:
    """Return a PRODUCER's frame with so many entries that lack their key and value."""
    inner = b"\x0a\x01t\x10\x01\x18\x01" + b"\x32\x00" * entries
    size, digits = len(inner), bytearray()
    while size >= 0x80:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    return framed(b"\x08\x05\x2a" + bytes([*digits, size]) + inner)


@pytest.mark.parametrize("is_greeted", [False, True], ids=["before CONNECT", "after CONNECT"])
@pytest.mark.parametrize("node_id", NODES)
async def test_a_frame_of_millions_of_fields_costs_next_to_nothing(
    site: Site, node_id: str, is_greeted: bool
) -> None:
    port = site.cluster.plan.node(node_id).pulsar_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if is_greeted:
        writer.write(connect_frame())
        await reader.read(READ_BYTES)
    meter = Meter(site, node_id)

    writer.write(producer_with_empty_metadata(2_500_000))
    await wait_closed(reader)
    writer.transport.abort()

    cost = meter.cost()
    assert cost.cpu_s < CPU_S_MAX
    assert cost.rss_bytes < RSS_GROWTH_BYTES_MAX
    assert cost.log_bytes < 2_048


@pytest.mark.parametrize("node_id", NODES)
async def test_hundreds_of_broken_connections_write_a_few_lines(site: Site, node_id: str) -> None:
    """A line for each of them would be more than twice as much."""
    port = site.cluster.plan.node(node_id).pulsar_port
    meter = Meter(site, node_id)

    for _ in range(300):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\0\0\0\1")
        await wait_closed(reader)
        writer.transport.abort()

    # The window that the lines fall into may end meanwhile, once or twice on a busy machine.
    assert 0 < meter.cost().log_bytes < 15_000


async def test_refused_acknowledgements_write_less_than_they_are(site: Site) -> None:
    port = site.cluster.plan.node("broker-1").pulsar_port
    async with await PulsarClientConnection.open("127.0.0.1", port, timeout_ms=30_000) as client:
        subscribe = CommandSubscribe(
            topic=TOPIC,
            subscription="of a test",
            subType=CommandSubscribe.Shared,
            consumer_id=1,
            request_id=client.next_request_id(),
        )
        answer = await client.request(
            BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe), timeout_ms=30_000
        )
        assert answer.type == BaseCommand.SUCCESS
        refused = CommandAck(
            consumer_id=1,
            ack_type=CommandAck.Individual,
            message_id=[MessageIdData(ledgerId=1, entryId=2)],
            txnid_least_bits=1,
            txnid_most_bits=1,
        )
        frame = encode_command(BaseCommand(type=BaseCommand.ACK, ack=refused))
        meter = Meter(site, "broker-1")

        for _ in range(20_000):
            client.send(frame)
        lookup = lookup_command(TOPIC, request_id=client.next_request_id())
        await client.request(lookup, timeout_ms=60_000)

    assert 0 < meter.cost().log_bytes < 20_000


@pytest.mark.parametrize("node_id", NODES)
async def test_thousands_of_half_http_requests_leave_room_for_everybody_else(
    site: Site, node_id: str
) -> None:
    node = site.cluster.plan.node(node_id)
    process_id = site.cluster.cluster.process_id(node_id)
    files_before = psutil.Process(process_id).num_fds()
    meter = Meter(site, node_id)
    writers = []
    for _ in range(2_000):
        _, writer = await asyncio.open_connection("127.0.0.1", node.http_port)
        writer.write(b"GET /livez HT")
        writers.append(writer)

    ready, reason = await readiness(node.http)
    client = await PulsarClientConnection.open("127.0.0.1", node.pulsar_port, timeout_ms=30_000)

    assert ready, reason
    files = psutil.Process(process_id).num_fds() - files_before
    assert 0 < files <= HTTP_CONNECTIONS_PER_ADDRESS_MAX + OTHER_FILES_MAX
    cost = meter.cost()
    assert cost.rss_bytes < RSS_GROWTH_BYTES_MAX
    assert cost.log_bytes < 2_048
    client.close()
    for writer in writers:
        writer.transport.abort()
