"""What every process tells of itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from nextgen.kernel.limits.trace import (
    LOOP_IDLE_PERCENT,
    LOOP_LAG_IDLE_INTERVAL_MS,
    LOOP_LAG_INTERVAL_MS,
    LOOP_STALL_MS,
)
from nextgen.runtime.settings import NO_TRACES
from nextgen.runtime.telemetry.observability import (
    LoopLag,
    ProcessCollector,
    next_interval_ms,
    observed,
)
from nextgen.runtime.telemetry.trace_export import version
from nextgen.tasks.timeouts import timeout
from tests.support.processes.kept_tasks import break_kept, has_begun_again
from tests.support.simulated.virtual_time import run_virtual

STEP_S = 0.01
"""Of virtual time, for which a loop works."""


def test_the_release_and_the_disk_are_shown(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(ProcessCollector("shard", tmp_path))

    labels = {"version": version(), "component": "shard"}
    assert registry.get_sample_value("nextgen_build_info", labels) == 1
    size = registry.get_sample_value("nextgen_disk_size_bytes")
    free = registry.get_sample_value("nextgen_disk_free_bytes")
    assert size is not None
    assert free is not None
    assert 0 <= free <= size


def test_a_directory_that_is_not_there_yet_is_left_out(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(ProcessCollector("shard", tmp_path / "none"))

    assert registry.get_sample_value("nextgen_disk_free_bytes") is None
    assert registry.get_sample_value(
        "nextgen_build_info", {"version": version(), "component": "shard"}
    )


async def test_what_is_measured_ends_with_the_process() -> None:
    registry = CollectorRegistry()

    async with observed(NO_TRACES, component="shard", node_id="n", registry=registry):
        assert registry.get_sample_value("nextgen_event_loop_lag_seconds_count") == 0


def test_a_loop_that_is_loop_stall_ms_late_has_not_stalled_and_a_later_one_has() -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)

    lag.observe(LOOP_STALL_MS / 1_000)
    assert registry.get_sample_value("nextgen_event_loop_stalls_total") == 0

    lag.observe((LOOP_STALL_MS + 1) / 1_000)
    assert registry.get_sample_value("nextgen_event_loop_stalls_total") == 1
    assert registry.get_sample_value("nextgen_event_loop_lag_seconds_count") == 2


@pytest.mark.parametrize(
    ("used_s", "interval_ms"),
    [(0.0049, LOOP_LAG_IDLE_INTERVAL_MS), (0.005, LOOP_LAG_INTERVAL_MS)],
)
def test_a_loop_that_uses_loop_idle_percent_of_a_core_is_measured_often(
    used_s: float, interval_ms: int
) -> None:
    assert used_s * 1_000 <= LOOP_IDLE_PERCENT, "of a tenth of a second"
    assert next_interval_ms(used_s, 0.1) == interval_ms


def test_an_idle_loop_is_measured_less_often_until_it_works_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = CollectorRegistry()
    used_s = 0.0

    def measured() -> float:
        return registry.get_sample_value("nextgen_event_loop_lag_seconds_count") or 0

    async def work(seconds: float) -> None:
        nonlocal used_s
        for _ in range(round(seconds / STEP_S)):
            used_s += STEP_S
            await asyncio.sleep(STEP_S)

    async def live() -> None:
        measuring = asyncio.create_task(LoopLag(registry).run())
        await asyncio.sleep(3 * LOOP_LAG_IDLE_INTERVAL_MS / 1_000)
        assert measured() == 3, "one after the first interval, then one each idle interval"

        before = measured()
        await work(2 * LOOP_LAG_IDLE_INTERVAL_MS / 1_000)
        assert measured() - before >= 4, "every LOOP_LAG_INTERVAL_MS once it was seen to work"
        measuring.cancel()

    monkeypatch.setattr(time, "thread_time", lambda: used_s)
    run_virtual(live)


async def test_measuring_goes_on_after_its_task_ended() -> None:
    registry = CollectorRegistry()

    async with observed(NO_TRACES, component="shard", node_id="n", registry=registry):
        await asyncio.sleep(0)
        broken = break_kept("event_loop_lag")
        async with timeout(30):
            while not has_begun_again("event_loop_lag", broken):
                await asyncio.sleep(0.01)

        assert registry.get_sample_value("nextgen_task_failures_total") >= 1
