"""Loads that brokers report: refused by name, published to others, recorded; and flapping."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.placement import (
    LOAD_EVENT_MS_MIN,
    LOAD_REPORT_MS_MAX,
    LOAD_REPORT_MS_MIN,
    QUARANTINE_MS,
    SESSIONS_STARTED_MAX,
)
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1.events_pb2 import LoadReport, TopicLoad
from shards.sessions.session_soft_state import SessionSoftState
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard


def beat(shard: Harness, broker: FakeBroker, load: LoadReport | None) -> str:
    """Send a heartbeat; return why its load was refused."""
    assert broker.connection is not None
    heartbeat = broker_pb.BrokerHeartbeat(sent_at_ms=1, load=load)
    message = broker_pb.BrokerMessage(heartbeat=heartbeat)
    shard.leader.brokers.sessions.receive(broker.connection, message)
    *_, ack = [
        each.heartbeat_ack
        for each in broker.connection.take_messages()
        if each.HasField("heartbeat_ack")
    ]
    return str(ack.load_refused)


def session_of(shard: Harness, broker: FakeBroker) -> SessionSoftState:
    return shard.leader.brokers.sessions.live(broker.broker_id, broker.session_id)


def busy(messages_in: float, units: int = 3) -> LoadReport:
    return LoadReport(topics=units, messages_in_per_second=messages_in)


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (LoadReport(topics=8), "8 units are more than the capacity of 7"),
        (LoadReport(cpu_fraction=-1.0), "CPU of -1.0 cannot be"),
        (LoadReport(messages_in_per_second=math.nan), "messages in per second of nan"),
        (LoadReport(bytes_out_per_second=math.inf), "bytes out per second of inf"),
        (LoadReport(memory_bytes=2**60), "memory bytes of"),
        (
            LoadReport(busiest=[TopicLoad(name="persistent://a/b/c", bytes_in_per_second=-5)]),
            "persistent://a/b/c of -5.0 cannot be",
        ),
    ],
)
@run_by(in_shard)
async def test_a_load_that_cannot_be_is_refused_and_the_last_good_one_stands(
    shard: Harness, *, load: LoadReport, why: str
) -> None:
    broker = await shard.start_broker("broker-1", capacity_units=7)
    good = busy(50_000.0)
    assert beat(shard, broker, good) == ""
    await asyncio.sleep(0.1)
    position = shard.leader.state.position

    assert why in beat(shard, broker, load)

    counter: Any = shard.node_metrics.loads_refused
    assert counter._value.get() == 1
    await asyncio.sleep(LOAD_EVENT_MS_MIN / 1000)
    assert session_of(shard, broker).load == good
    assert shard.cluster.loads == {broker.session_id: good}
    assert shard.leader.state.position == position


@run_by(in_shard)
async def test_a_heartbeat_without_load_changes_nothing_of_it(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    beat(shard, broker, busy(1_000.0))

    assert beat(shard, broker, None) == ""

    assert session_of(shard, broker).load == busy(1_000.0)


@run_by(in_shard)
async def test_only_large_changes_are_reported_and_at_most_every_five_seconds(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    told = shard.cluster.loads

    beat(shard, broker, busy(1_000.0))
    assert told[broker.session_id] == busy(1_000.0)
    beat(shard, broker, busy(9_000.0))
    assert told[broker.session_id] == busy(1_000.0), "too soon"
    await asyncio.sleep(LOAD_REPORT_MS_MIN / 1000)
    beat(shard, broker, busy(1_100.0))
    assert told[broker.session_id] == busy(1_000.0), "too little"
    beat(shard, broker, busy(9_000.0))
    assert told[broker.session_id] == busy(9_000.0)


@run_by(in_shard)
async def test_an_unchanged_load_is_reported_again_after_a_minute(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    beat(shard, broker, busy(1_000.0))
    shard.cluster.loads.clear()

    await asyncio.sleep(LOAD_REPORT_MS_MAX / 1000 - 0.01)
    beat(shard, broker, busy(1_000.0))
    assert shard.cluster.loads == {}
    await asyncio.sleep(0.01)
    beat(shard, broker, busy(1_000.0))

    assert shard.cluster.loads == {broker.session_id: busy(1_000.0)}


@run_by(in_shard)
async def test_every_load_is_reported_again_to_a_returned_cluster_manager(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    silent = await shard.start_broker("broker-2")
    beat(shard, broker, busy(1_000.0))
    shard.cluster.loads.clear()

    shard.cluster.reconnect()

    assert shard.cluster.loads == {broker.session_id: busy(1_000.0)}
    assert silent.session_id not in shard.cluster.loads, "it has said nothing"


@run_by(in_shard)
async def test_a_material_change_is_recorded_once_a_minute_at_most(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    for step in range(5):
        beat(shard, broker, busy(1_000.0 * (1 + step)))
        await asyncio.sleep(LOAD_EVENT_MS_MIN / 1000 / 5)
    beat(shard, broker, busy(7_000.0))
    await asyncio.sleep(2 * LOAD_EVENT_MS_MIN / 1000)
    beat(shard, broker, busy(7_000.0))
    await asyncio.sleep(0.1)

    events = await shard.events("broker_load_reported")

    recorded = [each.broker_load_reported for each in events]
    assert [each.load.messages_in_per_second for each in recorded] == [1_000.0, 7_000.0]
    assert {each.session_id for each in recorded} == {broker.session_id}


@run_by(in_shard)
async def test_a_change_that_could_not_be_recorded_is_recorded_with_the_next_report(
    shard: Harness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing has changed since: what changed is in no record."""
    broker = await shard.start_broker("broker-1")

    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise Overloaded("the view is too far behind")

    with monkeypatch.context() as patched:
        patched.setattr(shard.leader.state.proposer, "propose", refuse)
        beat(shard, broker, busy(1_000.0))
        await asyncio.sleep(0.1)
    await asyncio.sleep(LOAD_EVENT_MS_MIN / 1000 - 0.2)
    beat(shard, broker, busy(1_000.0))
    await asyncio.sleep(0.05)
    assert await shard.events("broker_load_reported") == [], "a minute has not passed"
    await asyncio.sleep(0.1)

    beat(shard, broker, busy(1_000.0))
    await asyncio.sleep(0.1)

    (recorded,) = await shard.events("broker_load_reported")
    assert recorded.broker_load_reported.load == busy(1_000.0)


