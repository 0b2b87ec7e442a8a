"""/admin/v2/namespaces/{tenant}/{namespace}/clearBacklog and /unsubscribe, also by bundle.

A namespace has one bundle, so both forms reach all of its persistent topics.
"""

from __future__ import annotations

from discovery.adapters.administration.namespaces import NAMESPACE, check_bundle
from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.rest.answer import DONE, Answer
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Route
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.namespace_backlogs import NamespaceBacklogs
from discovery.service.tenancy.namespaces import NamespaceService
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_MAX_MS

_SUBSCRIPTION = "{subscription}"


class NamespaceBacklogRoutes:
    """Topics without the subscription are passed over, as in Pulsar."""

    def __init__(self, namespaces: NamespaceService, backlogs: NamespaceBacklogs) -> None:
        self._namespaces = namespaces
        self._backlogs = backlogs

    def routes(self) -> list[Route]:
        paths = (NAMESPACE, f"{NAMESPACE}/{{bundle}}")
        return [
            *(
                Route(
                    "POST",
                    f"{path}/{ending}",
                    self._clear,
                    f"Skip all messages in {which} of every topic",
                    Action.CONSUME,
                    answers={204: "None has a backlog."},
                )
                for path in paths
                for ending, which in (
                    ("clearBacklog", "all subscriptions"),
                    (f"clearBacklog/{_SUBSCRIPTION}", "a subscription"),
                )
            ),
            *(
                Route(
                    "POST",
                    f"{path}/unsubscribe/{_SUBSCRIPTION}",
                    self._unsubscribe,
                    "Delete a subscription of every topic",
                    Action.CONSUME,
                    answers={204: "No topic has it.", 412: "It has consumers."},
                )
                for path in paths
            ),
        ]

    async def _clear(self, request: RestRequest) -> Answer:
        deadline = await self._checked(request)
        subscription = request.parts.get("subscription", "")
        await self._backlogs.clear(request.namespace(), subscription, deadline)
        return DONE

    async def _unsubscribe(self, request: RestRequest) -> Answer:
        deadline = await self._checked(request)
        with refused_as({RejectionCode.NOT_EMPTY: 412}):
            await self._backlogs.unsubscribe(
                request.namespace(), request.parts["subscription"], deadline
            )
        return DONE

    async def _checked(self, request: RestRequest) -> Deadline:
        """Return the deadline for all topics of the namespace, which exists."""
        if "bundle" in request.parts:
            check_bundle(request)
        # All topics of a namespace take longer than one object's change.
        deadline = Deadline(REQUEST_TIMEOUT_MAX_MS)
        await self._namespaces.read(request.namespace().text, deadline)
        return deadline
