"""Exports of a live cluster: while it is written to, over kills of the exporter, from the shell."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nextgen.client import Client
from nextgen.client.log.reader import log_readers
from nextgen.export.stores.layout import MANIFEST
from nextgen.kernel.errors import MetadataError
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.cluster_proof import environment_of_child
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SIZE = ClusterSize(cluster_managers=1, shard_nodes=2, discovery=1, brokers=1, shards=2)
TOPICS_PER_CALL = 50
KILLS = 3


@asynccontextmanager
async def writing(client: Client) -> AsyncIterator[list[int]]:
    """Create topics while the block runs; yields how many there are."""
    await client.create_tenant("acme")
    await client.create_namespace("acme/orders")
    made = [0]

    async def create() -> None:
        while True:
            names = [f"acme/orders/t-{made[0] + n:06d}" for n in range(TOPICS_PER_CALL)]
            await client.create_topics(names)
            made[0] += len(names)

    task = asyncio.create_task(create())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Exporter:
    """``nextgen export run --follow`` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path, metrics: str) -> None:
        self.process = process
        self.metrics = metrics
        self._directory = directory

    @classmethod
    async def start(cls, target: str, directory: Path) -> Exporter:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nextgen", "export", "run", str(directory)),
            *("--follow", "--target", target, "--file-seconds", "0.2", "--http-port", "0"),
            env=environment_of_child(os.environ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        assert line.startswith("metrics on "), line
        return cls(process, directory, line.split()[-1])

    async def wait_files(self, more: int) -> None:
        """Wait until the manifest names so many files more."""
        wanted = count_files(self._directory) + more
        while count_files(self._directory) < wanted:
            assert self.process.returncode is None, "the exporter ended"
            await asyncio.sleep(0.02)

    async def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return await self.process.wait()


def count_files(directory: Path) -> int:
    path = directory / MANIFEST
    if not path.exists():
        return 0
    return sum(len(one["files"]) for one in json.loads(path.read_text())["shards"].values())


async def export_command(*arguments: str) -> tuple[int, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nextgen", "export", *arguments, "--json"),
        env=environment_of_child(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert stdout, stderr.decode()
    assert process.returncode is not None
    return process.returncode, json.loads(stdout)


async def pinned_by(target: str, shard_id: int) -> list[str]:
    """Return who pins the log, at every replica; one that answers too late is asked again."""
    while True:
        answers = (await log_readers([target], shard_id)).values()
        said = [answer for answer in answers if not isinstance(answer, MetadataError)]
        if len(said) == len(answers):
            return [reader.reader_id for answer in said for reader in answer.readers]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path / "cluster", SIZE) as running:
        yield running


@pytest.mark.slow
async def test_an_exporter_that_is_killed_while_everybody_writes_has_neither_gap_nor_duplicate(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """
    1. Topics are created all the time; an exporter follows, and is killed three times.
    2. A last run exports to the present.
    3. Every exported event is that of the log, from the first on, and none is missing.
    4. Another exporter is kept away meanwhile; the log is pinned, and progress can be scraped.
    """
    target = cluster.plan.discovery_endpoints[0]
    directory = tmp_path / "export"
    async with Client([target], timeout_ms=60_000) as client, writing(client) as made:
        for _ in range(KILLS):
            exporter = await Exporter.start(target, directory)
            await exporter.wait_files(3)
            await exporter.end(signal.SIGKILL)
        exporter = await Exporter.start(target, directory)
        await exporter.wait_files(1)

        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nextgen", "export", "run", str(directory)),
            *("--target", target),
            env=environment_of_child(os.environ),
            stderr=asyncio.subprocess.PIPE,
        )
        _, complaint = await second.communicate()
        assert second.returncode == ExitCode.CANNOT_RUN
        assert f"another exporter, process {exporter.process.pid}" in complaint.decode()

        page = await asyncio.to_thread(lambda: urllib.request.urlopen(exporter.metrics).read())
        assert b'nextgen_export_rows_total{shard="1"}' in page
        assert await exporter.end(signal.SIGTERM) == ExitCode.DONE
    created = made[0]

    code, summary = await export_command("run", str(directory), "--target", target)
    assert code == ExitCode.DONE
    code, report = await export_command("check", str(directory), "--target", target)

    assert (code, report["ok"], report["findings"]) == (ExitCode.DONE, True, [])
    assert (report["gaps"], report["duplicates"], report["differences"]) == (0, 0, 0)
    assert report["compared_with_log"] is True
    assert report["compared_events"] == report["events"] > created
    code, status = await export_command("status", str(directory), "--target", target)
    assert [shard["shard_id"] for shard in status["shards"]] == [0, 1, 2]
    # Nobody writes any more; what the cluster manager notes of its own may have gone on.
    assert [shard["positions_behind"] for shard in status["shards"][1:]] == [0, 0]
    for shard in status["shards"]:
        assert summary["positions"][str(shard["shard_id"])] == shard["exported_position"]
        pinned = await pinned_by(target, shard["shard_id"])
        replicas = SIZE.shard_nodes if shard["shard_id"] else SIZE.cluster_managers
        assert pinned == [status["reader_id"]] * replicas
