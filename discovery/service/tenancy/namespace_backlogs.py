"""What an operator does to the subscriptions of all topics of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from discovery.service.admin.deadline import Deadline
from discovery.service.admin.listing import ListingService
from discovery.service.admin.topic_operations import TopicOperations
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.stream import POSITION_MAX
from nextgen.kernel.routing.names import Domain, NamespaceName, TopicName, parse_topic
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.broker_service_pb2 import MessagePosition

_LATEST = MessagePosition(ledger_id=POSITION_MAX, entry_id=POSITION_MAX)


class NamespaceBacklogs:
    """Goes through the persistent topics of a namespace, which assigns idle ones.

    Both methods may be repeated, and raise:
        Unavailable: The time was over, or a broker could not be reached: repeat it.
        MetadataError: Others of brokers and shards. Some topics may be done.
    """

    def __init__(self, operations: TopicOperations, listing: ListingService) -> None:
        self._operations = operations
        self._listing = listing

    async def clear(self, namespace: NamespaceName, subscription: str, deadline: Deadline) -> None:
        """Skip all messages in one subscription, wherever it exists, or in all ("")."""

        def request() -> Any:
            if subscription:
                return admin_pb.SkipMessagesRequest(subscription=subscription, is_all=True)
            return admin_pb.ExpireMessagesRequest(up_to=_LATEST)

        await self._call_everywhere(namespace, request, deadline)

    async def unsubscribe(
        self, namespace: NamespaceName, subscription: str, deadline: Deadline
    ) -> None:
        """Delete a subscription wherever it exists.

        Raises:
            Refused: NOT_EMPTY: it has consumers somewhere. Elsewhere it may be deleted.
        """

        def request() -> Any:
            return admin_pb.DeleteSubscriptionRequest(subscription=subscription)

        await self._call_everywhere(namespace, request, deadline)

    async def _call_everywhere(
        self, namespace: NamespaceName, request_of: Callable[[], Any], deadline: Deadline
    ) -> None:
        topics = self._listing.stream_topics(namespace, domain=Domain.PERSISTENT)
        async with aclosing(topics):
            units: list[TopicName] = []
            async for batch in topics:
                for name, partitions, _ in batch:
                    units += _units(name, partitions)
                    if len(units) >= PAGE_ITEMS_MAX:
                        await self._call(units, request_of, deadline)
                        units = []
            await self._call(units, request_of, deadline)

    async def _call(
        self, units: Sequence[TopicName], request_of: Callable[[], Any], deadline: Deadline
    ) -> None:
        deadline.remaining_ms("in the middle of a namespace")
        try:
            await self._operations.call_all(units, request_of, done_code=RejectionCode.NOT_FOUND)
        except Refused as error:
            # None of them has the subscription, or all were deleted meanwhile.
            if error.code != RejectionCode.NOT_FOUND:
                raise


def _units(name: str, partitions: int) -> Sequence[TopicName]:
    topic = parse_topic(name)
    return [topic.of_partition(number) for number in range(partitions)] or [topic]
