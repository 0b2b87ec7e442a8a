"""A trace out of trace files, as a tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.main import app
from nextgen.runtime.settings import TraceSettings
from nextgen.runtime.telemetry import lookup_steps, tracing
from nextgen.runtime.telemetry.trace_export import start_tracing
from tests.support.observability.traced import wait_for_spans_for_long


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_spans_for_long(monkeypatch)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two processes' files: one trace of three spans over both, and a later one."""
    sent = []
    for process in ("discovery-1", "shard-node-1"):
        settings = TraceSettings(file=tmp_path / f"{process}.jsonl")
        stop = start_tracing(settings, component="test", node_id=process)
        if process == "discovery-1":
            with tracing.span("client.CreateTopics", ""), tracing.span("route", shard=3):
                sent.append(tracing.outgoing())
        else:
            with tracing.span("shard.execute", sent[0]):
                pass
            with tracing.span("later", ""):
                pass
        stop()
    (tmp_path / "id").write_text(sent[0][3:35])
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["trace", *arguments])
    return done.exit_code, done.output


def test_children_stand_below_their_parents_whichever_process_wrote_them(directory: Path) -> None:
    trace_id = (directory / "id").read_text()

    code, said = run(trace_id[:12], "--from", str(directory))

    assert code == 0
    lines = [line.split("ms  ")[1] for line in said.splitlines()[1:]]
    assert lines[0].split()[0] == "client.CreateTopics"
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4]
    assert "shard=3" in lines[1]
    assert lines[2].split() == ["shard.execute", "shard-node-1"]


def test_the_last_trace_is_the_one_that_began_last(directory: Path) -> None:
    code, said = run("--last", "--from", str(directory))

    assert code == 0
    assert "later" in said
    assert "shard.execute" not in said


def test_a_missing_trace_is_reported(directory: Path) -> None:
    assert run("f" * 32, "--from", str(directory))[0] == 4


def test_half_a_line_at_the_end_is_left_out_and_another_one_is_named(directory: Path) -> None:
    path = directory / "shard-node-1.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"trace_id": "a')
    assert run("--last", "--from", str(directory))[0] == 0

    path.write_text("nonsense\n" + whole)
    code, _ = run("--last", "--from", str(directory))
    assert code == 4


def test_a_trace_or_the_last_one_is_asked_for() -> None:
    assert run()[0] == 2


def test_steps_that_were_not_recorded_are_said_and_a_trace_without_assignment_has_none(
    tmp_path: Path,
) -> None:
    stop = start_tracing(
        TraceSettings(file=tmp_path / "one.jsonl"), component="test", node_id="discovery-1"
    )
    with tracing.span("look up", ""):
        assigned = tracing.current_trace_id()
        lookup_steps.step(9)
        lookup_steps.step(11, **lookup_steps.references(1, "s"))
        lookup_steps.ahead(13, "ab" * 16)
    with tracing.span("look up", ""):
        warm = tracing.current_trace_id()
        lookup_steps.step(9)
    lookup_steps.step(5, lookup_steps.lease_parent(1, "s"))
    stop()

    code, said = run(assigned, "--steps", "--from", str(tmp_path))
    lines = said.splitlines()

    assert code == 0
    assert lines[0] == f"trace {assigned}, 4 of 23 steps"
    assert lines[5].split()[:4] == ["5", "lease", "capacity", "units"]
    assert lines[6].endswith("not recorded")
    assert lines[13].endswith(f"ahead, in trace {'ab' * 16}")
    assert run(warm, "--steps", "--from", str(tmp_path))[0] == 4
