"""Discovery processes report minutes of lookups; each is in the log once, over leader changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster_manager.adapters.stored_view import StoredView
from nextgen.client.log.wire import filled_events
from nextgen.client.wire.lookup_windows import window_to_proto
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.lookup_slo import LATENCY_CLASSES, LOOKUP_WINDOW_MS, LookupWindow
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from tests.unit.cluster_manager.fakes import ManagerUnderTest, hello, settle

COUNTS = (5, *[0] * (LATENCY_CLASSES - 2), 1)
BAD = LookupWindow("d1", "w1-7", 960_000, 1, COUNTS)


@pytest.fixture
async def one(tmp_path: Path) -> Iterator[ManagerUnderTest]:
    manager = ManagerUnderTest(tmp_path)
    yield manager
    manager.manager.stop()
    await manager.log.stop()


async def said(one, window, *, by="d1", kind="discovery"):
    connection = await one.manager.join(hello(by, kind))
    message = window if isinstance(window, cluster_pb.NodeMessage) else message_of(window)
    one.manager.receive(connection, message)
    await settle()
    return connection


def message_of(window):
    return cluster_pb.NodeMessage(window=window_to_proto(window))


def recorded(one):
    entries = one.log.read(1, events_max=1_000, bytes_max=1 << 20)
    events = [event for entry in entries for event in filled_events(entry, 0)]
    return [
        event.lookup_window_recorded
        for event in events
        if event.WhichOneof("payload") == "lookup_window_recorded"
    ]


async def test_a_minute_is_committed_with_the_verdict_of_the_cluster_manager(one):
    message = message_of(BAD)
    message.window.is_bad, message.window.why_bad = False, "all was well"

    await said(one, message)

    (window,) = recorded(one)
    assert (window.lookups, window.too_slow, window.is_bad) == (6, 1, True)
    assert "longer than 3000 ms" in window.why_bad


async def test_a_minute_reported_twice_is_committed_once(one):
    connection = await said(one, BAD)
    one.manager.receive(connection, message_of(BAD))
    await settle()

    assert len(recorded(one)) == 1
    assert not connection.has_ended


async def test_a_new_leader_knows_which_minutes_were_taken(one):
    await said(one, BAD)
    one.log.lose_leadership()
    one.log.become_leader()
    await settle()

    await said(one, BAD)
    await said(one, replace(BAD, began_at_ms=BAD.began_at_ms + LOOKUP_WINDOW_MS))

    assert [window.began_at_ms for window in recorded(one)] == [960_000, 1_020_000]
    state, _ = StoredView(one.store).load()
    assert state.lookup_reports.last_began_at_ms == {("d1", "w1-7"): 1_020_000}


async def test_the_view_forgets_the_processes_that_the_state_forgets(one):
    await said(one, BAD)
    one.clock.leap(10 * 3_600_000)

    await said(one, replace(BAD, process="w1-9", began_at_ms=BAD.began_at_ms + 10 * 3_600_000))

    state, _ = StoredView(one.store).load()
    assert state.lookup_reports == one.manager.leader_term.committed.lookup_reports
    assert list(state.lookup_reports.last_began_at_ms) == [("d1", "w1-9")]
    with one.store.pinned_state() as pinned:
        assert one.store.running_digest == pinned.scan()


async def test_a_worker_reports_for_its_node(one):
    await said(one, replace(BAD, process="w2-7"), by="d1.w2")

    assert [window.process for window in recorded(one)] == ["w2-7"]


@pytest.mark.parametrize(
    ("by", "kind"), [("d2", "discovery"), ("d1.w3", "discovery"), ("d1", "shard")]
)
async def test_nobody_reports_the_lookups_of_another(one, by, kind):
    with pytest.raises(InvalidRequest, match="reports lookups of d1 w1-7"):
        await said(one, BAD, by=by, kind=kind)

    assert recorded(one) == []


async def test_numbers_that_do_not_fit_together_cost_a_node_nothing_but_the_window(one):
    message = message_of(BAD)
    message.window.lookups = 7
    short = message_of(BAD)
    del short.window.latency_counts[:]

    connections = [await said(one, message), await said(one, short)]

    assert recorded(one) == []
    assert [connection.has_ended for connection in connections] == [True, False], (
        "the first was followed by another of the same node"
    )
