"""Threads on which one takeover waits for several syncs at the same time.

A file system mostly makes what is synced at one moment durable together, so two or three syncs take
hardly longer than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait


class SyncThreads:
    """Up to ``threads``; none is started before it is needed. ``stop`` it at the end."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ledger-sync")

    def together(self, steps: Sequence[Callable[[], None]]) -> None:
        """Run ``steps``, the first one on this thread; return when all have ended.

        Raises:
            OSError: The disk refused one of them. All have ended.
        """
        first, *others = steps
        running = [self._threads.submit(step) for step in others]
        try:
            first()
        finally:
            wait(running)
        for step in running:
            step.result()

    def stop(self) -> None:
        self._threads.shutdown()
