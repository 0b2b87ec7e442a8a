"""``nextgen audit`` against a cluster that a test decides about: what it finds, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from nextgen.cli.observability import audit_run
from nextgen.cli.observability.audit_run import Auditor
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import PositionCompacted
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.servers.grpc_server import new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import broker_service_pb2_grpc as broker_grpc
from protos.nextgen.v1 import discovery_service_pb2_grpc as discovery_grpc
from protos.nextgen.v1 import shard_service_pb2_grpc as shard_grpc
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.events_pb2 import (
    BrokerEndpoints,
    BrokerRecorded,
    Event,
    NodeRegistered,
    ShardMapChanged,
    ShardPlacement,
)
from protos.nextgen.v1.shard_service_pb2 import EventBatch

MS = 1_000_000

PATIENCE_S = 60
"""Longer than this process may stand still: an audit ends when it has heard what it is to hear."""

Condition = Callable[[Auditor], bool]


def interval(epoch, first, last):
    return broker_pb.AcknowledgementInterval(
        topic="t",
        topic_id="id",
        epoch=epoch,
        first_acked_at_ns=first * MS,
        last_acked_at_ns=last * MS,
        acknowledged=1,
    )


class FakeBroker(broker_grpc.BrokerServiceServicer):
    """Tells ``intervals`` and then that nothing changes, for ever."""

    def __init__(self, broker_id: str) -> None:
        self.broker_id = broker_id
        self.intervals: list[broker_pb.AcknowledgementInterval] = []
        self.endpoint = ""
        self.is_live = True

    async def WatchAcknowledgements(self, request, context):
        yield broker_pb.AcknowledgementReport(broker_id=self.broker_id, intervals=self.intervals)
        await asyncio.Event().wait()


class FakeCluster(discovery_grpc.DiscoveryServiceServicer, shard_grpc.ShardServiceServicer):
    """A discovery node and the only replica of shard 1; its log has ``owners`` by epoch."""

    def __init__(self) -> None:
        self.brokers = [FakeBroker("a"), FakeBroker("b")]
        self.owners: dict[int, str] = {}
        self.oldest = 1
        self.endpoint = ""

    async def GetCluster(self, request, context):
        return ClusterUpdate(
            shard_map=ShardMapChanged(shards=[ShardPlacement(shard_id=1, replicas=["n"])]),
            nodes=[NodeRegistered(node_id="n", grpc=self.endpoint)],
            leaders=[LeaderReport(shard_id=1, term=1, node_id="n", grpc=self.endpoint)],
            brokers=[
                BrokerRecorded(
                    broker_id=broker.broker_id,
                    is_live=broker.is_live,
                    endpoints=BrokerEndpoints(grpc=broker.endpoint),
                )
                for broker in self.brokers
            ],
        )

    async def ReadEvents(self, request, context):
        if request.from_position < self.oldest:
            error = PositionCompacted(request.from_position, self.oldest)
            yield EventBatch(error=to_detail(error))
            return
        events = []
        for epoch, broker_id in self.owners.items():
            event = Event(position=epoch, shard_id=1)
            event.topic_assigned.topic_id = "id"
            event.topic_assigned.epoch = epoch
            event.topic_assigned.broker_id = broker_id
            if epoch >= request.from_position:
                events.append(event)
        last = max(self.owners, default=0)
        yield EventBatch(events=events, next_position=last + 1, commit_position=last)
        if request.follow:
            await asyncio.Event().wait()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def enter():
        made, stack = FakeCluster(), contextlib.AsyncExitStack()

        async def serve(add, servicer):
            server = new_server([])
            add(server.server)
            port = await server.start("127.0.0.1", 0, "a test")
            servicer.endpoint = f"127.0.0.1:{port}"
            stack.push_async_callback(server.stop, grace_ms=0)

        def add_cluster(server):
            discovery_grpc.add_DiscoveryServiceServicer_to_server(made, server)
            shard_grpc.add_ShardServiceServicer_to_server(made, server)

        await serve(add_cluster, made)
        for broker in made.brokers:
            await serve(
                lambda server, it=broker: broker_grpc.add_BrokerServiceServicer_to_server(
                    it, server
                ),
                broker,
            )
        return made, stack

    made, stack = asyncio.run_coroutine_threadsafe(enter(), loop).result(30)
    yield made
    asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def run_for(cluster, for_s, *arguments):
    return CliRunner().invoke(
        app,
        ["audit", "--follow", "--for-s", str(for_s), *arguments, "--target", cluster.endpoint],
    )


def run_until_found(cluster, *arguments):
    """Audit what has a finding, which ends it at once."""
    return run_for(cluster, PATIENCE_S, *arguments)


@pytest.fixture
def run_until(monkeypatch):
    """Audit until a condition holds, as if the time were over then."""

    def run(cluster, condition: Condition, *arguments):
        async def wait(auditor, over, for_s):
            async with timeout(for_s):
                while not (over.done() or condition(auditor)):
                    await asyncio.sleep(0.01)

        monkeypatch.setattr(Auditor, "_wait", wait)
        return run_for(cluster, PATIENCE_S, *arguments)

    return run


def has_heard(*brokers: str, next_position: int) -> Condition:
    """Return whether these brokers have reported their intervals, and the log its events."""
    return lambda auditor: (
        auditor.reached >= set(brokers) and auditor.positions.get(1) == next_position
    )


def test_owners_that_follow_each_other_are_good(cluster, run_until):
    cluster.owners = {1: "a", 2: "b"}
    cluster.brokers[0].intervals = [interval(1, 10, 20)]
    cluster.brokers[1].intervals = [interval(2, 21, 30)]

    result = run_until(cluster, has_heard("a", "b", next_position=3), "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert (told["units"], told["assignments"], told["findings"]) == (1, 2, [])
    assert (told["brokers"], told["unreached"]) == (["a", "b"], {})
    assert told["positions"] == {"1": 3}


def test_an_overlap_ends_it_with_the_finding(cluster):
    cluster.owners = {1: "a", 2: "b"}
    cluster.brokers[0].intervals = [interval(1, 10, 25)]
    cluster.brokers[1].intervals = [interval(2, 21, 30)]

    result = run_until_found(cluster)

    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "until 4.000 ms after broker b" in result.stderr


def test_what_clocks_differ_by_is_said(cluster, run_until):
    cluster.owners = {1: "a", 2: "b"}
    cluster.brokers[0].intervals = [interval(1, 10, 25)]
    cluster.brokers[1].intervals = [interval(2, 21, 30)]

    heard = has_heard("a", "b", next_position=3)
    assert run_until(cluster, heard, "--skew-ms", "4").exit_code == 0


def test_an_epoch_that_is_not_in_the_log_is_found_at_the_end_at_last(cluster, run_until):
    cluster.owners = {1: "a"}
    cluster.brokers[1].intervals = [interval(2, 21, 30)]

    result = run_until(cluster, has_heard("b", next_position=2))

    assert result.exit_code == ExitCode.CHECK_FAILED
    assert "which is not in the log" in result.stderr


def test_of_a_log_that_was_cut_the_rest_is_judged(cluster, run_until):
    cluster.owners = {3: "a", 4: "b"}
    cluster.oldest = 3
    cluster.brokers[0].intervals = [interval(1, 1, 2), interval(3, 10, 20)]

    result = run_until(cluster, has_heard("a", next_position=5), "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert (told["has_whole_log"], told["unjudged"]) == (False, 1)


def test_without_a_broker_that_answers_nothing_is_proved(cluster):
    for broker in cluster.brokers:
        broker.endpoint = "127.0.0.1:1"

    result = run_for(cluster, 1)

    assert result.exit_code == ExitCode.NO_ANSWER
    assert "no broker could be asked" in result.stderr


def test_a_broker_whose_session_has_ended_is_followed_on(cluster):
    """It serves until it is fenced: who else would say so if it were not?"""
    cluster.owners = {1: "a", 2: "b"}
    cluster.brokers[0].intervals = [interval(1, 10, 25)]
    cluster.brokers[0].is_live = False
    cluster.brokers[1].intervals = [interval(2, 21, 30)]

    assert run_until_found(cluster).exit_code == ExitCode.CHECK_FAILED


def test_a_broker_that_is_gone_is_no_trouble(cluster, run_until, monkeypatch):
    monkeypatch.setattr(audit_run, "AUDIT_LOOK_MS", 200)
    cluster.owners = {1: "b"}
    cluster.brokers[0].endpoint, cluster.brokers[0].is_live = "127.0.0.1:1", False
    cluster.brokers[1].intervals = [interval(1, 21, 30)]

    tried: set[str] = set()

    def is_over(auditor: Auditor) -> bool:
        tried.update(auditor.unreached)
        return tried == {"a"} and not auditor.unreached and auditor.reached == {"b"}

    result = run_until(cluster, is_over, "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["unreached"] == {}
