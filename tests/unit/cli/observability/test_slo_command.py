"""``nextgen slo``: what the recorded windows add up to, and what it ends with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator

import grpc
import grpc.aio
import pytest
from typer.testing import CliRunner

from nextgen.cli.observability.slo_command import objective_of
from nextgen.client.wire.errors import to_detail
from nextgen.client.wire.lookup_windows import window_to_proto
from nextgen.kernel.errors import PositionCompacted
from nextgen.kernel.governance.lookup_slo import LATENCY_CLASSES, LOOKUP_WINDOW_MS, LookupWindow
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1 import discovery_service_pb2_grpc as discovery_grpc
from protos.nextgen.v1 import shard_service_pb2_grpc as shard_grpc
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import EventBatch

NOW_MS = time.time_ns() // 1_000_000 // LOOKUP_WINDOW_MS * LOOKUP_WINDOW_MS
FAST = (100, *[0] * (LATENCY_CLASSES - 1))
SLOW = (*[0] * (LATENCY_CLASSES - 2), 5, 0)


def window(node="d1", process="w1-0", ago=1, errors=0, counts=FAST):
    return LookupWindow(node, process, NOW_MS - ago * LOOKUP_WINDOW_MS, errors, counts)


def test_processes_of_a_node_are_added_up_before_it_is_judged():
    found = objective_of([window(process="w1-0"), window(process="w2-0", counts=SLOW)], 0)

    ((node,),) = found.nodes.values()
    assert (node.lookups, node.process) == (105, "")
    assert node.is_bad, "5 of 105"
    assert found.bad_minutes == 1


def test_a_node_may_be_bad_while_the_cluster_is_good():
    windows = [window("d1", counts=SLOW), *(window("d2", f"w{n}-0") for n in range(1, 6))]

    found = objective_of(windows, 0)

    assert [each.node_id for each in found.bad_nodes] == ["d1"]
    assert (found.bad_minutes, found.availability_per_cent) == (0, 100.0)


def test_a_minute_of_a_process_counts_once():
    found = objective_of([window(), window(counts=SLOW), window(process="w2-0")], 0)

    assert [each.lookups for each in found.cluster] == [200]


def test_only_minutes_since_then_count():
    found = objective_of([window(ago=2), window(ago=1)], NOW_MS - LOOKUP_WINDOW_MS)

    assert [each.began_at_ms for each in found.cluster] == [NOW_MS - LOOKUP_WINDOW_MS]


def test_without_lookups_nothing_was_bad():
    assert objective_of([], 0).availability_per_cent == 100.0


class FakeManager(discovery_grpc.DiscoveryServiceServicer, shard_grpc.ShardServiceServicer):
    """A discovery node that knows one cluster manager: itself."""

    def __init__(self) -> None:
        self.windows: list[LookupWindow] = []
        self.oldest = 1
        self.endpoint = ""

    async def GetCluster(self, request, context):
        return ClusterUpdate(manager_endpoints=[self.endpoint])

    async def ReadEvents(self, request, context):
        assert request.shard_id == 0
        assert list(request.types) == ["lookup_window_recorded"]
        if request.from_position < self.oldest:
            error = PositionCompacted(request.from_position, self.oldest)
            yield EventBatch(error=to_detail(error))
            return
        events = [
            Event(position=position, lookup_window_recorded=window_to_proto(each))
            for position, each in enumerate(self.windows, start=1)
            if position >= request.from_position
        ]
        last = len(self.windows)
        yield EventBatch(events=events, next_position=last + 1, commit_position=last)


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def enter():
        made, stack = FakeManager(), contextlib.AsyncExitStack()
        server = grpc.aio.server()
        discovery_grpc.add_DiscoveryServiceServicer_to_server(made, server)
        shard_grpc.add_ShardServiceServicer_to_server(made, server)
        made.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        stack.push_async_callback(server.stop, 0)
        return made, stack

    made, stack = asyncio.run_coroutine_threadsafe(enter(), loop).result(30)
    yield made
    asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def run(manager, *arguments):
    """Look back further than these tests may have waited for their turn."""
    looking_back = ["slo", "--minutes", "1000"]
    return CliRunner().invoke(app, [*looking_back, *arguments, "--target", manager.endpoint])


def test_the_windows_of_the_cluster_managers_log_are_shown(manager):
    manager.windows = [window("d1"), window("d2", errors=3), window("d2", ago=2)]

    result = run(manager, "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (told["bad_minutes"], told["bad_minutes_of_nodes"]) == (1, 1)
    assert [len(windows) for windows in told["nodes"].values()] == [1, 2]
    assert told["minutes"][1]["why_bad"] == "3 of 200 failed, more than 1 %"
    assert told["availability_per_cent"] == 50.0


def test_a_log_that_was_cut_is_read_from_where_it_begins(manager):
    manager.windows = [window(ago=3), window(ago=2), window(ago=1)]
    manager.oldest = 3

    result = run(manager, "--json")

    assert [each["lookups"] for each in json.loads(result.stdout)["minutes"]] == [100]


@pytest.mark.parametrize(("errors", "code"), [(1, ExitCode.DONE), (2, ExitCode.CHECK_FAILED)])
def test_a_check_fails_on_a_bad_minute_and_on_nothing_else(manager, errors, code):
    manager.windows = [window(errors=errors)]

    result = run(manager, "--check")

    assert result.exit_code == code
    assert "minutes were bad" in result.stdout
