"""Reads which namespaces have topics at one broker, over ``BrokerService.ListHeldNamespaces``."""

from __future__ import annotations

from nextgen.client.brokers.channels import BrokerChannels
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from protos.nextgen.v1 import broker_service_pb2 as pb

_LIST = "/nextgen.v1.BrokerService/ListHeldNamespaces"


class BrokerNamespaces:
    """Keeps channels to the brokers used last. Owned by one event loop; ``stop`` it at the end."""

    def __init__(self) -> None:
        self._channels = BrokerChannels()

    def __repr__(self) -> str:
        return f"<BrokerNamespaces {self._channels!r}>"

    async def at(self, endpoint: str) -> list[str]:
        """Return the namespaces of the topics that are assigned to a broker, ascending.

        ``endpoint`` is the broker's gRPC address. The pages are read one after the other, each as
        of its own moment.

        Raises:
            MetadataError: The broker could not be reached.
        """
        if not endpoint:
            raise Unavailable("the broker gives no address for calls")
        names: list[str] = []
        while True:
            request = pb.ListHeldNamespacesRequest(after=names[-1] if names else "")
            page: pb.ListHeldNamespacesResponse = await self._channels.call(
                endpoint,
                _LIST,
                request,
                pb.ListHeldNamespacesResponse,
                timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS,
            )
            names += page.names
            if not page.more or not page.names:
                return names

    async def stop(self) -> None:
        """Close all channels; calls on them end."""
        await self._channels.stop()
