"""What contending clients of the simulated cluster are told is judged, and found if it is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from nextgen.harness.history.model import Operation, OperationKind
from tests.support.cluster_simulation.contenders import TOPICS, Records, judge
from tests.support.cluster_simulation.run import ClusterRun


@pytest.mark.timeout(300)
def test_a_spoilt_answer_of_a_simulated_cluster_is_found() -> None:
    run = ClusterRun(7, faults=8)
    report = run.run()
    assert report.failure is None, report.failure
    assert run.simulation is not None
    entries = run.simulation.invariants.entries
    answered = [each for each in run.records if isinstance(each, Operation) and each.is_ok]
    counts = Counter(op.kind for op in answered if op.key in TOPICS)
    assert all(counts[kind] > 0 for kind in OperationKind), counts
    assert judge(run.records, entries) == ()

    def spoilt(wanted: OperationKind, **value: object) -> set[str]:
        victim = next(op for op in reversed(answered) if op.kind is wanted and op.value)
        wrong = replace(victim, value={**victim.value, **value})
        records = Records(wrong if each is victim else each for each in run.records)
        return {finding.check for finding in judge(records, entries)}

    assert "linearizability" in spoilt(OperationKind.GET, version=999)
    assert "linearizability" in spoilt(OperationKind.SET_PROPERTIES, version=999)
    assert "acked set" in spoilt(OperationKind.CREATE, id="another")
    assert "lookups" in spoilt(OperationKind.LOOKUP, broker_id="another")
