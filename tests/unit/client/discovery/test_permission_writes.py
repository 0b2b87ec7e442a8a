"""Grants and revocations through the client: what is written, and what of others is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nextgen.client.discovery.permission_writes import PermissionWrites
from nextgen.client.model import ObjectPolicies, Tenant, Written
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    SubscriptionPermission,
)
from nextgen.kernel.governance.policies import NO_POLICIES, Policies

NAMESPACE = "acme/orders"
PRODUCE, CONSUME = AuthAction.PRODUCE, AuthAction.CONSUME
OTHER = (Permission("other", (PRODUCE,)),)


class FakeClient(PermissionWrites):
    """A tenant, and an object with policies; ``overtaken`` times others change them meanwhile."""

    def __init__(self) -> None:
        self.policies = NO_POLICIES
        self.properties: Mapping[str, str] = {"a": "b"}
        self.version = 3
        self.overtaken = 0
        self.writes = 0

    async def get_tenant(self, name: str, *, min_position: int = 0) -> Tenant | None:
        return Tenant(name, "id", self.properties, self.version, False) if name == "acme" else None

    async def set_tenant_properties(self, name, properties, *, expected_version=0) -> Written:
        self._expect(expected_version)
        self.properties = properties
        return self._written()

    async def get_policies(self, name: str, *, merged: bool = False) -> ObjectPolicies:
        return ObjectPolicies(self.policies, self.version)

    async def set_policies(self, name, policies, *, expected_version=None) -> Written:
        self._expect(expected_version)
        self.policies = policies
        return self._written()

    def _expect(self, version: int) -> None:
        if self.overtaken:
            self.overtaken, self.version = self.overtaken - 1, self.version + 1
            self.policies = replace(self.policies, permissions=OTHER)
            self.properties = {**self.properties, "adminRoles": '["other"]'}
        if version != self.version:
            raise Refused(RejectionCode.VERSION_MISMATCH, "changed meanwhile")

    def _written(self) -> Written:
        self.version += 1
        self.writes += 1
        return Written("id", self.version, 1, 1)


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def test_a_grant_replaces_the_role_and_keeps_everything_else(client: FakeClient):
    client.policies = Policies(message_ttl_ms=5, permissions=(*OTHER,))

    await client.grant(NAMESPACE, "app", [CONSUME, PRODUCE])
    both = client.policies
    await client.grant(NAMESPACE, "app", iter([CONSUME]))

    assert both.permissions == (Permission("app", (PRODUCE, CONSUME)), *OTHER)
    assert client.policies == Policies(
        message_ttl_ms=5, permissions=(Permission("app", (CONSUME,)), *OTHER)
    )


async def test_a_revocation_is_written_also_if_it_changes_nothing(client: FakeClient):
    """It returns as effective, and an earlier one may not have become so."""
    client.policies = Policies(permissions=OTHER)

    written = [await client.revoke(NAMESPACE, "other") for _ in range(2)]

    assert client.policies == NO_POLICIES
    assert [each.version for each in written] == [4, 5]


async def test_roles_of_a_subscription_are_added_and_taken_one_by_one(client: FakeClient):
    await client.grant_subscription(NAMESPACE, "s", "b")
    await client.grant_subscription(NAMESPACE, "s", "a")
    await client.grant_subscription(NAMESPACE, "s", "a")
    both = client.policies.subscription_permissions
    await client.revoke_subscription(NAMESPACE, "s", "b")
    one = client.policies.subscription_permissions
    await client.revoke_subscription(NAMESPACE, "s", "a")

    assert both == (SubscriptionPermission("s", ("a", "b")),)
    assert one == (SubscriptionPermission("s", ("a",)),)
    assert client.policies == NO_POLICIES


async def test_admins_of_a_tenant_are_added_and_taken_one_by_one(client: FakeClient):
    await client.grant_admin("acme", "root")
    await client.grant_admin("acme", "boss")
    await client.grant_admin("acme", "root")
    both = client.properties
    await client.revoke_admin("acme", "root")

    assert both == {"a": "b", "adminRoles": '["boss","root"]'}
    assert client.properties == {"a": "b", "adminRoles": '["boss"]'}


@pytest.mark.parametrize("text", ["", "x", "{}", "[1]", '"root"', "[" * 100_000])
async def test_a_property_that_is_no_list_has_no_admins(client: FakeClient, text: str):
    client.properties = {"adminRoles": text}

    await client.grant_admin("acme", "root")

    assert client.properties == {"adminRoles": '["root"]'}


async def test_what_others_set_meanwhile_is_kept(client: FakeClient):
    client.overtaken = 4
    await client.grant(NAMESPACE, "app", [PRODUCE])
    client.overtaken = 4
    await client.grant_admin("acme", "root")

    assert client.policies.permissions == OTHER
    assert client.properties["adminRoles"] == '["other","root"]'


async def test_a_change_that_is_overtaken_each_time_is_refused(client: FakeClient):
    for change in (client.grant(NAMESPACE, "app", [PRODUCE]), client.grant_admin("acme", "root")):
        client.overtaken = 5
        with pytest.raises(Refused, match="changed meanwhile"):
            await change

    assert client.writes == 0


@pytest.mark.parametrize("role", ["", " a", "a\n", "x" * 257])
async def test_a_role_that_nobody_has_is_refused_before_anything_is_read(
    client: FakeClient, role: str
):
    for change in (
        client.grant(NAMESPACE, role, [PRODUCE]),
        client.grant_subscription(NAMESPACE, "s", role),
        client.grant_admin("acme", role),
    ):
        with pytest.raises(InvalidRequest, match="role"):
            await change

    assert client.writes == 0


async def test_a_grant_of_nothing_and_an_absent_tenant_are_refused(client: FakeClient):
    with pytest.raises(InvalidRequest, match="no action"):
        await client.grant(NAMESPACE, "app", [])
    with pytest.raises(Refused, match="does not exist"):
        await client.revoke_admin("nobody", "app")
