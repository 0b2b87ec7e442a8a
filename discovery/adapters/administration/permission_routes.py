"""Permissions of roles on namespaces, topics and subscriptions, which are policies (ADR 0148).

They are stored, and shown, also while nobody asks for them: so they are granted first, and
authorisation is turned on then. A Pulsar without authorisation answers 501. Each change is answered
once no process decides by the former permissions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, TypeAdapter

from discovery.adapters.administration.namespaces import NAMESPACE, NAMESPACES
from discovery.adapters.administration.topic_policies import topic_name, whole_topic
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.answer import DONE, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import Body, Route
from discovery.service.admin.deadline import Deadline, all_of
from discovery.service.tenancy.object_policies import Change, ObjectPolicies
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permissions,
    granted,
    granted_subscription,
    subscription_roles,
)
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.placement import NAMESPACE_POLICIES_BYTES_MAX
from nextgen.kernel.limits.rest import TOPIC_GRANTS_PER_REQUEST_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.policies.auth_policies import (
    ActionName,
    by_role,
    by_subscription,
    checked_role,
)

_ACTIONS = Body(TypeAdapter(list[ActionName]))
_ROLES = Body(TypeAdapter(list[str]), bytes_max=4 * NAMESPACE_POLICIES_BYTES_MAX)
"""All roles that fit into the policies, as JSON, four times over."""

_NONE_THERE = "Permissions are not set at the topic level"
"""Pulsar's words, by which Go's library and others know it."""

_NO_ACTION = "no action is named: what a role is permitted is taken back, not set to nothing"

_DONE = {204: "It is done, and effective.", 409: "Others changed the same policies each time."}
_NO_ROLE = {412: "A role that nobody can have, no action, or too many permissions."}
_NO_PARTITION = {405: "A partition has no permissions of its own."}


_AT_A_TIME = 16
"""Topics of one request that are changed together: each waits until it is effective."""


class TopicRevocation(BaseModel):
    """A role that a topic is to permit nothing."""

    topic: str
    role: str


class TopicGrant(TopicRevocation):
    """What a topic is to permit a role."""

    actions: list[ActionName]


_GRANTS = Body(TypeAdapter(list[TopicGrant]), bytes_max=4 * NAMESPACE_POLICIES_BYTES_MAX)
_REVOCATIONS = Body(TypeAdapter(list[TopicRevocation]), bytes_max=4 * NAMESPACE_POLICIES_BYTES_MAX)


class PermissionRoutes:
    """Answers as a Pulsar with authorisation does."""

    def __init__(self, policies: ObjectPolicies) -> None:
        self._policies = policies

    def routes(self) -> list[Route]:
        return [
            *self._of_namespaces(),
            *self._of_subscriptions(),
            *self._of_topics(),
            *self._of_many_topics(),
        ]

    def _of_namespaces(self) -> list[Route]:
        path = f"{NAMESPACE}/permissions"
        return [
            Route(
                "GET",
                path,
                self._get,
                "What each role may do in a namespace",
                Action.READ,
                answers={200: "Actions by role."},
            ),
            Route(
                "POST",
                f"{path}/{{role}}",
                self._grant,
                "Permit a role these actions, and no others, in a namespace",
                Action.CHANGE,
                body=_ACTIONS,
                answers={**_DONE, **_NO_ROLE},
            ),
            Route(
                "DELETE",
                f"{path}/{{role}}",
                self._revoke,
                "Permit a role nothing in a namespace",
                Action.CHANGE,
                answers=_DONE,
            ),
        ]

    def _of_subscriptions(self) -> list[Route]:
        path = f"{NAMESPACE}/permissions"
        return [
            Route(
                "GET",
                f"{path}/subscription",
                self._get_subscriptions,
                "Subscriptions of a namespace that only certain roles may use",
                Action.READ,
                answers={200: "Roles by subscription."},
            ),
            Route(
                "POST",
                f"{path}/subscription/{{subscription}}",
                self._grant_subscription,
                "Permit a subscription's use to these roles only",
                Action.CHANGE,
                body=_ROLES,
                answers={**_DONE, **_NO_ROLE},
            ),
            Route(
                "DELETE",
                f"{path}/{{subscription}}/{{role}}",
                self._revoke_subscription,
                "Take a role from those of a subscription; without any, all may use it",
                Action.CHANGE,
                answers=_DONE,
            ),
        ]

    def _of_topics(self) -> list[Route]:
        path = f"{TOPIC}/permissions"
        return [
            Route(
                "GET",
                path,
                self._get_topic,
                "What each role may do with a topic, by its namespace and by itself",
                # Who may is what only admins see; READ is for all who may use the topic.
                Action.CHANGE,
                answers={200: "Actions by role.", **_NO_PARTITION},
            ),
            Route(
                "POST",
                f"{path}/{{role}}",
                self._grant_topic,
                "Permit a role these actions, and no others, with a topic",
                Action.CHANGE,
                body=_ACTIONS,
                answers={**_DONE, **_NO_ROLE, **_NO_PARTITION},
            ),
            Route(
                "DELETE",
                f"{path}/{{role}}",
                self._revoke_topic,
                "Take back what a role is permitted with a topic by the topic itself",
                Action.CHANGE,
                answers={**_DONE, 412: "The topic permits it nothing.", **_NO_PARTITION},
            ),
        ]

    def _of_many_topics(self) -> list[Route]:
        rows = (
            ("grantPermissionsOnTopics", self._grant_topics, "Permit", _GRANTS),
            ("revokePermissionsOnTopics", self._revoke_topics, "Take back", _REVOCATIONS),
        )
        return [
            Route(
                "POST",
                f"{NAMESPACES}/{last}",
                work,
                f"{what} roles on topics of one namespace, topic by topic",
                # By the body: a change of the namespace.
                Action.CONNECT,
                besides=lambda request: [(Action.CHANGE, Resource.namespace(_one(request)))],
                body=body,
                answers={**_DONE, **_NO_ROLE, **_NO_PARTITION, 404: "Some topic; none is changed."},
            )
            for last, work, what, body in rows
        ]

    # Namespaces -------------------------------------------------------------------------------

    async def _get(self, request: RestRequest) -> Answer:
        return content(by_role((await self._read(request)).permissions))

    async def _grant(self, request: RestRequest) -> Answer:
        await self._change(request.namespace().text, _grant(request), request)
        return DONE

    async def _revoke(self, request: RestRequest) -> Answer:
        await self._change(request.namespace().text, _revoke(request), request)
        return DONE

    # Subscriptions ----------------------------------------------------------------------------

    async def _get_subscriptions(self, request: RestRequest) -> Answer:
        return content(by_subscription((await self._read(request)).subscription_permissions))

    async def _grant_subscription(self, request: RestRequest) -> Answer:
        roles = [checked_role(role) for role in request.body]
        await self._change_subscription(request, lambda present: roles)
        return DONE

    async def _revoke_subscription(self, request: RestRequest) -> Answer:
        role = request.parts["role"]
        await self._change_subscription(
            request, lambda present: [each for each in present if each != role]
        )
        return DONE

    async def _change_subscription(self, request: RestRequest, change: Any) -> None:
        subscription = request.parts["subscription"]

        def changed(policies: Policies) -> Policies:
            held = policies.subscription_permissions
            roles = change(subscription_roles(held, subscription))
            after = granted_subscription(held, subscription, roles)
            return replace(policies, subscription_permissions=after)

        await self._change(request.namespace().text, changed, request)

    # Topics -----------------------------------------------------------------------------------

    async def _get_topic(self, request: RestRequest) -> Answer:
        name, deadline = topic_name(request), Deadline(request.timeout_ms)
        return content(
            by_role((await self._policies.read(name, deadline, merged=True)).permissions)
        )

    async def _grant_topic(self, request: RestRequest) -> Answer:
        await self._change(topic_name(request), _grant(request), request)
        return DONE

    async def _revoke_topic(self, request: RestRequest) -> Answer:
        role = request.parts["role"]
        was_there = False

        def change(policies: Policies) -> Policies:
            nonlocal was_there
            was_there = any(each.role == role for each in policies.permissions)
            return _revoke(request)(policies)

        await self._change(topic_name(request), change, request)
        if not was_there:
            raise RestFailure(412, _NONE_THERE)
        return DONE

    async def _grant_topics(self, request: RestRequest) -> Answer:
        for grant in request.body:
            checked_role(grant.role)
            if not grant.actions:
                raise RestFailure(412, _NO_ACTION)
        return await self._change_topics(
            request, lambda held, each: granted(held, each.role, map(AuthAction, each.actions))
        )

    async def _revoke_topics(self, request: RestRequest) -> Answer:
        return await self._change_topics(request, lambda held, each: granted(held, each.role, ()))

    async def _change_topics(
        self, request: RestRequest, change: Callable[[Permissions, Any], Permissions]
    ) -> Answer:
        """Change the topics of a body, each in the order of what it says about it."""
        _one(request)
        deadline = Deadline(request.timeout_ms)
        by_topic: dict[str, list[Any]] = {}
        for each in request.body:
            by_topic.setdefault(whole_topic(parse_topic(each.topic)), []).append(each)

        async def changed(name: str) -> None:
            def with_all(policies: Policies) -> Policies:
                held = policies.permissions
                for each in by_topic[name]:
                    held = change(held, each)
                return replace(policies, permissions=held)

            await self._policies.change(name, with_all, deadline, is_confirmed=True)

        names = list(by_topic)
        for start in range(0, len(names), _AT_A_TIME):
            await all_of(self._policies.read(name, deadline) for name in names[start:][:_AT_A_TIME])
        for start in range(0, len(names), _AT_A_TIME):
            await all_of(changed(name) for name in names[start:][:_AT_A_TIME])
        return DONE

    # ------------------------------------------------------------------------------------------

    async def _read(self, request: RestRequest) -> Policies:
        return await self._policies.read(request.namespace().text, Deadline(request.timeout_ms))

    async def _change(self, name: str, change: Change, request: RestRequest) -> None:
        # An earlier attempt of the same may have ended before it was effective.
        deadline = Deadline(request.timeout_ms)
        await self._policies.change(name, change, deadline, is_confirmed=True)


def _grant(request: RestRequest) -> Change:
    role = checked_role(request.parts["role"])
    actions = [AuthAction(name) for name in request.body]
    if not actions:
        raise RestFailure(412, _NO_ACTION)
    return lambda policies: replace(
        policies, permissions=granted(policies.permissions, role, actions)
    )


def _revoke(request: RestRequest) -> Change:
    role = request.parts["role"]
    return lambda policies: replace(policies, permissions=granted(policies.permissions, role, ()))


def _one(request: RestRequest) -> str:
    """Return the namespace of all topics in a body.

    Raises:
        RestFailure: 400, there is none, or several; 412, there are too many topics.
        InvalidName: A topic can have no such name.
    """
    if len(request.body) > TOPIC_GRANTS_PER_REQUEST_MAX:
        raise RestFailure(
            412, f"{len(request.body)} grants, at most {TOPIC_GRANTS_PER_REQUEST_MAX} are allowed"
        )
    namespaces = {parse_topic(each.topic).namespace_text for each in request.body}
    if len(namespaces) != 1:
        raise RestFailure(400, "the topics are not of one namespace")
    return namespaces.pop()
