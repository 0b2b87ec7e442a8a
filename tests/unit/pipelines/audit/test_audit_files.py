"""Exports whose files are not what they should be: an audit goes on and names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nextgen.export.errors import ExportRefused
from nextgen.export.format.schema import SCHEMA_VERSION
from pipelines.audit.export_files import FILE_RULES, last_events_differ, look_at
from pipelines.audit.finding import RULES
from pipelines.audit.result import AuditResult
from tests.support.spark.breakages import LOG_BREAKAGES
from tests.support.spark.broken.file_breakages import (
    FILE_BREAKAGES,
    FileBreakage,
    change_manifest,
    data_files,
)
from tests.support.spark.histories import told_history
from tests.support.spark.slot_moves import MOVE_RULES

FOUND_WITHOUT_SPARK = FILE_RULES - {"hash"}
SPOILT_SHARD = 1


@pytest.fixture
async def export(tmp_path: Path) -> Path:
    return await told_history().export(tmp_path / "export")


def test_each_rule_has_an_example_that_breaks_it() -> None:
    examples = {each.rule for each in (*LOG_BREAKAGES, *FILE_BREAKAGES)}
    assert examples | MOVE_RULES == {*RULES, *FILE_RULES}
    assert not examples & MOVE_RULES


def test_a_right_export_has_no_findings(export: Path) -> None:
    found = look_at(export)

    assert (found.findings, found.notes) == ([], [])
    assert list(last_events_differ(found)) == []
    assert found.rows == told_history().rows
    assert len(found.readable) == len(data_files(export))


@pytest.mark.parametrize("breakage", FILE_BREAKAGES, ids=[each.name for each in FILE_BREAKAGES])
def test_a_broken_file_is_found_and_the_audit_goes_on(export: Path, breakage: FileBreakage) -> None:
    """What is in files is looked at by Spark, and not here."""
    expected = breakage.spoil(export, SPOILT_SHARD)
    found = look_at(export)
    findings = [*found.findings, *last_events_differ(found)]

    assert [f"{finding.rule}: {finding.path}" for finding in findings] == [
        place for place in expected if place.partition(":")[0] in FOUND_WITHOUT_SPARK
    ]
    assert len(found.readable) >= len(data_files(export)) - 1


def test_without_a_manifest_files_are_believed_by_their_names(export: Path) -> None:
    expected = {shard_id: len(log) for shard_id, log in told_history().logs.items()}
    (export / "manifest.json").unlink()
    found = look_at(export)

    assert [finding.rule for finding in found.findings] == ["manifest"]
    assert found.positions == expected


def test_a_file_that_is_being_written_is_a_note(export: Path) -> None:
    path = data_files(export)[-1]
    path.with_name(f".{999:020d}.draft").write_bytes(b"PAR1")
    path.with_name(f"{999:020d}-{1000:020d}.parquet").write_bytes(path.read_bytes())
    found = look_at(export)

    assert found.findings == []
    assert len(found.notes) == 2


def test_an_export_of_a_newer_schema_is_refused(export: Path) -> None:
    def change(fields: Any) -> None:
        fields["schema_version"] = SCHEMA_VERSION + 1

    change_manifest(export, change)
    with pytest.raises(ExportRefused, match="schema_version"):
        look_at(export)


async def test_a_missing_managers_log_is_reported_as_maps_not_compared(
    tmp_path: Path,
) -> None:
    history = told_history()
    history.logs[0].clear()
    source = look_at(await history.export(tmp_path / "export"))
    (note,) = AuditResult(source).notes()

    assert "slots were not compared with the shard map" in note


def test_a_folder_without_an_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match="holds no export"):
        look_at(tmp_path)
