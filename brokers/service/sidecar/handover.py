"""What a stock broker does when a namespace is handed over to placement by topic, or back.

    claim ─▶ shards: the topics that are open here become this broker's
    open topics, close foreign ─▶ plug-in ─▶ answer

It decides nothing: whoever hands the namespace over asks for each step, at every broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from brokers.ports.plugin import (
    ForeignClosed,
    OpenTopics,
    PluginConnection,
    PluginGreeting,
)
from brokers.ports.topic_claims import TopicClaims
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Refused, Unavailable
from nextgen.kernel.limits.stream import PLUGIN_ANSWER_TIMEOUT_MS
from nextgen.kernel.routing.names import parse_topic
from nextgen.tasks.timeouts import timeout


@dataclass(frozen=True, slots=True)
class TopicClaim:
    """The outcome of a claim: the topic's broker, or why it has none."""

    topic: str
    broker_id: str = ""
    rejection_code: str = ""
    message: str = ""


class Handover:
    """Passes questions on to the plug-in that is connected, if one is."""

    def __init__(self, claims: TopicClaims) -> None:
        self._claims = claims
        self._plugin: PluginConnection | None = None
        self._last = 0
        self._answers: dict[int, asyncio.Queue[OpenTopics | ForeignClosed | None]] = {}
        """By the question's number; None: there will be no more."""

    def connected(self, plugin: PluginConnection) -> None:
        """Note that a plug-in is there."""
        self._plugin = plugin

    def lost(self) -> None:
        """Note that the plug-in is gone: nobody will answer any more."""
        self._plugin = None
        for answers in self._answers.values():
            answers.put_nowait(None)

    def take(self, answer: OpenTopics | ForeignClosed) -> None:
        """Take an answer of the plug-in; drop it if its request has ended."""
        if answers := self._answers.get(answer.number):
            answers.put_nowait(answer)

    @property
    def greeting(self) -> PluginGreeting:
        """The stock broker that is connected.

        Raises:
            Unavailable: None is.
        """
        return self._connected.greeting

    async def open_topics(self, namespace: str) -> AsyncGenerator[OpenTopics]:
        """Yield the topics of a namespace that are open, part by part, at least one.

        Raises:
            Unavailable: The plug-in is not there, or goes away.
            DeadlineExceeded: It does not answer.
        """
        plugin, number = self._connected, self._ask()
        try:
            plugin.list_open(number, namespace)
            is_last = False
            while not is_last:
                part = await self._answer(number)
                assert isinstance(part, OpenTopics), "answers are found by their number"
                is_last = part.is_last
                yield part
        finally:
            del self._answers[number]

    async def close_foreign(self, topics: Sequence[str]) -> ForeignClosed:
        """Have topics closed that are open and belong to others; their clients are sent there.

        Raises:
            Unavailable: The plug-in is not there, or goes away.
            DeadlineExceeded: It does not answer.
        """
        plugin, number = self._connected, self._ask()
        try:
            plugin.close_foreign(number, topics)
            answer = await self._answer(number)
            assert isinstance(answer, ForeignClosed), "answers are found by their number"
            return answer
        finally:
            del self._answers[number]

    async def claim(self, topics: Sequence[str]) -> list[TopicClaim]:
        """Have these topics assigned to this broker if nobody has them; return whose they are.

        Raises:
            InvalidName: One is no topic's name; none is claimed.
        """
        names = [parse_topic(topic) for topic in topics]
        located = await asyncio.gather(
            *(self._claims.claim(name) for name in names), return_exceptions=True
        )
        outcomes = []
        for name, found in zip(names, located, strict=True):
            if isinstance(found, MetadataError):
                code = found.code if isinstance(found, Refused) else found.reason
                outcomes.append(TopicClaim(name.text, rejection_code=code, message=str(found)))
            elif isinstance(found, BaseException):
                raise found
            else:
                outcomes.append(TopicClaim(name.text, found.broker_id))
        return outcomes

    @property
    def _connected(self) -> PluginConnection:
        if self._plugin is None:
            raise Unavailable("the plug-in of the stock broker is not connected")
        return self._plugin

    def _ask(self) -> int:
        self._last += 1
        self._answers[self._last] = asyncio.Queue()
        return self._last

    async def _answer(self, number: int) -> OpenTopics | ForeignClosed:
        try:
            async with timeout(PLUGIN_ANSWER_TIMEOUT_MS / 1_000):
                answer = await self._answers[number].get()
        except TimeoutError:
            raise DeadlineExceeded(
                f"the plug-in has not answered for {PLUGIN_ANSWER_TIMEOUT_MS} ms"
            ) from None
        if answer is None:
            raise Unavailable("the plug-in of the stock broker went away")
        return answer
