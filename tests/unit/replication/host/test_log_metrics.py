"""Metrics of replicated logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from nextgen.replication.host.log_metrics import LogCollector
from nextgen.replication.ports import LogStatus
from nextgen.replication.statistics import SYNC_BUCKETS_S, ReplicaStatistics
from tests.support.logs.dict_state_machine import DictStateMachine
from tests.support.logs.memory_log import MemoryLog


def shown(directory: Path, **changes: object) -> CollectorRegistry:
    status = MemoryLog(DictStateMachine()).status
    logs: dict[int, LogStatus] = {3: replace(status, **changes)}  # type: ignore[arg-type]
    registry = CollectorRegistry()
    registry.register(LogCollector(lambda: logs, directory))
    return registry


@pytest.mark.parametrize(
    ("field", "value", "metric", "shown_as"),
    [
        ("view_lag_ms", 250.0, "view_lag_seconds", 0.25),
        ("snapshot_ms", 1_500.0, "snapshot_write_seconds", 1.5),
        ("records_waiting", 7, "propose_queue_records", 7.0),
        ("entries_in_flight", 2, "entries_in_flight", 2.0),
        ("disk_trouble", "full", "disk_full", 1.0),
        ("divergence", "node-2 differs", "diverged", 1.0),
        ("pins_broken", 4, "pins_broken_total", 4.0),
    ],
)
async def test_a_status_is_printed_in_base_units(
    tmp_path: Path, field: str, value: object, metric: str, shown_as: float
) -> None:
    registry = shown(tmp_path, **{field: value})

    name = f"nextgen_replication_{metric}"
    assert registry.get_sample_value(name, {"shard": "3"}) == shown_as


async def test_syncs_are_counted_by_what_they_took(tmp_path: Path) -> None:
    statistics = ReplicaStatistics()
    for seconds in (SYNC_BUCKETS_S[0], 0.004, 0.005, 7.0):
        statistics.add_sync(seconds)
    registry = shown(tmp_path, statistics=statistics)

    def bucket(bound: str) -> float | None:
        name = "nextgen_replication_fsync_seconds_bucket"
        return registry.get_sample_value(name, {"shard": "3", "le": bound})

    assert (bucket("0.0005"), bucket("0.002"), bucket("0.005")) == (1.0, 1.0, 3.0)
    assert (bucket("1.0"), bucket("+Inf")) == (3.0, 4.0)
    total = registry.get_sample_value("nextgen_replication_fsync_seconds_sum", {"shard": "3"})
    assert total == pytest.approx(7.0095)
    assert statistics.syncs == 4


async def test_files_are_counted_by_kind_and_missing_ones_as_zero(tmp_path: Path) -> None:
    journal = tmp_path / "group-3" / "journal"
    journal.mkdir(parents=True)
    (journal / "a").write_bytes(b"x" * 100)
    (journal / "b").write_bytes(b"x" * 23)
    registry = shown(tmp_path)

    def size(kind: str) -> float | None:
        name = "nextgen_replication_disk_bytes"
        return registry.get_sample_value(name, {"shard": "3", "kind": kind})

    assert (size("journal"), size("view"), size("snapshots")) == (123.0, 0.0, 0.0)
