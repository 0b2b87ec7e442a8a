"""The ``TopicDirectory`` of a process without a cache: every question goes to a shard.

    partitions ─▶ TopicCreation ╮
    locate ─▶ lookup at a shard ┼─▶ SharedQuestions ─▶ ShardRouter
       ╰─ absent ─▶ TopicCreation

Brokers use it. Discovery puts a cache in front and composes the same parts
(``discovery.service.lookups.topic_directory``).
"""

from __future__ import annotations

from collections.abc import Sequence

from nextgen.client.brokers.live_urls import Cluster, LiveBrokerUrls
from nextgen.client.routing.shard_calls import Shards, ask_home, call_home, questions
from nextgen.client.routing.shared_questions import SharedQuestions
from nextgen.client.routing.topic_answers import check_has_broker, located, may_be_created
from nextgen.client.routing.topic_creation import TopicCreation
from nextgen.client.routing.topic_listing import TopicListing
from nextgen.client.routing.topic_schemas import TopicSchemas
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX, REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located, StoredSchema
from nextgen.pulsar.topic_lists.ports import ListQuestion
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer


class RoutedTopicDirectory:
    """Owned by one event loop; ``stop`` it at the end.

    ``broker_id`` is the broker that uses it: a topic that is created on demand is assigned there
    if it may be. "": none.
    """

    def __init__(self, *, shards: Shards, cluster: Cluster, broker_id: str = "") -> None:
        self._shards = shards
        self._broker_id = broker_id
        self._cluster = cluster
        self.creation = TopicCreation(shards, broker_id=broker_id)
        """Creates topics on demand, for others of this process too."""
        self._listing = TopicListing(shards, cluster)
        self._urls = LiveBrokerUrls(cluster)
        self._lookups = questions(self._ask_shard, NAMES_PER_LOOKUP_MAX)
        self._lookups_for_here = questions(self._ask_shard_for_here, NAMES_PER_LOOKUP_MAX)
        self._schemas = TopicSchemas(self.look_up)

    def __repr__(self) -> str:
        return f"<RoutedTopicDirectory {self.creation!r} lookups={self._lookups!r}>"

    async def stop(self) -> None:
        """Give up the requests under way and close the channels to brokers."""
        await self.creation.stop()
        await self._lookups.stop()
        await self._lookups_for_here.stop()
        await self._schemas.stop()

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """See ``TopicDirectory.partitions``."""
        return await self.creation.partitions(name, create=create)

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        """See ``TopicDirectory.locate``."""
        check_has_broker(name)
        answer = await self.look_up(name)
        if create and may_be_created(name, answer):
            answer = await self.creation.look_up_created(name, self._look_up_for_here)
        return located(name, answer)

    async def claim(self, name: TopicName) -> Located:
        """Return where a unit is served; if nobody has it, it is assigned to ``broker_id``.

        It goes to another broker if its rules forbid this one, or if this one has no room. An
        absent topic is created if its namespace allows that.

        Raises:
            MetadataError: It has no broker, or it is not known.
        """
        check_has_broker(name)
        answer = await self._look_up_for_here(name)
        if may_be_created(name, answer):
            answer = await self.creation.look_up_created(name, self._look_up_for_here)
        return located(name, answer)

    async def raise_epoch(
        self, name: TopicName, *, topic_id: str, epoch: int, used_epoch: int
    ) -> Located:
        """Assign a unit above ``used_epoch`` if the assignment of ``epoch`` is still current.

        The owner calls this when its ledger holds the later ``used_epoch``. Returns the unit's
        location afterwards.

        Raises:
            Refused: ``LIMIT_EXCEEDED``: the epoch is so high that it is taken for damage.
            MetadataError: It is unknown whether the unit was assigned.
        """
        used = pb.UsedEpoch(topic=name.text, topic_id=topic_id, epoch=epoch, used_epoch=used_epoch)
        request = pb.ShardRequest(lookup=pb.ShardLookupRequest(topics=[name.text], used=[used]))
        response = await call_home(
            self._shards, name.routing_key, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS
        )
        (answer,) = response.lookup.answers
        return located(name, answer)

    def any_broker_url(self, topic: str) -> str | None:
        """See ``TopicDirectory.any_broker_url``."""
        return self._urls.any(topic)

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]:
        """See ``TopicDirectory.topics_of_namespace``."""
        return await self._listing.topics_of_namespace(question)

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        """See ``TopicDirectory.schema``."""
        return await self._schemas.read(name, version)

    async def look_up(self, name: TopicName) -> LookupAnswer:
        """Return what the shard answers now; an idle unit is assigned.

        Raises:
            MetadataError: It is not known.
        """
        return await self._ask(self._lookups, name)

    async def _look_up_for_here(self, name: TopicName) -> LookupAnswer:
        return await self._ask(self._lookups_for_here, name)

    async def _ask(self, lookups: SharedQuestions[LookupAnswer], name: TopicName) -> LookupAnswer:
        answer = await ask_home(self._shards, lookups, name.routing_key, name.text)
        if answer.session_id and self._cluster.view.has_session_ended(
            answer.broker_id, answer.session_id
        ):
            raise Unavailable(f"{name.text} was assigned to a broker that is gone")
        return answer

    async def _ask_shard(
        self, shard_id: int, questions: Sequence[tuple[str, int]], broker_id: str = ""
    ) -> Sequence[LookupAnswer]:
        names = [name for name, _ in questions]
        lookup = pb.ShardLookupRequest(topics=names, preferred_broker_id=broker_id)
        request = pb.ShardRequest(lookup=lookup)
        response = await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)
        return response.lookup.answers

    async def _ask_shard_for_here(
        self, shard_id: int, questions: Sequence[tuple[str, int]]
    ) -> Sequence[LookupAnswer]:
        return await self._ask_shard(shard_id, questions, self._broker_id)
