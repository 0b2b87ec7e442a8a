"""Schemas of topics, found by a lookup and read at the broker that serves the topic."""

from __future__ import annotations

from nextgen.client.brokers.schemas import BrokerSchemas
from nextgen.client.routing.topic_answers import Lookup, check_has_broker, checked
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import StoredSchema
from protos.nextgen.v1.inventory_pb2 import LookupAnswer


class TopicSchemas:
    """Owned by one event loop; ``stop`` it at the end.

    ``fresh_lookup`` is given where ``lookup`` may answer from memory: it decides that a topic does
    not exist. A client that is told so takes the topic for one without a schema, and sends bytes.
    """

    def __init__(self, lookup: Lookup, fresh_lookup: Lookup | None = None) -> None:
        self._lookup = lookup
        self._fresh_lookup = fresh_lookup
        self._brokers = BrokerSchemas()

    async def stop(self) -> None:
        """Close the channels to brokers."""
        await self._brokers.stop()

    async def read(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        """See ``TopicDirectory.schema``. Of a partitioned topic, its first partition's."""
        check_has_broker(name)
        answer = await self._look_up(name)
        if answer.rejection_code == RejectionCode.PARTITIONED and not answer.retryable:
            name = name.of_partition(0)
            answer = await self._look_up(name)
        return await self._brokers.read(checked(answer).broker_grpc, name.text, version)

    async def _look_up(self, name: TopicName) -> LookupAnswer:
        answer = await self._lookup(name)
        if answer.rejection_code == RejectionCode.NOT_FOUND and self._fresh_lookup is not None:
            return await self._fresh_lookup(name)
        return answer
