"""The history around findings, as one self-contained HTML page.

It has lanes for faults and for each shard (leaderships, acknowledged writes, times with pending
writes and no acknowledgement), then for each finding the operations of its key as intervals. All
text from the history is escaped, and the page is bounded: see ``HISTORY_TIMELINE_BARS_MAX``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from nextgen.harness.history import Finding, History, Verdict
from nextgen.harness.history.availability import writes_by_shard
from nextgen.harness.history.log_fold import LogIndex, index_log
from nextgen.harness.history.model import Operation, Publish

HISTORY_TIMELINE_BARS_MAX = 5_000
"""Operations and faults that a timeline draws; those nearest to its findings come first."""

KEYS_MAX = 20
"""Findings whose key is drawn."""
BARS_PER_KEY_MAX = 80
TEXT_CHARACTERS_MAX = 400
BUCKETS = 240
"""Pieces of the run in which a shard's writes are counted."""

_LEFT, _WIDTH, _ROW = 190, 1_000, 18
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 24px; color: #1c2430; max-width: 1240px }
h1 { font-size: 20px } h2 { font-size: 16px; margin-top: 28px }
code, pre { font: 12px ui-monospace, monospace; background: #f2f4f7; padding: 2px 4px }
pre { padding: 8px; white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse } td, th { padding: 3px 10px; text-align: right }
th { color: #667 } li { margin: 6px 0; overflow-wrap: anywhere }
svg { display: block; margin: 4px 0 } text { font: 11px ui-monospace, monospace; fill: #1c2430 }
.axis { stroke: #d6dbe3 } .faint { fill: #667 }
.fault { fill: #e4572e } .ok { fill: #3d8b5f } .refused { fill: #8b93a1 } .unknown { fill: #d9a421 }
.failed { fill: #b9bfc9 } .found { stroke: #d11; stroke-width: 2 } .acks { fill: #3d8b5f }
.gap { fill: #d11; opacity: .45 } .term { stroke: #2f5ea8; stroke-width: 2 }
.mark { stroke: #d11; stroke-dasharray: 3 3 }
"""


def write_report(path: Path, history: History, verdict: Verdict) -> None:
    """Write the page, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(render_report(history, verdict), encoding="utf-8")
    partial.replace(path)


def render_report(history: History, verdict: Verdict) -> str:
    """Return the page."""
    index = index_log(history.log)
    title = f"Chaos run {history.run.run_id}: {'green' if verdict.is_green else 'not green'}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_text(title)}</title>",
        f"<style>{_STYLE}</style><h1>{_text(title)}</h1>",
        _numbers(verdict),
        _replay(history),
        _findings(verdict.findings),
        _run_timeline(history, verdict, index),
        *_key_timelines(history, verdict.findings),
        "</html>",
    ]
    return "\n".join(parts)


# Words ---------------------------------------------------------------------------------------


def _numbers(verdict: Verdict) -> str:
    numbers = {
        "operations": verdict.operations,
        "acked": verdict.acked,
        "unknown": verdict.unknown,
        "lost": verdict.lost,
        "phantom": verdict.phantom,
        "violations": verdict.violations,
        "owner overlaps": verdict.owner_overlaps,
        "watch errors": verdict.watch_errors,
        "undecided": verdict.undecided,
        "unavailable ms": round(verdict.unavailable_ms_max),
    }
    heads = "".join(f"<th>{_text(name)}" for name in numbers)
    cells = "".join(f"<td>{value:,}" for value in numbers.values())
    return f"<table><tr>{heads}<tr>{cells}</table>"


def _replay(history: History) -> str:
    if not history.run.replay:
        return ""
    return f"<p>The same schedule again:<pre>{_text(history.run.replay)}</pre>"


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<h2>Nothing was found</h2>"
    items = []
    for finding in findings:
        names = ", ".join((*finding.operations, *finding.events))
        at = f" <span class=faint>{_text(names)}</span>" if names else ""
        items.append(
            f"<li><b>{_text(finding.kind)}</b> ({_text(finding.check)}) "
            f"{_text(finding.message)}{at}"
        )
    return f"<h2>{len(findings)} findings shown</h2><ol>{''.join(items)}</ol>"


def _text(given: object) -> str:
    text = str(given)
    if len(text) > TEXT_CHARACTERS_MAX:
        text = text[: TEXT_CHARACTERS_MAX - 1] + "…"
    return escape(text, quote=True)


# Drawing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    began_ns: int
    ended_ns: int
    zero_ns: int
    """The time that is shown as 0 s."""

    def x(self, at_ns: int) -> float:
        share = (at_ns - self.began_ns) / max(1, self.ended_ns - self.began_ns)
        return round(_LEFT + min(1.0, max(0.0, share)) * _WIDTH, 1)

    def seconds(self, at_ns: int) -> str:
        return f"{(at_ns - self.zero_ns) / 1e9:.3f} s"


def _bar(scale: _Scale, row: int, began_ns: int, ended_ns: int, kind: str, title: str) -> str:
    x = scale.x(began_ns)
    width = max(1.5, round(scale.x(ended_ns) - x, 1))
    return (
        f'<rect class="{kind}" x="{x}" y="{row * _ROW + 3}" width="{width}" height="{_ROW - 6}">'
        f"<title>{_text(title)}</title></rect>"
    )


def _mark(scale: _Scale, at_ns: int, rows: int, kind: str, title: str, row: int = 0) -> str:
    x = scale.x(at_ns)
    return (
        f'<line class="{kind}" x1="{x}" x2="{x}" y1="{row * _ROW}" y2="{(row + rows) * _ROW}">'
        f"<title>{_text(title)}</title></line>"
    )


def _label(row: int, text: str) -> str:
    shown = text if len(text) <= 28 else text[:27] + "…"
    return f'<text x="0" y="{row * _ROW + 13}">{_text(shown)}<title>{_text(text)}</title></text>'


def _drawing(scale: _Scale, rows: int, shapes: Iterable[str]) -> str:
    axis = []
    for part in range(11):
        at_ns = scale.began_ns + (scale.ended_ns - scale.began_ns) * part // 10
        axis.append(_mark(scale, at_ns, rows, "axis", scale.seconds(at_ns)))
        axis.append(
            f'<text class="faint" x="{scale.x(at_ns)}" y="{rows * _ROW + 13}">'
            f"{(at_ns - scale.zero_ns) / 1e9:.2f}</text>"
        )
    size = f'width="{_LEFT + _WIDTH + 60}" height="{(rows + 1) * _ROW}"'
    return f"<svg {size}>{''.join(axis)}{''.join(shapes)}</svg>"


# The run -------------------------------------------------------------------------------------


def _run_timeline(history: History, verdict: Verdict, index: LogIndex) -> str:
    run = history.run
    scale = _Scale(run.began_ns, run.ended_ns, run.began_ns)
    shapes: list[str] = []
    targets = list(dict.fromkeys(fault.target for fault in history.faults))[: KEYS_MAX * 2]
    rows = {target: row for row, target in enumerate(targets)}
    for fault in history.faults[:HISTORY_TIMELINE_BARS_MAX]:
        if fault.target in rows:
            title = f"{fault.kind} {fault.target} {fault.detail} {scale.seconds(fault.began_ns)}"
            place = (rows[fault.target], fault.began_ns, fault.ended_ns)
            shapes.append(_bar(scale, *place, "fault", title))
    shapes += [_label(row, target) for target, row in rows.items()]
    row = len(rows)
    writes = writes_by_shard(history.operations, index)
    for shard, of_shard in sorted(writes.items()):
        shapes += [_label(row, f"shard {shard}"), *_shard(scale, row, of_shard)]
        shapes += _leaderships(scale, row, of_shard, index, shard)
        for gap in verdict.unavailable:
            if gap.shard == shard and gap.ended_ns > gap.began_ns:
                title = f"no write acknowledged for {gap.duration_ms:.0f} ms"
                shapes.append(_bar(scale, row, gap.began_ns, gap.ended_ns, "gap", title))
        row += 1
    for finding in verdict.findings:
        if finding.at_ns is not None:
            shapes.append(_mark(scale, finding.at_ns, row, "mark", finding.message))
    note = (
        "<p class=faint>Orange: what was broken. Green: writes acknowledged. Red: the longest "
        "time without. Blue: first acknowledgement of a new term. Dashed: findings. Seconds since "
        "the beginning, by the one monotonic clock of the machine that recorded.</p>"
    )
    return f"<h2>The run</h2>{note}{_drawing(scale, max(1, row), shapes)}"


def _shard(scale: _Scale, row: int, writes: Sequence[Operation]) -> Iterator[str]:
    length = max(1, (scale.ended_ns - scale.began_ns) // BUCKETS)
    counts: dict[int, int] = {}
    for write in writes:
        if write.is_ok and write.returned_ns is not None:
            bucket = (write.returned_ns - scale.began_ns) // length
            counts[bucket] = counts.get(bucket, 0) + 1
    for bucket, count in sorted(counts.items())[: BUCKETS + 1]:
        began_ns = scale.began_ns + bucket * length
        title = f"{count} acknowledged from {scale.seconds(began_ns)}"
        yield _bar(scale, row, began_ns, began_ns + length, "acks", title)


def _leaderships(
    scale: _Scale, row: int, writes: Sequence[Operation], index: LogIndex, shard: int
) -> Iterator[str]:
    """Yield the first acknowledged write of each term: the log has the term, the client the
    time."""
    terms = {event.position: event.term for event in index.by_shard.get(shard, ())}
    first: dict[int, int] = {}
    for write in writes:
        term = terms.get(write.position)
        if term is not None and write.returned_ns is not None:
            first[term] = min(write.returned_ns, first.get(term, write.returned_ns))
    for term, at_ns in sorted(first.items())[:BUCKETS]:
        yield _mark(scale, at_ns, 1, "term", f"term {term} {scale.seconds(at_ns)}", row)


# Keys ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Interval:
    name: str
    lane: str
    began_ns: int
    ended_ns: int | None
    kind: str
    title: str


def _key_timelines(history: History, findings: Sequence[Finding]) -> Iterator[str]:
    by_key: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.key and (finding.key in by_key or len(by_key) < KEYS_MAX):
            by_key.setdefault(finding.key, []).append(finding)
    intervals: dict[str, list[_Interval]] = {key: [] for key in by_key}
    for operation in history.operations:
        if operation.key in intervals:
            intervals[operation.key].append(_of_operation(operation))
    for publish in history.publishes:
        if publish.topic in intervals:
            intervals[publish.topic].append(_of_publish(publish))
    bars_left = HISTORY_TIMELINE_BARS_MAX
    for key, of_key in by_key.items():
        drawn = _nearest(intervals[key], of_key)[:bars_left]
        bars_left -= len(drawn)
        if drawn:
            yield _key_timeline(history, key, of_key, drawn, len(intervals[key]))


def _nearest(intervals: list[_Interval], findings: Sequence[Finding]) -> list[_Interval]:
    """Return the operations that findings name, and those nearest to them in time, by their
    beginning."""
    named = {name for finding in findings for name in finding.operations}
    at_ns = next((each.at_ns for each in findings if each.at_ns is not None), None)

    def distance(interval: _Interval) -> tuple[bool, int]:
        return interval.name not in named, abs(interval.began_ns - (at_ns or 0))

    chosen = sorted(intervals, key=distance)[:BARS_PER_KEY_MAX]
    return sorted(chosen, key=lambda interval: interval.began_ns)


def _key_timeline(
    history: History,
    key: str,
    findings: Sequence[Finding],
    intervals: Sequence[_Interval],
    total: int,
) -> str:
    named = {name for finding in findings for name in finding.operations}
    began_ns = min(each.began_ns for each in intervals)
    ended = [each.ended_ns or each.began_ns for each in intervals]
    margin_ns = max(1, (max(ended) - began_ns) // 20)
    scale = _Scale(began_ns - margin_ns, max(ended) + margin_ns, history.run.began_ns)
    shapes = []
    for fault in history.faults[:HISTORY_TIMELINE_BARS_MAX]:
        if fault.began_ns < scale.ended_ns and fault.ended_ns > scale.began_ns:
            title = f"{fault.kind} {fault.target} {fault.detail}"
            shapes.append(_bar(scale, 0, fault.began_ns, fault.ended_ns, "fault", title))
    shapes.append(_label(0, "faults"))
    for row, each in enumerate(intervals, start=1):
        kind = each.kind + (" found" if each.name in named else "")
        ended_ns = scale.ended_ns if each.ended_ns is None else each.ended_ns
        shapes.append(_bar(scale, row, each.began_ns, ended_ns, kind, each.title))
        shapes.append(_label(row, each.title))
    for finding in findings:
        if finding.at_ns is not None:
            shapes.append(_mark(scale, finding.at_ns, len(intervals) + 1, "mark", finding.message))
    detail = "".join(f"<li>{_text(finding.message)}" for finding in findings[:KEYS_MAX])
    return (
        f"<h2>{_text(key)}</h2><ul>{detail}</ul>"
        f"<p class=faint>{len(intervals)} of {total} operations, those nearest to the finding. "
        "Green ok, yellow unknown (open for ever), grey refused or failed, red edge: named.</p>"
        f"{_drawing(scale, len(intervals) + 1, shapes)}"
    )


def _of_operation(operation: Operation) -> _Interval:
    kind = operation.outcome.partition(":")[0]
    asked = f" {dict(operation.argument)}" if operation.argument else ""
    detail = f" {dict(operation.value)}" if operation.value else ""
    return _Interval(
        operation.name,
        operation.client,
        operation.invoked_ns,
        None if operation.is_unknown else operation.returned_ns,
        kind if kind in ("ok", "refused", "failed") else "unknown",
        f"{operation.name} {operation.kind}{asked} = {operation.outcome}{detail}",
    )


def _of_publish(publish: Publish) -> _Interval:
    acked = publish.acked_ns is not None
    detail = f"acked as {publish.ledger}:{publish.entry} epoch {publish.epoch}"
    return _Interval(
        publish.name,
        publish.producer,
        publish.sent_ns,
        publish.acked_ns,
        "ok" if acked else "unknown",
        f"{publish.producer}#{publish.sequence} {detail if acked else 'never acked'}",
    )
