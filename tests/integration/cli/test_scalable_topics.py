"""Scalable topics over the Admin REST and the command line, on a cluster of two brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from nextgen.client import NewTopic
from nextgen.kernel.errors import Refused
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.processes.local_cluster import ClusterSize, running_cluster
from tests.support.processes.operator import NAMESPACE, Operator
from tests.support.scalable.ten_changes import DRAWN, TEN_CHANGES

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SIZE = ClusterSize(1, 1, 1, brokers=2, shards=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with running_cluster(directory, SIZE) as cluster, aiohttp.ClientSession() as session:
        made = Operator(cluster, session, "scalable")
        await made.make_namespace()
        yield made


async def test_a_topic_is_the_same_over_rest_and_on_the_command_line(operator: Operator) -> None:
    code, output, _ = await operator.run(
        *("scalable-topics", "create", f"{NAMESPACE}/paid", "--segments", "2"),
        *("--property", "team=blue"),
    )
    assert (code, output) == (0, "created topic://acme/orders/paid with 2 segments\n")
    assert await operator.call("PUT", f"{NAMESPACE}/due", json={"team": "red"}) == (204, None)

    for query, names in (("team=blue", ["paid"]), ("team=red", ["due"]), ("team=none", [])):
        found = [f"topic://{NAMESPACE}/{name}" for name in names]
        listed = await operator.shown("scalable-topics", "list", NAMESPACE, "--property", query)
        assert [each["name"] for each in listed["topics"]] == found
        assert await operator.call("GET", NAMESPACE, params={"property": query}) == (200, found)

    layout = await operator.shown("scalable-topics", "get", f"topic://{NAMESPACE}/paid")
    _, metadata = await operator.call("GET", f"{NAMESPACE}/paid")
    assert layout["properties"] == metadata["properties"] == {"team": "blue"}
    assert [each["hash_start"] for each in layout["segments"]] == [0, 0x8000]
    assert [each["hashRange"]["start"] for each in metadata["segments"].values()] == [0, 0x8000]
    _, drawn, _ = await operator.run("scalable-topics", "get", f"{NAMESPACE}/paid")
    assert "0      ┣━━━━ 0 ━━━━┣━━━━ 1 ━━━━┫" in drawn.splitlines()


async def test_statistics_name_the_brokers_and_deletion_ends_them(operator: Operator) -> None:
    code, output, errors = await operator.run(
        *("scalable-topics", "create", f"{NAMESPACE}/counted", "topic://no/where/x"),
        *(f"{NAMESPACE}/more", "--segments", "3"),
    )
    assert (code, output) == (ExitCode.REFUSED, "created 2 topics with 3 segments each\n")
    assert "(PARENT_NOT_FOUND)" in errors

    _, stats = await operator.call("GET", f"{NAMESPACE}/counted/stats")
    documents = await operator.shown("scalable-topics", "stats", f"{NAMESPACE}/counted")

    owners = [each["ownerBroker"] for each in stats["segments"].values()]
    assert set(owners) <= {"broker-1", "broker-2"}
    assert [each["broker_id"] for each in documents["segments"]] == owners
    assert (stats["activeSegments"], stats["producers"], stats["subscriptions"]) == (3, [], {})
    code, segment = await operator.call("GET", f"{NAMESPACE}/counted/segments/2/stats")
    assert (code, segment["msgInCounter"]) == (200, 0)

    code, output, _ = await operator.run("scalable-topics", "delete", f"{NAMESPACE}/counted")
    assert (code, output) == (0, f"deleted topic://{NAMESPACE}/counted\n")
    assert (await operator.call("GET", f"{NAMESPACE}/counted"))[0] == 404


async def test_segments_are_split_and_merged_ten_times(operator: Operator) -> None:
    await operator.shown("scalable-topics", "create", f"{NAMESPACE}/ten")
    await operator.shown("scalable-topics", "subscribe", f"{NAMESPACE}/ten", "-s", "mine")

    # When: half of the changes are typed, half are sent.
    for number, (kind, *segments) in enumerate(TEN_CHANGES):
        ids = [str(each) for each in segments]
        if number % 2:
            answer = await operator.call("POST", f"{NAMESPACE}/ten/{kind}/{'/'.join(ids)}")
            assert answer == (204, None)
        else:
            made = await operator.shown("scalable-topics", kind, f"{NAMESPACE}/ten", *ids)
            assert made["epoch"] == number + 1

    _, page, _ = await operator.run("scalable-topics", "get", f"{NAMESPACE}/ten")
    assert DRAWN in page
    layout = await operator.shown("scalable-topics", "get", f"{NAMESPACE}/ten")
    assert (layout["epoch"], layout["subscriptions"][0]["phase"]) == (10, "live")
    assert all(each["end"] == {"ledger_id": -1, "entry_id": -1} for each in sealed(layout))
    _, stats = await operator.call("GET", f"{NAMESPACE}/ten/stats")
    assert (stats["activeSegments"], stats["sealedSegments"]) == (3, 14)
    active = {"11", "15", "16"}
    assert active <= set(stats["subscriptions"]["mine"]["segments"])
    for path in ("split/0", "split/99", "merge/11/15", "merge/15/15", "rebucket/11?bucketCount=0"):
        code, answered = await operator.call("POST", f"{NAMESPACE}/ten/{path}")
        assert (code, list(answered)) == (404 if "99" in path else 412, ["reason"])
    code, _, errors = await operator.run("scalable-topics", "split", f"{NAMESPACE}/ten", "0")
    assert (code, errors) == (
        ExitCode.REFUSED,
        "nextgen: segment 0 of topic://acme/orders/ten is sealed\n",
    )


async def test_buckets_and_subscriptions_change_over_both(operator: Operator) -> None:
    await operator.shown("scalable-topics", "create", f"{NAMESPACE}/shared")
    name, path = f"{NAMESPACE}/shared", f"{NAMESPACE}/shared/subscriptions"

    code, output, _ = await operator.run("scalable-topics", "rebucket", name, "0", "--buckets", "8")
    assert (code, output) == (
        0,
        "rebucket of 0 into 1 (0000-ffff): epoch 1 of topic://acme/orders/shared\n",
    )
    assert await operator.call("POST", f"{name}/rebucket/1?bucketCount=16") == (204, None)

    assert await operator.call("PUT", f"{path}/s?type=QUEUE") == (204, None)
    assert await operator.call("POST", f"{path}/s/seek?timestamp=1700000000000") == (204, None)
    assert await operator.call("POST", f"{path}/s/skip-all") == (204, None)
    when = ("--to", "2026-11-28T14:00:00+00:00")
    await operator.shown("scalable-topics", "seek", name, "-s", "s", *when)
    await operator.shown("scalable-topics", "clear-backlog", name, "-s", "s")
    layout = await operator.shown("scalable-topics", "get", name)
    (subscription,) = layout["subscriptions"]
    assert (subscription["type"], subscription["phase"]) == ("queue", "live")

    await operator.shown("scalable-topics", "unsubscribe", name, "-s", "s")
    assert (await operator.call("DELETE", f"{path}/s"))[0] == 404
    assert not (await operator.shown("scalable-topics", "get", name))["subscriptions"]


async def test_a_program_changes_segments_and_subscriptions(operator: Operator) -> None:
    name = f"topic://{NAMESPACE}/program"
    async with operator.client() as client:
        await client.create_topics([NewTopic(name, segments=2)])
        await client.create_scalable_subscription(name, "s", type="queue")
        await client.split_segment(name, 1)
        await client.merge_segments(name, 0, 2)
        await client.rebucket_segment(name, 4, 5)
        await client.seek_scalable_subscription(name, "s", 1_700_000_000_000)
        await client.seek_scalable_subscription(name, "s", None)
        layout = await client.get_scalable_topic(name)
        await client.delete_scalable_subscription(name, "s")
        after = await client.get_scalable_topic(name)
        with pytest.raises(Refused, match=r"segment 4 of .* is sealed"):
            await client.split_segment(name, 4)

    assert layout is not None
    assert after is not None
    active = {each.segment_id: each for each in layout.segments if not each.is_sealed}
    assert (layout.epoch, list(active), active[5].bucket_count) == (3, [3, 5], 5)
    assert [(each.type, each.phase) for each in layout.subscriptions] == [("queue", "live")]
    assert after.subscriptions == ()


async def test_a_topic_with_subscriptions_is_deleted_by_force_only(operator: Operator) -> None:
    await operator.shown("scalable-topics", "create", f"{NAMESPACE}/used")
    await operator.shown("scalable-topics", "subscribe", f"{NAMESPACE}/used", "-s", "mine")
    await operator.shown("scalable-topics", "split", f"{NAMESPACE}/used", "0")

    code, _, errors = await operator.run("scalable-topics", "delete", f"{NAMESPACE}/used")
    assert (code, errors.count("\n")) == (ExitCode.REFUSED, 1)
    assert (await operator.call("DELETE", f"{NAMESPACE}/used"))[0] == 412
    assert (await operator.call("DELETE", f"{NAMESPACE}/used?force=true"))[0] == 204
    assert (await operator.call("GET", f"{NAMESPACE}/used"))[0] == 404


def sealed(layout: Any) -> list[Any]:
    return [each for each in layout["segments"] if each["is_sealed"]]


async def test_what_is_refused_is_one_sentence_with_a_code(operator: Operator) -> None:
    await operator.shown("topics", "create", f"{NAMESPACE}/classic")
    for arguments, reason in (
        (("create", f"{NAMESPACE}/classic"), "persistent://acme/orders/classic"),
        (("create", "acme/none/x"), "acme/none"),
        (("get", f"{NAMESPACE}/absent"), f"there is no scalable topic topic://{NAMESPACE}/absent"),
        (("stats", f"{NAMESPACE}/classic"), f"there is no scalable topic topic://{NAMESPACE}"),
        (("delete", f"{NAMESPACE}/absent"), "does not exist"),
        (("list", "acme/none"), "there is no namespace 'acme/none'"),
        (("get", f"persistent://{NAMESPACE}/classic"), "is no scalable topic's name"),
    ):
        code, output, errors = await operator.run("scalable-topics", *arguments)
        assert (code, output, errors.count("\n")) == (ExitCode.REFUSED, "", 1), errors
        assert reason in errors
    for method, path, status in (
        ("PUT", f"{NAMESPACE}/classic", 409),
        ("PUT", f"{NAMESPACE}/x?numInitialSegments=10000", 412),
        ("GET", f"{NAMESPACE}/absent/stats", 404),
        ("DELETE", f"{NAMESPACE}/absent", 404),
    ):
        answer = await operator.call(method, path)
        assert (answer[0], list(answer[1])) == (status, ["reason"])
