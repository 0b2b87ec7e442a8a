"""The life of a process that is a member of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from nextgen.client.cluster.link import ClusterLink
from nextgen.runtime.lifecycle.process import Shutdown
from nextgen.tasks.background import cancel_and_wait, join


async def run_as_member(
    work: Coroutine[Any, Any, None], link: ClusterLink, shutdown: Shutdown
) -> None:
    """Carry out ``work`` until it ends, or the process is requested to stop.

    Raises:
        RefusesToStart: The cluster manager will never accept this process.
    """
    running = join(work)
    joined = join(link.wait_connected())
    stopping = join(shutdown.wait())
    tasks = {running, joined, stopping}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        while not done & {running, stopping}:
            # Raises if the cluster manager will never accept this process.
            joined.result()
            done, _ = await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_and_wait(*tasks)
