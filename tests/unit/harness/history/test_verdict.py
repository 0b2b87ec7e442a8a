"""How findings are summed up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextgen.audit.verdict import Finding, FindingKind, FindingList, named
from nextgen.harness.history import check
from nextgen.harness.history.model import History, Run
from nextgen.kernel.limits.stream import HISTORY_FINDINGS_KEPT_MAX, HISTORY_NAMED_MAX

GREEN = check(History(Run("r", 0, 1)))


def test_a_history_of_nothing_is_green_and_says_how_little_it_is() -> None:
    assert GREEN.is_green
    assert (GREEN.operations, GREEN.acked, GREEN.events, GREEN.faults) == (0, 0, 0, {})
    assert GREEN.unavailable_ms_max == 0


@pytest.mark.parametrize(
    "name",
    ["lost", "phantom", "violations", "owner_overlaps", "watch_errors", "undecided"],
)
def test_one_of_anything_is_not_green(name: str) -> None:
    verdict = replace(GREEN, **{name: 1})

    assert not verdict.is_green
    assert {found: count for found, count in verdict.counts().items() if count} == {name: 1}


def test_all_findings_are_counted_and_so_many_of_a_kind_are_kept() -> None:
    findings = FindingList()
    findings.extend([Finding(FindingKind.LOST, "c", "m")] * HISTORY_FINDINGS_KEPT_MAX)
    assert len(findings.kept()) == HISTORY_FINDINGS_KEPT_MAX

    findings.extend([Finding(FindingKind.LOST, "c", "m"), Finding(FindingKind.PHANTOM, "c", "m")])

    assert findings.counts[FindingKind.LOST] == HISTORY_FINDINGS_KEPT_MAX + 1
    assert [each.kind for each in findings.kept()].count(FindingKind.LOST) == (
        HISTORY_FINDINGS_KEPT_MAX
    )
    assert findings.kept()[-1].kind is FindingKind.PHANTOM


def test_a_finding_names_so_many_and_no_more() -> None:
    names = [str(number) for number in range(HISTORY_NAMED_MAX + 1)]

    assert named(names[:-1]) == tuple(names[:-1])
    assert named(names) == tuple(names[:-1])
