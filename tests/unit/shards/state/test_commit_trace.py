"""The steps of a commit under a trace."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Histogram

from nextgen.kernel.errors import ProposalLost
from nextgen.replication.ports import Record
from nextgen.runtime.telemetry import tracing
from shards.state.measured_log import MeasuredLog
from tests.support.logs.dict_state_machine import DictStateMachine
from tests.support.logs.memory_log import MemoryLog
from tests.support.observability.traced import recorded_traces


class Measured:
    def __init__(self) -> None:
        self.inner = MemoryLog(DictStateMachine())
        seconds = Histogram("commit_seconds", "Test.", registry=CollectorRegistry())
        self.log = MeasuredLog(self.inner, seconds, lambda: 0.0)


async def test_a_commit_and_its_view_are_spans_of_who_proposed() -> None:
    it = Measured()
    with recorded_traces() as recorded:
        with tracing.span("request", ""):
            commit = await it.log.propose(Record(b"x", 2))
        while "apply" not in recorded.names:
            await asyncio.sleep(0)

    request, span, applied = (recorded.one(name) for name in ("request", "commit", "apply"))
    assert span.parent is not None
    assert span.parent.span_id == request.context.span_id
    assert applied.parent is not None
    assert applied.parent.span_id == span.context.span_id
    attributes = dict(span.attributes or {})
    assert (attributes["events"], attributes["position"]) == (2, commit.first_position)


async def test_a_lost_proposal_is_a_span_that_failed() -> None:
    it = Measured()
    with recorded_traces() as recorded:
        it.inner.hold_commits()
        commit = it.log.propose(Record(b"x", 1))
        it.inner.lose_leadership()
        with pytest.raises(ProposalLost):
            await commit
        await asyncio.sleep(0)

    assert recorded.names == ["commit"]
    assert (recorded.one("commit").status.description or "").startswith("PROPOSAL_LOST")


async def test_without_traces_a_proposal_is_only_timed() -> None:
    it = Measured()
    with recorded_traces() as recorded:
        pass
    await it.log.propose(Record(b"x", 1))

    assert recorded.names == []
