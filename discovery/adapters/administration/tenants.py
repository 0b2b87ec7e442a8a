"""/admin/v2/tenants"""

from __future__ import annotations

from pydantic import BaseModel, TypeAdapter

from discovery.adapters.rest.answer import (
    DONE,
    Answer,
    RestFailure,
    Stream,
    content,
    json_list,
    whole_or_streamed,
)
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import BOOLEAN, Body, Route
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.tenants import TenantInfo, TenantService
from nextgen.kernel.governance.access import Action
from nextgen.pulsar.policies.auth_policies import checked_role

_TENANTS = "/admin/v2/tenants"
TENANT = f"{_TENANTS}/{{tenant}}"


class TenantInfoBody(BaseModel):
    """Roles that administer a tenant, and clusters that its topics may be in."""

    adminRoles: list[str] | None = None
    allowedClusters: list[str] | None = None


class Tenants:
    """Answers as a Pulsar of one cluster."""

    def __init__(self, tenants: TenantService, cluster_name: str) -> None:
        self._tenants = tenants
        self._cluster_name = cluster_name

    def routes(self) -> list[Route]:
        body = Body(TypeAdapter(TenantInfoBody | None), is_required=False)
        return [
            Route(
                "GET",
                _TENANTS,
                self._list,
                "All tenants",
                Action.LIST,
                answers={200: "Their names, ascending."},
            ),
            Route(
                "GET",
                TENANT,
                self._get,
                "A tenant",
                Action.READ,
                answers={200: "Its roles and clusters."},
            ),
            Route(
                "PUT",
                TENANT,
                self._create,
                "Create a tenant",
                Action.CREATE,
                body=body,
                answers={204: "It is created.", 409: "It exists."},
            ),
            Route(
                "POST",
                TENANT,
                self._change,
                "Change a tenant's roles and clusters",
                Action.CHANGE,
                body=body,
                answers={204: "It is changed."},
            ),
            Route(
                "DELETE",
                TENANT,
                self._delete,
                "Delete a tenant without namespaces",
                Action.DELETE,
                query={"force": BOOLEAN},
                answers={204: "It is deleted.", 405: "Force.", 409: "It has namespaces."},
            ),
        ]

    async def _list(self, request: RestRequest) -> Answer | Stream:
        names = self._tenants.names(Deadline(request.timeout_ms))
        return await whole_or_streamed(json_list(names))

    async def _get(self, request: RestRequest) -> Answer:
        info = await self._tenants.info(request.tenant(), Deadline(request.timeout_ms))
        return content(
            {
                "adminRoles": list(info.admin_roles),
                "allowedClusters": list(info.allowed_clusters),
            }
        )

    async def _create(self, request: RestRequest) -> Answer:
        info = self._checked(request.body)
        await self._tenants.create(request.tenant(), info, Deadline(request.timeout_ms))
        return DONE

    async def _change(self, request: RestRequest) -> Answer:
        info = self._checked(request.body)
        await self._tenants.change(request.tenant(), info, Deadline(request.timeout_ms))
        return DONE

    async def _delete(self, request: RestRequest) -> Answer:
        if request.flag("force"):
            raise RestFailure(405, "a tenant is not deleted by force: delete its namespaces first")
        await self._tenants.delete(request.tenant(), Deadline(request.timeout_ms))
        return DONE

    def _checked(self, body: TenantInfoBody | None) -> TenantInfo:
        """Return what is to be stored.

        Raises:
            RestFailure: 412, no cluster is named, or one that does not exist.
            PolicyRefused: 412, nobody can have one of the roles.
        """
        clusters = dict.fromkeys(body.allowedClusters or () if body is not None else ())
        if not clusters or not all(cluster.strip() for cluster in clusters):
            raise RestFailure(412, "allowedClusters has no cluster, or a blank one")
        if unknown := sorted(clusters.keys() - {self._cluster_name}):
            known = self._cluster_name
            raise RestFailure(412, f"cluster {unknown[0][:80]!a} does not exist, only {known} does")
        roles = body.adminRoles or () if body is not None else ()
        return TenantInfo(tuple(sorted({checked_role(role) for role in roles})), tuple(clusters))
