"""The ``TopicDirectory`` of discovery: its caches first, then the shards.

LOOKUP                 LookupService ─▶ answer cache, absent names, else the shard
                          ╰─ absent, and it may be created ─▶ TopicCreation ─▶ LookupService
PARTITIONED_METADATA   an assigned name has no partitions: answer cache
                          ╰─ else a count that is young and has not grown, else the shard
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import NO_ROUTE, AnswerCache, Route
from discovery.domain.partition_counts import PartitionCounts
from discovery.ports import Clock
from discovery.service.counters import DiscoveryCounters
from nextgen.client.routing.topic_answers import check_has_broker, located, may_be_created
from nextgen.client.routing.topic_creation import TopicCreation
from nextgen.client.routing.topic_listing import TopicListing
from nextgen.client.routing.topic_schemas import TopicSchemas
from nextgen.kernel.limits.pulsar import PARTITION_COUNT_TTL_MS
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.lookups import lookup_answer_beginnings, partitions_answer_beginnings
from nextgen.pulsar.metadata_commands import Located, StoredSchema
from nextgen.pulsar.topic_lists.ports import ListQuestion
from protos.nextgen.v1.inventory_pb2 import LookupAnswer


class KnownTopics:
    """Answers from memory, without a request to a shard: see ``nextgen.pulsar.lookups``."""

    def __init__(
        self,
        cache: AnswerCache,
        counts: PartitionCounts,
        absent: AbsentNames,
        any_broker_url: Callable[[str], str | None],
    ) -> None:
        self._cache = cache
        self._counts = counts
        self._absent = absent
        self.any_broker_url = any_broker_url
        cache.route_missing_by(self._route_of_absent)
        # The cache's own method: a call less for each lookup a client makes.
        self.lookup = cache.route

    def partitions(self, topic: str, now: float) -> Sequence[bytes] | None:
        """Return the beginnings of the answers with the topic's partitions, None if not known."""
        count = self.partition_count(topic, now)
        return None if count is None else partitions_answer_beginnings(count)

    def partition_count(self, topic: str, now: float) -> int | None:
        """Return how many partitions the topic has, None if that is not known."""
        # An assigned unit is a topic without partitions, or is itself a partition.
        if self._cache.has_answer(topic, now):
            return 0
        return self._counts.get(topic, now)

    def _route_of_absent(self, topic: str, now: float) -> Route:
        """Return the route of a live broker for an absent name (ADR 0024)."""
        if self._absent.find(topic, now) is None:
            return NO_ROUTE
        url = self.any_broker_url(topic)
        return lookup_answer_beginnings(url) if url else NO_ROUTE


class Lookups(Protocol):
    """The lookups of this process: ``LookupService``."""

    async def locate(self, name: TopicName) -> LookupAnswer: ...


class DiscoveryTopicDirectory:
    """The ``TopicDirectory`` of the Pulsar and HTTP servers. Owned by one event loop."""

    def __init__(
        self,
        lookups: Lookups,
        creation: TopicCreation,
        listing: TopicListing,
        schemas: TopicSchemas,
        known: KnownTopics,
        counts: PartitionCounts,
        counters: DiscoveryCounters,
        clock: Clock,
    ) -> None:
        self._lookups = lookups
        self._creation = creation
        self._listing = listing
        self._schemas = schemas
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
        changes = self._counts.changes
        count = await self._creation.partitions(name, create=create)
        if self._counts.changes != changes:
            # The topic may have grown since the count was read.
            return count
        # Counted from before the read: the topic may have been deleted since.
        until = started + PARTITION_COUNT_TTL_MS / 1_000
        self._counts.put(name.text, count, now=self._clock(), until=until)
        return count

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        """See ``TopicDirectory.locate``."""
        check_has_broker(name)
        answer = await self._lookups.locate(name)
        if create and may_be_created(name, answer):
            answer = await self._creation.look_up_created(name, self._lookups.locate)
        return located(name, answer)

    def any_broker_url(self, topic: str) -> str | None:
        """See ``TopicDirectory.any_broker_url``."""
        return self._known.any_broker_url(topic)

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]:
        """See ``TopicDirectory.topics_of_namespace``."""
        return await self._listing.topics_of_namespace(question)

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        """See ``TopicDirectory.schema``."""
        return await self._schemas.read(name, version)
