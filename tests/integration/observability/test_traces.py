"""One trace from the client to the commit and to the broker, over real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.cli.observability.trace_command import read_spans as written_spans
from nextgen.cli.observability.trace_command import steps_of
from nextgen.client import Client
from nextgen.client.model import NewTopic
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.runtime.settings import TraceSettings
from nextgen.runtime.telemetry import tracing
from nextgen.runtime.telemetry.trace_export import start_tracing
from nextgen.tasks.timeouts import timeout
from tests.support.callers.cluster_questions import (
    client_of,
    prepare_namespace,
    wait_brokers_used,
    wait_settled,
)
from tests.support.observability.lookup_traces import check_lookup_trace, marks_by_trace
from tests.support.observability.trace_files import WrittenTrace, read_spans, trace_of
from tests.support.processes.local_cluster import ClusterSize, running_cluster

SMALL = ClusterSize(cluster_managers=1, shard_nodes=2, discovery=1, brokers=1, shards=2)
WARM_UP = "warm/up"
ROUNDS = 3
"""Creates and lookups, one pair after the other. Who stands still for a second is asked again, and
rightly: the first pair is looked at that this did not happen to."""

WRITTEN_S_MAX = 60
"""For every process to have written what it recorded. Only a failing test waits that long."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The traces of one create, and of the first lookup in its tenant and namespace."""

    create_id: str
    lookup_id: str


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every process of the cluster writes its spans."""
    made = tmp_path / "traces"
    made.mkdir()
    monkeypatch.setenv("NEXTGEN_TRACE_FILE", str(made))
    monkeypatch.setenv("NEXTGEN_LOG_LEVEL", "info")
    return made


async def test_a_create_and_a_cold_lookup_are_one_trace_each_from_client_to_commit(
    directory: Path, tmp_path: Path
) -> None:
    settings = TraceSettings(file=directory / "client.jsonl")
    async with running_cluster(tmp_path / "cluster", SMALL) as cluster:
        async with client_of(cluster, timeout_ms=30_000) as client:
            # A lookup that waits for capacity is asked again.
            await prepare_namespace(client, WARM_UP)
            await wait_brokers_used(cluster, client, WARM_UP)
            stop = start_tracing(settings, component="client", node_id="client")
            try:
                rounds = [await _ask(client, number) for number in range(ROUNDS)]
            finally:
                stop()
        await _wait_written(directory, rounds)
        logs = "".join(
            cluster.log_path(node.node_id).read_text()
            for node in cluster.plan.of_kind("shard-node")
        )

    asked = _undisturbed(directory, rounds)
    _check_create(trace_of(directory, asked.create_id))
    _check_lookup(trace_of(directory, asked.lookup_id))
    _check_steps(directory, asked.lookup_id)
    lines = [json.loads(line) for line in logs.splitlines() if asked.create_id in line]
    assert [line["event"] for line in lines] == ["commands carried out"]
    assert [line["trace_id"] for line in lines] == [asked.create_id]


async def _ask(client: Client, number: int) -> Asked:
    """Create a topic in an unused namespace, and look it up."""
    namespace = f"acme-{number}/orders"
    topic = f"persistent://{namespace}/traced"
    await wait_settled(client)  # A request that is sent on would be in the trace.
    await prepare_namespace(client, namespace)
    with tracing.span("create", ""):
        create_id = tracing.current_trace_id()
        await client.create_topics([NewTopic(topic)])
    with tracing.span("look up", ""):
        lookup_id = tracing.current_trace_id()
        (found,) = await client.lookup([topic])
    assert found.broker_id
    return Asked(create_id, lookup_id)


async def _wait_written(directory: Path, rounds: Sequence[Asked]) -> None:
    """A process that stops waits for its last spans, but not for long."""
    async with timeout(WRITTEN_S_MAX):
        while not all(_is_written(directory, asked) for asked in rounds):
            await asyncio.sleep(0.1)


def _is_written(directory: Path, asked: Asked) -> bool:
    spans = list(written_spans(directory))
    try:
        first_line = next(steps_of(spans, asked.lookup_id))
    except CheckFailed:
        return False
    traces = [trace_of(directory, each) for each in (asked.create_id, asked.lookup_id)]
    return first_line.endswith(", 23 of 23 steps") and all(
        trace.is_connected and trace.named("apply") for trace in traces
    )


def _undisturbed(directory: Path, rounds: Sequence[Asked]) -> Asked:
    for asked in rounds:
        traces = [trace_of(directory, each) for each in (asked.create_id, asked.lookup_id)]
        if all(trace.is_undisturbed for trace in traces):
            return asked
    raise AssertionError(f"in each of {ROUNDS} rounds somebody was asked again")


def _check_create(trace: WrittenTrace) -> None:
    _check_order(trace)
    assert trace.components == {"client", "discovery", "shard"}
    (commit,) = trace.named("commit")
    assert trace.ancestors(commit) == [
        "shard.execute",
        "route.execute",
        "discovery.CreateTopics",
        "client.CreateTopics",
        "create",
    ]
    # Twice: the first time the namespace had to be read before anything could be decided.
    decisions = trace.named("decide")
    assert {decided.parent_id for decided in decisions} == {commit.parent_id}
    assert any(span.start_ns <= commit.start_ns <= span.end_ns for span in decisions)
    steps = {span.name: span for span in trace.spans if span.parent_id == commit.span_id}
    assert {"queue", "replicate", "apply"} <= set(steps)
    assert steps["queue"].start_ns <= steps["replicate"].start_ns <= steps["apply"].start_ns
    assert steps["replicate"].end_ns <= steps["apply"].start_ns
    assert commit.attributes["position"] > 0


def _check_lookup(trace: WrittenTrace) -> None:
    _check_order(trace)
    assert trace.components == {"client", "discovery", "shard", "broker"}
    (applied,) = trace.named("broker.apply")
    assert trace.ancestors(applied) == [
        "deliver",
        "shard.assign",
        "route.assign",
        "assign",
        "shard.lookup",
        "route.lookup",
        "discovery.ask_shard",
        "discovery.lookup",
        "discovery.Lookup",
        "client.Lookup",
        "look up",
    ]
    (commit,) = trace.named("commit")
    assert trace.by_id[commit.parent_id].name == "shard.lookup"
    # The broker hears of an assignment that is committed, and of no other.
    assert commit.end_ns <= applied.start_ns


def _check_steps(directory: Path, lookup_id: str) -> None:
    """All 23, in order, over five processes; the first lookup in a tenant has nothing ahead."""
    marks = marks_by_trace(
        (span.trace_id, (span.start_ns, 0), span.attributes) for span in read_spans(directory)
    )
    assert check_lookup_trace(lookup_id, marks) == 0
    shown = CliRunner().invoke(app, ["trace", lookup_id, "--steps", "--from", str(directory)])
    assert shown.stdout.splitlines()[0] == f"trace {lookup_id}, 23 of 23 steps"


def _check_order(trace: WrittenTrace) -> None:
    """All spans belong to one tree, and none begins before its parent."""
    roots = [span for span in trace.spans if not span.parent_id]
    assert len(roots) == 1
    assert [span.error for span in trace.spans if span.error] == []
    for span in trace.spans:
        assert span.start_ns <= span.end_ns
        if span.parent_id:
            assert trace.by_id[span.parent_id].start_ns <= span.start_ns
