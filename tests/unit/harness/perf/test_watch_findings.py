"""What ``perf watch`` finds wrong: each watcher gets exactly its topics, each once and in order."""

from __future__ import annotations

import pytest

from nextgen.harness.load.jobs.watch import WatchedNames
from nextgen.harness.perf.watch_findings import Findings, compare, watcher_of

NAMES = WatchedNames("t/n", "w1-2-", 2)
CREATED = {NAMES.name(number): (1.0 + number, 1.5 + number) for number in range(4)}


def seen(*numbers: int) -> list[tuple[str, int, float]]:
    return [(NAMES.name(number), number, 2.0 + number) for number in numbers]


def test_a_name_tells_its_watcher():
    assert [watcher_of(NAMES.name(number)) for number in range(4)] == [0, 1, 0, 1]


def test_what_each_watcher_has_to_get_is_right_and_timed():
    findings = Findings()
    compare(findings, {0: seen(0, 2), 1: seen(1, 3)}, CREATED)

    assert (findings.wrong, len(findings.delivered)) == (0, 4)
    assert findings.from_send_ms(0.5) == 1_000
    assert findings.from_acknowledgement_ms(0.99) == 500


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (seen(0), seen(1, 3), "received 1 topics, 2 are its"),
        (seen(0, 2, 3), seen(1, 3), "received 3 topics, 2 are its"),
        (seen(0, 2, 2), seen(1, 3), "received a topic twice"),
        (seen(2, 0), seen(1, 3), "out of order"),
    ],
)
def test_topics_that_are_missing_another_s_twice_or_out_of_order_are_wrong(one, other, why):
    findings = Findings()
    compare(findings, {0: one, 1: other}, CREATED)

    assert findings.wrong
    assert why in findings.first_wrong
