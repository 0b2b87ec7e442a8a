"""The compose file as a user starts it: create and look up from the host, kill a leader.

Needs a container engine; `make compose-test` runs it. Both spellings of the tool are tried: the
plugin (`docker compose`) and the older program (`docker-compose`); one that is not there is
skipped by name, and a machine with neither fails.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path

import grpc
import pytest

from nextgen.client import Client
from protos.nextgen.v1 import broker_service_pb2, broker_service_pb2_grpc
from protos.nextgen.v1 import discovery_service_pb2 as discovery
from protos.nextgen.v1 import discovery_service_pb2_grpc as discovery_grpc

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
DISCOVERY = ["127.0.0.1:6751", "127.0.0.1:6752"]
FIRST_LOOKUP_S_MAX = 60

pytestmark = pytest.mark.containers


def _tools() -> list[list[str]]:
    tools = []
    if shutil.which("docker"):
        plugin = subprocess.run(
            ["docker", "compose", "version"], capture_output=True, timeout=30, check=False
        )
        if plugin.returncode == 0:
            tools.append(["docker", "compose"])
    if shutil.which("docker-compose"):
        tools.append(["docker-compose"])
    return tools


class Compose:
    """One project of the compose file, under either tool."""

    def __init__(self, tool: list[str], project: str) -> None:
        self._command = [*tool, "--file", str(COMPOSE_FILE), "--project-name", project]

    def run(self, *arguments: str, timeout_s: int = 300) -> str:
        done = subprocess.run(
            [*self._command, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture(scope="module", params=["docker compose", "docker-compose"])
def compose(request):
    tools = _tools()
    assert tools, "no container tool is installed: see the README for what CI installs"
    tool = request.param.split()
    if tool not in tools:
        pytest.skip(f"{request.param} is not installed")
    project = Compose(tool, "nextgen-test")
    project.run("down", "--volumes", "--remove-orphans")
    project.run("build", timeout_s=900)
    yield project
    project.run("down", "--volumes", "--remove-orphans")


async def _first_lookup_s(started: float) -> float:
    async with Client(DISCOVERY) as client:
        while True:
            try:
                await client.create_tenant("acme")
                await client.create_namespace("acme/orders")
                await client.create_topics([f"persistent://acme/orders/t-{i}" for i in range(200)])
                answers = await client.lookup(["persistent://acme/orders/t-0"])
                assert answers[0].broker_id
                return time.monotonic() - started
            except Exception:
                assert time.monotonic() - started < FIRST_LOOKUP_S_MAX, "no lookup in time"
                await asyncio.sleep(0.5)


async def _looked_up_and_served(names: list[str]) -> None:
    """Every name is looked up from the host and confirmed by the broker that was named."""
    async with Client(DISCOVERY) as client:
        answers = await client.lookup(names)
    for answer in answers:
        async with grpc.aio.insecure_channel(answer.broker_grpc) as channel:
            broker = broker_service_pb2_grpc.BrokerServiceStub(channel)
            request = broker_service_pb2.ServesRequest(topics=[answer.topic])
            serving = (await broker.Serves(request, timeout=5)).answers[0]
        assert serving.serves
        assert serving.epoch == answer.epoch


async def _leader_of_a_shard() -> str:
    async with grpc.aio.insecure_channel(DISCOVERY[0]) as channel:
        stub = discovery_grpc.DiscoveryServiceStub(channel)
        cluster = await stub.GetCluster(discovery.GetClusterRequest(), timeout=5)
    return str(cluster.leaders[0].node_id)


async def _create_until_accepted(name: str) -> None:
    async with Client(DISCOVERY) as client:
        deadline = time.monotonic() + 20
        while True:
            try:
                await client.create_topics([name])
            except Exception:
                assert time.monotonic() < deadline, f"{name} could not be created after the kill"
                await asyncio.sleep(0.2)
            else:
                return


async def test_a_client_on_the_host_works_before_and_after_a_shard_leaders_container_dies(
    compose, capsys
):
    started = time.monotonic()
    compose.run("up", "--detach")

    first_lookup_s = await _first_lookup_s(started)
    names = [f"persistent://acme/orders/t-{i}" for i in range(200)]
    await _looked_up_and_served(names[:50])
    victim = await _leader_of_a_shard()
    compose.run("kill", "--signal", "SIGKILL", victim)
    await _looked_up_and_served(names)
    for number in range(40):
        await _create_until_accepted(f"persistent://acme/orders/after-{number}")
    await _looked_up_and_served([f"persistent://acme/orders/after-{n}" for n in range(40)])
    compose.run("start", victim)

    with capsys.disabled():
        print(json.dumps({"first_lookup_s": round(first_lookup_s, 1), "killed": victim}))
