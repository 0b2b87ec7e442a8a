"""The trace of a cold lookup has all 23 steps in their order, through every process.

Clocks stand still while a process of the simulation works, so order is that in which steps were
marked: one thread marks them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from nextgen.client import Client, NewTopic
from nextgen.runtime.telemetry import tracing
from tests.support.cluster_simulation.components import ClusterPlan
from tests.support.cluster_simulation.run import ClusterRun
from tests.support.cluster_simulation.simulation import ClusterSimulation
from tests.support.observability.lookup_traces import Mark, check_lookup_trace, marks_by_trace
from tests.support.observability.traced import recorded_traces

NAMESPACES = 4
BATCH = 100
LEADERS_SPREAD_S = 5
"""Virtual seconds: from then on leaders stay, and no request is repeated."""

PLAN = ClusterPlan(managers=1, shard_nodes=3, discovery_nodes=2, brokers=3, broker_units=2_000)


class LookupRun(ClusterRun):
    """A cluster without faults, in which each lookup is the first of its topic."""

    def __init__(self, lookups: int) -> None:
        super().__init__(11, faults=0, plan=PLAN)
        self.trace_ids: list[str] = []
        self._lookups = lookups

    async def _live(self, simulation: ClusterSimulation, _faults: object) -> None:
        simulation.start_all()
        await self._wait_ready(simulation)
        await asyncio.sleep(LEADERS_SPREAD_S)
        process = simulation.client("client-1")
        await process.run(self._loop.create_task, self._look_up_all(simulation))

    async def _look_up_all(self, simulation: ClusterSimulation) -> None:
        endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
        names = [f"persistent://acme/n{i % NAMESPACES}/t{i}" for i in range(self._lookups)]
        async with Client(endpoints, timeout_ms=10_000) as client:
            await client.create_tenant("acme")
            for number in range(NAMESPACES):
                await client.create_namespace(f"acme/n{number}")
            for start in range(0, self._lookups, BATCH):
                await client.create_topics(
                    [NewTopic(name) for name in names[start : start + BATCH]]
                )
            for name in names:
                # One by one: lookups that share a message share the trace of the first.
                await self._look_up(client, name)

    async def _look_up(self, client: Client, name: str) -> None:
        with tracing.span("look up", ""):
            self.trace_ids.append(tracing.current_trace_id())
            (found,) = await client.lookup([name])
        assert found.is_found, f"{name}: {found.message}"


def marks_of(spans: Sequence[ReadableSpan]) -> dict[str, list[Mark]]:
    """Spans end in the order in which they were marked."""
    return marks_by_trace(
        (
            f"{span.get_span_context().trace_id:032x}",
            (span.start_time, place),
            span.attributes or {},
        )
        for place, span in enumerate(spans)
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lookups", [200, pytest.param(1_000, marks=pytest.mark.slow)])
def test_cold_lookups_have_all_their_steps_in_order(lookups: int) -> None:
    with recorded_traces() as recorded:
        run = LookupRun(lookups)
        report = run.run()
    assert report.failure is None, report.failure

    marks = marks_of(recorded.spans)
    ahead = [check_lookup_trace(trace_id, marks, is_prompt=True) for trace_id in run.trace_ids]

    assert len(run.trace_ids) == lookups
    # What a broker needs of a namespace is asked for once, in the first lookup that leads to it.
    assert ahead.count(0) == PLAN.brokers * NAMESPACES
    assert ahead.count(4) == lookups - ahead.count(0)
