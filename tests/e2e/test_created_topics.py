"""A topic that was created can be used at once, wherever it was looked for before."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from nextgen.cli.local.plan import ClusterSize
from nextgen.client.blocking import BlockingClient
from tests.support.callers.stock_client import ADMIN_TIMEOUT_MS, running_system

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=1, shards=2)


def test_a_topic_is_found_at_every_node_as_soon_as_the_command_line_has_created_it(
    tmp_path: Path, topic: str
):
    with running_system(tmp_path, SIZE) as system, ExitStack() as opened:
        nodes = [
            opened.enter_context(BlockingClient([each], timeout_ms=ADMIN_TIMEOUT_MS))
            for each in system.discovery_endpoints
        ]
        for number in range(5):
            name = f"{topic}-{number}"
            absent = [node.lookup([name])[0].rejection_code for node in nodes]
            assert set(absent) == {"NOT_FOUND"}, "each remembers that"

            system.command("topics", "create", name)

            found = [node.lookup([name])[0].rejection_code for node in nodes]
            assert "NOT_FOUND" not in found
