"""The ``TopicDirectory`` of discovery: caches in front, the shards behind.

LOOKUP                 answer cache, kept true by streams
PARTITIONED_METADATA   a name that is assigned has no partitions: answer cache, as true as it;
                       else a count that was read within PARTITION_COUNT_TTL_MS
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import NO_ROUTE, AnswerCache, Route
from discovery.domain.partition_counts import PartitionCounts
from discovery.ports import Clock
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.limits.pulsar import PARTITION_COUNT_TTL_MS
from nextgen.kernel.routing.names import NamespaceName, TopicName
from nextgen.pulsar.lookups import lookup_answer_beginnings, partitions_answer_beginnings
from nextgen.pulsar.metadata_commands import Located, StoredSchema, TopicDirectory


class KnownTopics:
    """What can be answered at once, without asking anybody: see ``nextgen.pulsar.lookups``."""

    def __init__(
        self,
        cache: AnswerCache,
        counts: PartitionCounts,
        absent: AbsentNames,
        any_broker_url: Callable[[], str | None],
    ) -> None:
        self._cache = cache
        self._counts = counts
        self._absent = absent
        self._any_broker_url = any_broker_url
        cache.route_missing_by(self._route_of_absent)
        # The cache's own method: a call less for each lookup a client makes.
        self.lookup = cache.route

    def partitions(self, topic: str, now: float) -> Sequence[bytes] | None:
        """Return the beginnings of the answers that tell the topic's partitions."""
        count = self.partition_count(topic, now)
        return None if count is None else partitions_answer_beginnings(count)

    def partition_count(self, topic: str, now: float) -> int | None:
        """Return how many partitions the topic has, if that is known."""
        # What is assigned is a whole topic without partitions, or is itself a partition.
        if self._cache.has_answer(topic, now):
            return 0
        return self._counts.get(topic, now)

    def _route_of_absent(self, topic: str, now: float) -> Route:
        """Return the route of any live broker for an absent name (ADR 0024)."""
        if self._absent.find(topic, now) is None:
            return NO_ROUTE
        url = self._any_broker_url()
        return lookup_answer_beginnings(url) if url else NO_ROUTE


class CachedTopicDirectory:
    """See ``TopicDirectory``. ``behind`` asks the shards, and the answer cache for lookups."""

    def __init__(
        self,
        behind: TopicDirectory,
        known: KnownTopics,
        counts: PartitionCounts,
        counters: DiscoveryCounters,
        clock: Clock,
    ) -> None:
        self._behind = behind
        self._known = known
        self._counts = counts
        self._counters = counters
        self._clock = clock

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """See ``TopicDirectory.partitions``."""
        started = self._clock()
        self._counters.pulsar_partition_reads += 1
        count = self._known.partition_count(name.text, started)
        if count is not None:
            self._counters.pulsar_partition_reads_from_cache += 1
            return count
        count = await self._behind.partitions(name, create=create)
        # Counted from before it was read: the topic may have been deleted since.
        self._counts.put(name.text, count, started + PARTITION_COUNT_TTL_MS / 1_000)
        return count

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        """See ``TopicDirectory.locate``."""
        return await self._behind.locate(name, create=create)

    def any_broker_url(self) -> str | None:
        """See ``TopicDirectory.any_broker_url``."""
        return self._behind.any_broker_url()

    async def topics_of_namespace(self, namespace: NamespaceName, *, domain: str) -> list[str]:
        """See ``TopicDirectory.topics_of_namespace``."""
        return await self._behind.topics_of_namespace(namespace, domain=domain)

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        """See ``TopicDirectory.schema``."""
        return await self._behind.schema(name, version)
