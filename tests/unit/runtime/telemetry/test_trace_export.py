"""Where spans go, within bounds, and that nothing waits for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.settings import NO_TRACES, TRACE_FLAGS, TraceSettings, read_settings
from nextgen.runtime.telemetry import tracing
from nextgen.runtime.telemetry.trace_export import TraceFile, start_tracing, trace_path
from tests.support.observability.traced import wait_for_spans_for_long

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_spans_for_long(monkeypatch)


def settings_of(*arguments: str, **environment: str) -> TraceSettings:
    given = read_settings("program", "", TRACE_FLAGS, arguments, environment)
    settings = given.tracing(environment)
    given.check()
    return settings


def test_nothing_is_configured_by_default() -> None:
    assert settings_of() == NO_TRACES
    assert not NO_TRACES.is_on

    start_tracing(NO_TRACES, component="shard", node_id="n")()

    assert tracing.active is None


def test_opentelemetrys_own_variable_is_known_and_ours_wins() -> None:
    assert settings_of(OTEL_EXPORTER_OTLP_ENDPOINT="http://a:4317").otlp_endpoint == "http://a:4317"
    both = {"OTEL_EXPORTER_OTLP_ENDPOINT": "a:1", "NEXTGEN_OTLP_ENDPOINT": "b:2"}
    assert settings_of(**both).otlp_endpoint == "b:2"


@pytest.mark.parametrize("ratio", ["0", "0.01", "1"])
def test_a_ratio_is_between_nothing_and_everything(ratio: str) -> None:
    assert settings_of(f"--trace-ratio={ratio}").ratio == float(ratio)


@pytest.mark.parametrize("ratio", ["-0.1", "1.01", "half", "nan"])
def test_another_ratio_is_refused(ratio: str) -> None:
    with pytest.raises(RefusesToStart, match="--trace-ratio"):
        settings_of(f"--trace-ratio={ratio}")


def test_ended_spans_are_lines_with_their_parents(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    stop = start_tracing(TraceSettings(file=path), component="shard", node_id="shard-node-1")
    with tracing.span("outer", "", shard=3), tracing.span("inner"):
        pass
    stop()

    inner, outer = (json.loads(line) for line in path.read_text().splitlines())
    assert inner["parent_id"] == outer["span_id"]
    assert outer["parent_id"] == ""
    assert (outer["process"], outer["component"]) == ("shard-node-1", "shard")
    assert outer["attributes"] == {"shard": 3}
    assert tracing.active is None


def test_a_ratio_of_nothing_records_what_others_began_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    stop = start_tracing(TraceSettings(file=path, ratio=0.0), component="shard", node_id="n")
    with tracing.span("begun here", ""):
        assert not int(tracing.outgoing()[-2:], 16) & 1
    with tracing.span("begun elsewhere", f"00-{'a' * 32}-{'b' * 16}-01"):
        pass
    stop()

    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == [
        "begun elsewhere"
    ]


def test_a_trace_file_has_so_many_bytes_and_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    file = TraceFile(path, bytes_max=100)
    file.write([b"x" * 49 + b"\n"] * 2)
    assert path.stat().st_size == 100
    assert not path.with_name("spans.jsonl.1").exists()

    file.write([b"y\n"])
    assert path.read_bytes() == b"y\n"
    assert path.with_name("spans.jsonl.1").stat().st_size == 100

    file.write([b"z" * 99 + b"\n"])
    file.close()
    assert path.with_name("spans.jsonl.1").read_bytes() == b"y\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["spans.jsonl", "spans.jsonl.1"]


def test_in_a_directory_each_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert trace_path(tmp_path, "shard-node-1").parent == tmp_path
    assert trace_path(tmp_path, "a") != trace_path(tmp_path, "b")
    assert trace_path(tmp_path / "spans.jsonl", "a") == tmp_path / "spans.jsonl"


def test_an_unwritable_file_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(RefusesToStart, match="cannot be written"):
        start_tracing(
            TraceSettings(file=tmp_path / "file" / "spans.jsonl"), component="c", node_id="n"
        )


def test_a_full_disk_loses_spans_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: TraceFile, _lines: object) -> None:
        raise OSError(28, "No space left on device")

    stop = start_tracing(TraceSettings(file=tmp_path / "s.jsonl"), component="c", node_id="n")
    monkeypatch.setattr(TraceFile, "write", full)
    with tracing.span("lost", ""):
        pass
    stop()

    assert (tmp_path / "s.jsonl").read_bytes() == b""


def test_a_collector_that_hangs_does_not_keep_a_process() -> None:
    # Takes connections, and never says a word.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        program = (
            "from nextgen.runtime.telemetry import tracing\n"
            "from nextgen.runtime.settings import TraceSettings\n"
            "from nextgen.runtime.telemetry.trace_export import start_tracing\n"
            f"settings = TraceSettings(otlp_endpoint='127.0.0.1:{silent.getsockname()[1]}')\n"
            "stop = start_tracing(settings, component='c', node_id='n')\n"
            "with tracing.span('lost', ''):\n"
            "    pass\n"
            "stop()\n"
            "print('stopped', flush=True)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stdout == "stopped\n", done.stderr
    assert done.returncode == 0


def test_without_traces_the_sdk_is_not_even_imported() -> None:
    program = (
        "import sys\n"
        "import nextgen.runtime.telemetry.observability, nextgen.client, shards.bootstrap\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
