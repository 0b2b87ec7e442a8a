"""A stream of lookups of one caller: how much of it is under way."""

from __future__ import annotations

import asyncio
from typing import Any

from discovery.adapters.servers.lookup_stream import LookupStreamCall
from nextgen.kernel.limits.cluster import LOOKUP_MESSAGES_IN_FLIGHT_MAX
from nextgen.tasks.background import join


class Service:
    """Answers a message once ``answered`` is set."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def answer_at_once(self, data: bytes) -> Any:
        return int(data)

    async def answer_later(self, lookup: Any) -> bytes:
        await self.answered.wait()
        return b"answer %d" % lookup


class Context:
    """A caller that has sent all of its messages, and reads every answer."""

    def __init__(self, messages: int) -> None:
        self.messages = [b"%d" % number for number in range(messages)]
        self.read_count = 0
        self.answers: list[bytes] = []

    async def read(self) -> bytes | None:
        if self.read_count == len(self.messages):
            return None
        self.read_count += 1
        return self.messages[self.read_count - 1]

    async def write(self, answer: bytes) -> None:
        self.answers.append(answer)


async def test_lookup_messages_in_flight_max_are_read_and_one_more_waits_for_an_answer() -> None:
    service, context = Service(), Context(LOOKUP_MESSAGES_IN_FLIGHT_MAX + 1)
    made: Any = (service, context)
    running = join(LookupStreamCall(*made).run())
    for _ in range(10):
        await asyncio.sleep(0)
    read_before = context.read_count

    service.answered.set()
    await running

    assert read_before == LOOKUP_MESSAGES_IN_FLIGHT_MAX
    assert len(context.answers) == LOOKUP_MESSAGES_IN_FLIGHT_MAX + 1
