"""What a client knows of the shard map, and when it reads it."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.discovery import known_map
from nextgen.client.discovery.known_map import KnownMap
from nextgen.kernel.errors import Unavailable
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from tests.support.discovery.fake_cluster import shard_map
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual


class Node:
    """Returns a map of one shard, with the next version at each read."""

    def __init__(self) -> None:
        self.reads = 0
        self.is_reachable = True
        self.has_map = True
        self.map = KnownMap(self.read)

    async def read(self) -> ClusterUpdate:
        self.reads += 1
        await asyncio.sleep(0.1)
        if not self.is_reachable:
            raise Unavailable("no node")
        if not self.has_map:
            return ClusterUpdate()
        return ClusterUpdate(shard_map=shard_map({7: ["node-1"]}, version=self.reads))


@run_by(run_virtual)
async def test_an_unknown_map_is_read_once_in_the_background() -> None:
    node = Node()

    before = [node.map.shard_of("a/b/c") for _ in range(3)]
    await asyncio.sleep(0.2)

    assert before == [None, None, None]
    assert node.map.shard_of("a/b/c") == 7
    assert (node.reads, node.map.version) == (1, 1)


@run_by(run_virtual)
async def test_a_map_is_forgotten_for_a_later_version_only() -> None:
    node = Node()
    await node.map.state()

    node.map.notice(1)
    kept = node.map.version
    node.map.notice(2)

    assert (kept, node.map.version) == (1, 0)
    assert await node.map.wait_shard("a/b/c") == 7
    assert (node.reads, node.map.version) == (2, 2)


@run_by(run_virtual)
async def test_a_read_that_failed_is_repeated_for_the_next_question() -> None:
    node = Node()
    node.is_reachable = False
    node.map.shard_of("a/b/c")
    await asyncio.sleep(0.2)
    node.is_reachable = True

    node.map.shard_of("a/b/c")
    await asyncio.sleep(0.2)

    assert node.map.shard_of("a/b/c") == 7


@run_by(run_virtual)
async def test_a_topic_that_another_shard_answers_for_has_no_position_of_its_keys_shard() -> None:
    node = Node()
    node.map.note_found("a/b/early", 8)
    await node.map.state()
    for key, shard_id in (("a/b/renamed", 8), ("a/b/kept", 7), ("a/b/freed", 8), ("a/b/freed", 7)):
        node.map.note_found(key, shard_id)

    found = [
        await node.map.wait_shard(f"a/b/{name}")
        for name in ("early", "renamed", "kept", "freed", "other")
    ]

    assert found == [None, None, 7, 7, 7]
    assert node.map.shard_of("a/b/renamed") == 7, "where a topic of this name is created"


@run_by(run_virtual)
async def test_the_latest_names_that_lead_elsewhere_are_remembered(
    *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_map, "MOVED_NAMES_MAX", 2)
    node = Node()
    await node.map.state()
    keys = ["a/b/1", "a/b/2", "a/b/3"]
    for key in keys:
        node.map.note_found(key, 8)

    assert [await node.map.wait_shard(key) for key in keys] == [7, None, None]


@run_by(run_virtual)
async def test_a_cluster_without_a_map_has_no_shards() -> None:
    node = Node()
    node.has_map = False

    assert await node.map.wait_shard("a/b/c") is None


@run_by(run_virtual)
async def test_a_stopped_map_is_not_read_any_more() -> None:
    node = Node()
    node.map.shard_of("a/b/c")
    await asyncio.sleep(0)

    await node.map.stop()
    await asyncio.sleep(0.2)

    assert (node.reads, node.map.version) == (1, 0)
