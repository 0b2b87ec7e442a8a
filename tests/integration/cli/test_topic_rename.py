"""A topic gets another name, in a cluster with processes: what is there by which name."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from typing import Any

import pytest

from nextgen.client import ChangeKind, Client, WatchedObjects
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.runtime.security.cluster_secret import SECRET_FILE
from nextgen.tasks.timeouts import timeout
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

pytestmark = pytest.mark.integration

SIZE = ClusterSize(cluster_managers=1, brokers=1, shards=3)


async def output_of(cluster: LocalCluster, *command: str) -> str:
    """Return what a command of the command line prints."""
    secret = cluster.data_dir / SECRET_FILE
    target = cluster.plan.discovery_endpoints[0]
    ended = await asyncio.to_thread(
        run_warm,
        "nextgen",
        [
            *("--cluster-secret-file", str(secret), "--cluster-id", cluster.plan.cluster_id),
            *(*command, "--target", target),
        ],
        environment=os.environ,
        timeout_s=60,
    )
    assert ended.returncode == 0, ended
    return ended.stdout


async def names_in(client: Client, namespace: str) -> list[str]:
    return [topic.name async for topic in client.list_topics(namespace)]


async def refusal_of(work: Any) -> str:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.code


async def test_topics_are_renamed_into_another_tenant_and_found_by_each_name(tmp_path) -> None:
    """1. Topics are renamed while watches see it. 2. What they are is theirs by the new name, and
    they are found by the former one. 3. Former names are taken, and lead nowhere without a grace.
    4. ``topics why`` shows the topic's history under all its names."""
    async with running_cluster(tmp_path, SIZE) as cluster:
        endpoints = cluster.plan.discovery_endpoints
        async with Client(endpoints, timeout_ms=20_000, effective=True) as client:
            for tenant, namespace in (("acme", "acme/orders"), ("globex", "globex/lab")):
                await client.create_tenant(tenant)
                await client.create_namespace(namespace)
            old = [f"persistent://acme/orders/t-{number}" for number in range(6)]
            new = [f"persistent://globex/lab/renamed-{number}" for number in range(6)]
            await client.create_topics(old)
            before = await client.lookup(old)
            topics = [await client.get_topic(name) for name in old]
            watch = client.watch_topics(names=[*old[:1], *new[:1]], without_snapshot=True)
            async with aclosing(watch) as changes, timeout(60):
                seen = [await anext(changes) for _ in range(3)]
                assert {change.kind for change in seen} == {ChangeKind.PROGRESS}
                for name, other in zip(old, new, strict=True):
                    await client.rename_topic(name, other)
                told = []
                while len(told) < 2:
                    change = await anext(changes)
                    told += [change] if change.name else []
            assert [(each.kind, each.name) for each in told] == [
                (ChangeKind.DELETED, old[0]),
                (ChangeKind.CREATED, new[0]),
            ]

            for name, other, topic in zip(old, new, topics, strict=True):
                found = await client.get_topic(other)
                assert found is not None
                assert topic is not None
                assert (found.name, found.topic_id) == (other, topic.topic_id)
                by_former = await client.get_topic(name)
                assert by_former is not None
                assert by_former.topic_id == topic.topic_id
            for names in (new, old, new):
                places = await client.lookup(names, fresh=True)
                assert [place.topic for place in places] == names
                assert [place.topic_id for place in places] == [p.topic_id for p in before]
                assert all(place.epoch > p.epoch for place, p in zip(places, before, strict=True))
            assert await names_in(client, "acme/orders") == []
            assert await names_in(client, "globex/lab") == sorted(new)
            assert (await client.count_topics("globex/lab")).topics == len(new)
            objects: WatchedObjects[Any] = WatchedObjects()
            async with aclosing(client.watch_topics(prefix="persistent://")) as changes:
                snapshots = 0
                while snapshots < SIZE.shards:
                    change = await anext(changes)
                    objects.apply(change)
                    snapshots += change.kind is ChangeKind.SNAPSHOT_COMPLETE
            assert {*new} <= {*objects}
            assert {*objects}.isdisjoint(old)

            (created,) = await client.create_topics(old[:1])
            assert created.rejection_code == RejectionCode.ALREADY_EXISTS
            assert await refusal_of(client.rename_topic(new[1], new[2])) == (
                RejectionCode.ALREADY_EXISTS
            )
            assert await refusal_of(client.rename_topic(new[1], old[1])) == (
                RejectionCode.ALREADY_EXISTS
            )
            assert await refusal_of(client.rename_topic(new[1], "nobody/none/x")) == (
                RejectionCode.PARENT_NOT_FOUND
            )
            assert await refusal_of(client.delete_namespace("globex/lab")) == (
                RejectionCode.NOT_EMPTY
            )
            await client.rename_topic(new[3], "persistent://acme/orders/back", grace_ms=0)
            assert await client.get_topic(new[3]) is None
            (created,) = await client.create_topics(new[3:4])
            assert created.rejection_code == RejectionCode.ALREADY_EXISTS, "free in a minute"

            chain = json.loads(await output_of(cluster, "topics", "why", new[0], "--json"))
            assert chain["name"] == new[0]
            whats = [step["what"] for step in chain["steps"]]
            assert whats[0] == "created"
            assert f"renamed from {old[0]} to {new[0]}" in whats
            shown = await output_of(cluster, "events", new[0])
            assert "topic_created" in shown
            assert "topic_renamed" in shown
            await client.delete_topic(new[4])
            for name in (new[4], old[4]):
                shown = await output_of(cluster, "events", name)
                for event in ("topic_created", "topic_renamed", "topic_deleted"):
                    assert event in shown, f"{name} of a deleted topic, all of which was {shown}"
