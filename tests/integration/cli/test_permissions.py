"""Permissions on the command line, over HTTP and through the client, on one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pulsar
import pytest
import pytest_asyncio

from nextgen.client import Client
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.permissions import AuthAction
from nextgen.kernel.limits.placement import PERMISSIONS_PER_OBJECT_MAX
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.processes.local_cluster import ClusterSize, running_cluster
from tests.support.processes.operator import NAMESPACE, Operator

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SIZE = ClusterSize(1, 1, 1, brokers=1, shards=2)
BOTH = ["produce", "consume"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with running_cluster(directory, SIZE) as cluster, aiohttp.ClientSession() as session:
        made = Operator(cluster, session, "namespaces")
        await made.make_namespace()
        yield made


async def test_permissions_are_the_same_on_the_command_line_and_over_http(
    operator: Operator,
) -> None:
    topic = f"persistent://{NAMESPACE}/paid"
    await operator.done("topics", "create", topic)

    said = await operator.done("permissions", "grant", NAMESPACE, "app", "consume", "produce")
    await operator.done("permissions", "grant", topic, "audit", "consume")
    await operator.done("permissions", "grant", NAMESPACE, "app", "-s", "mine")
    await operator.done("permissions", "grant", "acme", "boss")

    assert said == f"app may consume, produce with {NAMESPACE}\n"
    assert await operator.call("GET", f"{NAMESPACE}/permissions") == (200, {"app": BOTH})
    both = {"app": BOTH, "audit": ["consume"]}
    assert await operator.admin("GET", f"persistent/{NAMESPACE}/paid/permissions") == (200, both)
    subscriptions = await operator.call("GET", f"{NAMESPACE}/permissions/subscription")
    assert subscriptions == (200, {"mine": ["app"]})
    assert (await operator.admin("GET", "tenants/acme"))[1]["adminRoles"] == ["boss"]
    assert (await operator.shown("permissions", "show", topic, "--merged"))["permissions"] == both
    assert (await operator.shown("permissions", "show", "acme"))["admins"] == ["boss"]

    await operator.done("permissions", "revoke", topic, "audit")
    await operator.done("permissions", "revoke", NAMESPACE, "app", "-s", "mine")
    await operator.done("permissions", "revoke", "acme", "boss")
    assert (await operator.call("DELETE", f"{NAMESPACE}/permissions/app"))[0] == 204

    shown = await operator.shown("permissions", "show", NAMESPACE)
    assert (shown["permissions"], shown["subscriptions"]) == ({}, {})
    assert (await operator.shown("permissions", "show", "acme"))["admins"] == []
    code, _, errors = await operator.run(
        "permissions", "grant", f"{NAMESPACE}/gone", "a", "consume"
    )
    assert (code, "does not exist" in errors) == (ExitCode.REFUSED, True), errors


async def test_no_grant_of_different_callers_at_a_time_is_lost(operator: Operator) -> None:
    """Discovery's turns do not bind those who write policies over gRPC."""
    names = [f"role-{number:02d}" for number in range(12)]

    async def over_http(role: str) -> None:
        status = 0
        while status != 204:
            path = f"{NAMESPACE}/permissions/{role}"
            status, _ = await operator.call("POST", path, json=BOTH)
            assert status in (204, 409)

    async def over_grpc(client: Client, role: str) -> None:
        while True:
            try:
                await client.grant(NAMESPACE, role, [AuthAction.PRODUCE, AuthAction.CONSUME])
            except Refused as refused:
                if refused.code != RejectionCode.VERSION_MISMATCH:
                    raise
            else:
                return

    async with Client([operator.grpc], effective=True) as client:
        await asyncio.gather(
            *(over_http(role) for role in names[::2]),
            *(over_grpc(client, role) for role in names[1::2]),
        )

    found = await operator.call("GET", f"{NAMESPACE}/permissions")
    assert found == (200, dict.fromkeys(names, BOTH))


def publish(service_url: str, topic: str) -> None:
    client = pulsar.Client(service_url)
    try:
        client.create_producer(topic).send(b"a message")
    finally:
        client.close()


async def test_a_namespace_with_all_roles_that_it_may_have_serves_its_topics(
    operator: Operator,
) -> None:
    """Its policies are sixteen times what those of others may have, in each answer and delivery."""
    roles = {f"{number:05d}".rjust(50, "r"): BOTH for number in range(PERMISSIONS_PER_OBJECT_MAX)}
    body = {"auth_policies": {"namespace_auth": roles}}
    topic = "persistent://acme/large/paid"

    assert await operator.call("PUT", "acme/large", json=body) == (204, None)
    await operator.done("topics", "create", topic)
    await asyncio.to_thread(publish, operator.service_url, topic)
    code, refused = await operator.call("POST", "acme/large/permissions/more", json=BOTH)
    changed = sorted(roles)[-30:]
    async with operator.client() as client:
        # Each changes some 250 KiB, and nobody waits until the broker has it.
        for role in changed:
            await client.grant("acme/large", role, [AuthAction.PRODUCE])
    revoked, _ = await operator.call("DELETE", f"acme/large/permissions/{min(roles)}")

    assert (code, "4001 roles, at most 4000" in refused["reason"]) == (412, True)
    assert revoked == 204
    roles |= {role: ["produce"] for role in changed}
    del roles[min(roles)]
    assert await operator.call("GET", "acme/large/permissions") == (200, roles)
    await asyncio.to_thread(publish, operator.service_url, topic)
    assert (await operator.shown("policies", "get", "acme/large"))["version"] == 32