@run_by(in_shard)
async def test_nothing_is_kept_of_a_session_that_is_over(shard: Harness) -> None:
    """Brokers come and go for as long as a leader leads."""
    broker = await shard.start_broker("broker-1")
    beat(shard, broker, busy(1_000.0))
    session = session_of(shard, broker)
    loads = shard.leader.brokers.sessions.loads
    loads.report_again(session)
    assert loads.session_count == 1

    broker.vanish()
    await asyncio.sleep(1.0)
    assert session.ended is not None
    shard.cluster.loads.clear()

    assert loads.session_count == 0
    loads.report_again(session)
    assert shard.cluster.loads == {}, "the cluster manager would keep it for ever"


@run_by(in_shard)
async def test_an_idle_broker_leaves_no_record(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    beat(shard, broker, LoadReport(topics=1, memory_bytes=1_000))
    await asyncio.sleep(0.1)

    assert await shard.events("broker_load_reported") == []


@run_by(in_shard)
async def test_a_broker_that_comes_and_goes_is_in_quarantine_and_keeps_its_session(
    shard: Harness,
) -> None:
    for _ in range(SESSIONS_STARTED_MAX):
        broker = await shard.start_broker("broker-1")
    assert shard.cluster.reports[-1].quarantined_until_ms == 0

    broker = await shard.start_broker("broker-1")

    record = shard.cluster.reports[-1]
    now_ms = 1_700_000_000_000 + int(1000 * asyncio.get_running_loop().time())
    assert record.is_live
    assert now_ms < record.quarantined_until_ms <= now_ms + QUARANTINE_MS
    assert session_of(shard, broker).record == record
    shard.next_term()
    assert shard.cluster.reports[-1] == record, "the next leader knows of it"


@pytest.mark.parametrize("changed", ["zone", "rack"])
@run_by(in_shard)
async def test_a_broker_that_is_elsewhere_by_its_own_word_does_not_resume(
    shard: Harness, *, changed: str
) -> None:
    broker = await shard.start_broker("broker-1")
    sessions = shard.leader.brokers.sessions
    same, other = broker.hello(), broker.hello()
    setattr(other, changed, "elsewhere")

    resumed = await sessions.connect(same)
    assert resumed.session.record.session_id == broker.session_id
    anew = await sessions.connect(other)

    assert anew.session.record.session_id != broker.session_id
    assert getattr(anew.session.record, changed) == "elsewhere"
