"""Where topics are and how they are moved: by topic, as our cluster does, or by bundle, as Pulsar.

Both know stock brokers by their numbers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Protocol

import aiohttp

from benchmarks.support.stock.brokers import BROKERS, Clusters
from nextgen.client import Client
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from tests.support.stock.cluster import NODE

GATHER_ATTEMPTS = 60
GATHER_PAUSE_S = 1.0
REFUSED_ATTEMPTS = 100
REFUSED_PAUSE_S = 0.1
REQUESTS_AT_ONCE = 8
REQUEST_S_MAX = 60


class Placement(Protocol):
    """Topics of one namespace, and what decides where they are."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def service_url(self) -> str:
        """The only address that clients know."""

    async def brokers_of(self, topics: Sequence[str]) -> list[int]:
        """Return the broker of each topic; 0: none answers, or it is unknown."""

    async def move(self, topics: Sequence[str], broker: int) -> None:
        """Have a broker serve topics; return when that is so.

        Raises:
            CheckFailed: It was refused.
        """


class ByTopic:
    """A namespace that is handed over."""

    name = "by_topic"

    def __init__(self, clusters: Clusters, client: Client, namespace: str) -> None:
        self.namespace = namespace
        self.service_url = clusters.ours.plan.service_url
        self._client = client

    async def brokers_of(self, topics: Sequence[str]) -> list[int]:
        located = await self._client.lookup(topics)
        ids = {NODE.format(number): number for number in BROKERS}
        return [ids.get(each.broker_id, 0) if each.is_found else 0 for each in located]

    async def move(self, topics: Sequence[str], broker: int) -> None:
        asked = {topic: NODE.format(broker) for topic in topics}
        why = ""
        for _ in range(REFUSED_ATTEMPTS):
            answers = await self._client.move_topics(asked)
            refused = [each for each in answers if each.rejection_code]
            if not refused:
                return
            why = f"{refused[0].topic}: {refused[0].message}"
            if not all(each.retryable for each in refused):
                break
            asked = {each.topic: asked[each.topic] for each in refused}
            await asyncio.sleep(REFUSED_PAUSE_S)
        raise CheckFailed(why)


class ByBundle:
    """A namespace of Pulsar's load manager: a bundle is moved with all topics in it."""

    name = "by_bundle"

    def __init__(self, clusters: Clusters, session: aiohttp.ClientSession, namespace: str) -> None:
        self.namespace = namespace
        self.service_url = clusters.stock_url
        self._clusters = clusters
        self._session = session
        self._bundles: dict[str, str] = {}

    async def brokers_of(self, topics: Sequence[str]) -> list[int]:
        at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def broker_of(topic: str) -> int:
            async with at_once:
                try:
                    answer = await self._call("GET", f"lookup/v2/topic/{_path(topic)}")
                except (aiohttp.ClientError, TimeoutError, CheckFailed):
                    return 0
                return self._clusters.number_at(json.loads(answer)["brokerUrl"])

        return list(await asyncio.gather(*map(broker_of, topics)))

    async def move(self, topics: Sequence[str], broker: int) -> None:
        for bundle in {await self.bundle_of(topic) for topic in topics}:
            await self._call(
                "PUT",
                f"admin/v2/namespaces/{self.namespace}/{bundle}/unload",
                destinationBroker=self._clusters.http(broker),
            )

    async def bundle_of(self, topic: str) -> str:
        """Return the bundle that a topic is in."""
        if topic not in self._bundles:
            path = f"lookup/v2/topic/{_path(topic)}/bundle"
            self._bundles[topic] = (await self._call("GET", path)).strip().strip('"')
        return self._bundles[topic]

    async def _call(self, method: str, path: str, **query: str) -> str:
        """Call the first running broker, which redirects where it must.

        Raises:
            CheckFailed: It was refused.
        """
        brokers = self._clusters.stock.brokers
        number = next(each for each in BROKERS if brokers[each].process.poll() is None)
        url = f"http://{self._clusters.http(number)}/{path}"
        time = aiohttp.ClientTimeout(total=REQUEST_S_MAX)
        async with self._session.request(method, url, params=query, timeout=time) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise CheckFailed(f"{method} {path}: {answer.status} {text[:200]}")
            return text


async def gather_at(placement: Placement, topics: Sequence[str], broker: int) -> None:
    """Have every topic at one broker.

    Raises:
        CheckFailed: One did not get there.
    """
    why = ""
    for _ in range(GATHER_ATTEMPTS):
        places = await placement.brokers_of(topics)
        elsewhere = [
            topic for topic, at in zip(topics, places, strict=True) if at not in (broker, 0)
        ]
        if not elsewhere and 0 not in places:
            return
        why = f"{len(elsewhere)} are elsewhere, {places.count(0)} nowhere"
        try:
            await placement.move(elsewhere, broker)
        except CheckFailed as error:
            why = str(error)
        await asyncio.sleep(GATHER_PAUSE_S)
    raise CheckFailed(f"{placement.name}: topics do not get to broker {broker}: {why}")


def names_in(namespace: str, stem: str, count: int) -> list[str]:
    """Return full names of topics."""
    return [f"persistent://{namespace}/{stem}-{number:05d}" for number in range(count)]


def _path(topic: str) -> str:
    return topic.replace("://", "/")
