"""No single frame hurts anybody else: what each costs the process that gets it.

For every command of every protocol the most expensive frames are made from its descriptor, filled
to the limit of the frame, and sent to processes as anybody starts them. No event loop works for
more than ``STALL_MS_MAX`` of its processor time between two yields, nothing is kept of a round of
frames by a second one, and no frame writes more than a kilobyte of diagnostics. ADR 0062.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import grpc.aio
import pytest
import pytest_asyncio

from nextgen.client import Client
from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX
from nextgen.kernel.limits.inbound import GRPC_COUNTED_BYTES_MIN
from nextgen.kernel.limits.pulsar import (
    ACK_IDS_MAX,
    CURSOR_HOLES_MAX,
    PULSAR_FRAME_BYTES_MAX,
)
from tests.support.callers import raw_calls
from tests.support.callers.member_channel import member_channel
from tests.support.costs import pulsar as costly_pulsar
from tests.support.costs import requests as costly_requests
from tests.support.costs.stall_budget import (
    LOG_BYTES_MAX,
    Cost,
    Frame,
    Measuring,
    ProbedCluster,
    judge,
    measure,
    probed_cluster,
    worst,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

TOPIC = "persistent://stall/budget/topic"
TOPIC_OF_HOLES = "persistent://stall/budget/holes"
TOPIC_OF_REST = "persistent://stall/rest/topic"
NODES = {
    "discovery": "discovery-1",
    "shard": "shard-node-1",
    "manager": "cluster-manager-1",
    "broker": "broker-1",
}
COSTLIEST = 4
"""Of the frames that are cheap to send, so many are sent again at the size limit.

