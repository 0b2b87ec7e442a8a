"""The parent's side of a load process: starts its job, receives its progress and its result."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

from nextgen.cli.local.cluster import child_environment
from nextgen.kernel.errors import DeadlineExceeded, Unavailable
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout

LINE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of one line: a result may have the latencies of a whole run."""

STOP_TIMEOUT_MS = 15_000

OnMessage = Callable[[dict[str, Any]], None]


class LoadProcess:
    """One job in a process of its own. It ends with this process, or with ``stop``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @staticmethod
    async def start(job: dict[str, Any]) -> LoadProcess:
        """Start the process with the job, whose ``kind`` selects the work."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "nextgen.harness.load.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment_of_child(child_environment(lifeline=False)),
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        await process.stdin.drain()
        return LoadProcess(process)

    async def result(self, on_message: OnMessage | None = None) -> dict[str, Any]:
        """Return the job's result; ``on_message`` gets every earlier message.

        Raises:
            Unavailable: The job failed; the message has the reason.
        """
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            if "result" in message:
                await self._process.wait()
                return dict(message["result"])
            if "failed" in message:
                await self._process.wait()
                raise Unavailable(message["failed"])
            if on_message is not None:
                on_message(message)
        raise Unavailable(f"the load process ended with code {await self._process.wait()}")

    async def request_stop(self) -> None:
        """Request the job to finish early; its result still comes."""
        await self.tell({"stop": True})

    async def tell(self, message: dict[str, Any]) -> None:
        """Send a command to the job; does nothing if the process has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    async def stop(self) -> None:
        """End the process if it still runs."""
        if self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with timeout(STOP_TIMEOUT_MS / 1000):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def run_job(
    job: dict[str, Any], on_message: OnMessage | None = None, *, timeout_ms: int
) -> dict[str, Any]:
    """Run one job from start to end and return its result.

    Raises:
        Unavailable: The job failed.
        DeadlineExceeded: It took longer than ``timeout_ms``.
    """
    process = await LoadProcess.start(job)
    try:
        async with timeout(timeout_ms / 1000):
            return await process.result(on_message)
    except TimeoutError:
        raise DeadlineExceeded(f"job {job['kind']} took longer than {timeout_ms} ms") from None
    finally:
        await process.stop()
