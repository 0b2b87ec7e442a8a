"""A minute of chaos on a real cluster, recorded: green as it was, and not when it is spoilt.

``recorded/one_minute.jsonl.xz`` has four shards on three nodes, six kills, a partition, a frozen
node and a restart of everything.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from nextgen.harness.history import History, check
from nextgen.harness.history.record_file import history_of, read_records
from tests.support.history.plants import PLANTS, NoPlace, Plant

RECORDED = Path(__file__).parent / "recorded" / "one_minute.jsonl.xz"
WITHOUT_SNAPSHOTS = {"watch of others", "snapshot without an item", "snapshot of yesterday"}
"""Its watches follow whole logs from their beginning."""

WITHOUT_POLICIES = {
    "stale policies",
    "two winners",
    "lost policies",
    "phantom policies",
    "version of policies left out",
}
"""Nobody set any."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> History:
    path = tmp_path_factory.mktemp("history") / "one_minute.jsonl"
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    return history_of(read_records(path))


def test_a_recorded_run_is_green(recorded: History) -> None:
    verdict = check(recorded)

    assert verdict.findings == ()
    assert verdict.is_green
    assert verdict.faults == {"kill": 6, "clock": 1, "partition": 1, "pause": 1, "restart_all": 1}
    assert verdict.acked > 5_000
    assert verdict.observations > 5_000
    assert all(recovery.recovered_ms is not None for recovery in verdict.recoveries)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_fault_planted_into_a_recorded_run_is_found(recorded: History, plant: Plant) -> None:
    if plant.name in WITHOUT_SNAPSHOTS | WITHOUT_POLICIES:
        with pytest.raises(NoPlace):
            plant.spoil(recorded)
        return

    verdict = check(plant.spoil(recorded))

    assert plant.check in {each.check for each in verdict.findings if each.kind is plant.kind}
