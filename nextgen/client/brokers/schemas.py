"""Reading topics' schemas at the brokers that serve them, over ``BrokerService.GetSchema``."""

from __future__ import annotations

from nextgen.client.brokers.channels import BrokerChannels
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.pulsar.metadata_commands import StoredSchema
from protos.nextgen.v1 import broker_service_pb2 as pb

_GET_SCHEMA = "/nextgen.v1.BrokerService/GetSchema"


class BrokerSchemas:
    """Keeps channels to the brokers used last. Owned by one event loop; ``stop`` it at the end."""

    def __init__(self) -> None:
        self._channels = BrokerChannels()

    def __repr__(self) -> str:
        return f"<BrokerSchemas {self._channels!r}>"

    async def read(self, endpoint: str, topic: str, version: bytes | None) -> StoredSchema | None:
        """Return a version of the topic's schema, or the latest; None if there is none.

        ``endpoint`` is the gRPC address of the broker that serves ``topic``.

        Raises:
            MetadataError: The broker could not be reached, or does not serve the topic.
        """
        if not endpoint:
            raise Unavailable(f"the broker that has {topic} gives no address for its schemas")
        response: pb.GetSchemaResponse = await self._channels.call(
            endpoint,
            _GET_SCHEMA,
            pb.GetSchemaRequest(topic=topic, version=version or b""),
            pb.GetSchemaResponse,
            timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS,
        )
        if not response.found:
            return None
        return StoredSchema(
            version=response.version,
            name=response.name,
            kind=response.kind,
            data=response.data,
            properties=dict(response.properties),
        )

    async def stop(self) -> None:
        """Close all channels; calls on them end."""
        await self._channels.stop()
