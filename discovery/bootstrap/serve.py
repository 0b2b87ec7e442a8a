"""Runs a discovery node, or a worker of one, until it is to stop."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import structlog

from discovery.adapters.workers.line import WorkerEnd
from discovery.bootstrap.lookup_core import LookupCore
from discovery.bootstrap.node import DiscoveryNode
from discovery.config import DiscoveryConfig
from nextgen.client.transport.process_security import security_of
from nextgen.runtime.lifecycle.process import Shutdown, tune_garbage_collector
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import ProcessTls
from nextgen.tasks.background import cancel_and_wait, join

_logger = structlog.get_logger(__name__)


async def serve(config: DiscoveryConfig, shutdown: Shutdown) -> None:
    """Run the discovery node, or a worker of one, until ``shutdown`` is requested.

    Raises:
        RefusesToStart: A port is taken, or the cluster secret cannot be read.
        WrongCluster: The cluster manager belongs to another cluster.
    """
    worker = config.worker
    whose = config.node_id if worker is None else config.node_id.removesuffix(f".w{worker.number}")
    security = security_of(config, NodeRole.DISCOVERY, node_id=whose)
    if worker is not None:
        await _serve_worker(config, worker.descriptor, shutdown, security.tls)
        return
    async with AsyncExitStack() as stack:
        node = DiscoveryNode(config, security=security)
        stack.push_async_callback(node.stop)
        await node.start()
        tune_garbage_collector()
        _logger.info(
            "listening",
            grpc=str(config.advertise),
            http=str(config.http_listen),
            pulsar=str(config.pulsar_advertise or ""),
        )
        if await _ready_before_stop(node.core, shutdown):
            await node.set_serving()
            _logger.info("serving", shards=len(node.core.link.view.shard_ids))
            await shutdown.wait()


async def _serve_worker(
    config: DiscoveryConfig, descriptor: int, shutdown: Shutdown, tls: ProcessTls
) -> None:
    """Share a discovery node's Pulsar port, once any topic can be answered here too."""
    core = LookupCore(config, tls)
    line = await WorkerEnd.open(descriptor, core.report)
    try:
        await core.start()
        tune_garbage_collector()
        if await _ready_before_stop(core, shutdown):
            await core.listen(reuse_port=True)
            _logger.info("serving", pulsar=str(config.pulsar_listen or ""))
            await shutdown.wait()
    finally:
        await core.drain()
        await core.stop()
        line.close()


async def _ready_before_stop(core: LookupCore, shutdown: Shutdown) -> bool:
    """Return True when any topic can be answered, False if the process has to stop before."""
    becoming_ready = join(core.wait_ready())
    stopping = join(shutdown.wait())
    try:
        done, _ = await asyncio.wait(
            {becoming_ready, stopping}, return_when=asyncio.FIRST_COMPLETED
        )
        if becoming_ready in done:
            # Raises if the cluster manager will never accept this node.
            becoming_ready.result()
        return becoming_ready in done
    finally:
        await cancel_and_wait(becoming_ready, stopping)
