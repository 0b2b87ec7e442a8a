"""/admin/v2/scalable/{tenant}/{namespace}/{topic}/split, merge, rebucket, migrate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from discovery.adapters.resources.places import path_number
from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.rest.answer import DONE, Answer, RestFailure
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import BOOLEAN, Route, Work
from discovery.adapters.scalable.topics import TOPIC
from discovery.service.scalable.layouts import MIGRATE, LayoutService
from discovery.service.scalable.topics import ScalableTopics, segment_of
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.limits.scalable import BUCKETS_PER_SEGMENT_MAX
from nextgen.kernel.routing.names import Domain
from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.ranges import HashRange
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.layouts_pb2 import ScalableTopic, TopicSegment

_BUCKETS = {"type": "integer", "minimum": 1, "maximum": BUCKETS_PER_SEGMENT_MAX}


class LayoutChangeRoutes:
    """Answers 204 once the new layout is committed.

    404: no such segment. 412: the segments cannot be changed so. 409: another change is under way,
    or this one was taken back. A Pulsar answers most of them with 500.
    """

    def __init__(self, topics: ScalableTopics, layouts: LayoutService) -> None:
        self._topics = topics
        self._layouts = layouts

    def routes(self) -> list[Route]:
        return [
            _change(
                "split/{segment}",
                self._split,
                "Split a segment into halves",
                scope=ResourceKind.CLUSTER,
            ),
            _change(
                "merge/{segment}/{other}",
                self._merge,
                "Merge two segments of adjacent ranges",
                scope=ResourceKind.CLUSTER,
            ),
            _change(
                "rebucket/{segment}",
                self._rebucket,
                "Give a segment another number of entry buckets",
                scope=ResourceKind.CLUSTER,
                query={"bucketCount": _BUCKETS},
            ),
            _change(
                "migrate",
                self._migrate,
                "Replace the classic topic of this name by a scalable one",
                query={"force": BOOLEAN},
                conflict="It is scalable, or has classic clients and it is not forced, or no "
                "broker took over: repeat it.",
            ),
        ]

    async def _migrate(self, request: RestRequest) -> Answer:
        wanted = pb.UpdateLayoutRequest(
            name=request.topic().text, kind=MIGRATE, force=request.flag("force")
        )
        with refused_as({RejectionCode.IN_USE: 409, RejectionCode.LIMIT_EXCEEDED: 412}):
            await self._layouts.update_layout(wanted, request.timeout_ms)
        return DONE

    async def _split(self, request: RestRequest) -> Answer:
        (segment,) = await self._segments(request, "segment")
        if segment.hash_start == segment.hash_end:
            raise RestFailure(412, f"segment {segment.segment_id} has a range of one hash")
        return await self._change(request, "split", [segment])

    async def _merge(self, request: RestRequest) -> Answer:
        first, second = await self._segments(request, "segment", "other")
        if not _range_of(first).is_adjacent(_range_of(second)):
            ids = f"segments {first.segment_id} and {second.segment_id}"
            raise RestFailure(412, f"the ranges of {ids} are not adjacent")
        return await self._change(request, "merge", [first, second])

    async def _rebucket(self, request: RestRequest) -> Answer:
        count = request.number("bucketCount", 0)
        if not 1 <= count <= BUCKETS_PER_SEGMENT_MAX:
            reason = f"a segment has 1 to {BUCKETS_PER_SEGMENT_MAX} entry buckets"
            raise RestFailure(412, f"{reason}, bucketCount is {count}")
        (segment,) = await self._segments(request, "segment")
        if tuple(segment.bucket_starts) == equal_buckets(count):
            raise RestFailure(412, f"segment {segment.segment_id} has {count} entry buckets")
        return await self._change(request, "rebucket", [segment], buckets=count)

    async def _segments(self, request: RestRequest, *variables: str) -> list[TopicSegment]:
        """Return the active segments that the path names.

        Raises:
            RestFailure: 412, an id is no number, or a segment is sealed.
            Refused: NOT_FOUND, there is no such topic or segment.
        """
        ids = [path_number(request, each) for each in variables]
        _, layout = await self._topics.get(request.topic(), request.timeout_ms)
        return [_active(layout, each) for each in ids]

    async def _change(
        self, request: RestRequest, kind: str, segments: Sequence[TopicSegment], *, buckets: int = 0
    ) -> Answer:
        wanted = pb.UpdateLayoutRequest(
            name=request.topic().text,
            kind=kind,
            segments=[each.segment_id for each in segments],
            buckets=buckets,
        )
        await self._layouts.update_layout(wanted, request.timeout_ms)
        return DONE


def _active(layout: ScalableTopic, segment_id: int) -> TopicSegment:
    segment = segment_of(layout, segment_id)
    if segment.is_sealed:
        raise RestFailure(412, f"segment {segment_id} of {layout.name} is sealed")
    return segment


def _range_of(segment: TopicSegment) -> HashRange:
    return HashRange(segment.hash_start, segment.hash_end)


_UNDER_WAY = "Another change is under way, or this one was taken back: repeat it."


def _change(
    path: str, work: Work, summary: str, *, conflict: str = _UNDER_WAY, **more: Any
) -> Route:
    answers = {204: "The new layout is committed.", 409: conflict}
    return Route(
        "POST",
        f"{TOPIC}/{path}",
        work,
        summary,
        Action.CHANGE,
        topic_domain=Domain.TOPIC.value,
        answers=answers,
        **more,
    )
