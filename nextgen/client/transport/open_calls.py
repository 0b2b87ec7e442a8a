"""The calls in flight of each caller, so that those of an excluded node can be ended."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nextgen.runtime.security.exclusions import on_excluded

SENDING_S_MAX: Final = 1.0
"""How long a call that ends may take to send the answer that is on its way: a caller that reads
nothing must not keep its call."""


class OpenCall:
    """One call in flight. Owned by the event loop that answers it."""

    __slots__ = ("_is_ended", "_is_sending", "_task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self._is_sending = False
        self._is_ended = False

    def end(self) -> None:
        """Cancel what answers the call; behind the answer that gRPC sends just now, if it does.

        gRPC keeps a cancellation that comes while it sends, and the caller would get no status.
        """
        self._is_ended = True
        if self._is_sending:
            asyncio.get_running_loop().call_later(SENDING_S_MAX, self._task.cancel)
        else:
            self._task.cancel()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Let the body hand an answer to gRPC.

        Raises:
            CancelledError: The call was ended meanwhile.
        """
        self._is_sending = True
        yield
        self._is_sending = False
        if self._is_ended:
            raise asyncio.CancelledError


class OpenCalls:
    """Tasks that answer calls, by the name of the caller. Owned by one event loop."""

    def __init__(self) -> None:
        self._calls: dict[str, set[OpenCall]] = {}
        # Weak: a server that is gone must not be kept by the list of listeners.
        itself = weakref.ref(self)

        def end(names: frozenset[str]) -> None:
            calls = itself()
            if calls is not None:
                calls.end(names)

        weakref.finalize(self, on_excluded(end))

    @contextmanager
    def of(self, name: str) -> Iterator[OpenCall]:
        """Count the present task as a call of ``name`` for the body."""
        task = asyncio.current_task()
        assert task is not None, "gRPC answers each call in a task"
        calls = self._calls.setdefault(name, set())
        call = OpenCall(task)
        calls.add(call)
        try:
            yield call
        finally:
            calls.discard(call)
            if not calls:
                self._calls.pop(name, None)

    def end(self, names: frozenset[str]) -> None:
        """End the calls in flight of ``names``."""
        for name in names:
            for call in tuple(self._calls.get(name, ())):
                call.end()
