"""A source's list of shadows: /admin/v2/persistent/{tenant}/{namespace}/{topic}/shadowTopics

The list is a policy of the source (ADR 0138). Shadows are created as other topics are, with a
property that names their source.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import TypeAdapter

from discovery.adapters.administration.topic_policies import topic_name
from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.answer import DONE, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import Body, Route
from discovery.domain.shadow_access import Needs, needs_of_shadows
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.object_policies import ObjectPolicies
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.limits.shadow import SHADOW_LIST_BODY_BYTES_MAX, SHADOWS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic

_BODY = Body(TypeAdapter(list[str]), bytes_max=SHADOW_LIST_BODY_BYTES_MAX)

_REFUSED = {RejectionCode.NOT_ALLOWED: 412, RejectionCode.LIMIT_EXCEEDED: 412}


class ShadowTopicRoutes:
    """Answers as a Pulsar does; a topic that is no shadow of the source is refused, too."""

    def __init__(self, policies: ObjectPolicies) -> None:
        self._policies = policies

    def routes(self) -> list[Route]:
        path = f"{TOPIC}/shadowTopics"
        partition = {405: "A partition has no policies of its own."}
        refusals = {
            403: "A name in the list is no topic's name.",
            412: "The list is empty or too long, or has a topic that is no shadow of this one.",
        }
        return [
            Route(
                "GET",
                path,
                self._get,
                "The shadows that a topic feeds",
                Action.READ,
                scope=ResourceKind.NAMESPACE,
                answers={200: "Their names.", 204: "None.", **partition},
            ),
            *(
                Route(
                    method,
                    path,
                    self._set,
                    "Set the shadows that a topic feeds",
                    Action.CHANGE,
                    besides=_listed,
                    body=_BODY,
                    answers={204: "They are set, and effective.", **partition, **refusals},
                )
                for method in ("PUT", "POST")
            ),
            Route(
                "DELETE",
                path,
                self._remove,
                "Feed no shadows: it lists none any more, and they stay",
                Action.CHANGE,
                answers={204: "It is done, and effective.", **partition},
            ),
        ]

    async def _get(self, request: RestRequest) -> Answer:
        found = await self._policies.read(topic_name(request), Deadline(request.timeout_ms))
        return content(list(found.shadow_topics)) if found.shadow_topics else DONE

    async def _set(self, request: RestRequest) -> Answer:
        source = topic_name(request)
        if request.topic().domain is not Domain.PERSISTENT:
            raise RestFailure(412, f"{source} is not persistent: it has no shadows")
        if not request.body:
            raise RestFailure(412, "the list is empty: remove the list instead")
        names = _shadows(request.body)
        await self._change(source, names, Deadline(request.timeout_ms))
        return DONE

    async def _remove(self, request: RestRequest) -> Answer:
        await self._change(topic_name(request), (), Deadline(request.timeout_ms))
        return DONE

    async def _change(self, source: str, names: tuple[str, ...], deadline: Deadline) -> None:
        with refused_as(_REFUSED):
            await self._policies.change(
                source, lambda policies: replace(policies, shadow_topics=names), deadline
            )


def _listed(request: RestRequest) -> Needs:
    return needs_of_shadows(_shadows(request.body))


def _shadows(texts: list[str]) -> tuple[str, ...]:
    """Return the names in a list, each once: Pulsar takes a list that repeats some.

    Raises:
        RestFailure: As ``_shadow``; 412, there are too many.
    """
    different = dict.fromkeys(texts)
    # Before they are parsed: that would take the loop from others.
    if len(different) > SHADOWS_PER_TOPIC_MAX:
        raise RestFailure(
            412, f"the list has {len(different)} names, at most {SHADOWS_PER_TOPIC_MAX} are allowed"
        )
    return tuple(dict.fromkeys(_shadow(text).text for text in different))


def _shadow(text: str) -> TopicName:
    """Return a listed topic's name.

    Raises:
        RestFailure: 403, it is no topic's name; 412, it is one that no shadow has.
    """
    try:
        name = parse_topic(text)
    except InvalidName as error:
        # A slip of Pulsar, which its admin clients turn into NotAuthorizedException.
        raise RestFailure(403, f"a name in the list is invalid: {error}") from error
    if name.domain is not Domain.PERSISTENT:
        raise RestFailure(412, f"{shown(text)} is not persistent: it cannot be a shadow")
    if name.partition is not None:
        raise RestFailure(412, f"{shown(text)} is a partition: list the whole topic")
    return name
