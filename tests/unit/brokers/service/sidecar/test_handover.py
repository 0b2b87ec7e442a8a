"""Requests of a handover to a scripted plug-in, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from brokers.ports.plugin import ForeignClosed, OpenTopic, OpenTopics, PluginGreeting
from brokers.service.sidecar import handover as handover_module
from brokers.service.sidecar.handover import Handover, TopicClaim
from nextgen.kernel.errors import DeadlineExceeded, Refused, Unavailable
from nextgen.kernel.routing.names import InvalidName, TopicName
from nextgen.pulsar.metadata_commands import Located

EU, US = "persistent://acme/orders/eu", "persistent://acme/orders/us"
GREETING = PluginGreeting("b1:8080", "pulsar://b1:6650", "5.0.0-M1")


class FakePlugin:
    """Keeps what it is asked."""

    greeting = GREETING

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, object]] = []

    def list_open(self, number: int, namespace: str) -> None:
        self.asked.append(("list", number, namespace))

    def close_foreign(self, number: int, topics: Sequence[str]) -> None:
        self.asked.append(("close", number, tuple(topics)))


class FakeClaims:
    def __init__(self, *answers: Located | Exception) -> None:
        self.answers = list(answers)

    async def claim(self, name: TopicName) -> Located:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def located(topic: str, broker_id: str) -> Located:
    return Located(
        name=topic,
        broker_id=broker_id,
        session_id="s-1",
        broker_url="pulsar://b1:6650",
        topic_id="t",
        unit="",
        epoch=1,
    )


def connected(*answers: Located | Exception) -> tuple[Handover, FakePlugin]:
    handover, plugin = Handover(FakeClaims(*answers)), FakePlugin()
    handover.connected(plugin)  # type: ignore[arg-type]
    return handover, plugin


async def listed(handover: Handover) -> list[OpenTopics]:
    return [part async for part in handover.open_topics("acme/orders")]


async def test_parts_of_an_answer_are_passed_on_until_the_last() -> None:
    handover, plugin = connected()
    first = OpenTopics(1, True, (OpenTopic(EU, True, "b1:8080"),), is_last=False)
    last = OpenTopics(1, True, (), is_last=True)

    listing = asyncio.create_task(listed(handover))
    await asyncio.sleep(0)
    assert plugin.asked == [("list", 1, "acme/orders")]
    for part in (first, last):
        handover.take(part)

    assert await listing == [first, last]


async def test_answers_find_their_questions() -> None:
    handover, _ = connected()
    one = asyncio.create_task(handover.close_foreign([EU]))
    two = asyncio.create_task(handover.close_foreign([US]))
    await asyncio.sleep(0)

    handover.take(ForeignClosed(2, 0, 1, 0))
    handover.take(ForeignClosed(1, 1, 0, 0))
    handover.take(ForeignClosed(7, 9, 9, 9))

    assert await one == ForeignClosed(1, 1, 0, 0)
    assert await two == ForeignClosed(2, 0, 1, 0)


async def test_without_a_plugin_nothing_is_asked() -> None:
    handover = Handover(FakeClaims())

    with pytest.raises(Unavailable, match="not connected"):
        await listed(handover)
    with pytest.raises(Unavailable, match="not connected"):
        await handover.close_foreign([EU])
    with pytest.raises(Unavailable, match="not connected"):
        _ = handover.greeting


async def test_a_plugin_that_goes_away_answers_nobody() -> None:
    handover, _ = connected()
    asked = [
        asyncio.create_task(handover.close_foreign([EU])),
        asyncio.create_task(handover.close_foreign([US])),
    ]
    await asyncio.sleep(0)

    handover.lost()

    for each in asked:
        with pytest.raises(Unavailable, match="went away"):
            await each


async def test_a_plugin_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover_module, "PLUGIN_ANSWER_TIMEOUT_MS", 10)
    handover, _ = connected()

    with pytest.raises(DeadlineExceeded, match="has not answered for 10 ms"):
        await handover.close_foreign([EU])


async def test_claims_say_whose_each_topic_is_or_why_it_is_nobodys() -> None:
    handover, _ = connected(
        located(EU, "stock-1"),
        located(US, "stock-2"),
        Refused("NOT_FOUND", "no such topic"),
        Unavailable("no leader"),
    )

    claims = await handover.claim([EU, US, f"{EU}-partition-1", f"{US}2"])

    assert claims == [
        TopicClaim(EU, "stock-1"),
        TopicClaim(US, "stock-2"),
        TopicClaim(f"{EU}-partition-1", "", "NOT_FOUND", "no such topic"),
        TopicClaim(f"{US}2", "", "UNAVAILABLE", "no leader"),
    ]


async def test_nothing_is_claimed_if_one_name_is_none() -> None:
    handover, _ = connected()

    with pytest.raises(InvalidName):
        await handover.claim([EU, "persistent://acme"])


async def test_a_broken_program_is_no_answer() -> None:
    handover, _ = connected(AssertionError("broken"))

    with pytest.raises(AssertionError):
        await handover.claim([EU])


def test_the_broker_that_is_connected_is_known() -> None:
    handover, _ = connected()

    assert handover.greeting == GREETING
