"""Tenants as Pulsar's tools see them: with roles and clusters, which are properties here."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from discovery.service.admin.deadline import Deadline
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.tenancy.pages import name_batches, repeated_change
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.permissions import (
    ADMIN_ROLES_PROPERTY,
    admin_roles_in,
    admin_roles_text,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Tenant
from protos.nextgen.v1.shard_service_pb2 import CONSISTENCY_EFFECTIVE

CLUSTERS_PROPERTY = "allowedClusters"


@dataclass(frozen=True, slots=True)
class TenantInfo:
    """What Pulsar keeps of a tenant. The roles are its admins."""

    admin_roles: tuple[str, ...]
    allowed_clusters: tuple[str, ...]


class TenantService:
    """Every method raises ``MetadataError`` kinds only."""

    def __init__(
        self, inventory: InventoryService, listing: ListingService, cluster_name: str
    ) -> None:
        self._inventory = inventory
        self._listing = listing
        self._cluster_name = cluster_name

    def names(self, deadline: Deadline) -> AsyncGenerator[Sequence[str]]:
        """Yield the names of all tenants, ascending, in batches."""
        return name_batches(self._listing.list_tenants, deadline)

    async def info(self, name: str, deadline: Deadline) -> TenantInfo:
        """Return what is stored; a tenant without clusters has this one.

        Raises:
            Refused: NOT_FOUND.
        """
        properties = (await self._read(name, deadline)).properties
        clusters = _clusters_in(properties) or (self._cluster_name,)
        return TenantInfo(admin_roles_in(properties), clusters)

    async def create(self, name: str, info: TenantInfo, deadline: Deadline) -> None:
        """Create a tenant.

        Raises:
            Refused: ALREADY_EXISTS, LIMIT_EXCEEDED.
        """
        await self._inventory.create_tenant(
            pb.CreateTenantRequest(name=name, properties=_properties(info)), deadline.remaining_ms()
        )

    async def change(self, name: str, info: TenantInfo, deadline: Deadline) -> None:
        """Replace a tenant's roles and clusters; its other properties stay. Return when that is
        effective: a role that is gone administers nothing any more.

        Raises:
            Refused: NOT_FOUND, LIMIT_EXCEEDED.
        """

        async def attempt() -> None:
            found = await self._read(name, deadline)
            await self._inventory.set_tenant_properties(
                pb.SetPropertiesRequest(
                    name=name,
                    properties={**found.properties, **_properties(info)},
                    expected_version=found.version,
                    consistency=CONSISTENCY_EFFECTIVE,
                ),
                deadline.remaining_ms(),
            )

        await repeated_change(attempt)

    async def delete(self, name: str, deadline: Deadline) -> None:
        """Delete a tenant.

        Raises:
            Refused: NOT_FOUND, NOT_EMPTY.
        """
        await self._inventory.delete_tenant(pb.DeleteRequest(name=name), deadline.remaining_ms())

    async def _read(self, name: str, deadline: Deadline) -> Tenant:
        response = await self._inventory.get_tenant(
            pb.GetObjectRequest(name=name), deadline.remaining_ms()
        )
        if not response.item.HasField("tenant"):
            raise Refused(RejectionCode.NOT_FOUND, f"tenant {name} does not exist")
        return response.item.tenant


def _properties(info: TenantInfo) -> dict[str, str]:
    return {
        ADMIN_ROLES_PROPERTY: admin_roles_text(info.admin_roles),
        CLUSTERS_PROPERTY: json.dumps(info.allowed_clusters, separators=(",", ":")),
    }


def _clusters_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the clusters; none if anybody has set the property to something else."""
    try:
        names = json.loads(properties.get(CLUSTERS_PROPERTY, "[]"))
    except ValueError:
        return ()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list else ()
