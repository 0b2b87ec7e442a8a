"""Strangers and a broken member at the Raft port of real hosts: terms stay, writes go on."""

from __future__ import annotations

import asyncio
import resource
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgpack
import pytest

from nextgen.kernel.limits.raft import TERM_MAX
from nextgen.replication.host.group import PySyncObjGroup
from nextgen.replication.mesh.event_levels_file import EVENT_LEVELS_NAME
from nextgen.replication.mesh.frames import (
    MESH_PROTOCOL_VERSION,
    Hello,
    Message,
    encode_frame,
    encode_hello,
)
from nextgen.replication.mesh.handshake import NONCE_BYTES, ClusterSecret
from nextgen.replication.ports import NodeId, Record
from nextgen.tasks.timeouts import timeout
from tests.support.logs.raft_cluster import GROUP, STEADY, RaftCluster, eventually

SECRET = ClusterSecret(b"the secret of a test cluster")
LENIENT = ClusterSecret(SECRET.key, is_required=False)
STRANGER = NodeId("stranger")
PATIENCE_S = 60.0


@asynccontextmanager
async def running(
    directory: Path, secret: ClusterSecret | None
) -> AsyncIterator[tuple[RaftCluster, PySyncObjGroup]]:
    cluster = RaftCluster(directory, size=3, config=STEADY, secret=secret)
    await cluster.start()
    try:
        leader = await cluster.settled_leader()
        await leader.propose(Record(b"before", events=1))
        yield cluster, leader
    finally:
        await cluster.stop()


def terms(cluster: RaftCluster) -> set[int]:
    return {log.status.term for log in cluster.logs.values()}


def attacks(term: int) -> list[Message]:
    """Return what would depose a leader in ``term``, or move the group to the end of all terms."""
    append: Message = {
        "previous_index": 0,
        "previous_term": 0,
        "commit_index": 0,
        "read_round": 0,
        "entries": [],
    }
    vote: Message = {"last_log_index": 1 << 40, "last_log_term": 0, "transfer": True}
    return [
        message
        for claimed in (term + 1, TERM_MAX, 2**64 - 1)
        for message in (
            {"type": "append", "term": claimed, **append},
            {"type": "request_vote", "term": claimed, **vote},
            {"type": "pre_vote_answer", "term": claimed, "granted": False, "asked_term": 0},
        )
    ]


async def shout(port: int, data: bytes) -> bytes:
    """Send ``data`` as a stranger; return what came back when the other side closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(data)
        async with timeout(PATIENCE_S):
            while received := await reader.read(65_536):
                answer += received
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return answer


@pytest.mark.parametrize(
    ("secret", "as_member", "has_nonce"),
    [(SECRET, True, False), (SECRET, True, True), (SECRET, False, False), (None, False, False)],
)
async def test_a_stranger_that_knows_the_cluster_id_changes_nothing(
    secret: ClusterSecret | None, as_member: bool, has_nonce: bool, tmp_path: Path
) -> None:
    """With the secret not even under a member's name; without one not under a name of its own."""
    async with running(tmp_path, secret) as (cluster, leader):
        before, term = terms(cluster), leader.status.term
        nonce = {"nonce": bytes(NONCE_BYTES)} if has_nonce else {}

        for member, host in cluster.hosts.items():
            name = next(each for each in cluster.members if each != member)
            said = name if as_member else STRANGER
            hello = Hello(MESH_PROTOCOL_VERSION, "test-cluster", said, member, "x")
            for message in attacks(term):
                frame = encode_frame(GROUP, message)
                answer = await shout(host.port, encode_hello(hello, **nonce) + frame)
                assert b"node" not in answer
                assert b"cluster" not in answer
        await leader.propose(Record(b"behind", events=1))

        assert terms(cluster) == before
        assert leader.is_leader
        assert all(host.mesh.connection_count == 2 for host in cluster.hosts.values())


async def test_a_member_that_sends_the_last_of_all_terms_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, SECRET) as (cluster, leader):
        before = terms(cluster)
        broken = next(m for m in cluster.members if m != cluster.name_of(leader))
        mesh = cluster.hosts[broken].mesh

        for message in attacks(leader.status.term):
            if message["term"] < TERM_MAX:
                continue
            for target in cluster.members:
                if target == broken:
                    continue
                await eventually(
                    lambda target=target: mesh.is_connected(target), "it is connected again"
                )
                mesh.send(target, GROUP, message)
                await asyncio.sleep(0)
        await eventually(
            lambda: all(h.mesh.connection_count == 2 for h in cluster.hosts.values()), "all meet"
        )
        await leader.propose(Record(b"behind", events=1))

        assert terms(cluster) == before
        assert leader.is_leader


async def test_a_secret_is_brought_to_a_running_group_node_by_node(tmp_path: Path) -> None:
    """First each node has it and does not require it, then each requires it."""
    async with running(tmp_path, None) as (cluster, _):
        for step in (LENIENT, SECRET):
            for member in cluster.members:
                cluster.secrets[member] = step
                await cluster.stop_member(member)
                await cluster.start_member(member)
                leader = await cluster.settled_leader()
                await leader.propose(Record(b"on the way", events=1))

        await eventually(
            lambda: all(h.mesh.connection_count == 2 for h in cluster.hosts.values()), "all meet"
        )


async def test_a_node_without_the_secret_is_no_part_of_the_group(tmp_path: Path) -> None:
    async with running(tmp_path, SECRET) as (cluster, leader):
        outside = next(m for m in cluster.members if m != cluster.name_of(leader))
        await cluster.stop_member(outside)
        cluster.secrets[outside] = None

        log = await cluster.start_member(outside)
        await leader.propose(Record(b"behind", events=1))

        assert cluster.hosts[outside].mesh.connection_count == 0
        assert log.status.leader_id is None


async def test_what_a_stranger_sends_before_it_is_known_costs_next_to_nothing(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, None) as (cluster, _):
        member = cluster.members[0]
        port = cluster.hosts[member].port
        maps = b"\x92\xff\xdd" + struct.pack(">I", 8_000_000) + b"\x80" * 8_000_000
        hello = Hello(MESH_PROTOCOL_VERSION, "test-cluster", NodeId("n" * 7_000_000), member, "x")
        large = msgpack.packb((-1, {"magic": "pulsar-nextgen-mesh", "node_id": hello.node_id}))
        frames = [struct.pack(">I", len(body)) + body for body in (maps, large)]
        rss_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.thread_time()

        for number in range(20):
            assert await shout(port, frames[number % 2]) == b""

        # In this process, the sending of 160 MB included: what was held before was 600 MB a frame.
        assert time.thread_time() - began < 5
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss_before
        assert grown_kib < 100 * 1024
        levels = tmp_path / member / EVENT_LEVELS_NAME
        assert levels.stat().st_size < 4_096
