"""Calls to the processes of a cluster by hand, as one of its members would make them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc.aio

from nextgen.client.transport.channel import with_proofs
from nextgen.client.transport.proving_channel import ProvingChannel
from nextgen.tasks.timeouts import timeout

READY_S_MAX = 60
"""For a process that was just started, on a busy machine, to listen."""


@asynccontextmanager
async def member_channel(
    endpoint: str, *, options: Sequence[tuple[str, int]] = ()
) -> AsyncIterator[grpc.aio.Channel]:
    """Yield a plain channel, with proofs if this process uses credentials: see ``LocalCluster``."""
    async with with_proofs(grpc.aio.insecure_channel(endpoint, options=options)) as channel:
        if isinstance(channel, ProvingChannel):
            async with timeout(READY_S_MAX):
                await channel.channel_ready()
            await channel.learn_challenge()
        yield channel
