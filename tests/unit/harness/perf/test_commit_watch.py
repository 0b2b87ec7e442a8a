"""What is made of the times that a probe reports."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.harness.perf import commit_watch
from nextgen.harness.perf.commit_watch import CommitWatch, Created
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual


def watch_of(*created: tuple[float, float]) -> CommitWatch:
    watch = CommitWatch(1, ["persistent://a/b/spare"])
    for sent_at, acknowledged_at in created:
        watch.hear({"sent_at": sent_at, "acknowledged_at": acknowledged_at})
    return watch


def test_the_longest_gap_counts_from_the_beginning_and_to_the_end() -> None:
    watch = watch_of((0.0, 1.0), (1.0, 1.2), (1.2, 1.9), (1.9, 2.0), (2.5, 9.0))

    assert watch.longest_gap_ms(1.1, 2.1) == pytest.approx(700)
    assert watch.longest_gap_ms(1.95, 4.0) == pytest.approx(2_000)
    assert watch.longest_gap_ms(0.5, 1.3) == pytest.approx(500)


def test_the_slowest_create_is_one_that_was_under_way() -> None:
    watch = watch_of((0.0, 0.9), (1.0, 1.2), (1.5, 1.8), (4.0, 9.0))

    assert watch.slowest_ms(1.1, 2.0) == pytest.approx(300)
    assert watch.slowest_ms(2.0, 3.0) == 0.0


@run_by(run_virtual)
async def test_a_commit_counts_if_its_create_was_sent_after_the_moment() -> None:
    watch = watch_of((0.9, 1.5), (1.0, 2.0))
    waiting = asyncio.ensure_future(watch.wait_sent_after(1.0))
    await asyncio.sleep(0.1)
    assert not waiting.done(), "both were sent before, or just then"

    watch.hear({"sent_at": 1.2, "acknowledged_at": 2.5})
    watch.hear({"progress": 7})

    assert await waiting == Created(1.2, 2.5)


@run_by(run_virtual)
async def test_a_shard_that_does_not_come_back_fails_the_measurement() -> None:
    began = asyncio.get_running_loop().time()

    with pytest.raises(CheckFailed, match="shard 1 had no commit"):
        await watch_of((0.0, 1.0)).wait_sent_after(1.0)

    took_ms = (asyncio.get_running_loop().time() - began) * 1000
    assert took_ms == pytest.approx(commit_watch.RECOVERED_TIMEOUT_MS, rel=0.01)
