"""One process of a Raft benchmark: replicas of some groups, commanded over stdin.

Started by raft_commit.py and raft_failover.py. Speaks JSON lines; ends when stdin does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import uvloop

from nextgen.kernel.errors import MetadataError
from nextgen.replication.garbage_collection import tune_garbage_collector
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.ports import (
    AppliedPoint,
    Entry,
    GroupId,
    NodeId,
    Record,
    Role,
    RoleChange,
    ViewDigest,
)

PAYLOAD_PADDING = b"." * 92
"""Makes a record 100 bytes, like a small event."""


class NumberView:
    """A view that remembers which numbers it has folded. Nothing on disk: the log is replayed."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self._point = AppliedPoint(0, 0, 0)

    def applied(self) -> AppliedPoint:
        return self._point

    def apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.numbers.update(int.from_bytes(r.payload[:8]) for r in entry.records)
        last = entries[-1]
        self._point = AppliedPoint(last.index, last.term, last.next_position - 1)

    def digest(self) -> ViewDigest | None:
        return None

    def make_durable(self) -> AppliedPoint:
        return AppliedPoint(0, 0, 0)

    def write_snapshot(self, path: Path) -> AppliedPoint:
        raise NotImplementedError("the benchmark ends before a snapshot is due")

    def install_snapshot(self, path: Path) -> AppliedPoint:
        raise NotImplementedError("the benchmark ends before a snapshot is due")

    def quarantine(self) -> None:
        raise NotImplementedError("the benchmark compares no digests")

    def close(self) -> None:
        """Nothing to close."""


def say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


class Node:
    """Carries out the parent's commands."""

    def __init__(self, host: PySyncObjHost, members: Sequence[NodeId]) -> None:
        self._host = host
        self._members = members
        self._groups: list[PySyncObjGroup] = []
        self._views: list[NumberView] = []
        self._process = psutil.Process()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reports_takeover = False

    async def open(self, groups: int) -> None:
        for number in range(1, groups + 1):
            view = NumberView()
            group = await self._host.open_group(GroupId(number), self._members, view)
            self._groups.append(group)
            self._views.append(view)
        self._groups[0].on_role_change(self._role_changed)
        say(opened=groups)

    def handle(self, command: dict[str, Any]) -> None:
        work = {
            "peers": self._peers,
            "status": self._status,
            "load": self._load,
            "watch": self._watch,
            "missing": self._missing,
            "burst": self._burst,
            "holds": self._holds,
        }[command.pop("do")]
        task = asyncio.get_running_loop().create_task(work(**command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _peers(self, ports: dict[str, int], groups: int) -> None:
        for node_id, port in ports.items():
            await self._host.set_peer_address(NodeId(node_id), "127.0.0.1", port)
        await self.open(groups)

    async def _status(self) -> None:
        times = self._process.cpu_times()
        say(
            leads=[group.is_leader for group in self._groups],
            terms=[group.status.term for group in self._groups],
            cpu_s=times.user + times.system,
            at=time.monotonic(),
            commits=self._groups[0].statistics.commits,
            syncs=self._groups[0].statistics.syncs,
            entries=self._groups[0].statistics.entries,
            truncations=sum(group.statistics.truncations for group in self._groups),
            rss=self._process.memory_info().rss,
        )

    async def _watch(self) -> None:
        self._reports_takeover = True
        say(watching=True)

    def _role_changed(self, change: RoleChange) -> None:
        if change.role is Role.LEADER and self._reports_takeover:
            task = asyncio.get_running_loop().create_task(self._report_takeover())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _report_takeover(self) -> None:
        led_at = time.monotonic()
        await self._groups[0].propose(Record((0).to_bytes(8) + PAYLOAD_PADDING, 1))
        say(led_at=led_at, committed_at=time.monotonic())

    async def _missing(self, acked: str) -> None:
        await self._groups[0].wait_applied(await self._groups[0].read_index())
        numbers = {int(line) for line in Path(acked).read_text().splitlines()}
        say(acked=len(numbers), lost=len(numbers - self._views[0].numbers))

    async def _holds(self, position: int) -> None:
        """Say what this replica's view has folded once it has got to ``position``."""
        await self._groups[0].wait_position(position)
        numbers = self._views[0].numbers
        say(count=len(numbers), largest=max(numbers, default=0))

    async def _burst(self, records: int, bursts: int) -> None:
        """Propose ``records`` at once and wait for all of them; do that ``bursts`` times."""
        group = self._groups[0]
        seconds: list[float] = []
        number = 0
        for _ in range(bursts):
            payloads = range(number + 1, number + records + 1)
            number += records
            began = time.perf_counter()
            await asyncio.gather(
                *[group.propose(Record(n.to_bytes(8) + PAYLOAD_PADDING, 1)) for n in payloads]
            )
            seconds.append(time.perf_counter() - began)
        seconds.sort()
        say(
            acknowledged=number,
            position=group.status.commit_position,
            rate_p50=round(records / seconds[len(seconds) // 2]),
            rate_min=round(records / seconds[-1]),
            rate=round(number / sum(seconds)),
            errors=0,
        )

    async def _load(
        self, callers: int, seconds: float, warm_up_s: float, acked: str | None = None
    ) -> None:
        group = self._groups[0]
        latencies: list[float] = []
        acknowledged = 0
        errors = 0
        begin = time.perf_counter() + warm_up_s
        end = begin + seconds
        descriptor = os.open(acked, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if acked else None
        next_number = 0

        async def call() -> None:
            nonlocal next_number, acknowledged, errors
            while (started := time.perf_counter()) < end:
                next_number += 1
                number = next_number
                try:
                    await group.propose(Record(number.to_bytes(8) + PAYLOAD_PADDING, 1))
                except MetadataError:
                    errors += 1
                    return
                acknowledged += 1
                if descriptor is not None:
                    os.write(descriptor, b"%d\n" % number)
                if begin <= (done := time.perf_counter()) < end:
                    latencies.append(done - started)

        await asyncio.gather(*(call() for _ in range(callers)))
        latencies.sort()
        count = len(latencies)
        say(
            acknowledged=acknowledged,
            position=group.status.commit_position,
            rate=round(count / seconds),
            p50=round(latencies[count // 2] * 1000, 2) if count else None,
            p99=round(latencies[count * 99 // 100] * 1000, 2) if count else None,
            max=round(latencies[-1] * 1000, 2) if count else None,
            errors=errors,
        )


async def main(node_id: str, members: list[str], directory: str) -> None:
    loop = asyncio.get_running_loop()
    host = PySyncObjHost(
        node_id=NodeId(node_id),
        cluster_id="benchmark",
        listen_host="127.0.0.1",
        listen_port=0,
        data_directory=Path(directory),
    )
    await host.start()
    node = Node(host, [NodeId(member) for member in members])
    tune_garbage_collector()
    say(port=host.port)

    def read_commands() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(node.handle, json.loads(line))
        os._exit(0)

    threading.Thread(target=read_commands, daemon=True).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2].split(","), sys.argv[3]))
