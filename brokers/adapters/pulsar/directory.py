"""A topic directory that answers from this broker's own topics, and else from the shards."""

from __future__ import annotations

from collections.abc import Callable

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas.schema import version_bytes
from brokers.domain.session import BrokerSession
from brokers.service.topics.open_topics import Topics
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located, StoredSchema, TopicDirectory
from nextgen.pulsar.topic_lists.ports import ListQuestion

_NOT_FOUND = frozenset({ServerError.TOPIC_NOT_FOUND, ServerError.INVALID_TOPIC_NAME})


class HeldTopicDirectory:
    """A ``TopicDirectory`` that answers for this broker's topics without a request to a shard."""

    def __init__(
        self,
        *,
        broker_id: str,
        broker_url: str,
        session: Callable[[], BrokerSession],
        topics: Topics,
        beyond: TopicDirectory,
    ) -> None:
        self._broker_id = broker_id
        self._broker_url = broker_url
        self._session = session
        self._topics = topics
        self._beyond = beyond

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        if self._topics.held(name) is not None:
            return 0
        return await self._beyond.partitions(name, create=create)

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        held = self._topics.held(name)
        if held is None:
            return await self._beyond.locate(name, create=create)
        return Located(
            name=name.text,
            broker_id=self._broker_id,
            session_id=self._session().session_id,
            broker_url=self._broker_url,
            topic_id=held.topic.topic_id,
            unit=held.unit,
            epoch=held.epoch,
        )

    def any_broker_url(self, topic: str) -> str | None:
        return self._broker_url

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]:
        return await self._beyond.topics_of_namespace(question)

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        if self._topics.held(name) is None:
            return await self._beyond.schema(name, version)
        return await held_schema(self._topics, name, version)


async def held_schema(
    topics: Topics, name: TopicName, version: bytes | None
) -> StoredSchema | None:
    """Return a version of the schema of a topic that is served here; None if there is none.

    Raises:
        Refused: There is no such topic.
        Unavailable: The topic is not served here, or storage fails.
    """
    try:
        topic = await topics.open(name, create=False)
    except Refusal as refusal:
        if refusal.code in _NOT_FOUND:
            raise Refused(RejectionCode.NOT_FOUND, refusal.message) from refusal
        raise Unavailable(refusal.message) from refusal
    found = topic.schemas.find(None if version is None else int.from_bytes(version, "big"))
    if found is None:
        return None
    number, schema = found
    return StoredSchema(
        version=version_bytes(number),
        name=schema.name,
        kind=schema.kind,
        data=schema.data,
        properties=schema.properties,
    )
