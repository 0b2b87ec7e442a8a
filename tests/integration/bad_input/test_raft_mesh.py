"""Strangers at the port of the Raft mesh are closed, and the group goes on."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from typing import Any

import msgpack

from nextgen.replication.mesh.connection import HELLO_DEADLINE_S
from nextgen.replication.mesh.frames import HELLO_MAGIC, MESH_PROTOCOL_VERSION
from nextgen.replication.ports import Record
from nextgen.tasks.timeouts import timeout
from tests.integration.bad_input.conftest import Site
from tests.support.logs.raft_cluster import STEADY, RaftCluster

SEED = 4_711
CLOSED_S_MAX = HELLO_DEADLINE_S + 30
GIBIBYTE = 1024**3
NOTHING = b""


def frame(content: Any) -> bytes:
    body = msgpack.packb(content)
    return struct.pack(">I", len(body)) + body


def hello(target: str, cluster: str, **changed: Any) -> bytes:
    said = {
        "magic": HELLO_MAGIC,
        "protocol_version": MESH_PROTOCOL_VERSION,
        "cluster_id": cluster,
        "node_id": "stranger",
        "target_id": target,
        "incarnation": "1",
    }
    return frame((-1, {**said, **changed}))


def garbage(target: str, cluster: str) -> dict[str, bytes]:
    """Return what is sent, by what it is."""
    deep = b"\x91" * 100_000 + b"\xc0"
    welcome = hello(target, cluster)
    return {
        "http": b"GET / HTTP/1.1\r\nHost: raft\r\n\r\n",
        "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
        "noise": random.Random(SEED).randbytes(5_000),
        "an empty frame": struct.pack(">I", 0),
        "2 GiB announced": struct.pack(">I", 2 * GIBIBYTE) + bytes(1_000),
        "4 GiB announced": b"\xff\xff\xff\xff",
        "deep nesting": struct.pack(">I", len(deep)) + deep,
        "no hello": frame((0, {"type": "append"})),
        "a number": frame(7),
        "keys that are no text": frame((-1, {1: 2})),
        "another cluster": hello(target, "another"),
        "another version": hello(target, cluster, protocol_version=99),
        "looks for somebody else": hello("somebody", cluster),
        "says it is us": hello(target, cluster, node_id=target),
        "a field is missing": hello(target, cluster, incarnation=None),
        "nothing of Raft's": welcome + frame((3, {"type": "abdicate"})),
        "an append without fields": welcome + frame((3, {"type": "append", "term": 9})),
        "noise behind the hello": welcome + random.Random(SEED).randbytes(5_000),
    }


async def is_closed_after(host: str, port: int, data: bytes) -> bool:
    """Send ``data``, keep the connection open, and say whether the other side closes it."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    try:
        async with timeout(CLOSED_S_MAX):
            while await reader.read(65_536):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    finally:
        writer.transport.abort()
    return True


async def test_what_is_no_peer_is_cut_off(site: Site) -> None:
    async def closed_by(node_id: str) -> dict[str, bool]:
        port = site.cluster.plan.node(node_id).raft_port
        sent = garbage(node_id, "test") | {
            "nothing": NOTHING,
            "half a frame": b"\x00\x00\x01\x00a",
        }
        # A group that the process does not have is nobody's: what is sent to it goes nowhere.
        for name in ("nothing of Raft's", "an append without fields"):
            del sent[name]
        closed = await asyncio.gather(
            *(is_closed_after("127.0.0.1", port, data) for data in sent.values())
        )
        return dict(zip(sent, closed, strict=True))

    for closed in await asyncio.gather(*map(closed_by, ("shard-node-1", "cluster-manager-1"))):
        assert closed == dict.fromkeys(closed, True)


async def test_a_group_goes_on_committing_while_its_ports_are_shouted_at(tmp_path: Path) -> None:
    cluster = RaftCluster(tmp_path, size=3, config=STEADY)
    await cluster.start()
    try:
        leader = await cluster.settled_leader()
        term = leader.status.term
        shouting = [
            is_closed_after("127.0.0.1", host.port, data)
            for member, host in cluster.hosts.items()
            for data in (*garbage(member, "test-cluster").values(), NOTHING)
        ]
        closing = asyncio.gather(*shouting)
        committed = 0
        while not closing.done():
            await leader.propose(Record(b"payload", events=1))
            committed += 1
            # Slow enough to last as long as the longest of them, with few entries.
            await asyncio.sleep(0.01)

        assert all(await closing)
        assert committed > 10
        assert (leader.is_leader, leader.status.term) == (True, term)
        assert leader.status.commit_position == committed
    finally:
        await cluster.stop()


async def test_a_thousand_half_open_connections_are_dropped(site: Site) -> None:
    port = site.cluster.plan.node("shard-node-1").raft_port

    closed = await asyncio.gather(
        *(is_closed_after("127.0.0.1", port, b"\x00") for _ in range(1_000))
    )

    assert all(closed)
