"""Checks lookup answers at the brokers that they name.

An answer is wrong if the named broker, in the named session, neither serves the topic with that
epoch or a newer one, nor remembers that it handed the topic over under a newer epoch. If the broker
cannot be reached, or has lost the session, the answer is outdated: a repeated lookup must then
return a right one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import grpc

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.kernel.limits.cluster import SERVES_NAMES_MAX
from protos.nextgen.v1.broker_service_pb2 import ServesRequest, Serving
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceStub
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

CHECK_TIMEOUT_MS = 2_000


class Verdict(StrEnum):
    """The verdict on an answer, by the broker that it names."""

    RIGHT = "right"
    MOVED = "moved"
    OUTDATED = "outdated"
    WRONG = "wrong"


def judge(answer: LookupAnswer, serving: Serving, session_id: str) -> Verdict:
    """Return the verdict, from the broker's reply and the session of that reply."""
    if serving.serves and serving.epoch >= answer.epoch:
        return Verdict.RIGHT
    if serving.new_epoch > answer.epoch:
        return Verdict.MOVED
    if session_id != answer.session_id:
        return Verdict.OUTDATED
    return Verdict.WRONG


class AnswerChecker:
    """Asks brokers, one call per broker and batch. ``wrong`` keeps what to show of wrong ones."""

    def __init__(self) -> None:
        self.counts: Counter[Verdict] = Counter()
        self.wrong: list[str] = []
        self._stubs: dict[str, Any] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def check(self, answers: Sequence[LookupAnswer]) -> list[LookupAnswer]:
        """Count the verdicts; return the answers that are outdated."""
        by_broker: dict[str, list[LookupAnswer]] = defaultdict(list)
        for answer in answers:
            by_broker[answer.broker_grpc].append(answer)
        batches = [
            (endpoint, group[start : start + SERVES_NAMES_MAX])
            for endpoint, group in by_broker.items()
            for start in range(0, len(group), SERVES_NAMES_MAX)
        ]
        outdated = await asyncio.gather(*[self._check_at(*batch) for batch in batches])
        return [answer for group in outdated for answer in group]

    async def close(self) -> None:
        """Close the channels to the brokers."""
        await asyncio.gather(*map(close_channel, self._channels.values()))

    async def _check_at(self, endpoint: str, answers: list[LookupAnswer]) -> list[LookupAnswer]:
        request = ServesRequest(topics=[answer.topic for answer in answers])
        try:
            response = await self._stub(endpoint).Serves(request, timeout=CHECK_TIMEOUT_MS / 1000)
        except grpc.RpcError:
            self.counts[Verdict.OUTDATED] += len(answers)
            return answers
        outdated = []
        for answer, serving in zip(answers, response.answers, strict=True):
            verdict = judge(answer, serving, response.session_id)
            if answer.broker_id != response.broker_id:
                verdict = Verdict.OUTDATED
            self.counts[verdict] += 1
            if verdict is Verdict.OUTDATED:
                outdated.append(answer)
            elif verdict is Verdict.WRONG:
                self.wrong.append(
                    f"{answer.topic} epoch {answer.epoch} at {answer.broker_id}: broker holds "
                    f"epoch {serving.epoch}, serves {serving.serves}, new {serving.new_epoch}"
                )
        return outdated

    def _stub(self, endpoint: str) -> Any:
        if endpoint not in self._stubs:
            self._channels[endpoint] = open_channel(endpoint)
            self._stubs[endpoint] = BrokerServiceStub(self._channels[endpoint])
        return self._stubs[endpoint]
