"""A process that looks topics up at a constant rate while a block runs, and judges each window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nextgen.harness.load.process import LoadProcess
from nextgen.harness.perf.bench import Bench
from nextgen.harness.perf.lookup import prepare_assigned
from nextgen.tasks.timeouts import timeout

STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class LookupRate:
    """How many lookups a second; every ``cold_every``-th is a first one (0: none)."""

    per_second: float
    warm_topics: int = 1_000
    cold_every: int = 10
    window_seconds: float = 60.0
    seconds_max: float = 600.0
    """Seconds of lookups for which there are topics not looked up before."""

    @property
    def cold_topics(self) -> int:
        if not self.cold_every:
            return 1
        return max(1, int(self.per_second * self.seconds_max / self.cold_every))


@asynccontextmanager
async def constant_lookups(ready: Bench, rate: LookupRate) -> AsyncIterator[dict[str, Any]]:
    """Prepare the topics and look them up; what is yielded has the result behind the block.

    Raises:
        MetadataError: The topics cannot be made, or the process failed.
    """
    warm, cold = ready.topics("warm", rate.warm_topics), ready.topics("cold", rate.cold_topics)
    await prepare_assigned(ready, warm)
    await ready.create_range(cold, in_flight=4)
    told: dict[str, Any] = {}
    process = await LoadProcess.start(
        {
            "kind": "lookup_windows",
            "targets": list(ready.targets),
            "warm": warm.as_json(),
            "cold": cold.as_json(),
            "cold_every": rate.cold_every,
            "per_second": rate.per_second,
            "window_seconds": rate.window_seconds,
        }
    )
    begun = asyncio.Event()
    result = asyncio.create_task(process.result(lambda _message: begun.set()))
    # It is set as well when there will be no lookups: their failure is told by the result.
    result.add_done_callback(lambda _task: begun.set())
    try:
        await begun.wait()
        yield told
        await process.request_stop()
        async with timeout(STOP_TIMEOUT_S):
            told.update(await result)
    finally:
        result.cancel()
        await process.stop()
