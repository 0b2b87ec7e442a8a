"""Measures, inside a process under test, how long its event loop works between two yields.

Python imports this by itself where its folder is on ``PYTHONPATH``. A timer runs every few
milliseconds; between two of its runs the loop's thread spends at least what its longest callback
takes, and hardly more. The most that was spent since the last reset, and where, are in
``<process id>.probe`` in the folder that ``NEXTGEN_STALL_PROBE`` names: see
``tests.support.costs.stall_budget``. Processor time, so that a busy machine changes nothing.
"""

import asyncio
import gc
import mmap
import os
import struct
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

TICK_S = 0.005
SAMPLE_S = 0.025
"""Between two looks of a thread at a loop that is late, for the place where it is."""

RECORD = struct.Struct("=d248s")
"""Seconds, and what ran so long. Less than no seconds ask for a collection of garbage."""


class Probe:
    """The record of this process, and the timer and the thread that write it."""

    def __init__(self, folder: Path) -> None:
        path = folder / f"{os.getpid()}.probe"
        path.write_bytes(bytes(RECORD.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), RECORD.size)
        self._ticked_at = time.monotonic()
        self._spent = 0.0
        self._seen = ""

    def begin(self) -> None:
        """Begin to measure the running loop and its thread."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._spent = time.thread_time()
        threading.Thread(target=self._watch, name="stall probe", daemon=True).start()
        self._tick()

    def _tick(self) -> None:
        if RECORD.unpack_from(self._shared)[0] < 0:
            gc.collect()
            RECORD.pack_into(self._shared, 0, 0.0, b"")
            self._spent = time.thread_time()
        spent = time.thread_time()
        took, self._spent = spent - self._spent, spent
        if took > RECORD.unpack_from(self._shared)[0]:
            RECORD.pack_into(self._shared, 0, took, self._seen.encode()[:248])
        self._seen = ""
        self._ticked_at = time.monotonic()
        self._loop.call_later(TICK_S, self._tick)

    def _watch(self) -> None:
        while True:
            time.sleep(SAMPLE_S)
            if time.monotonic() - self._ticked_at > 2 * SAMPLE_S:
                frame = sys._current_frames().get(self._thread_id)
                places = traceback.extract_stack(frame)[-3:]
                self._seen = " > ".join(f"{Path(at.filename).name}:{at.lineno}" for at in places)


def _install(folder: Path) -> None:
    run = asyncio.Runner.run

    async def probed(main: Coroutine[Any, Any, Any]) -> Any:
        Probe(folder).begin()
        return await main

    def measured(self: asyncio.Runner, main: Any, **given: Any) -> Any:
        return run(self, probed(main), **given)

    asyncio.Runner.run = measured  # type: ignore[method-assign]


if os.environ.get("NEXTGEN_STALL_PROBE"):
    _install(Path(os.environ["NEXTGEN_STALL_PROBE"]))