`make nightly` sends all of them at that limit to the Pulsar ports, and ``COSTLIEST_NIGHTLY`` over
gRPC.
"""

COSTLIEST_NIGHTLY = 20

# Of HTTP the shard node and the cluster manager have the same as the broker.
HTTP = [
    "broker",
    pytest.param("discovery", marks=pytest.mark.slow),
    pytest.param("shard", marks=pytest.mark.slow),
    pytest.param("manager", marks=pytest.mark.slow),
]

# The broker knows every command that discovery does; a shard has hundreds of messages.
PULSAR = ["broker", pytest.param("discovery", marks=pytest.mark.slow)]
GRPC = [
    *((kind, COSTLIEST) for kind in ("discovery", "manager", "broker")),
    *(pytest.param(kind, COSTLIEST_NIGHTLY, marks=pytest.mark.slow) for kind in NODES),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProbedCluster]:
    async with probed_cluster(tmp_path_factory.mktemp("stalls")) as running:
        async with Client(list(running.plan.discovery_endpoints)) as client:
            await client.create_tenant("stall")
            await client.create_namespace("stall/budget")
            await client.create_namespace("stall/rest")
            await client.create_topics([TOPIC, TOPIC_OF_HOLES, TOPIC_OF_REST])
            await client.lookup([TOPIC, TOPIC_OF_HOLES])
        yield running


async def pulsar_target(cluster: ProbedCluster, kind: str) -> costly_pulsar.Target:
    node = cluster.plan.node(NODES[kind])
    target = costly_pulsar.Target(node.host, node.pulsar_port, TOPIC, kind == "broker")
    if kind == "broker":
        target = replace(target, ledger_id=await costly_pulsar.publish(target, 5))
    return target


def pulsar_frames(
    target: costly_pulsar.Target, bytes_max: int, *, greets: bool = True
) -> list[Frame]:
    found = [*costly_pulsar.command_frames(target, bytes_max, greets=greets)]
    if target.is_broker and greets:
        found += costly_pulsar.payload_frames(bytes_max)
    return [(frame.name, costly_pulsar.sender(target, frame)) for frame in found]


def without_size(name: str) -> str:
    return name.rpartition(" ")[0]


async def small_then_large(
    measuring: Measuring,
    small: list[Frame],
    large: Callable[[set[str]], list[Frame]],
    *,
    costliest: int = COSTLIEST,
) -> list[Cost]:
    """Measure all small frames, and the costliest of them at the size limit of a frame."""
    costs = await measure(measuring, small)
    by_cost = sorted(costs, key=lambda cost: -cost.stall_ms)
    names = dict.fromkeys(without_size(cost.frame) for cost in by_cost)
    return costs + await measure(measuring, large(set(list(names)[:costliest])))


@pytest.mark.parametrize("kind", PULSAR)
async def test_no_pulsar_frame_stalls_grows_or_floods(cluster: ProbedCluster, kind: str) -> None:
    target = await pulsar_target(cluster, kind)
    measuring = Measuring(cluster, NODES[kind])

    costs = await small_then_large(
        measuring,
        pulsar_frames(target, costly_pulsar.SMALL_BYTES),
        lambda wanted: [
            frame
            for frame in pulsar_frames(target, PULSAR_FRAME_BYTES_MAX)
            if without_size(frame[0]) in wanted
        ],
    )

    judge(costs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["broker", "discovery"])
async def test_no_pulsar_frame_of_a_stranger_stalls_grows_or_floods(
    cluster: ProbedCluster, kind: str
) -> None:
    target = await pulsar_target(cluster, kind)
    measuring = Measuring(cluster, NODES[kind])
    small = pulsar_frames(target, costly_pulsar.SMALL_BYTES, greets=False)
    large = pulsar_frames(target, PULSAR_FRAME_BYTES_MAX, greets=False)

    costs = await measure(measuring, [*small, *large[:: len(large) // COSTLIEST_NIGHTLY]])

    judge(costs)


@pytest.mark.parametrize(("kind", "costliest"), GRPC)
async def test_no_grpc_message_stalls_grows_or_floods(
    cluster: ProbedCluster, kind: str, costliest: int
) -> None:
    node = cluster.plan.node(NODES[kind])
    measuring = Measuring(cluster, node.node_id)

    async with member_channel(node.grpc, options=raw_calls.UNLIMITED) as channel:

        def frames(bytes_max: int) -> list[Frame]:
            return [
                (name, costly_requests.grpc_sender(channel, node.http, method, serialise))
                for name, method, serialise in costly_requests.grpc_messages(
                    kind, bytes_max=bytes_max
                )
            ]

        costs = await small_then_large(
            measuring,
            frames(GRPC_COUNTED_BYTES_MIN),
            lambda wanted: [
                frame
                for frame in frames(GRPC_MESSAGE_BYTES_MAX)
                if without_size(frame[0]) in wanted
            ],
            costliest=costliest,
        )

    judge(costs)


@pytest.mark.parametrize("kind", ["shard", "manager", "broker"])
async def test_no_grpc_message_of_a_stranger_stalls_grows_or_floods(
    cluster: ProbedCluster, kind: str
) -> None:
    node = cluster.plan.node(NODES[kind])
    measuring = Measuring(cluster, node.node_id)
    messages = [*costly_requests.grpc_messages(kind)]

    async with grpc.aio.insecure_channel(node.grpc, options=raw_calls.UNLIMITED) as channel:
        frames = [
            (
                f"of a stranger: {name}",
                costly_requests.grpc_sender(channel, node.http, method, serialise),
            )
            for name, method, serialise in messages[:: -(-len(messages) // COSTLIEST)]
        ]
        costs = await measure(measuring, frames)

    judge(costs)


@pytest.mark.parametrize("kind", HTTP)
async def test_no_http_request_stalls_grows_or_floods(cluster: ProbedCluster, kind: str) -> None:
    node = cluster.plan.node(NODES[kind])
    measuring = Measuring(cluster, node.node_id)
    frames = [
        (name, costly_requests.http_sender(node.http, data))
        for name, data in costly_requests.http_requests(kind)
    ]

    costs = await measure(measuring, frames)

    judge(costs)


async def test_no_ack_stalls_though_its_cursor_is_full_of_holes(cluster: ProbedCluster) -> None:
    """What no frame shows without the state that made it costly.

    Compared with the same ACK into an empty cursor: on a slow machine both take longer.
    """
    target = replace(await pulsar_target(cluster, "broker"), topic=TOPIC_OF_HOLES)
    entries = 2 * CURSOR_HOLES_MAX
    target = replace(target, ledger_id=await costly_pulsar.publish(target, entries))
    measuring = Measuring(cluster, NODES["broker"])

    # Each only once: the second time there is nothing left to acknowledge.
    costs = [
        await measuring.once(frame.name, costly_pulsar.sender(target, frame))
        for frame in costly_pulsar.acks_of_every_second_entry(target, entries)
    ]

    print(worst(costs))
    assert len(costs) == CURSOR_HOLES_MAX // ACK_IDS_MAX
    # Of two, the cheaper one: a collection of garbage may come in between.
    assert min(cost.stall_ms for cost in costs[-2:]) <= 1.5 * costs[0].stall_ms, worst(costs)
    assert max(cost.log_bytes for cost in costs) <= LOG_BYTES_MAX


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["broker", "discovery"])
async def test_no_pulsar_frame_of_any_size_stalls_grows_or_floods(
    cluster: ProbedCluster, kind: str
) -> None:
    target = await pulsar_target(cluster, kind)
    measuring = Measuring(cluster, NODES[kind])

    costs = []
    for bytes_max in (8 * costly_pulsar.SMALL_BYTES, PULSAR_FRAME_BYTES_MAX):
        costs += await measure(measuring, pulsar_frames(target, bytes_max))

    judge(costs)


async def test_every_service_of_the_contracts_is_measured() -> None:
    measured = {method.path.split("/")[1] for method in raw_calls.every_method()}

    assert measured == raw_calls.service_names() - {raw_calls.OF_SIDECARS}
    assert {method.server for method in raw_calls.every_method()} == set(NODES)
