"""/admin/v2/scalable/{tenant}/{namespace}/{topic}/subscriptions: on all segments at once."""

from __future__ import annotations

from typing import Any

from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.rest.answer import DONE, Answer, RestFailure
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import Route, Work
from discovery.adapters.scalable.topics import TOPIC
from discovery.service.scalable.layouts import LayoutService
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.routing.names import Domain
from protos.nextgen.v1 import discovery_service_pb2 as pb

SUBSCRIPTION = f"{TOPIC}/subscriptions/{{subscription}}"

_TYPES = ("STREAM", "QUEUE")
_TYPE = {"type": "string", "enum": list(_TYPES)}
_TIMESTAMP = {"type": "integer", "minimum": 0}


class SubscriptionRoutes:
    """Answers 204 once the subscription's cursors are set in all segments."""

    def __init__(self, layouts: LayoutService) -> None:
        self._layouts = layouts

    def routes(self) -> list[Route]:
        return [
            _route(
                "PUT",
                SUBSCRIPTION,
                self._create,
                "Create a subscription at the beginning of all active segments",
                query={"type": _TYPE},
            ),
            _route(
                "DELETE",
                SUBSCRIPTION,
                self._delete,
                "Delete a subscription from all segments",
            ),
            _route(
                "POST",
                f"{SUBSCRIPTION}/seek",
                self._seek,
                "Set a subscription to the first messages of a publish time",
                query={"timestamp": _TIMESTAMP},
            ),
            _route(
                "POST",
                f"{SUBSCRIPTION}/skip-all",
                self._skip_all,
                "Set a subscription to the end of all segments",
            ),
        ]

    async def _create(self, request: RestRequest) -> Answer:
        kind = request.query.get("type", "")
        if kind not in _TYPES:
            raise RestFailure(412, f"type is {shown(kind)}, it must be {' or '.join(_TYPES)}")
        wanted = _wanted(request)
        wanted.type = kind.lower()
        await self._layouts.create_subscription(wanted, request.timeout_ms)
        return DONE

    async def _delete(self, request: RestRequest) -> Answer:
        await self._layouts.delete_subscription(_wanted(request), request.timeout_ms)
        return DONE

    async def _seek(self, request: RestRequest) -> Answer:
        timestamp = request.number("timestamp", -1)
        if timestamp < 0:
            raise RestFailure(412, "timestamp must be the milliseconds of a publish time")
        wanted = _wanted(request)
        wanted.seek_to_ms = timestamp
        return await self._set(wanted, request)

    async def _skip_all(self, request: RestRequest) -> Answer:
        wanted = _wanted(request)
        wanted.skips_all = True
        return await self._set(wanted, request)

    async def _set(self, wanted: pb.ScalableSubscriptionRequest, request: RestRequest) -> Answer:
        # It has no cursors: its consumers keep their positions themselves.
        with refused_as({RejectionCode.NOT_ALLOWED: 412}):
            await self._layouts.seek_subscription(wanted, request.timeout_ms)
        return DONE


def _wanted(request: RestRequest) -> pb.ScalableSubscriptionRequest:
    return pb.ScalableSubscriptionRequest(
        name=request.topic().text, subscription=request.parts["subscription"]
    )


def _route(
    method: str,
    path: str,
    work: Work,
    summary: str,
    **more: Any,
) -> Route:
    return Route(
        method,
        path,
        work,
        summary,
        Action.CONSUME,
        topic_domain=Domain.TOPIC.value,
        answers={
            204: "It is done.",
            409: "The subscription is being deleted, or has another type.",
        },
        **more,
    )
