"""Broken frames against real servers: the process and everybody else's connection live on."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from nextgen.pulsar.server import PulsarServer
from tests.fuzz.test_connection import GREETING, AnsweringConnection
from tests.support.processes.local_cluster import MINIMAL, running_cluster
from tests.support.pulsar.fuzz import FuzzCounts, fuzz_server

FRAMES_IN_PROCESS = 10_000
FRAMES_PER_SERVER = [6_000, pytest.param(20_000, marks=pytest.mark.slow)]
GROWTH_BYTES_MAX = 200 * 1024 * 1024
"""More memory than before: caches and allocators may keep some of it, not what was sent."""

BUGS = re.compile("a Pulsar command failed|Traceback|never retrieved")
"""What is logged when a handler, or a task it began, raised what it must not."""


def seed_of(request: pytest.FixtureRequest, default: int) -> int:
    given = request.config.getoption("--seed")
    return default if given is None else int(given)


def it_was_a_test(counts: FuzzCounts, frames: int) -> None:
    print(counts)
    assert counts.frames >= frames * 0.9
    assert counts.neighbour_answers > 5
    assert counts.ended_by_server > counts.connections // 10
    assert counts.answers > counts.connections // 2


async def test_a_listening_server_survives(request: pytest.FixtureRequest) -> None:
    server = PulsarServer(lambda keep_alive: AnsweringConnection(keep_alive, GREETING))
    port = await server.start("127.0.0.1", 0, "a test")

    counts = await fuzz_server(
        "127.0.0.1", port, seed=seed_of(request, 1), frames=FRAMES_IN_PROCESS
    )

    await server.stop(1_000)
    it_was_a_test(counts, FRAMES_IN_PROCESS)


@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize("frames", FRAMES_PER_SERVER)
async def test_discovery_and_brokers_survive(
    tmp_path: Path, request: pytest.FixtureRequest, frames: int
) -> None:
    async with running_cluster(tmp_path, MINIMAL) as cluster:
        servers = [node for node in cluster.plan.nodes if node.has_pulsar]
        assert {node.kind for node in servers} == {"discovery", "broker"}
        for node in servers:
            process_id = cluster.process_id(node.node_id)
            assert process_id is not None
            before = psutil.Process(process_id).memory_info().rss

            counts = await fuzz_server(
                "127.0.0.1", node.pulsar_port, seed=seed_of(request, 2), frames=frames
            )

            print(node.node_id)
            it_was_a_test(counts, frames)
            assert cluster.process_id(node.node_id) == process_id
            assert psutil.Process(process_id).memory_info().rss < before + GROWTH_BYTES_MAX
            log = cluster.log_path(node.node_id).read_text()
            assert [line for line in log.splitlines() if BUGS.search(line)] == []
        assert len(cluster.running) == len(cluster.plan.nodes)
