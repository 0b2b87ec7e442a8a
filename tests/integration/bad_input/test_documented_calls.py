"""Every call of /openapi.json, right and wrong, is answered as documented (ADR 0082).

schemathesis makes the calls from the document: values at and beyond every bound, missing and extra
ones, other types, bytes that are no JSON. tests/support/schemathesis.toml configures it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located, StoredSchema
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.rest_world import RestWorld, rest_world

pytestmark = pytest.mark.timeout(600)

CONFIGURATION = Path(__file__).parents[2] / "support" / "schemathesis.toml"
EVERY = 32
"""Of so many calls `make test` tries one; `make nightly` tries all."""

SUMMARY = re.compile(r"=+ SUMMARY =+\n.*", re.DOTALL)


class KnownTopics:
    """The topics' directory of discovery: one broker serves all that the shards have."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        self._check(name)
        return 0

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        self._check(name)
        return Located(name.text, "b-2", "s-2", "pulsar://b-2:6650", "id", "", 1)

    def any_broker_url(self, topic: str) -> str:
        return "pulsar://b-2:6650"

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        self._check(name)
        return None

    def _check(self, name: TopicName) -> None:
        if name.text not in self.names:
            raise Refused(RejectionCode.NOT_FOUND, f"there is no topic {name.text}")


async def fill(rest: RestWorld, topics: KnownTopics) -> None:
    """Make what schemathesis.toml names."""
    await rest.world.create_tenant("acme")
    created = [await rest.call("PUT", "/admin/v2/namespaces/acme/orders")]
    for topic in ("plain", "doomed"):
        created.append(await rest.call("PUT", f"/admin/v2/persistent/acme/orders/{topic}"))
    parted = "/admin/v2/persistent/acme/orders/parted/partitions"
    created.append(await rest.call("PUT", parted, json=3))
    assert {reply.status for reply in created} == {204}
    topics.names |= {f"persistent://acme/orders/{topic}" for topic in ("plain", "doomed")}


async def schemathesis(rest: RestWorld, *more: str) -> tuple[int, str]:
    """Run it against ``rest``; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION)),
        *("run", f"http://127.0.0.1:{rest.client.port}/openapi.json", "--no-color", *more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def run_all(*, every: int = 1) -> tuple[int, str]:
    """Run schemathesis over each ``every``-th call of the document; return as it does."""
    topics = KnownTopics()
    async with rest_world(topics, FakeOwners()) as rest:
        await fill(rest, topics)
        paths = (await rest.call("GET", "/openapi.json")).json["paths"].values()
        calls = [call["operationId"] for path in paths for call in path.values()][::every]
        wanted = [f"--include-operation-id={call}" for call in calls] if every > 1 else []

        failed, printed = await schemathesis(rest, *wanted)

    print(summary(printed))
    assert f"Tested: {len(calls)}\n" in printed, printed[-20_000:]
    return failed, printed


async def test_some_documented_calls_are_answered_as_documented():
    failed, printed = await run_all(every=EVERY)

    assert not failed, printed[-20_000:]


@pytest.mark.slow
async def test_all_documented_calls_are_answered_as_documented():
    failed, printed = await run_all()

    assert not failed, printed[-20_000:]


@pytest.mark.slow
async def test_a_mistake_of_ours_is_found():
    def fail(_request: pb.ShardRequest) -> None:
        raise ZeroDivisionError

    async with rest_world() as rest:
        rest.shards.before = fail

        failed, printed = await schemathesis(rest, "--include-operation-id=get_admin_v2_tenants")

    assert failed
    assert "ZeroDivisionError" in printed


def summary(printed: str) -> str:
    found = SUMMARY.search(printed)
    return found[0] if found is not None else printed
