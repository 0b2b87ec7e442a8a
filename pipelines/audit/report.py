"""The page of an audit: its findings, where they are, and how far the shards' clocks differed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from matplotlib.figure import Figure
from pyspark.sql import Row

from pipelines.audit.finding import RULES
from pipelines.audit.result import AuditResult, sentence_of
from pipelines.reporting.page import Page
from pipelines.running.summary import Summary

_CERTAIN, _DOUBTFUL, _CLOCK = "#b8433a", "#d9b38c", "#33506e"


def write_report(path: Path, summary: Summary, result: AuditResult) -> None:
    """Write the page, whole or not at all."""
    verdict = "nothing is wrong" if summary.is_ok else f"{summary.findings_total:,} findings in all"
    page = Page(
        "Audit of an exported event log",
        f"{result.source.url}: {summary.rows_read:,} of {summary.numbers['rows_told']:,} events "
        f"were read, {verdict}",
    )
    if result.by_rule or result.doubtful:
        page.add_plot("Findings by rule", _rules_figure(result))
    page.add_table(
        "Files",
        ("rule", "file", "what"),
        [(f.rule, f.path, f.problem) for f in result.source.findings],
    )
    page.add_table(
        "Events",
        ("finding", "certain", "event", "the other event"),
        [
            (
                sentence_of(row),
                not row.is_doubtful,
                result.name_of(row.shard_id, row.position),
                result.name_of(row.other_shard_id, row.other_position),
            )
            for row in result.shown
        ],
        "Events are named shard:position. A finding is not certain if missing or repeated events "
        "could explain it.",
    )
    page.add_table(
        "Shards",
        ("shard", "events", "last position", "first event", "last event", "clock back, ms"),
        [_shard_row(row, result) for row in result.shards],
    )
    if any(row.time_back_ms for row in result.shards):
        page.add_plot(
            "By how much times go back",
            _clocks_figure(result.shards),
            "Times are those of the leaders' clocks. They are not the order of events, and this "
            "is no fault of the log.",
        )
    for note in result.notes():
        page.add_text("Note", note)
    page.write(path)


def _shard_row(row: Row, result: AuditResult) -> tuple[object, ...]:
    return (
        row.shard_id,
        row.rows,
        result.source.positions.get(row.shard_id),
        _moment(row.first_time_ms),
        _moment(row.last_time_ms),
        row.time_back_ms,
    )


def _moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def _rules_figure(result: AuditResult) -> Figure:
    rules = [rule for rule in RULES if rule in result.by_rule or rule in result.doubtful]
    figure = Figure(figsize=(8, 0.8 + 0.35 * len(rules)))
    axes = figure.add_subplot()
    certain = [result.by_rule.get(rule, 0) for rule in rules]
    axes.barh(rules, certain, color=_CERTAIN, label="certain")
    doubtful = [result.doubtful.get(rule, 0) for rule in rules]
    axes.barh(rules, doubtful, left=certain, color=_DOUBTFUL, label="may follow from others")
    axes.invert_yaxis()
    axes.set_xlabel("findings")
    axes.legend()
    return figure


def _clocks_figure(shards: list[Row]) -> Figure:
    figure = Figure(figsize=(8, 3))
    axes = figure.add_subplot()
    names = [str(row.shard_id) for row in shards]
    axes.bar(names, [row.time_back_ms / 1_000 for row in shards], color=_CLOCK)
    axes.set_xlabel("shard")
    axes.set_ylabel("seconds")
    return figure
