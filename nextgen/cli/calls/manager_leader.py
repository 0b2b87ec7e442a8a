"""Calls the cluster manager's leader, which it finds through discovery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    NotLeader,
    Refused,
    Unauthenticated,
    Unavailable,
)
from nextgen.runtime.security.node_identity import NodeRole
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.cluster_service_pb2_grpc import ClusterServiceStub
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

ASK_MS_MAX = 5_000
"""Time-out until some cluster manager leads: an election takes a second."""

PAUSE_MS = 200
"""Pause between two rounds of requests."""

T = TypeVar("T")


async def ask_manager_leader(
    discovery_endpoints: Sequence[str], ask: Callable[[Any], Awaitable[T]]
) -> T:
    """Return the result of ``ask`` with the stub of the cluster manager's leader.

    ``ask`` may be called several times, so its request MUST be safe to repeat.

    Raises:
        Refused, InvalidRequest: At once: another attempt would get the same answer.
        MetadataError: No leader could be reached within ``ASK_MS_MAX``.
    """
    async with DiscoveryClient(discovery_endpoints) as discovery:
        cluster: ClusterUpdate = await discovery.call("GetCluster", GetClusterRequest())
    managers = list(cluster.manager_endpoints)
    if not managers:
        raise Unavailable("discovery knows no cluster manager yet")
    ask_until = asyncio.get_running_loop().time() + ASK_MS_MAX / 1_000
    hint: str | None = None
    turn = 0
    while True:
        hinted, hint = hint, None
        endpoint = hinted or managers[turn % len(managers)]
        turn += 1
        try:
            return await _ask_one(endpoint, ask)
        except (Refused, InvalidRequest, Unauthenticated):
            raise
        except MetadataError as error:
            hint = error.leader_hint if isinstance(error, NotLeader) else None
            if asyncio.get_running_loop().time() >= ask_until:
                raise
        # Two managers that each name the other would be called without a pause.
        if hint is None or hinted is not None:
            await asyncio.sleep(PAUSE_MS / 1_000)


async def _ask_one(endpoint: str, ask: Callable[[Any], Awaitable[T]]) -> T:
    channel = open_channel(endpoint, NodeRole.CLUSTER_MANAGER)
    try:
        return await ask(ClusterServiceStub(channel))
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    finally:
        await close_channel(channel)
