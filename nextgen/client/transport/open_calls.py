"""The calls in flight of each caller, so that those of an excluded node can be ended."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from nextgen.runtime.security.exclusions import on_excluded


class OpenCalls:
    """Tasks that answer calls, by the name of the caller. Owned by one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[asyncio.Task[object]]] = {}
        # Weak: a server that is gone must not be kept by the list of listeners.
        itself = weakref.ref(self)

        def end(names: frozenset[str]) -> None:
            calls = itself()
            if calls is not None:
                calls.end(names)

        weakref.finalize(self, on_excluded(end))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count the present task as a call of ``name`` for the body."""
        task = asyncio.current_task()
        assert task is not None, "gRPC answers each call in a task"
        tasks = self._tasks.setdefault(name, set())
        tasks.add(task)
        try:
            yield
        finally:
            tasks.discard(task)
            if not tasks:
                self._tasks.pop(name, None)

    def end(self, names: frozenset[str]) -> None:
        """End the calls in flight of ``names``."""
        for name in names:
            for task in tuple(self._tasks.get(name, ())):
                task.cancel()
