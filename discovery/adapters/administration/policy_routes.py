"""The routes of single policies: read, set, remove."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from discovery.adapters.rest.answer import DONE, JSON, TEXT, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import BOOLEAN, TEXT_VALUE, Body, Route
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.object_policies import ObjectPolicies
from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.names import Domain
from nextgen.pulsar.policies.policy_table import (
    UNSET,
    Policy,
    checked,
    without_contradiction,
)

APPLIED = {"applied": BOOLEAN}
"""The query of a read: with true the value in force, which may be the namespace's or tenant's."""


@dataclass(frozen=True, slots=True)
class PolicyRoutes:
    """Serves policies below ``path`` of the objects that ``name_of`` finds in requests."""

    path: str
    policies: ObjectPolicies
    name_of: Callable[[RestRequest], str]
    has_applied: bool = False
    """Whether ``?applied=true`` reads the value that is in force, of any level."""
    topic_domain: str = Domain.PERSISTENT.value
    """The domain of the topic in ``path``, if that names none."""

    def routes(self, table: Iterable[Policy]) -> list[Route]:
        return [route for policy in table for route in self._routes_of(policy)]

    def _routes_of(self, policy: Policy) -> list[Route]:
        path = f"{self.path}/{policy.name}"
        unset = "Its value." if policy.unset is not UNSET else "Its value; 204 while it is unset."
        body = None
        if policy.set_without_body is UNSET and not policy.is_in_query:
            body = Body(
                policy.type,
                media_types=(JSON, TEXT) if policy.is_text else (JSON,),
                is_text=policy.is_text,
                is_required=not policy.is_removed_by_null,
            )
        refusals = {policy.refused_with: "A value that makes no sense."}
        routes = [
            Route(
                "GET",
                path,
                partial(self._get, policy),
                policy.summary,
                Action.READ,
                scope=ResourceKind.NAMESPACE,
                query=APPLIED if self.has_applied else {},
                topic_domain=self.topic_domain,
                answers={200: unset, **({204: "Unset."} if policy.unset is UNSET else {})},
            ),
            Route(
                policy.set_by,
                path,
                partial(self._set, policy),
                f"Set: {policy.summary}",
                Action.CHANGE,
                body=body,
                query={policy.name: TEXT_VALUE} if policy.is_in_query else {},
                topic_domain=self.topic_domain,
                answers={204: "It is set, and effective.", **refusals},
            ),
        ]
        if policy.removed_at is not None:
            removed_at = policy.removed_at or policy.name
            routes.append(
                Route(
                    "DELETE",
                    f"{self.path}/{removed_at}",
                    partial(self._remove, policy),
                    f"Remove: {policy.summary}",
                    Action.CHANGE,
                    topic_domain=self.topic_domain,
                    answers={204: "It is removed, and that is effective."},
                )
            )
        return routes

    async def _get(self, policy: Policy, request: RestRequest) -> Answer:
        merged = self.has_applied and request.flag("applied")
        name, deadline = self.name_of(request), Deadline(request.timeout_ms)
        value = policy.read(await self.policies.read(name, deadline, merged=merged))
        if value is UNSET:
            value = policy.unset
        if value is UNSET:
            return DONE
        if policy.is_text:
            return Answer(200, str(value).encode())
        return content(value)

    async def _set(self, policy: Policy, request: RestRequest) -> Answer:
        value = policy.set_without_body
        if policy.is_in_query:
            value = checked(policy, _of_query(policy, request))
        elif value is UNSET:
            value = checked(policy, request.body)
        await self._write(policy, value, request)
        return DONE

    async def _remove(self, policy: Policy, request: RestRequest) -> Answer:
        await self._write(policy, None, request)
        return DONE

    async def _write(self, policy: Policy, value: Any, request: RestRequest) -> None:
        def change(policies: Policies) -> Policies:
            return without_contradiction(policy.write(policies, value), policies)

        await self.policies.change(self.name_of(request), change, Deadline(request.timeout_ms))


def _of_query(policy: Policy, request: RestRequest) -> Any:
    """Return the value of the query's parameter of this name.

    Raises:
        RestFailure: 400, there is none of this type.
    """
    text = request.query.get(policy.name, "")
    try:
        return policy.type.validate_json(text, strict=True)
    except ValidationError as error:
        raise RestFailure(400, f"{policy.name} is {shown(text)} in the query") from error
