"""Reading group 0's log by position, type and number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster_manager import wire
from cluster_manager.adapters import event_log
from cluster_manager.adapters.event_log import EventLogServicer
from cluster_manager.adapters.stored_view import open_view_store
from cluster_manager.domain.capacity_ledger import CapacityGranted
from cluster_manager.domain.membership import Node, NodeRegistered
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import EventBatch, PinLogRequest, ReadEventsRequest
from tests.support.logs.memory_log import MemoryLog


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[MemoryLog]:
    """Positions 1 and 2 in one record, 3 in another."""
    log = MemoryLog(open_view_store(tmp_path))
    nodes = [NodeRegistered(Node(name, "discovery", f"{name}:1")) for name in ("a", "b")]
    await log.propose(wire.record_of(nodes, 7))
    await log.propose(wire.record_of([CapacityGranted("broker-1", "s-1", 5)], 8))
    yield log
    await log.stop()


async def _read(log: MemoryLog, **request: Any) -> list[EventBatch]:
    servicer = EventLogServicer(log)
    answers = servicer.ReadEvents(ReadEventsRequest(**request), None)  # type: ignore[arg-type]
    return [batch async for batch in answers]


def _events(batches: list[EventBatch]) -> list[Event]:
    return [event for batch in batches for event in batch.events]


@pytest.mark.parametrize("from_position", [0, 1])
async def test_everything_is_read_from_the_beginning(log: MemoryLog, from_position: int) -> None:
    batches = await _read(log, from_position=from_position)

    assert [event.position for event in _events(batches)] == [1, 2, 3]
    assert [event.time_ms for event in _events(batches)] == [7, 7, 8]
    assert batches[-1].next_position == 4


async def test_reading_starts_in_the_middle_of_a_record(log: MemoryLog) -> None:
    assert [event.position for event in _events(await _read(log, from_position=2))] == [2, 3]


async def test_reading_stops_after_so_many(log: MemoryLog) -> None:
    batches = await _read(log, events_max=1)

    assert [event.position for event in _events(batches)] == [1]
    assert batches[-1].next_position == 2


async def test_only_the_wanted_types_are_read(log: MemoryLog) -> None:
    batches = await _read(log, types=["capacity_granted"])

    assert [event.position for event in _events(batches)] == [3]
    assert batches[-1].next_position == 4


@pytest.mark.parametrize("request_", [{"shard_id": 1}, {"types": ["nonsense"]}])
async def test_what_is_not_here_is_refused(log: MemoryLog, request_: dict[str, Any]) -> None:
    (batch,) = await _read(log, **request_)

    assert batch.error.reason == "INVALID_REQUEST"


async def test_positions_that_were_cut_off_are_an_error(log: MemoryLog) -> None:
    await log.compact()

    (batch,) = await _read(log, from_position=1)

    assert batch.error.reason == "POSITION_COMPACTED"


async def test_following_goes_on_with_what_is_committed_later(log: MemoryLog) -> None:
    request = ReadEventsRequest(from_position=4, follow=True)
    answers = EventLogServicer(log).ReadEvents(request, None)  # type: ignore[arg-type]
    waiting = asyncio.ensure_future(anext(answers))
    await asyncio.sleep(0)
    assert not waiting.done()

    await log.propose(wire.record_of([CapacityGranted("broker-1", "s-1", 6)], 9))

    batch = await waiting
    assert [event.position for event in batch.events] == [4]
    await answers.aclose()


async def test_a_slow_reader_is_not_cut_off_by_a_snapshot(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "BATCH_EVENTS_MAX", 1)
    request = ReadEventsRequest(from_position=1)
    answers = EventLogServicer(log).ReadEvents(request, None)  # type: ignore[arg-type]
    batches = [await anext(answers)]
    assert [event.position for event in _events(batches)] == [1, 2]

    await log.compact()
    batches += [batch async for batch in answers]

    assert [event.position for event in _events(batches)] == [1, 2, 3]
    assert log.status.log_pins == 0


async def test_the_next_position_is_waited_for_and_one_beyond_it_is_refused(log: MemoryLog) -> None:
    (batch,) = await _read(log, from_position=4)
    assert (batch.next_position, batch.HasField("error")) == (4, False)

    (refused,) = await _read(log, from_position=5)

    assert refused.error.reason == "POSITION_AHEAD"
    assert refused.commit_position == 3


async def test_a_reader_by_name_keeps_the_log_as_at_a_shard(log: MemoryLog) -> None:
    servicer = EventLogServicer(log)
    request = PinLogRequest(shard_id=0, reader_id="exporter", position=2, ttl_ms=60_000)

    answer = await servicer.PinLog(request, None)  # type: ignore[arg-type]

    assert [(reader.reader_id, reader.position) for reader in answer.readers] == [("exporter", 2)]
    await log.compact()
    assert [event.position for event in _events(await _read(log, from_position=2))] == [2, 3]


async def test_a_reader_of_another_shard_is_refused(log: MemoryLog) -> None:
    request = PinLogRequest(shard_id=1, reader_id="exporter", position=2, ttl_ms=60_000)

    answer = await EventLogServicer(log).PinLog(request, None)  # type: ignore[arg-type]

    assert answer.error.reason == "INVALID_REQUEST"
    assert not log.readers()
