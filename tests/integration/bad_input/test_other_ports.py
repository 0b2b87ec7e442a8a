"""Bytes that are not HTTP on the probe ports, and not HTTP/2 on the gRPC ports."""

from __future__ import annotations

import asyncio
import random

import pytest

from nextgen.tasks.timeouts import timeout
from tests.integration.bad_input.conftest import Site

SEED = 99
ANSWER_S_MAX = 30
NODES = ("discovery-1", "shard-node-1", "cluster-manager-1", "broker-1")

BAD_HTTP = {
    b"\x00\x01\x02\r\n\r\n": b"400",
    random.Random(SEED).randbytes(3_000): b"400",
    b"GET /metrics HTTP/9.9\r\n\r\n": b"400",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n": b"400",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n": b"400",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n": b"400",
    b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n": b"405",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n": b"404",
    b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n": b"404",
}


async def first_line(address: str, data: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        async with timeout(ANSWER_S_MAX):
            return await reader.readline()
    except ConnectionError:
        return b"reset"
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("node_id", NODES)
async def test_a_bad_http_request_gets_its_status(site: Site, node_id: str) -> None:
    address = site.cluster.plan.node(node_id).http
    for data, status in BAD_HTTP.items():
        assert status in await first_line(address, data), data[:60]

    good = await first_line(address, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200" in good


@pytest.mark.parametrize("node_id", NODES)
async def test_what_is_not_http2_is_hung_up_on(site: Site, node_id: str) -> None:
    address = site.cluster.plan.node(node_id).grpc
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    noise = random.Random(SEED).randbytes(10_000)
    for data in (noise, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", preface + noise):
        reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
        writer.write(data)
        try:
            async with timeout(ANSWER_S_MAX):
                while await reader.read(65_536):
                    pass
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
