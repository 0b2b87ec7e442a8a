"""Subscriptions of a topic: /admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{name}

On a topic with partitions a call goes to every partition, and is done again by a repetition if only
some carried it out. Calls about one place in one log are refused for such a topic, as in Pulsar.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

from pydantic import TypeAdapter

from discovery.adapters.resources.places import (
    Place,
    names_a_message,
    path_number,
    position_of,
    topic_place,
)
from discovery.adapters.resources.stats_content import SubscriptionNames, backlog_analysis
from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.answer import DONE, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import BOOLEAN, Body, Route, Work
from discovery.service.admin.topic_operations import TopicOperations
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.stream import POSITION_MAX
from nextgen.kernel.routing.names import Domain, TopicName
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb

_SUBSCRIPTION = f"{TOPIC}/subscription/{{subscription}}"
_NUMBER = {"type": "integer", "minimum": 0, "maximum": POSITION_MAX}


_START = Body(TypeAdapter(Place | Literal["latest", "earliest"] | None), is_required=False)
_PLACE = Body(TypeAdapter(Place))
_FROM = Body(TypeAdapter(Place | None), is_required=False)
_PROPERTIES = Body(TypeAdapter(dict[str, str] | None), is_required=False)


class Subscriptions:
    """Answers as a Pulsar does. An idle topic is assigned first."""

    def __init__(self, operations: TopicOperations) -> None:
        self._operations = operations

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                f"{TOPIC}/subscriptions",
                self._list,
                "A topic's subscriptions",
                Action.CONSUME,
                answers={200: "Their names, ascending."},
            ),
            _write("PUT", "", self._create, "Create a subscription", body=_START),
            _write("DELETE", "", self._delete, "Delete a subscription", query={"force": BOOLEAN}),
            *self._of_cursors(),
            *self._of_expiry(),
            Route(
                "POST",
                f"{_SUBSCRIPTION}/analyzeBacklog",
                self._analyze,
                "Count what a subscription has not acknowledged, by reading it",
                Action.CONSUME,
                body=_FROM,
                answers={200: "What was found.", 405: "Not of such a topic."},
            ),
            _write("PUT", "/properties", self._set, "Set properties", body=_PROPERTIES),
            Route(
                "GET",
                f"{_SUBSCRIPTION}/properties",
                self._properties,
                "A subscription's properties",
                Action.CONSUME,
                answers={200: "All of them."},
            ),
        ]

    def _of_cursors(self) -> list[Route]:
        return [
            _write("POST", "/skip_all", self._skip_all, "Skip all messages"),
            _write("POST", "/skip/{count}", self._skip, "Skip messages, the oldest first"),
            _write(
                "POST",
                "/resetcursor/{timestamp}",
                self._reset_to_time,
                "Go back or forward to what was published at a time",
            ),
            _write("POST", "/resetcursor", self._reset, "Go to a message", body=_PLACE),
        ]

    def _of_expiry(self) -> list[Route]:
        return [
            _write(
                "POST",
                "/expireMessages/{seconds}",
                self._expire_older,
                "Skip messages published longer ago",
            ),
            _write(
                "POST", "/expireMessages", self._expire_up_to, "Skip up to a message", body=_PLACE
            ),
            Route(
                "POST",
                f"{TOPIC}/all_subscription/expireMessages/{{seconds}}",
                self._expire_older,
                "Skip messages published longer ago, in all subscriptions",
                Action.CONSUME,
                answers={204: "They are skipped.", 405: "Not of such a topic."},
            ),
        ]

    async def _list(self, request: RestRequest) -> Answer:
        units = await self._units(request)
        found = SubscriptionNames()
        answers = self._operations.call_in_order(units, admin_pb.GetStatsRequest)
        async with aclosing(answers):
            async for _, stats in answers:
                found.add(stats)
        return content(found.sorted())

    async def _create(self, request: RestRequest) -> Answer:
        _check_persistent(request)
        name = request.parts["subscription"]
        body = request.body
        properties = (body.properties or {}) if isinstance(body, Place) else {}
        units = await self._units(request)
        if isinstance(body, Place) and len(units) > 1 and names_a_message(body):
            raise RestFailure(405, "a message id is a place in one partition: name that one")
        wanted = partial(
            admin_pb.CreateSubscriptionRequest,
            subscription=name,
            start=topic_place(body),
            properties=properties,
        )
        await self._call(units, wanted, done_code=RejectionCode.ALREADY_EXISTS)
        return DONE

    async def _delete(self, request: RestRequest) -> Answer:
        wanted = partial(
            admin_pb.DeleteSubscriptionRequest,
            subscription=request.parts["subscription"],
            is_forced=request.flag("force"),
        )
        await self._call(
            await self._units(request),
            wanted,
            done_code=RejectionCode.NOT_FOUND,
            codes={RejectionCode.NOT_EMPTY: 412},
        )
        return DONE

    async def _skip_all(self, request: RestRequest) -> Answer:
        wanted = partial(
            admin_pb.SkipMessagesRequest, subscription=request.parts["subscription"], is_all=True
        )
        await self._call(await self._units(request), wanted)
        return DONE

    async def _skip(self, request: RestRequest) -> Answer:
        count = path_number(request, "count")
        if not count:
            return DONE
        wanted = partial(
            admin_pb.SkipMessagesRequest, subscription=request.parts["subscription"], entries=count
        )
        await self._call([await self._one(request)], wanted)
        return DONE

    async def _reset_to_time(self, request: RestRequest) -> Answer:
        place = admin_pb.TopicPlace(publish_time_ms=path_number(request, "timestamp"))
        wanted = partial(
            admin_pb.ResetCursorRequest, subscription=request.parts["subscription"], place=place
        )
        await self._call(await self._units(request), wanted)
        return DONE

    async def _reset(self, request: RestRequest) -> Answer:
        unit = await self._one(request)
        wanted = partial(
            admin_pb.ResetCursorRequest,
            subscription=request.parts["subscription"],
            place=topic_place(request.body),
        )
        await self._call([unit], wanted)
        return DONE

    async def _expire_older(self, request: RestRequest) -> Answer:
        wanted = partial(
            admin_pb.ExpireMessagesRequest,
            subscription=request.parts.get("subscription", ""),
            older_than_s=path_number(request, "seconds"),
        )
        await self._call(await self._units(request), wanted)
        return DONE

    async def _expire_up_to(self, request: RestRequest) -> Answer:
        place: Place = request.body
        wanted = partial(
            admin_pb.ExpireMessagesRequest,
            subscription=request.parts["subscription"],
            up_to=position_of(place),
            is_excluded=place.isExcluded or place.excluded,
        )
        await self._call([await self._one(request)], wanted)
        return DONE

    async def _set(self, request: RestRequest) -> Answer:
        wanted = partial(
            admin_pb.UpdateSubscriptionRequest,
            subscription=request.parts["subscription"],
            properties=request.body or {},
        )
        await self._call(await self._units(request), wanted)
        return DONE

    async def _properties(self, request: RestRequest) -> Answer:
        name = request.parts["subscription"]
        units = await self._units(request)
        # Mostly the first partition has it, and no other is called.
        answers = self._operations.call_in_order(units, admin_pb.GetStatsRequest)
        async with aclosing(answers):
            async for _, stats in answers:
                for each in stats.subscriptions:
                    if each.name == name:
                        return content(dict(sorted(each.properties.items())))
        raise Refused(RejectionCode.NOT_FOUND, f"there is no subscription {shown(name)}")

    async def _analyze(self, request: RestRequest) -> Answer:
        _check_persistent(request)
        unit = await self._one(request)
        wanted = admin_pb.AnalyzeBacklogRequest(subscription=request.parts["subscription"])
        place: Place | None = request.body
        if place is not None and names_a_message(place):
            wanted.start.CopyFrom(position_of(place))
        with refused_as({RejectionCode.NOT_ALLOWED: 405}):
            found = await self._operations.call(unit, wanted)
        return content(backlog_analysis(found))

    async def _units(self, request: RestRequest) -> list[TopicName]:
        return await self._operations.units(request.topic(), request.timeout_ms)

    async def _one(self, request: RestRequest) -> TopicName:
        """Return the only unit of the topic.

        Raises:
            RestFailure: 405, it has partitions.
        """
        name = request.topic()
        if await self._units(request) != [name]:
            raise RestFailure(405, f"topic {name.text} has partitions: name one of them")
        return name

    async def _call(
        self,
        units: list[TopicName],
        request_of: Callable[[], Any],
        *,
        done_code: RejectionCode | None = None,
        codes: dict[RejectionCode, int] | None = None,
    ) -> None:
        with refused_as({RejectionCode.NOT_ALLOWED: 405, **(codes or {})}):
            await self._operations.call_all(units, request_of, done_code=done_code)


def _check_persistent(request: RestRequest) -> None:
    name = request.topic()
    if name.domain is not Domain.PERSISTENT:
        raise RestFailure(405, f"topic {name.text} is not persistent: nothing can be kept for it")


def _write(method: str, path: str, work: Work, summary: str, **more: Any) -> Route:
    answers = {
        204: "It is done.",
        405: "Not of such a topic.",
        409: "It exists.",
        412: "It is in use.",
    }
    return Route(
        method, _SUBSCRIPTION + path, work, summary, Action.CONSUME, answers=answers, **more
    )
