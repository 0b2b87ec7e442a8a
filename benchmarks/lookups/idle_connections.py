"""How much memory do idle Pulsar connections cost one discovery process?

Starts the smallest cluster, has another process open the connections, waits, and reads the
resident memory of discovery. In the end every connection must still answer a PING. Prints one
JSON line last; exit code 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import uvloop

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import MINIMAL, make_plan_on_free_ports
from nextgen.pulsar.frames import FrameReader, encode_command, parse_command
from nextgen.runtime.lifecycle.process import allow_open_files
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect, CommandPing, CommandPong

RSS_MB_MAX = 300
CONNECT_AT_A_TIME = 200
ANSWER_S_MAX = 60

_CONNECT = encode_command(
    BaseCommand(
        type=BaseCommand.CONNECT,
        connect=CommandConnect(client_version="idle", protocol_version=20),
    )
)
_PING = encode_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
_PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


class _Idle(asyncio.Protocol):
    """Greets, answers PING, and asks for signs of life itself."""

    def __init__(self) -> None:
        self.reader = FrameReader()
        self.is_greeted = asyncio.get_running_loop().create_future()
        self.is_closed = False
        self.transport: Any = None
        self._answered: asyncio.Future[bool] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(_CONNECT)

    def data_received(self, data: bytes) -> None:
        for frame in self.reader.feed(data):
            kind = parse_command(frame.command).type
            if kind == BaseCommand.CONNECTED:
                self.is_greeted.set_result(None)
            elif kind == BaseCommand.PING:
                self.transport.write(_PONG)
            elif kind == BaseCommand.PONG:
                self._answer(answered=True)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._answer(answered=False)
        if not self.is_greeted.done():
            self.is_greeted.set_exception(ConnectionError("closed before it was greeted"))

    def ping(self) -> asyncio.Future[bool]:
        """Return a future of whether the server answers."""
        self._answered = asyncio.get_running_loop().create_future()
        if self.is_closed:
            self._answer(answered=False)
        else:
            self.transport.write(_PING)
        return self._answered

    def _answer(self, *, answered: bool) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answered)


def _hold(line: Connection, host: str, port: int, count: int) -> None:
    """Open ``count`` connections; on each word over ``line`` say how many answer a PING."""
    allow_open_files()

    async def hold() -> None:
        loop = asyncio.get_running_loop()
        held: list[_Idle] = []
        for start in range(0, count, CONNECT_AT_A_TIME):
            opened = await asyncio.gather(
                *(
                    loop.create_connection(_Idle, host, port)
                    for _ in range(min(CONNECT_AT_A_TIME, count - start))
                )
            )
            held += [protocol for _, protocol in opened]
            await asyncio.gather(*(protocol.is_greeted for _, protocol in opened))
        line.send(len(held))
        while await loop.run_in_executor(None, line.recv):
            async with timeout(ANSWER_S_MAX):
                line.send(sum(await asyncio.gather(*(idle.ping() for idle in held))))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hold())


def _rss_mb(process_id: int) -> float:
    return psutil.Process(process_id).memory_info().rss / 1e6


async def _answers(line: Connection, word: bool | None = None) -> int:
    if word is not None:
        line.send(word)
    return await asyncio.get_running_loop().run_in_executor(None, line.recv)


async def measure(connections: int, idle_s: float) -> dict[str, object]:
    plan = make_plan_on_free_ports(MINIMAL, cluster_id="idle-connections")
    (node,) = plan.of_kind("discovery")
    ours, theirs = multiprocessing.Pipe()
    host, _, port = node.pulsar.rpartition(":")
    context = multiprocessing.get_context("spawn")
    holder = context.Process(target=_hold, args=(theirs, host, int(port), connections))
    with tempfile.TemporaryDirectory() as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            process_id = cluster.process_id(node.node_id)
            assert process_id is not None, "the cluster is ready"
            before_mb = _rss_mb(process_id)
            holder.start()
            try:
                opened = await _answers(ours)
                await asyncio.sleep(idle_s)
                rss_mb = _rss_mb(process_id)
                answered = await _answers(ours, word=True)
                after_mb = _rss_mb(process_id)
            finally:
                ours.send(False)
                holder.join(10)
                holder.kill()
    return {
        "benchmark": "idle_connections",
        "connections": opened,
        "answered_ping": answered,
        "idle_s": idle_s,
        "rss_mb_before": round(before_mb, 1),
        "rss_mb": round(rss_mb, 1),
        "rss_mb_after_ping": round(after_mb, 1),
        "bytes_per_connection": round((rss_mb - before_mb) * 1e6 / opened),
        "rss_mb_max": RSS_MB_MAX,
        "is_kept": answered == opened and max(rss_mb, after_mb) <= RSS_MB_MAX,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--idle-s", type=float, default=35, help="longer than a keep-alive turn")
    arguments = parser.parse_args()
    allow_open_files()
    result = asyncio.run(measure(arguments.connections, arguments.idle_s))
    print(json.dumps(result))
    sys.exit(0 if result["is_kept"] else 1)


if __name__ == "__main__":
    main()
