"""Health, probes, metrics, fail-over and a clean stop of a discovery node."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nextgen.cli.local.plan import MINIMAL, NodePlan, make_plan_on_free_ports
from nextgen.client.client import Client
from nextgen.tasks.timeouts import timeout
from tests.integration.discovery.conftest import TIMEOUT_MS, started_node
from tests.support.callers.member_channel import member_channel
from tests.support.discovery.fake_cluster import FakeClusterServer

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "persistent://acme/orders/paid"
ENDS_S_MAX = 30


async def fetched(site, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{site.node.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_a_node_with_map_and_leaders_is_ready_and_shows_its_metrics(site):
    site.assign(TOPIC)
    await site.client.lookup([TOPIC, TOPIC])
    await site.client.lookup([TOPIC])

    assert (await fetched(site, "/readyz"))[0] == 200
    assert (await fetched(site, "/livez"))[0] == 200
    _, page = await fetched(site, "/metrics")

    assert 'nextgen_discovery_lookups_total{outcome="cached"} 1.0' in page
    assert 'nextgen_discovery_lookups_total{outcome="assigned"} 1.0' in page
    assert 'nextgen_discovery_cold_lookup_seconds_bucket{le="0.2"}' in page
    assert 'nextgen_discovery_cold_lookup_seconds_bucket{le="+Inf"} 1.0' in page
    assert 'nextgen_discovery_request_retries_bucket{le="0"}' in page
    assert 'nextgen_discovery_request_retries_bucket{le="+Inf"} 1.0' in page
    assert "nextgen_discovery_cached_answers 1.0" in page
    assert 'nextgen_discovery_watch_age_seconds{shard="1"}' in page


async def test_a_node_that_knows_nothing_is_not_ready_and_says_what_is_missing(site):
    empty = FakeClusterServer()
    await empty.start()
    node = await started_node(empty, "discovery-9")
    await site.until(lambda: node.core.link.has_connected_once)

    ready, reasons = node.core.readiness()

    assert not ready
    assert reasons == ["no shard map is known"]
    await node.stop()
    await empty.stop()


async def test_a_node_that_dies_costs_a_stream_a_pause_and_no_error(site):
    site.assign(TOPIC)
    other = await started_node(site.manager, "discovery-2")
    await site.until(lambda: other.core.readiness()[0])
    client = Client([site.endpoint, f"127.0.0.1:{other.grpc_port}"], timeout_ms=TIMEOUT_MS)
    stream = client.lookup_stream()
    wrong = []
    answered = 0
    is_over = asyncio.Event()

    async def look_up() -> None:
        nonlocal answered
        while not is_over.is_set():
            (answer,) = await stream.lookup([TOPIC])
            answered += 1
            if not answer.is_found:
                wrong.append(answer)

    looking = [asyncio.create_task(look_up()) for _ in range(8)]
    await site.until(lambda: answered > 100)
    victim = site.node if client._nodes.endpoint == site.endpoint else other
    await victim._server.server.stop(None)
    await site.until(lambda: stream.reconnects)
    before = answered
    await site.until(lambda: answered > before + 100)
    is_over.set()
    await asyncio.gather(*looking)

    assert wrong == []
    await stream.close()
    await client.close()
    await other.stop()


async def test_moves_under_load_never_show_the_old_owner_behind_the_acknowledgement(site):
    """What a controller rests on: acked means that no lookup begun later names the old owner."""
    names = [f"persistent://t/n/x{number}" for number in range(40)]
    for name in names:
        site.assign(name)
    await site.client.lookup(names)
    acked: dict[str, int] = dict.fromkeys(names, 1)
    is_over = asyncio.Event()
    checked = 0

    async def look_up() -> None:
        nonlocal checked
        async with site.client.lookup_stream() as stream:
            while not is_over.is_set():
                expected = dict(acked)
                for answer in await stream.lookup(names):
                    assert answer.epoch >= expected[answer.topic], answer
                    checked += 1

    looking = [asyncio.create_task(look_up()) for _ in range(4)]
    for turn in range(200):
        name = names[turn % len(names)]
        shard = site.shard_of(name)
        site.assign(name, f"broker-{turn}", f"s-{turn}")
        position, epoch = shard.position, shard.assignments[name].epoch
        await site.until(lambda: shard.acked.get("discovery-1", 0) >= position)  # noqa: B023
        acked[name] = epoch
    await site.until(lambda: checked > 1_000)
    is_over.set()
    await asyncio.gather(*looking)

    counters = await site.client.counters()
    assert counters["answers_from_cache"] > counters["lookups_assigned"]


async def test_a_process_answers_health_checks_and_ends_cleanly_with_work_in_flight(site):
    site.assign(TOPIC)
    place = free_place()
    process = subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "discovery",
                "--node-id",
                "discovery-7",
                "--cluster-id",
                "test",
            ),
            *("--listen", place.grpc, "--http-listen", place.http),
            *("--cluster-managers", site.manager.endpoint),
        ],
        cwd=ROOT,
        # The library would tell of connections that broke because somebody stood still.
        env={**os.environ, "NEXTGEN_LOG_LEVEL": "error", "GRPC_VERBOSITY": "ERROR"},
        stderr=subprocess.PIPE,
    )
    try:
        async with member_channel(place.grpc) as channel:
            await until_serving(channel)
            client = Client([place.grpc], timeout_ms=TIMEOUT_MS)
            stream = client.lookup_stream()
            (answer,) = await stream.lookup([TOPIC])
            assert answer.is_found
            release = asyncio.Event()

            async def wait(_request):
                await release.wait()

            site.server.hook = wait
            before = len(site.server.requests)
            in_flight = asyncio.create_task(stream.lookup(["persistent://t/n/cold"]))
            await site.server.wait_requests(before + 1)
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            site.server.hook = None
            release.set()
            (answer,) = await in_flight
            assert answer.rejection_code == "NOT_FOUND"
            assert stream.reconnects == 0
            await stream.close()
            await client.close()
        code = await asyncio.to_thread(process.wait, ENDS_S_MAX)
        assert code == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def free_place() -> NodePlan:
    """Return where a discovery process may listen."""
    return make_plan_on_free_ports(MINIMAL).node("discovery-1")


async def until_serving(channel: grpc.aio.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="nextgen.v1.DiscoveryService")
    async with timeout(60):
        while True:
            try:
                response = await stub.Check(request, wait_for_ready=True)
            except grpc.RpcError:
                response = health_pb2.HealthCheckResponse()
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                return
            await asyncio.sleep(0.05)
