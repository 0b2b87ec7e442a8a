"""How many lookups a second can the generator of `nextgen perf pulsar-lookup` ask for and check?

It asks a process that copies each request's id behind one prepared answer and looks at nothing
else, so what limits the rate is the generator. Its own CPU seconds give its ceiling on a core of
its own. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
from typing import cast

import uvloop

from nextgen.harness.load.measure import summary_of_counts
from nextgen.harness.load.process import run_job
from nextgen.harness.load.pulsar.lookup_requests import FIRST_REQUEST_ID, RequestDeck
from nextgen.harness.load.topic_range import TopicRange
from nextgen.pulsar.frames import encode_command
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopicResponse

BROKER_URL = "pulsar://127.0.0.1:6650"
ID_BYTES = 4
"""Of every request id, which is the last thing in a request and in an answer of this server."""


class _Server(asyncio.Protocol):
    def __init__(self, request_bytes: int) -> None:
        self._request_bytes = request_bytes
        self._rest = b""
        self._is_connected = False
        command = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
        answer = command.lookupTopicResponse
        answer.brokerServiceUrl = BROKER_URL
        answer.response = CommandLookupTopicResponse.Connect
        answer.request_id = FIRST_REQUEST_ID
        self._head = encode_command(command)[:-ID_BYTES]
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_connected:
            self._is_connected = True
            connected = BaseCommand(type=BaseCommand.CONNECTED)
            connected.connected.server_version = "trivial"
            self._transport.write(encode_command(connected))
            return
        data = self._rest + data
        size = self._request_bytes
        whole = len(data) - len(data) % size
        self._rest = data[whole:]
        ids = [data[end - ID_BYTES : end] for end in range(size, whole + 1, size)]
        self._transport.write(self._head.join([b"", *ids]))


def _serve(listener: socket.socket, request_bytes: int) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Server(request_bytes), sock=listener)
        await server.serve_forever()

    uvloop.run(serve())


async def measure(
    topics: int, connections: int, in_flight: int, seconds: float
) -> dict[str, object]:
    wanted = TopicRange("public/default", "topic", 0, topics)
    request_bytes = len(RequestDeck.of_lookups([wanted.name(0)]).frames[0])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = multiprocessing.get_context("fork").Process(
            target=_serve, args=(listener, request_bytes), daemon=True
        )
        server.start()
        try:
            job = {
                "kind": "pulsar_lookup",
                "pulsar": f"127.0.0.1:{port}",
                "brokers": [],
                "topics": wanted.as_json(),
                "is_partition_metadata": False,
                "connections": connections,
                "in_flight": in_flight,
                "warm_seconds": 1,
                "seconds": seconds,
                "check_every": 0,
            }
            result = await run_job(job, timeout_ms=int(60_000 + seconds * 1000))
        finally:
            server.terminate()
            server.join()
    return {
        "benchmark": "pulsar_lookup_generator",
        "rate": round(result["answers"] / result["seconds"]),
        "answers_per_generator_core_second": round(result["answers"] / result["cpu_seconds"]),
        **summary_of_counts([result["latency_us"]]),
        "errors": result["errors"],
        "unexpected": result["unexpected"],
        "run": {"topics": topics, "connections": connections, "in_flight": in_flight},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    result = asyncio.run(
        measure(arguments.topics, arguments.connections, arguments.in_flight, arguments.seconds)
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
