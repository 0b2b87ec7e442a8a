"""Which questions share a request: those of groups that have few."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.routing.shared_questions import SharedQuestions
from nextgen.kernel.limits.pulsar import GROUP_QUESTIONS_SHARED_MAX
from nextgen.kernel.routing.names import tenant_in


class Shard:
    """Keeps what it is asked, and answers when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.released = asyncio.Event()

    async def answer(self, _shard_id: int, questions: list[tuple[str, int]]) -> list[str]:
        keys = [key for key, _ in questions]
        self.asked.append(keys)
        await self.released.wait()
        return keys


async def requests_for(keys: list[str], batch_max: int = 100) -> list[list[str]]:
    """Return the requests, one at a time, that carry ``keys``."""
    shard = Shard()
    shared: SharedQuestions[str] = SharedQuestions(
        shard.answer, batch_max=batch_max, in_flight_max=1, waiting_max=1_000, group_of=tenant_in
    )
    asking = [asyncio.create_task(shared.ask(1, key)) for key in keys]
    await asyncio.sleep(0)
    shard.released.set()
    assert await asyncio.gather(*asking) == keys
    await shared.stop()
    return shard.asked


def names(tenant: str, count: int) -> list[str]:
    return [f"persistent://{tenant}/n/{number}" for number in range(count)]


@pytest.mark.parametrize("excess", [0, 1])
async def test_group_questions_shared_max_share_a_request_and_with_one_more_have_their_own(excess):
    many = names("many", GROUP_QUESTIONS_SHARED_MAX + excess)
    few = names("few", 2)

    asked = await requests_for([*many, *few])

    assert asked == ([many, few] if excess else [[*many, *few]])


async def test_groups_with_many_questions_have_turns_with_the_others():
    one, two, few = names("one", 60), names("two", 60), names("few", 3)

    asked = await requests_for([*one, *two, *few], batch_max=20)

    assert asked == [one[:20], two[:20], few, one[20:40], two[20:40], one[40:], two[40:]]


async def test_small_groups_share_requests_of_bounded_length():
    keys = [name for number in range(30) for name in names(f"tenant-{number}", 2)]

    asked = await requests_for(keys, batch_max=25)

    assert sorted(name for request in asked for name in request) == sorted(keys)
    assert [len(request) for request in asked] == [25, 25, 10]
