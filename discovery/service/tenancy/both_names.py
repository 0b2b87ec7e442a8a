"""Both names of a tenant or namespace that is being renamed, at their shards.

begin ─▶ how far is it? ─▶ make: OLD marked, NEW a copy ─▶ ... ─▶ end: changes copied, OLD deleted
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from discovery.domain.parent_rename import (
    Parent,
    Stage,
    check_target,
    is_outdated,
    marked_new,
    marked_old,
    other_target,
    stage_of,
)
from discovery.service.admin.inventory import InventoryService
from discovery.service.tenancy.pages import repeated_change
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, LIFE_STATE_DELETING
from protos.nextgen.v1.policies_pb2 import Policies


@dataclass(frozen=True, slots=True)
class Kind:
    """What differs between tenants and namespaces."""

    noun: str
    """Also the field of an ``Item``, and in the fields of commands."""
    kind: Any
    create: type
    set_properties: type
    delete: type


TENANT = Kind(
    "tenant",
    KIND_TENANT,
    shard_pb.CreateTenant,
    shard_pb.SetTenantProperties,
    shard_pb.DeleteTenant,
)
NAMESPACE = Kind(
    "namespace",
    KIND_NAMESPACE,
    shard_pb.CreateNamespace,
    shard_pb.SetNamespaceProperties,
    shard_pb.DeleteNamespace,
)


class BothNames:
    """Carries out a rename's steps at both names. Raises ``MetadataError`` kinds only.

    ``remaining_ms`` returns the time until the caller's deadline.
    """

    def __init__(self, inventory: InventoryService, remaining_ms: Callable[[], int]) -> None:
        self._inventory = inventory
        self._remaining_ms = remaining_ms

    async def begin(self, kind: Kind, name: str, new_name: str) -> tuple[Parent | None, Stage]:
        """Return what is called ``name`` and how far its rename is; None: that is done.

        Raises:
            Refused: It may not begin, or not go on.
        """
        old, new = await asyncio.gather(self.read(kind, name), self.read(kind, new_name))
        stage = stage_of(kind.noun, name, new_name, old, new)
        if stage is Stage.DONE:
            return None, stage
        assert old is not None, "of an absent parent nothing is begun"
        await self.check_target(kind, old, new_name)
        return old, stage

    async def check_target(self, kind: Kind, old: Parent, new_name: str) -> None:
        """Raise if ``old`` is being renamed to another name than ``new_name``."""
        target_name = other_target(old, new_name)
        if target_name:
            check_target(old, await self.read(kind, target_name), target_name)

    async def make(self, kind: Kind, old: Parent, new_name: str) -> Parent:
        """Mark ``old`` and create its new name as a copy; return ``old`` as it was copied.

        Raises:
            Refused: Somebody else was faster.
        """

        async def mark() -> Parent:
            found = await self._present(kind, old.name)
            await self.check_target(kind, found, new_name)
            if marked_old(found, new_name) == found.properties:
                return found
            await self._set_properties(kind, found, marked_old(found, new_name))
            return await self._present(kind, old.name)

        found = await repeated_change(mark)
        body = kind.create(
            name=new_name,
            properties=marked_new(found),
            policies=Policies.FromString(found.policies) if found.policies else None,
            is_rename=True,
        )
        await self._execute(new_name, f"create_{kind.noun}", body)
        # Another rename may have begun between the mark and the new name.
        await self.check_target(kind, await self._present(kind, old.name), new_name)
        return found

    async def end(self, kind: Kind, name: str, new_name: str) -> bool:
        """Delete what is called ``name`` and empty; return whether it is gone.

        What was set there meanwhile is copied first.

        Raises:
            Refused: NOT_ALLOWED, both names were given other properties or policies meanwhile;
                NOT_EMPTY, VERSION_MISMATCH, something came about there just now.
        """
        old, new = await asyncio.gather(self.read(kind, name), self.read(kind, new_name))
        if old is None:
            return True
        if new is None:
            return False  # Somebody deleted it, empty as it was.
        body = kind.delete(name=name, expected_version=0 if old.is_deleting else old.version)
        # What is set behind this copy makes the deletion fail.
        if not old.is_deleting and is_outdated(old, new):
            await self._copy(kind, old, new)
        try:
            await self._execute(name, f"delete_{kind.noun}", body)
        except Refused as error:
            if error.code != RejectionCode.NOT_FOUND:
                raise
        return True

    async def _copy(self, kind: Kind, old: Parent, new: Parent) -> None:
        body = shard_pb.SetPolicies(
            kind=kind.kind,
            name=new.name,
            policies=Policies.FromString(old.policies) if old.policies else None,
            expected_version=new.policies_version,
            expects_none=not new.policies_version,
        )
        # Effective, so that a role whose permission was revoked cannot use it by the new name.
        await self._execute(new.name, "set_policies", body, shard_pb.CONSISTENCY_EFFECTIVE)
        # The digest last: if this is broken off, the two differ and nothing is overwritten later.
        found = await self._present(kind, new.name)
        if found.properties != new.properties:
            raise Refused(RejectionCode.VERSION_MISMATCH, f"{new.name} was changed just now")
        await self._set_properties(kind, found, marked_new(old))

    async def _set_properties(self, kind: Kind, parent: Parent, properties: dict[str, str]) -> None:
        body = kind.set_properties(
            name=parent.name,
            properties=properties,
            expected_version=parent.version,
            is_rename=True,
        )
        await self._execute(parent.name, f"set_{kind.noun}_properties", body)

    async def _execute(
        self, name: str, field: str, body: Any, consistency: Any = shard_pb.CONSISTENCY_ASYNC
    ) -> None:
        command = shard_pb.Command(**{field: body})
        write = pb.SetPropertiesRequest(consistency=consistency)
        await self._inventory.execute(name, command, write, self._remaining_ms())

    async def _present(self, kind: Kind, name: str) -> Parent:
        found = await self.read(kind, name)
        if found is None:
            raise Unavailable(f"{kind.noun} {name} was deleted during the rename")
        return found

    async def read(self, kind: Kind, name: str) -> Parent | None:
        """Return what has the name, linearizable; None: nothing has."""
        read = self._inventory.get_tenant if kind is TENANT else self._inventory.get_namespace
        item = (await read(pb.GetObjectRequest(name=name), self._remaining_ms())).item
        return parent_of(kind, getattr(item, kind.noun)) if item.HasField(kind.noun) else None


def parent_of(kind: Kind, message: Any) -> Parent:
    """Return the tenant or namespace in a message."""
    has_policies = message.HasField("policies")
    return Parent(
        kind.noun,
        getattr(message, f"{kind.noun}_id"),
        message.name,
        dict(message.properties),
        message.policies.SerializeToString(deterministic=True) if has_policies else b"",
        message.policies_version,
        message.version,
        message.state == LIFE_STATE_DELETING,
    )
