"""The routes of backlog quotas, which are read together and set one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import TypeAdapter

from discovery.adapters.administration.policy_routes import APPLIED
from discovery.adapters.rest.answer import DONE, Answer, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import TEXT_VALUE, Body, Route
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.object_policies import ObjectPolicies
from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.governance.policies import Policies
from nextgen.pulsar.policies import whole_policies
from nextgen.pulsar.policies.policy_table import without_contradiction
from nextgen.pulsar.policies.policy_types import BacklogQuotaBody
from nextgen.pulsar.policies.whole_policies import STORAGE_QUOTA, with_quota

_KIND = {"backlogQuotaType": TEXT_VALUE}


@dataclass(frozen=True, slots=True)
class QuotaRoutes:
    """Serves backlog quotas as ``PolicyRoutes`` serves other policies; fields as there."""

    path: str
    policies: ObjectPolicies
    name_of: Callable[[RestRequest], str]
    has_applied: bool = False

    def routes(self) -> list[Route]:
        quota = f"{self.path}/backlogQuota"
        return [
            Route(
                "GET",
                f"{self.path}/backlogQuotaMap",
                self._get,
                "Backlog quotas by kind",
                Action.READ,
                scope=ResourceKind.NAMESPACE,
                query=APPLIED if self.has_applied else {},
                answers={200: "The quotas that are set."},
            ),
            Route(
                "POST",
                quota,
                self._set,
                "Set a backlog quota",
                Action.CHANGE,
                body=Body(TypeAdapter(BacklogQuotaBody | None)),
                query=_KIND,
                answers={204: "It is set, and effective."},
            ),
            Route(
                "DELETE",
                quota,
                self._remove,
                "Remove a backlog quota",
                Action.CHANGE,
                query=_KIND,
                answers={204: "It is removed, and that is effective."},
            ),
        ]

    async def _get(self, request: RestRequest) -> Answer:
        merged = self.has_applied and request.flag("applied")
        name, deadline = self.name_of(request), Deadline(request.timeout_ms)
        found = await self.policies.read(name, deadline, merged=merged)
        return content(whole_policies.quotas(found))

    async def _set(self, request: RestRequest) -> Answer:
        return await self._write(request, request.body)

    async def _remove(self, request: RestRequest) -> Answer:
        return await self._write(request, None)

    async def _write(self, request: RestRequest, quota: BacklogQuotaBody | None) -> Answer:
        kind = request.query.get("backlogQuotaType") or STORAGE_QUOTA

        def change(policies: Policies) -> Policies:
            return without_contradiction(with_quota(policies, kind, quota), policies)

        await self.policies.change(self.name_of(request), change, Deadline(request.timeout_ms))
        return DONE
