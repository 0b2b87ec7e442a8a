"""Shadow topics on the command line, over HTTP and through the client, on one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from nextgen.client import BlockingClient, Client
from nextgen.kernel.errors import Refused
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.tasks.timeouts import timeout
from tests.support.processes.local_cluster import ClusterSize, running_cluster
from tests.support.processes.operator import COMMAND_S_MAX, NAMESPACE, Operator

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SIZE = ClusterSize(1, 1, 1, brokers=2, shards=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with running_cluster(directory, SIZE) as cluster, aiohttp.ClientSession() as session:
        made = Operator(cluster, session, "persistent")
        await made.make_namespace()
        yield made


async def test_shadows_are_the_same_on_the_command_line_and_over_http(operator: Operator) -> None:
    source = f"persistent://{NAMESPACE}/source"
    first, second = (f"persistent://{NAMESPACE}/shadow-{number}" for number in (1, 2))
    await operator.done("topics", "create", source, "--partitions", "3")

    output = await operator.done("topics", "create-shadow", first, "--source", source)
    await operator.done("topics", "create-shadow", second, "-s", source, "--unlisted", "-p", "a=b")

    assert output == f"created {first}, a shadow of {source}\n"
    assert (await operator.shown("topics", "get", second))["partitions"] == 3
    assert (await operator.shown("topics", "get-shadow-source", second))["source"] == source
    listed = f"{NAMESPACE}/source/shadowTopics"
    assert await operator.call("GET", listed) == (200, [first])
    await operator.done("topics", "set-shadows", source, second, f"{NAMESPACE}/shadow-1")
    assert await operator.call("GET", listed) == (200, [second, first])
    await operator.done("topics", "remove-shadows", source, second)
    assert (await operator.shown("topics", "get-shadows", source))["shadows"] == [first]
    await operator.done("topics", "remove-shadows", source)
    assert await operator.call("GET", listed) == (204, None)
    output = await operator.done("topics", "get-shadow-source", source)
    assert output == f"{source} is no shadow\n"


async def test_what_is_refused_names_its_reason(operator: Operator) -> None:
    for name in ("plain", "other"):
        await operator.done("topics", "create", f"{NAMESPACE}/{name}")

    for arguments, why in (
        (("create-shadow", f"{NAMESPACE}/s", "-s", f"{NAMESPACE}/absent"), "does not exist"),
        (("set-shadows", f"{NAMESPACE}/plain", f"{NAMESPACE}/other"), "which is no shadow"),
        (("set-shadows", f"{NAMESPACE}/plain", f"{NAMESPACE}/plain"), "the topic itself"),
        (("get-shadow-source", f"{NAMESPACE}/absent"), "does not exist"),
    ):
        code, _, errors = await operator.run("topics", *arguments)
        assert (code, why in errors.replace("\n", " ")) == (ExitCode.REFUSED, True), errors


async def test_both_clients_have_the_same_methods(operator: Operator) -> None:
    source, shadow = (f"persistent://{NAMESPACE}/{name}" for name in ("kept", "kept-shadow"))
    async with Client([operator.grpc]) as client:
        await client.create_topics([source])
        await client.create_shadow(shadow, source)
        assert await client.get_shadows(source) == [shadow]

    def blocking() -> tuple[list[str], str]:
        with BlockingClient([operator.grpc]) as client:
            client.remove_shadows(source)
            client.set_shadows(source, [shadow])
            with pytest.raises(Refused):
                client.create_shadow(shadow, source)
            return client.get_shadows(source), client.get_shadow_source(shadow)

    assert await asyncio.to_thread(blocking) == ([shadow], source)


STRING, INT32 = ({"type": kind, "schema": "", "properties": {}} for kind in ("STRING", "INT32"))


async def test_schema_of_a_shadow_is_that_of_its_source_and_is_not_changed(
    operator: Operator,
) -> None:
    source, shadow = (f"persistent://{NAMESPACE}/{name}" for name in ("typed", "typed-shadow"))
    of_source, of_shadow = (f"schemas/{NAMESPACE}/{name}" for name in ("typed", "typed-shadow"))
    await operator.done("topics", "create", source)
    await operator.done("topics", "create-shadow", shadow, "-s", source)
    assert (await operator.admin("POST", f"{of_source}/schema", json=STRING))[0] == 200

    async def kind_of(path: str) -> str:
        status, found = await operator.admin("GET", path)
        return found["type"] if status == 200 else str(status)

    async with timeout(COMMAND_S_MAX):
        while await kind_of(f"{of_shadow}/schema") != "STRING":
            await asyncio.sleep(0.1)
    assert await kind_of(f"{of_shadow}/schema/0") == "STRING"
    assert await kind_of(f"{of_shadow}/schema/1") == "404"
    _, versions = await operator.admin("GET", f"{of_shadow}/schemas")
    assert [each["type"] for each in versions["getSchemaResponses"]] == ["STRING"]
    for refused in (
        await operator.admin("POST", f"{of_shadow}/schema", json=INT32),
        await operator.admin("DELETE", f"{of_shadow}/schema"),
    ):
        assert refused[0] == 409
        assert "its schema is that of its source" in refused[1]["reason"]


async def test_statistics_say_what_is_fed_and_from_where(operator: Operator) -> None:
    source, shadow = (f"persistent://{NAMESPACE}/{name}" for name in ("told", "told-shadow"))
    at = ("--service-url", operator.service_url)
    await operator.done("topics", "create", source)
    await operator.done("topics", "create-shadow", shadow, "-s", source)
    await operator.done("produce", source, "one", *at)
    read = await operator.done("read", shadow, *at)
    assert "one" in read

    _, of_source = await operator.call("GET", f"{NAMESPACE}/told/stats")
    _, of_shadow = await operator.call("GET", f"{NAMESPACE}/told-shadow/stats")

    assert of_source["shadowReplication"][shadow]["connected"]
    assert "shadow" not in of_source
    expected = {"source": source, "connected": True, "away": "", "skippedEntries": 0}
    assert of_shadow["shadow"] == expected
    assert (of_shadow["publishers"], of_shadow["shadowReplication"]) == ([], {})

    await operator.done("topics", "remove-shadows", source)
    async with timeout(COMMAND_S_MAX):
        while "in its list" not in of_shadow["shadow"]["away"]:
            await asyncio.sleep(0.1)
            _, of_shadow = await operator.call("GET", f"{NAMESPACE}/told-shadow/stats")
    assert (await operator.call("GET", f"{NAMESPACE}/told/stats"))[1]["shadowReplication"] == {}


async def test_shadow_that_is_not_listed_gets_nothing(operator: Operator) -> None:
    source, shadow = (f"persistent://{NAMESPACE}/{name}" for name in ("shut", "shut-shadow"))
    at = ("--service-url", operator.service_url)
    await operator.done("topics", "create", source)
    await operator.done("topics", "create-shadow", shadow, "-s", source, "--unlisted")
    await operator.done("produce", source, "not for everybody", *at)

    assert "not for everybody" not in await operator.done("read", shadow, *at)
    await operator.done("topics", "set-shadows", source, shadow)
    assert "not for everybody" in await operator.done("read", shadow, *at)
