"""``nextgen trace``: one trace out of trace files, as a tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_blocking
from nextgen.cli.console.output import print_line
from nextgen.kernel.errors import InvalidRequest
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.runtime.telemetry.lookup_steps import AHEAD, REFERENCES, STEP, STEP_NAMES, TRACE

_SPANS_MAX = 10_000
"""Spans printed of one trace: more than a request's trace has, and as many as a person reads."""


@dataclass(frozen=True, slots=True)
class Span:
    """The printed part of a line of a trace file."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    process: str
    start_ns: int
    end_ns: int
    error: str
    attributes: dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("trace")(trace)


def trace(
    trace_id: Annotated[str, typer.Argument(help="32 hexadecimal digits, or how they begin")] = "",
    source: Annotated[
        Path, typer.Option("--from", help="a trace file, or a directory of them")
    ] = Path(),
    last: Annotated[bool, typer.Option("--last", help="the trace that began last")] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="only the 23 steps of a lookup, earlier ones included")
    ] = False,
) -> None:
    """Print one trace of trace files (--trace-file of every process) as a tree."""

    def work() -> None:
        if bool(trace_id) == last:
            raise InvalidRequest("give a trace id, or --last")
        everything = list(read_spans(source))
        spans = [one for one in everything if one.trace_id.startswith(trace_id)]
        if not spans:
            raise CheckFailed(f"{source} has no such trace")
        chosen = max(spans, key=lambda one: one.start_ns if not one.parent_id else 0).trace_id
        if not last and any(one.trace_id != chosen for one in spans):
            raise CheckFailed(f"several traces begin with {trace_id!r}")
        if steps:
            for line in steps_of(everything, chosen):
                print_line(line)
            return
        for line in tree([one for one in spans if one.trace_id == chosen]):
            print_line(line)

    run_blocking(work)


def tree(spans: Sequence[Span]) -> Iterator[str]:
    """Yield the lines of one trace: offset, duration, name, process; children below their parent.

    A span whose parent is in none of the files stands at the top.
    """
    known = {one.span_id for one in spans}
    children: dict[str, list[Span]] = {}
    for one in sorted(spans, key=lambda one: (one.start_ns, one.span_id))[:_SPANS_MAX]:
        parent_id = one.parent_id if one.parent_id in known else ""
        children.setdefault(parent_id, []).append(one)
    began_ns = min(one.start_ns for one in spans)
    yield f"trace {spans[0].trace_id}, {len(spans)} spans"
    waiting = [(one, 0) for one in reversed(children.get("", ()))]
    while waiting:
        one, depth = waiting.pop()
        yield _line(one, depth, began_ns)
        waiting += [(child, depth + 1) for child in reversed(children.get(one.span_id, ()))]


def steps_of(spans: Sequence[Span], trace_id: str) -> Iterator[str]:
    """Yield a line for each step of a lookup: its time relative to step 9, and its process.

    Steps of sessions, grants and leases are read from the traces that the lookup refers to.

    Raises:
        CheckFailed: The trace is not of a lookup that led to an assignment.
    """
    marks: dict[str, list[Span]] = {}
    for one in sorted(spans, key=lambda one: one.start_ns):
        if STEP in one.attributes:
            marks.setdefault(one.trace_id, []).append(one)
    found: dict[int, Span] = {}
    for one in marks.get(trace_id, ()):
        found.setdefault(one.attributes[STEP], one)
    if not {9, 11} <= found.keys():
        raise CheckFailed(f"trace {trace_id} assigned no topic")
    for reference in REFERENCES:
        for one in marks.get(found[11].attributes.get(reference, ""), ()):
            found.setdefault(one.attributes[STEP], one)
    began_ns = found[9].start_ns
    yield f"trace {trace_id}, {len(found)} of {len(STEP_NAMES)} steps"
    for number, name in STEP_NAMES.items():
        if number not in found:
            yield f"{number:2}  {name:34} not recorded"
            continue
        one = found[number]
        earlier = f"ahead, in trace {one.attributes[TRACE]}" if one.attributes.get(AHEAD) else ""
        offset_ms = (one.start_ns - began_ns) / 1e6
        yield f"{number:2}  {name:34} {offset_ms:12.3f} ms  {one.process:12} {earlier}".rstrip()


def _line(one: Span, depth: int, began_ns: int) -> str:
    offset_ms, took_ms = (one.start_ns - began_ns) / 1e6, (one.end_ns - one.start_ns) / 1e6
    details = " ".join(f"{key}={value}" for key, value in one.attributes.items())
    failed = f" FAILED {one.error}" if one.error else ""
    text = f"{'  ' * depth}{one.name}"
    return f"{offset_ms:9.3f} {took_ms:9.3f} ms  {text:44} {one.process} {details}{failed}".rstrip()


def read_spans(source: Path) -> Iterator[Span]:
    """Yield the spans of a trace file, or of a directory of them, file by file.

    Raises:
        CheckFailed: A file cannot be read, or a line in it is malformed.
    """
    paths = sorted(source.glob("*.jsonl*")) if source.is_dir() else [source]
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckFailed(f"{path} cannot be read: {error}") from error
        for number, line in enumerate(lines, start=1):
            try:
                fields = json.loads(line)
                yield Span(**{name: fields[name] for name in Span.__slots__})
            except (ValueError, KeyError, TypeError, RecursionError):
                # A process that was killed may have left half a line, which is always the last.
                if number == len(lines):
                    continue
                raise CheckFailed(f"{path}, line {number}: not a span") from None
