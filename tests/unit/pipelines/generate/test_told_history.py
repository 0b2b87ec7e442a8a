"""The history that tests of Spark jobs are made of keeps the rules of the log itself."""

from __future__ import annotations

from pathlib import Path

from nextgen.export.checking.check import check_export
from nextgen.harness.history.checks.log_check import check_log
from nextgen.harness.history.log_events import log_event_of
from nextgen.harness.history.log_fold import index_log
from tests.support.spark.histories import told_history


def test_the_scripted_history_breaks_no_rule_of_the_log() -> None:
    history = told_history()
    events = [
        log_event_of(event) for shard_id in history.shard_ids for event in history.logs[shard_id]
    ]
    assert list(check_log(index_log(events), is_complete=True)) == []


async def test_the_scripted_history_becomes_a_whole_export(tmp_path: Path) -> None:
    history = told_history()
    report = await check_export(await history.export(tmp_path / "export", file_rows=20))
    assert report.findings == []
    assert report.events == history.rows
