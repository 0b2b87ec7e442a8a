"""A process that sends blocks of single operations, one after the other, for comparisons in turns.

The measuring program starts it with ``generator``; the module that it names answers with
``serve_blocks``. A block is a line of JSON in, and one with its latencies out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from nextgen.kernel.errors import MetadataError

BLOCK_S_MAX = 600.0
_LINE_BYTES_MAX = 2**26


class WrongAnswer(Exception):
    """The server answered something else than was expected."""


async def serve_blocks(callers: Sequence[object]) -> None:
    """Carry out one block for each line of input; answer it with a line of latencies.

    A block's operation is the name of a coroutine method of ``callers``, with a number.
    """
    loop = asyncio.get_running_loop()
    print(json.dumps({"ready": True}), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await _block(callers, json.loads(line))), flush=True)


async def _block(callers: Sequence[object], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return how long each operation of a block took, or what was wrong."""
    numbers = iter(range(wanted["first"], wanted["first"] + wanted["operations"]))
    latencies_ms: list[float] = []
    clock = time.perf_counter
    ends_at = clock() + wanted.get("seconds", BLOCK_S_MAX)

    async def work(caller: object) -> None:
        operation = getattr(caller, wanted["operation"])
        while clock() < ends_at and (number := next(numbers, None)) is not None:
            began = clock()
            await operation(number)
            latencies_ms.append(round((clock() - began) * 1_000, 3))

    began, used_s = clock(), time.process_time()
    wrong = ""
    try:
        await asyncio.gather(*map(work, callers[: wanted.get("callers")]))
    except (
        WrongAnswer,
        MetadataError,
        grpc.aio.AioRpcError,
        OSError,
        asyncio.IncompleteReadError,
    ) as error:
        wrong = repr(error)
    return {
        "seconds": clock() - began,
        "generator_cpu_s": time.process_time() - used_s,
        "latencies_ms": sorted(latencies_ms),
        "wrong": wrong,
    }


class Generator:
    """A process that sends requests one way."""

    def __init__(self, process: asyncio.subprocess.Process, way: str) -> None:
        self._process = process
        self.way = way

    async def run(self, operation: str, first: int, operations: int, **more: Any) -> dict[str, Any]:
        """Have a block carried out: the operation on numbers from ``first`` on.

        ``more`` may have ``seconds``, after which no operation begins, and ``callers``, the number
        of those that take part. The numbers of a block that ends early have no gap.

        Raises:
            WrongAnswer: An answer was wrong.
        """
        wanted = {"operation": operation, "first": first, "operations": operations, **more}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        result = await self.line()
        if result["wrong"]:
            raise WrongAnswer(f"{self.way} {operation}: {result['wrong']}")
        return result

    async def line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answered: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answered


@asynccontextmanager
async def generator(module: str, job: dict[str, Any]) -> AsyncIterator[Generator]:
    """Start ``module`` with ``--generate`` and the job, whose ``way`` says how it calls."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--generate", json.dumps(job)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )
    started = Generator(process, job["way"])
    try:
        await started.line()
        yield started
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
