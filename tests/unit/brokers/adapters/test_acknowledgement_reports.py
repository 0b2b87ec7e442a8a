"""Reports to an auditor: everything once, then what has grown; few auditors at a time."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing

import pytest

from brokers.adapters.broker_service.acknowledgement_reports import AcknowledgementReports
from brokers.domain.acknowledgements import Acknowledgements
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.placement import (
    ACKNOWLEDGEMENT_INTERVALS_PER_REPORT_MAX,
    ACKNOWLEDGEMENT_WATCHERS_MAX,
)


def reports_of(kept):
    return AcknowledgementReports(kept, broker_id="a", session_id=lambda: "s", report_ms=0)


def noted(kept, number, entries=1):
    interval = kept.opened((f"id-{number}", "p1", 3), f"t{number}")
    interval.note(100 + number, entries)
    return interval


async def test_a_report_says_who_acknowledged_what_and_when():
    kept = Acknowledgements()
    noted(kept, 1).note(150, 4)

    async with aclosing(reports_of(kept).watch()) as reports:
        report = await anext(reports)

    (told,) = report.intervals
    assert (report.broker_id, report.session_id) == ("a", "s")
    assert (told.topic, told.topic_id, told.unit, told.epoch) == ("t1", "id-1", "p1", 3)
    assert (told.first_acked_at_ns, told.last_acked_at_ns, told.acknowledged) == (101, 150, 5)


async def test_after_the_first_report_only_growth_is_reported():
    kept = Acknowledgements()
    first, _ = noted(kept, 1), noted(kept, 2)
    async with aclosing(reports_of(kept).watch()) as reports:
        told = [[each.topic for each in (await anext(reports)).intervals]]
        told.append([each.topic for each in (await anext(reports)).intervals])
        first.note(200, 1)
        noted(kept, 3)
        told.append([each.topic for each in (await anext(reports)).intervals])

    assert told == [["t1", "t2"], [], ["t1", "t3"]]


@pytest.mark.parametrize(("more", "sizes"), [(0, [0]), (1, [1])])
async def test_a_report_has_a_bound(more, sizes):
    kept = Acknowledgements()
    bound = ACKNOWLEDGEMENT_INTERVALS_PER_REPORT_MAX
    for number in range(bound + more):
        noted(kept, number)

    async with aclosing(reports_of(kept).watch()) as reports:
        found = [len((await anext(reports)).intervals) for _ in range(2)]

    assert found == [bound, *sizes]


async def test_one_auditor_more_than_allowed_is_refused_until_another_leaves():
    made = reports_of(Acknowledgements())
    async with AsyncExitStack() as stack:
        watching = [
            await stack.enter_async_context(aclosing(made.watch()))
            for _ in range(ACKNOWLEDGEMENT_WATCHERS_MAX)
        ]
        for each in watching:
            await anext(each)
        async with aclosing(made.watch()) as refused:
            with pytest.raises(Overloaded):
                await anext(refused)

        await watching[0].aclose()

        async with aclosing(made.watch()) as again:
            assert (await anext(again)).broker_id == "a"
