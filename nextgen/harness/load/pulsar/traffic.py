"""Two processes with stock Pulsar clients, one that produces and one that consumes, as a pair."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextgen.harness.load.process import LoadProcess
from nextgen.kernel.errors import DeadlineExceeded
from nextgen.tasks.timeouts import timeout

PRESS_TIMEOUT_MS = 10_000
FINISH_TIMEOUT_MS = 60_000
START_TIMEOUT_MS = 60_000

OnTick = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """One producer and one consumer per topic; a topic's place in the list is its lane."""

    service_url: str
    topics: tuple[str, ...]
    interval_ms: float
    message_bytes: int
    log_dir: Path | None = None
    shadows: Mapping[str, str] = field(default_factory=dict)
    """Shadows with a consumer of their own, and which of ``topics`` each is a shadow of: one of a
    topic at most."""

    logs_connections: bool = False
    """Whether the producers' log says to which broker each of them connects, and when."""

    def job(self, kind: str) -> dict[str, Any]:
        log_path = str(self.log_dir / f"client-{kind}.log") if self.log_dir else os.devnull
        return {
            "kind": kind,
            "service_url": self.service_url,
            "topics": list(self.topics),
            "shadows": {
                shadow: self.topics.index(source) for shadow, source in self.shadows.items()
            },
            "interval_ms": self.interval_ms,
            "message_bytes": self.message_bytes,
            "log_path": log_path,
            "logs_connections": self.logs_connections,
        }


class Traffic:
    """Runs a plan. ``on_tick`` gets the counts several times a second.

    traffic = Traffic(plan)
    await traffic.start()
    ...
    result = await traffic.finish()
    await traffic.stop()      # In any case.
    """

    def __init__(self, plan: TrafficPlan, *, on_tick: OnTick | None = None) -> None:
        self._plan = plan
        self._on_tick = on_tick
        self._processes: dict[str, LoadProcess] = {}
        self._results: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._reached: dict[str, asyncio.Event] = {
            event: asyncio.Event() for event in ("subscribed", "producing", "flushed")
        }
        self._tick: dict[str, Any] = {}
        self._pressed_wanted = 0
        self._pressed = asyncio.Event()
        self._interruptions: list[tuple[float, float]] = []

    async def start(self) -> None:
        """Return once every consumer is subscribed and every producer open.

        Raises:
            MetadataError: A client failed.
        """
        await self._begin("subscribe", "subscribed")
        await self._begin("publish", "producing")

    async def press(self, topics: Sequence[str], *, window: int) -> None:
        """Keep ``window`` sends in flight on each topic, as fast as they are acknowledged."""
        await self._tell("publish", {"press": {"topics": list(topics), "window": window}})

    async def wait_in_flight(self, count: int) -> None:
        """Return at a moment when ``count`` sends are in flight on the pressed topics.

        Raises:
            DeadlineExceeded: There was none.
        """
        self._pressed.clear()
        self._pressed_wanted = count
        try:
            async with timeout(PRESS_TIMEOUT_MS / 1000):
                await self._wait("publish", self._pressed)
        except TimeoutError:
            raise DeadlineExceeded(
                f"{count} sends were not in flight within {PRESS_TIMEOUT_MS} ms"
            ) from None

    async def broker_killed(self, at_s: float, topics: Sequence[str], *, window_ms: int) -> None:
        """Record that the broker of ``topics`` was killed, at a time of the monotonic clock.

        A ``press`` under way ends. The effect of the kill is the longest gaps that overlap the
        ``window_ms`` after it.
        """
        self._interruptions.append((at_s, at_s))
        await self._tell("publish", {"press": {"topics": [], "window": 0}})
        await self.struck(at_s, topics, window_ms=window_ms)

    async def struck(self, at_s: float, topics: Sequence[str], *, window_ms: int) -> None:
        """Search for the longest gaps of ``topics`` that overlap the ``window_ms`` after a
        strike."""
        strike = {"at": at_s, "topics": list(topics), "window_ms": window_ms}
        await self._tell("publish", {"strike": strike})

    def topics_moved(self, begin_s: float, end_s: float) -> None:
        """Record that topics were moved: messages without an acknowledgement by then are
        redelivered."""
        self._interruptions.append((begin_s, end_s))

    def check(self) -> None:
        """Raise the error of a client that failed, if one did."""
        for result in self._results.values():
            if result.done():
                result.result()

    async def stop_sending(self) -> None:
        """Stop sending; return when every send has its final outcome."""
        await self._processes["publish"].request_stop()
        await self._wait("publish", self._reached["flushed"])

    async def finish(self) -> dict[str, Any]:
        """Stop sending, wait for messages in flight, and return both sides' accounts in one.

        Raises:
            MetadataError: A client failed, or took too long.
        """
        try:
            async with timeout(FINISH_TIMEOUT_MS / 1000):
                await self.stop_sending()
                published = await self._results["publish"]
                expected = {
                    "acknowledged": published["acknowledged"],
                    "interruptions": self._interruptions,
                }
                await self._tell("subscribe", {"expect": expected})
                consumed = await self._results["subscribe"]
        except TimeoutError:
            raise DeadlineExceeded(
                f"the clients were not done after {FINISH_TIMEOUT_MS} ms"
            ) from None
        return published | consumed

    async def stop(self) -> None:
        """End both processes if they still run."""
        for result in self._results.values():
            result.cancel()
        for process in self._processes.values():
            await process.stop()

    async def _begin(self, kind: str, event: str) -> None:
        process = await LoadProcess.start(self._plan.job(kind))
        self._processes[kind] = process
        self._results[kind] = asyncio.create_task(process.result(self._heard))
        try:
            async with timeout(START_TIMEOUT_MS / 1000):
                await self._wait(kind, self._reached[event])
        except TimeoutError:
            raise DeadlineExceeded(f"no {kind} within {START_TIMEOUT_MS} ms") from None

    async def _tell(self, kind: str, message: dict[str, Any]) -> None:
        await self._processes[kind].tell(message)

    async def _wait(self, kind: str, event: asyncio.Event) -> None:
        """Return when the event arrives; raise the error of a job that failed before."""
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait({waiting, self._results[kind]}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self._results[kind].result()
        finally:
            waiting.cancel()

    def _heard(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self._reached[message["event"]].set()
        if "tick" in message:
            self._tick |= message["tick"]
            if 0 < self._pressed_wanted <= self._tick.get("pressed", 0):
                self._pressed_wanted = 0
                self._pressed.set()
            if self._on_tick is not None:
                self._on_tick(self._tick)
