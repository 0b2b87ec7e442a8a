"""POST /admin/v2/{domain}/{tenant}/{namespace}/{topic}/rename: gives a topic another name.

Pulsar has no such call.
"""

from __future__ import annotations

from pydantic import BaseModel, Field, TypeAdapter

from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.answer import DONE, Answer
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Body, Route
from discovery.domain.topic_rename import Needs, needs_of_rename
from discovery.service.admin.topic_operations import TopicOperations
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.cluster import TOPIC_TEXT_CHARACTERS_MAX
from nextgen.kernel.limits.write import RENAME_GRACE_MS_MAX

_REFUSED = {RejectionCode.LIMIT_EXCEEDED: 412}


class Rename(BaseModel):
    """A topic's new name, and for how long the former one leads to it too."""

    newName: str = Field(min_length=1, max_length=TOPIC_TEXT_CHARACTERS_MAX)
    """Without a domain: of the topic's; without a slash besides: in its namespace."""
    graceSeconds: int | None = Field(default=None, ge=0, le=RENAME_GRACE_MS_MAX // 1_000)
    """None: an hour."""


class TopicRenames:
    """Answers 204 when the topic has its new name."""

    def __init__(self, operations: TopicOperations) -> None:
        self._operations = operations

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                f"{TOPIC}/rename",
                self._rename,
                "Give a topic another name, in any namespace; not in Pulsar",
                Action.DELETE,
                body=Body(TypeAdapter(Rename)),
                besides=_needed,
                answers={
                    204: "It has the new name.",
                    409: "The new name is taken, or the topic keeps its name; the reason says why.",
                },
            )
        ]

    async def _rename(self, request: RestRequest) -> Answer:
        body: Rename = request.body
        grace_ms = None if body.graceSeconds is None else body.graceSeconds * 1_000
        with refused_as(_REFUSED):
            await self._operations.rename(
                request.topic(), body.newName, grace_ms, request.timeout_ms
            )
        return DONE


def _needed(request: RestRequest) -> Needs:
    body: Rename = request.body
    return needs_of_rename(request.topic().text, body.newName)
