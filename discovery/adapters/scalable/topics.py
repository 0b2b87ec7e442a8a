"""/admin/v2/scalable/{tenant}/{namespace}/{topic}: scalable topics, with layouts and statistics."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from pydantic import TypeAdapter

from discovery.adapters.resources.places import path_number
from discovery.adapters.resources.stats_content import StatsContent
from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.rest.answer import DONE, Answer, RestFailure, Stream, whole_or_streamed
from discovery.adapters.rest.long_json import LongAnswers
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import BOOLEAN, Body, Route, Work
from discovery.adapters.scalable.layout_content import metadata_texts
from discovery.adapters.scalable.stats_sum import StatsSum
from discovery.domain.shadow_access import needs_of_new_topic
from discovery.service.scalable.topics import ScalableTopics, name_of, segment_of
from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.scalable import SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import Domain
from nextgen.pulsar.policies.policy_table import UNSET, Policy

SCALABLE = "/admin/v2/scalable/{tenant}/{namespace}"
TOPIC = f"{SCALABLE}/{{topic}}"

_PROPERTIES = Body(TypeAdapter(dict[str, str] | None), is_required=False)
_SEGMENTS = {"type": "integer", "minimum": 1, "maximum": SEGMENTS_PER_TOPIC_MAX}


class ScalableTopicRoutes:
    """Answers as a Pulsar does, except that no segment and no number of them is 404 or 412."""

    def __init__(self, topics: ScalableTopics, auto_scale: Policy) -> None:
        """``auto_scale`` is the policy that a layout is shown with."""
        self._topics = topics
        self._auto_scale = auto_scale
        self._long = LongAnswers()

    def routes(self) -> list[Route]:
        return [
            _route(
                "PUT",
                TOPIC,
                self._create,
                "Create a scalable topic",
                Action.CREATE,
                body=_PROPERTIES,
                besides=lambda request: needs_of_new_topic(request.body),
                query={"numInitialSegments": _SEGMENTS},
                answers={204: "It is done.", 409: "It exists, or a classic topic of this name."},
            ),
            _route(
                "GET",
                TOPIC,
                self._get,
                "The layout of a scalable topic",
                Action.READ,
                answers={200: "Its segments by their ids."},
            ),
            _route(
                "DELETE",
                TOPIC,
                self._delete,
                "Delete a scalable topic with all its segments",
                Action.DELETE,
                query={"force": BOOLEAN},
                answers={204: "It is done."},
            ),
            _route(
                "GET",
                f"{TOPIC}/stats",
                self._stats,
                "Statistics of a scalable topic, its segments, subscriptions and producers",
                Action.READ,
                answers={200: "Without ownerBroker: the segment's broker gave no answer."},
            ),
            _route(
                "GET",
                f"{TOPIC}/segments/{{segment}}/stats",
                self._segment_stats,
                "Statistics of one segment, as of a classic topic",
                Action.READ,
                answers={200: "They are in the body."},
            ),
        ]

    async def _create(self, request: RestRequest) -> Answer:
        count = request.number("numInitialSegments", 1)
        if not 1 <= count <= SEGMENTS_PER_TOPIC_MAX:
            reason = f"a scalable topic begins with 1 to {SEGMENTS_PER_TOPIC_MAX} segments"
            raise RestFailure(412, f"{reason}, not {count}")
        properties = request.body or {}
        await self._topics.create(request.topic(), count, properties, request.timeout_ms)
        return DONE

    async def _get(self, request: RestRequest) -> Answer | Stream:
        topic, layout = await self._topics.get(request.topic(), request.timeout_ms)
        auto_scale = self._auto_scale.read(policies_from_proto(topic.policies))
        texts = metadata_texts(topic, layout, None if auto_scale is UNSET else auto_scale)
        return await whole_or_streamed(self._long.pieces(texts))

    async def _delete(self, request: RestRequest) -> Answer:
        is_forced = request.flag("force")
        with refused_as({RejectionCode.IN_USE: 412}):
            await self._topics.delete(request.topic(), request.timeout_ms, is_forced=is_forced)
        return DONE

    async def _stats(self, request: RestRequest) -> Answer | Stream:
        name = request.topic()
        _, layout = await self._topics.get(name, request.timeout_ms)
        found = StatsSum(name, layout)
        answers = self._topics.stats(name, layout.segments)
        async with aclosing(answers):
            async for segment, stats in answers:
                found.add(segment, stats)
        # Asked last: the segments that were idle have their brokers now.
        brokers = await self._topics.brokers(name, request.timeout_ms)
        return await whole_or_streamed(self._long.pieces(found.texts(brokers)))

    async def _segment_stats(self, request: RestRequest) -> Answer | Stream:
        name = request.topic()
        _, layout = await self._topics.get(name, request.timeout_ms)
        segment = segment_of(layout, path_number(request, "segment"))
        stats = await self._topics.segment_stats(name_of(name, segment))
        found = StatsContent(segment.created_at_ms).add(stats)
        return await whole_or_streamed(self._long.pieces(found.texts()))


def _route(method: str, path: str, work: Work, summary: str, action: Action, **more: Any) -> Route:
    return Route(method, path, work, summary, action, topic_domain=Domain.TOPIC.value, **more)
