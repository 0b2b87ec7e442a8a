"""POST /admin/v2/tenants/{tenant}/rename and .../namespaces/{tenant}/{namespace}/rename.

Pulsar has no such calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import BaseModel, Field, TypeAdapter

from discovery.adapters.administration.namespaces import NAMESPACE
from discovery.adapters.administration.tenants import TENANT
from discovery.adapters.rest.answer import DONE, Answer, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Body, Route
from discovery.domain.parent_rename import Needs, needs_of_parent_rename
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.parent_renames import ParentRenames
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_MAX_MS
from nextgen.kernel.limits.listing import PAGE_TOKEN_CHARACTERS_MAX
from nextgen.kernel.limits.rest import REST_RENAME_MS
from nextgen.kernel.limits.write import RENAME_GRACE_MS_MAX
from nextgen.kernel.routing.names import parse_namespace, parse_tenant
from protos.nextgen.v1 import discovery_service_pb2 as pb

TurnOf = Callable[[pb.RenameParentRequest, int], Awaitable[pb.RenameParentResponse]]

_ANSWERS = {
    202: "It goes on with the next such request; the answer says how far it is.",
    204: "It has the new name alone.",
    409: "The new name is taken, or a topic keeps its name; the reason says why.",
}


class ParentRename(BaseModel):
    """The new name, and for how long former names of topics lead to them too."""

    newName: str = Field(min_length=1, max_length=PAGE_TOKEN_CHARACTERS_MAX)
    """``tenant/namespace``, or of a tenant."""
    graceSeconds: int | None = Field(default=None, ge=0, le=RENAME_GRACE_MS_MAX // 1_000)
    """None: an hour."""
    goOnWith: str = Field(default="", max_length=2 * PAGE_TOKEN_CHARACTERS_MAX)
    """Of the answer with 202, so that no topic is checked again."""


class ParentRenameRoutes:
    """Answers 204 when all is renamed, and 202 if that takes longer than ``answered_ms``."""

    def __init__(self, renames: ParentRenames, answered_ms: int = REST_RENAME_MS) -> None:
        self._renames = renames
        self._answered_ms = answered_ms

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                f"{NAMESPACE}/rename",
                self._rename_namespace,
                "Give a namespace another name, in any tenant; not in Pulsar",
                Action.DELETE,
                body=Body(TypeAdapter(ParentRename)),
                besides=_needed_of_namespace,
                answers=_ANSWERS,
            ),
            Route(
                "POST",
                f"{TENANT}/rename",
                self._rename_tenant,
                "Give a tenant another name; not in Pulsar",
                Action.DELETE,
                body=Body(TypeAdapter(ParentRename)),
                besides=_needed_of_tenant,
                answers=_ANSWERS,
            ),
        ]

    async def _rename_namespace(self, request: RestRequest) -> Answer:
        name = request.namespace().text
        return await self._in_turns(self._renames.rename_namespace, name, request.body)

    async def _rename_tenant(self, request: RestRequest) -> Answer:
        return await self._in_turns(self._renames.rename_tenant, request.tenant(), request.body)

    async def _in_turns(self, turn_of: TurnOf, name: str, body: ParentRename) -> Answer:
        grace_ms = None if body.graceSeconds is None else body.graceSeconds * 1_000
        request = pb.RenameParentRequest(
            name=name, new_name=body.newName, grace_ms=grace_ms, token=body.goOnWith
        )
        deadline = Deadline(self._answered_ms)
        renamed = checked = 0
        while True:
            turn = await turn_of(request, REQUEST_TIMEOUT_MAX_MS - REST_RENAME_MS)
            if turn.is_done:
                return DONE
            renamed, checked = renamed + turn.renamed, checked + turn.checked
            request.token = turn.next_token
            if deadline.is_over:
                return content(
                    {
                        "renamed": renamed,
                        "checked": checked,
                        "namespace": turn.namespace,
                        "goOnWith": turn.next_token,
                    },
                    status=202,
                )


def _needed_of_namespace(request: RestRequest) -> Needs:
    new_name = parse_namespace(request.body.newName).text
    return needs_of_parent_rename(Resource.namespace, request.namespace().text, new_name)


def _needed_of_tenant(request: RestRequest) -> Needs:
    new_name = parse_tenant(request.body.newName)
    return needs_of_parent_rename(Resource.tenant, request.tenant(), new_name)
