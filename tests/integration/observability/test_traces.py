"""One trace from the client to the commit and to the broker, over real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.cli.main import app
from nextgen.client.model import NewTopic
from nextgen.runtime import tracing
from nextgen.runtime.settings import TraceSettings
from nextgen.runtime.trace_export import start_tracing
from tests.support.cluster_questions import NAMESPACE, client_of, prepare_namespace, wait_settled
from tests.support.local_cluster import ClusterSize, running_cluster
from tests.support.lookup_traces import check_lookup_trace, marks_by_trace
from tests.support.trace_files import WrittenTrace, read_spans, trace_of

SMALL = ClusterSize(cluster_managers=1, shard_nodes=2, discovery=1, brokers=1, shards=2)
TOPIC = f"persistent://{NAMESPACE}/traced"


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
            await wait_settled(client)  # A request that is sent on would be in the trace.
            await prepare_namespace(client)
            stop = start_tracing(settings, component="client", node_id="client")
            try:
                with tracing.span("create", ""):
                    create_id = tracing.current_trace_id()
                    await client.create_topics([NewTopic(TOPIC)])
                with tracing.span("look up", ""):
                    lookup_id = tracing.current_trace_id()
                    (found,) = await client.lookup([TOPIC])
            finally:
                stop()
        logs = "".join(
            cluster.log_path(node.node_id).read_text()
            for node in cluster.plan.of_kind("shard-node")
        )

    assert found.broker_id
    _check_create(trace_of(directory, create_id))
    _check_lookup(trace_of(directory, lookup_id))
    _check_steps(directory, lookup_id)
    lines = [json.loads(line) for line in logs.splitlines() if create_id in line]
    assert [line["event"] for line in lines] == ["commands carried out"]
    assert [line["trace_id"] for line in lines] == [create_id]


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
    """All 23, in order, over five processes; the first lookup of a cluster has nothing ahead."""
    marks = marks_by_trace(
        (span.trace_id, (span.start_ns, 0), span.attributes) for span in read_spans(directory)
    )
    assert check_lookup_trace(lookup_id, marks) == 0
    shown = CliRunner().invoke(app, ["trace", lookup_id, "--steps", "--from", str(directory)])
    assert shown.stdout.splitlines()[0] == f"trace {lookup_id}, 23 of 23 steps"


def _check_order(trace: WrittenTrace) -> None:
    """All belong to one tree, and nobody began before who asked."""
    roots = [span for span in trace.spans if not span.parent_id]
    assert len(roots) == 1
    assert [span.error for span in trace.spans if span.error] == []
    for span in trace.spans:
        assert span.start_ns <= span.end_ns
        if span.parent_id:
            assert trace.by_id[span.parent_id].start_ns <= span.start_ns
