"""Topics that Pulsar deleted leave the inventory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from structlog.testing import capture_logs

from brokers.service.sidecar import topic_removals as topic_removals_module
from brokers.service.sidecar.topic_removals import TopicRemovals
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.routing.names import TopicName
from nextgen.tasks.timeouts import timeout

TOPIC = "persistent://acme/orders/eu"


class Inventory:
    """Answers each removal with the next of ``outcomes``, then with True."""

    def __init__(self, *outcomes: bool | Exception) -> None:
        self.outcomes = deque(outcomes)
        self.asked: list[str] = []

    async def remove(self, name: TopicName) -> bool:
        self.asked.append(name.text)
        outcome = self.outcomes.popleft() if self.outcomes else True
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@asynccontextmanager
async def running(removals: TopicRemovals) -> AsyncIterator[None]:
    task = asyncio.create_task(removals.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(is_so: Callable[[], bool]) -> None:
    async with timeout(5):
        while not is_so():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_removals_module, "PLUGIN_RETRY_MS", 0)


async def test_what_is_there_is_removed_and_counted() -> None:
    inventory = Inventory(True, False)
    removals = TopicRemovals(inventory)
    async with running(removals):
        removals.add([TOPIC, f"{TOPIC}-2", "no name", "persistent://acme"])
        await until(lambda: len(inventory.asked) == 2 and removals.removed == 1)

    assert sorted(inventory.asked) == [TOPIC, f"{TOPIC}-2"]


async def test_trouble_that_passes_is_outlasted() -> None:
    inventory = Inventory(Unavailable("an election"), Unavailable("assigned meanwhile"))
    removals = TopicRemovals(inventory)
    async with running(removals):
        removals.add([TOPIC])
        await until(lambda: removals.removed == 1)

    assert len(inventory.asked) == 3


@pytest.mark.parametrize("more", [0, 1])
async def test_plugin_removal_attempts_max(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    monkeypatch.setattr(topic_removals_module, "PLUGIN_REMOVAL_ATTEMPTS_MAX", 3)
    inventory = Inventory(*[Unavailable("no leader")] * (2 + more))
    removals = TopicRemovals(inventory)
    with capture_logs() as lines:
        async with running(removals):
            removals.add([TOPIC])
            await until(lambda: removals.removed == 1 or len(lines) == 1)

    assert len(inventory.asked) == 3
    assert removals.removed == 1 - more


async def test_a_refusal_is_final_and_a_line_says_so() -> None:
    inventory = Inventory(Refused("NOT_ALLOWED", "a shadow"))
    removals = TopicRemovals(inventory)
    with capture_logs() as lines:
        async with running(removals):
            removals.add([TOPIC])
            await until(lambda: len(lines) == 1)

    assert lines[0]["why"] == "NOT_ALLOWED: a shadow"
    assert removals.removed == 0


async def test_what_was_under_way_is_removed_in_the_next_run() -> None:
    entered = asyncio.Event()

    class Slow(Inventory):
        async def remove(self, name: TopicName) -> bool:
            if not entered.is_set():
                entered.set()
                await asyncio.Event().wait()
            return await super().remove(name)

    removals = TopicRemovals(Slow())
    async with running(removals):
        removals.add([TOPIC])
        await entered.wait()
    async with running(removals):
        await until(lambda: removals.removed == 1)


@pytest.mark.parametrize("over", [0, 1])
async def test_plugin_removals_max(monkeypatch: pytest.MonkeyPatch, over: int) -> None:
    monkeypatch.setattr(topic_removals_module, "PLUGIN_REMOVALS_MAX", 3)
    removals = TopicRemovals(Inventory())
    with capture_logs() as lines:
        removals.add([f"{TOPIC}-{number}" for number in range(3 + over)])
    async with running(removals):
        await until(lambda: removals.removed == 3)

    assert [each["topics"] for each in lines] == [over] * over
