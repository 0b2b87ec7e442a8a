"""An operator splits, merges and removes shards of a cluster of real processes, under load."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nextgen.cli.local.plan import MINIMAL, load_plan, make_plan_on_free_ports
from nextgen.client.client import Client
from nextgen.kernel.limits.cluster import SLOT_COUNT
from tests.integration.cli.test_command_line import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPICS = 400


@pytest.fixture
def nextgen(tmp_path: Path) -> Iterator[CommandLine]:
    command_line = CommandLine(tmp_path)
    port_base = make_plan_on_free_ports(MINIMAL).nodes[0].grpc_port
    command_line.json("up", "--minimal", "--shards", "2", "--detach", "--port-base", str(port_base))
    try:
        command_line.json("tenants", "create", "acme")
        command_line.json("namespaces", "create", "acme/orders")
        yield command_line
    finally:
        command_line.run("down")


class Load:
    """Creates topics and looks them up on a thread of its own while its context is open."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.created: list[str] = []
        self.failures: list[str] = []
        self.lookups = 0
        self.slowest_ms = 0.0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        async with Client([self._endpoint]) as client:
            while not self._stop.is_set():
                name = f"acme/orders/load-{len(self.created)}"
                await self._timed(f"create {name}", client.create_topics([name]))
                self.created.append(name)
                for seen in self.created[-1:] + self.created[:: max(1, len(self.created) // 4)]:
                    await self._timed(f"look up {seen}", client.lookup(seen))
                    self.lookups += 1

    async def _timed(self, what: str, call: Awaitable[object]) -> None:
        began = time.monotonic()
        try:
            await call
        except Exception as error:
            self.failures.append(f"{what} at {datetime.now(tz=UTC):%H:%M:%S.%f}: {error!r}")
        self.slowest_ms = max(self.slowest_ms, (time.monotonic() - began) * 1_000)


def shards(nextgen: CommandLine) -> dict[int, int]:
    return {each["shard_id"]: each["slots"] for each in nextgen.json("shards", "list")["shards"]}


@pytest.mark.slow
def test_a_shard_is_split_merged_and_removed_under_load_and_no_request_fails(
    nextgen: CommandLine,
) -> None:
    names = [f"acme/orders/t-{number}" for number in range(TOPICS)]
    nextgen.json("topics", "create", *names)
    plan = load_plan(nextgen.data_dir)
    assert plan is not None
    (discovery,) = plan.of_kind("discovery")

    with Load(f"127.0.0.1:{discovery.grpc_port}") as load:
        dry = nextgen.json("shards", "split", "1", "--dry-run")
        assert shards(nextgen) == {1: 8_192, 2: 8_192}
        split = nextgen.json("shards", "split", "1")
        after_split = shards(nextgen)
        assert "is done" in nextgen.run("shards", "merge", "2", "3").stdout
        after_merge = shards(nextgen)
        refused = nextgen.refused("shards", "remove", "2")
        added = nextgen.json("shards", "add")
        removed = nextgen.json("shards", "remove", "4")

    assert dry["slots"] == split["slots"] == 4_096
    assert split["plan"]["added"] == [3]
    assert (split["plan"]["phase"], split["slots_left"]) == ("done", 0)
    assert after_split == {1: 4_096, 2: 8_192, 3: 4_096}
    assert after_merge == {1: 4_096, 2: 0, 3: 12_288}
    assert "first outcomes" in refused
    assert added["plan"]["added"] == removed["plan"]["removed"] == [4]
    assert shards(nextgen) == {1: 4_096, 2: 0, 3: 12_288}
    assert load.failures == []
    assert load.lookups > 20
    printed = nextgen.run("topics", "list", "acme/orders", "--limit", "0", "--json").stdout
    listed = [json.loads(line) for line in printed.splitlines()]
    found = {topic["name"].rpartition("/")[2] for page in listed for topic in page["topics"]}
    assert found == {name.rpartition("/")[2] for name in (*names, *load.created)}
    assert sum(shards(nextgen).values()) == SLOT_COUNT


@pytest.mark.slow
def test_a_plan_that_is_stopped_leaves_every_topic_where_it_can_be_looked_up(
    nextgen: CommandLine,
) -> None:
    names = [f"acme/orders/t-{number}" for number in range(TOPICS)]
    nextgen.json("topics", "create", *names)

    running = nextgen.json("shards", "split", "1", "--no-wait")
    assert "is running" in nextgen.refused("shards", "rebalance")
    nextgen.json("shards", "stop")
    (stopped,) = nextgen.json_when(
        lambda found: found["plans"][0]["plan"]["phase"] in ("stopped", "done"), "shards", "plans"
    )["plans"]

    assert stopped["plan"]["plan_id"] == running["plan"]["plan_id"]
    assert stopped["plan"]["reason"] == "an operator stopped it"
    assert sum(shards(nextgen).values()) == SLOT_COUNT
    for name in names[::40]:
        assert nextgen.json("lookup", name)
    again = nextgen.json("shards", "rebalance")
    assert again["slots_left"] == 0
    assert set(shards(nextgen).values()) == {5_461, 5_462}
