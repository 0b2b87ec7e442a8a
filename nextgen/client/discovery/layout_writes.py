"""Changes of scalable topics at discovery nodes."""

from __future__ import annotations

from typing import Any

from nextgen.client.discovery.write_requests import WriteRequest, new_command_id
from nextgen.client.model import Written
from protos.nextgen.v1 import discovery_service_pb2 as pb


class LayoutWrites:
    """The changes of segments and subscriptions of a ``Client``. Each is answered when it is done.

    A change of segments is refused with NOT_ALLOWED while another one is under way.
    """

    async def split_segment(self, name: str, segment_id: int) -> Written:
        """Replace an active segment of a scalable topic by two, each with half of its range."""
        return await self._update_layout(name, "split", segment_id)

    async def merge_segments(self, name: str, first: int, second: int) -> Written:
        """Replace two active segments of adjacent ranges by one."""
        return await self._update_layout(name, "merge", first, second)

    async def rebucket_segment(self, name: str, segment_id: int, buckets: int) -> Written:
        """Replace an active segment by one of its range that has so many entry buckets."""
        return await self._update_layout(name, "rebucket", segment_id, buckets=buckets)

    async def migrate_topic(self, name: str, *, force: bool = False) -> Written:
        """Replace a classic topic by a scalable one, which has its messages and subscriptions.

        Nothing takes that back. Refused with IN_USE while producers or consumers of classic clients
        are connected, unless forced: their producers then fail, as the topic is terminated.
        """
        return await self._update_layout(name, "migrate", force=force)

    async def create_scalable_subscription(
        self, name: str, subscription: str, *, type: str = "stream"
    ) -> Written:
        """Create a subscription at the beginning of all active segments; one that exists stays.

        ``type`` is ``stream``, ``queue`` or ``checkpoint``. Refused with NOT_ALLOWED if there is
        one of another type.
        """
        return await self._of_subscription("Create", name, subscription, type=type)

    async def delete_scalable_subscription(self, name: str, subscription: str) -> Written:
        """Delete a subscription from all segments."""
        return await self._of_subscription("Delete", name, subscription)

    async def seek_scalable_subscription(
        self, name: str, subscription: str, seek_to_ms: int | None
    ) -> Written:
        """Set a subscription to the first messages of a publish time; None: to the end."""
        fields: dict[str, Any] = {"skips_all": True}
        if seek_to_ms is not None:
            fields = {"seek_to_ms": seek_to_ms}
        return await self._of_subscription("Seek", name, subscription, **fields)

    async def _update_layout(
        self, name: str, kind: str, *segments: int, buckets: int = 0, force: bool = False
    ) -> Written:
        request = pb.UpdateLayoutRequest(
            command_id=new_command_id(),
            name=name,
            kind=kind,
            segments=segments,
            buckets=buckets,
            force=force,
        )
        return await self._write("UpdateLayout", request)

    async def _of_subscription(
        self, verb: str, name: str, subscription: str, **fields: Any
    ) -> Written:
        request = pb.ScalableSubscriptionRequest(
            command_id=new_command_id(), name=name, subscription=subscription, **fields
        )
        return await self._write(f"{verb}ScalableSubscription", request)

    async def _write(self, method: str, request: WriteRequest) -> Written:
        raise NotImplementedError("a client sends it")
