"""Checks Connect answers of the Pulsar protocol at the brokers that they name.

The protocol's answer has only a URL, so the check requests from the broker whether it serves the
topic. The answer is right if it does; *moved* if the broker handed the topic over and knows the
next owner, to which it redirects the client, which is allowed; *outdated* if the broker does not
answer or has another session than at the beginning of the run. Everything else is wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import grpc

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.harness.load.answer_check import CHECK_TIMEOUT_MS, Verdict
from nextgen.kernel.limits.cluster import SERVES_NAMES_MAX
from protos.nextgen.v1.broker_service_pb2 import ServesRequest, Serving
from protos.nextgen.v1.broker_service_pb2_grpc import BrokerServiceStub

EXAMPLES_MAX = 10


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker as the directory had it when the run began."""

    pulsar_url: str
    grpc: str
    session_id: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def judge_url(serving: Serving, *, is_same_session: bool) -> Verdict:
    """Return the verdict on an answer that named this broker."""
    if serving.serves:
        return Verdict.RIGHT
    if serving.new_epoch > serving.epoch:
        return Verdict.MOVED
    return Verdict.WRONG if is_same_session else Verdict.OUTDATED


class UrlChecker:
    """Asks the brokers behind URLs, one call per broker and batch."""

    def __init__(self, brokers: Iterable[KnownBroker]) -> None:
        self.counts: Counter[Verdict] = Counter()
        self.wrong: list[str] = []
        self._brokers = {broker.pulsar_url: broker for broker in brokers}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[str, Any] = {}

    async def check(self, answers: Mapping[str, str]) -> None:
        """Count the verdicts on ``answers``, URLs by topic."""
        by_url: dict[str, list[str]] = defaultdict(list)
        for topic, url in answers.items():
            by_url[url].append(topic)
        batches = [
            (url, topics[start : start + SERVES_NAMES_MAX])
            for url, topics in by_url.items()
            for start in range(0, len(topics), SERVES_NAMES_MAX)
        ]
        await asyncio.gather(*[self._check_at(*batch) for batch in batches])

    async def close(self) -> None:
        """Close the channels to the brokers."""
        await asyncio.gather(*map(close_channel, self._channels.values()))

    async def _check_at(self, url: str, topics: Sequence[str]) -> None:
        broker = self._brokers.get(url)
        if broker is None:
            self._count(
                Verdict.WRONG, [f"{topic} at {url}: no broker has this URL" for topic in topics]
            )
            return
        request = ServesRequest(topics=topics)
        try:
            response = await self._stub(broker.grpc).Serves(
                request, timeout=CHECK_TIMEOUT_MS / 1000
            )
        except grpc.RpcError:
            self.counts[Verdict.OUTDATED] += len(topics)
            return
        is_same_session = response.session_id == broker.session_id
        for topic, serving in zip(topics, response.answers, strict=True):
            text = (
                f"{topic} at {url}: it holds epoch {serving.epoch}, does not serve, "
                f"new {serving.new_epoch}"
            )
            self._count(judge_url(serving, is_same_session=is_same_session), [text])

    def _count(self, verdict: Verdict, texts: Sequence[str]) -> None:
        self.counts[verdict] += len(texts)
        if verdict is Verdict.WRONG and len(self.wrong) < EXAMPLES_MAX:
            self.wrong.extend(texts[:EXAMPLES_MAX])

    def _stub(self, endpoint: str) -> Any:
        if endpoint not in self._stubs:
            self._channels[endpoint] = open_channel(endpoint)
            self._stubs[endpoint] = BrokerServiceStub(self._channels[endpoint])
        return self._stubs[endpoint]
