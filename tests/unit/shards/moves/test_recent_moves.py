"""Which moves of the end of the log a new leader looks at again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nextgen.kernel.limits.placement import DELETED_UNITS_RECOVERED_MAX
from nextgen.replication.ports import Record
from protos.nextgen.v1.events_pb2 import (
    DecidedCommand,
    Event,
    ScalableTopicDeleted,
    TopicAssigned,
    TopicDeleted,
    TopicRenamed,
    TopicUnassigned,
)
from shards.domain.assignment import Assignment
from shards.moves import recent_moves as module
from shards.moves.recent_moves import RECENT_MS, RecentMoves, recent_moves
from tests.support.logs.dict_state_machine import DictStateMachine
from tests.support.logs.memory_log import MemoryLog
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

NOW_MS = 1_000_000_000


def assigned(name: str, epoch: int, reason: str) -> Event:
    return Event(topic_assigned=TopicAssigned(name=name, epoch=epoch, reason=reason))


def deleted(name: str, epoch: int, topic_id: str, unit: str = "") -> Event:
    return Event(
        topic_unassigned=TopicUnassigned(
            topic_id=topic_id, unit=unit, name=name, epoch=epoch, reason="topic_deleted"
        )
    )


async def commit(log: MemoryLog, *events: Event, age_ms: int = 0) -> None:
    decided = DecidedCommand(time_ms=NOW_MS - age_ms, events=events)
    await log.propose(Record(decided.SerializeToString(), len(events)))


def with_log(scenario: Callable[[MemoryLog], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scenario(MemoryLog(DictStateMachine()))

    run_virtual(main)


@run_by(with_log)
async def test_only_the_latest_assignment_of_a_unit_counts_and_only_if_it_is_a_move(
    log: MemoryLog,
) -> None:
    await commit(log, assigned("first", 1, "first_lookup"), assigned("moved", 2, "moved"))
    await commit(log, assigned("moved", 3, "moved"), assigned("lost", 2, "moved"))
    await commit(log, assigned("lost", 3, "broker_lost"), assigned("deleted", 2, "moved"))
    await commit(log, Event(topic_unassigned=TopicUnassigned(name="deleted", epoch=2)))

    assert (await recent_moves(log)).moved == {"moved": 3}


@run_by(with_log)
async def test_what_ended_with_its_topic_counts_whatever_was_created_of_its_name_since(
    log: MemoryLog,
) -> None:
    await commit(log, deleted("old", 1, "t-0"), age_ms=RECENT_MS + 1)
    await commit(log, assigned("moved", 2, "moved"))
    await commit(log, deleted("moved", 2, "t-1"), deleted("p", 4, "t-2", "p1"))
    await commit(log, assigned("moved", 1, "first_lookup"))
    await commit(log, deleted("moved", 1, "t-3"))
    assert (await recent_moves(log)).deleted == [], "their leader tells of them"
    log.become_leader()
    await commit(log, deleted("mine", 1, "t-4"))

    assert await recent_moves(log) == RecentMoves(
        {},
        [
            Assignment("t-1", "", "moved", 2, "", ""),
            Assignment("t-2", "p1", "p", 4, "", ""),
            Assignment("t-3", "", "moved", 1, "", ""),
        ],
        [],
    )


def renamed(name: str, new_name: str, topic_id: str) -> Event:
    return Event(topic_renamed=TopicRenamed(name=name, new_name=new_name, topic_id=topic_id))


@run_by(with_log)
async def test_units_of_a_renamed_topic_go_by_its_new_name(log: MemoryLog) -> None:
    await commit(
        log,
        assigned("a/x-partition-2", 7, "moved"),
        assigned("a/x2", 4, "moved"),
        assigned("a/even-partition-1", 3, "rebalanced"),
    )
    await commit(
        log,
        Event(topic_unassigned=TopicUnassigned(name="a/x", epoch=5, reason="renamed")),
        renamed("a/x", "b/y", "t-1"),
    )
    await commit(log, renamed("a/even", "b/odd", "t-2"))

    found = await recent_moves(log)

    assert found.moved == {
        "b/y-partition-2": 7,
        "a/x2": 4,
        "b/odd-partition-1": 3,
        "b/y": 5,
    }
    assert found.evened_at_ms == {"b/odd-partition-1": NOW_MS}


@run_by(with_log)
async def test_a_topic_that_was_renamed_behind_a_deletion_that_failed_keeps_its_messages(
    log: MemoryLog,
) -> None:
    await commit(log, deleted("old-partition-0", 4, "t-1", "p0"), deleted("gone", 1, "t-2"))
    await commit(log, renamed("old", "new", "t-1"))
    log.become_leader()

    assert (await recent_moves(log)).deleted == [Assignment("t-2", "", "gone", 1, "", "")]


def gone(name: str, topic_id: str, partitions: int = 0) -> Event:
    return Event(topic_deleted=TopicDeleted(name=name, topic_id=topic_id, partitions=partitions))


@run_by(with_log)
async def test_units_of_deleted_topics_without_an_owner_are_found_by_the_topic(
    log: MemoryLog,
) -> None:
    await commit(log, gone("old", "t-0"), age_ms=RECENT_MS + 1)
    await commit(log, gone("whole", "t-1"))
    await commit(log, deleted("parts-partition-1", 4, "t-2", "p1"), gone("parts", "t-2", 3))
    await commit(log, deleted("owned", 7, "t-3"), gone("owned", "t-3"))
    log.become_leader()
    await commit(log, gone("mine", "t-4"))

    found = await recent_moves(log)

    assert found.deleted_idle == [
        Assignment("t-2", "p0", "parts-partition-0", 0, "", ""),
        Assignment("t-2", "p2", "parts-partition-2", 0, "", ""),
        Assignment("t-1", "", "whole", 0, "", ""),
    ]


@run_by(with_log)
async def test_segments_of_a_deleted_topic_without_an_owner_are_found_by_its_layout(
    log: MemoryLog,
) -> None:
    """The unit of the whole topic is none of them."""
    topic = "topic://t/n/x"
    segment = "segment://t/n/x/0000-7fff-1"
    layout = ScalableTopicDeleted(
        name=topic, topic_id="t-1", segments=["0000-ffff-0", "0000-7fff-1", "8000-ffff-2"]
    )
    await commit(
        log,
        deleted(segment, 4, "t-1", "s1"),
        gone(topic, "t-1"),
        Event(scalable_topic_deleted=layout),
    )
    log.become_leader()

    assert (await recent_moves(log)).deleted_idle == [
        Assignment("t-1", "s0", "segment://t/n/x/0000-ffff-0", 0, "", ""),
        Assignment("t-1", "s2", "segment://t/n/x/8000-ffff-2", 0, "", ""),
    ]


@run_by(with_log)
async def test_deleted_units_recovered_max_are_found_and_one_more_is_left_out(
    log: MemoryLog,
) -> None:
    await commit(log, gone("one-more", "t-0"))
    await commit(log, gone("large", "t-1", DELETED_UNITS_RECOVERED_MAX))
    log.become_leader()

    found = (await recent_moves(log)).deleted_idle

    assert len(found) == DELETED_UNITS_RECOVERED_MAX
    assert {unit.topic_id for unit in found} == {"t-1"}


@run_by(with_log)
async def test_a_move_of_long_ago_does_not_count(log: MemoryLog) -> None:
    await commit(log, assigned("old", 2, "moved"), age_ms=RECENT_MS + 1)
    await commit(log, assigned("recent", 2, "moved"), age_ms=RECENT_MS)
    await commit(log, assigned("last", 1, "first_lookup"))

    assert (await recent_moves(log)).moved == {"recent": 2}


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
@run_by(with_log)
async def test_what_is_recent_does_not_depend_on_another_leaders_clock(
    log: MemoryLog, *, leap_ms: int
) -> None:
    """The next leader's clock differs by an hour, and it has written something already."""
    await commit(log, assigned("recent", 2, "moved"))
    log.become_leader()
    await commit(log, assigned("first", 1, "first_lookup"), age_ms=leap_ms)

    assert (await recent_moves(log)).moved == {"recent": 2}


@run_by(with_log)
async def test_an_empty_log_has_none_and_a_snapshot_hides_what_is_behind_it(log: MemoryLog) -> None:
    assert await recent_moves(log) == RecentMoves({}, [], [])

    await commit(log, assigned("hidden", 2, "moved"))
    await log.compact()
    await commit(log, assigned("seen", 2, "moved"))

    assert (await recent_moves(log)).moved == {"seen": 2}


def test_only_so_many_events_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECENT_EVENTS_MAX", 2)

    async def scenario(log: MemoryLog) -> None:
        for number in range(5):
            await commit(log, assigned(f"t-{number}", 2, "moved"))

        assert (await recent_moves(log)).moved == {"t-3": 2, "t-4": 2}

    with_log(scenario)


@run_by(with_log)
async def test_moves_to_even_brokers_out_are_found_with_their_times_whatever_came_after(
    log: MemoryLog,
) -> None:
    """Their grace is longer than what counts as recent, and does not end with another move."""
    await commit(log, assigned("evened", 2, "rebalanced"), age_ms=10 * RECENT_MS)
    await commit(log, assigned("twice", 2, "rebalanced"), age_ms=9 * RECENT_MS)
    await commit(log, assigned("twice", 3, "rebalanced"), age_ms=8 * RECENT_MS)
    await commit(log, assigned("evened", 3, "moved"), assigned("other", 2, "drained"))

    found = await recent_moves(log)

    assert found.evened_at_ms == {
        "evened": NOW_MS - 10 * RECENT_MS,
        "twice": NOW_MS - 8 * RECENT_MS,
    }
    assert found.known_from_ms == 0, "the log was read from its beginning"


@run_by(with_log)
async def test_behind_a_snapshot_moves_are_known_from_the_first_event_that_is_left(
    log: MemoryLog,
) -> None:
    await commit(log, assigned("hidden", 2, "rebalanced"), age_ms=3_000)
    await log.compact()
    nothing_left = await recent_moves(log)
    await commit(log, assigned("first", 1, "first_lookup"), age_ms=2_000)
    await commit(log, assigned("seen", 2, "rebalanced"), age_ms=1_000)

    found = await recent_moves(log)

    assert (nothing_left.evened_at_ms, nothing_left.known_from_ms) == ({}, None)
    assert (found.evened_at_ms, found.known_from_ms) == ({"seen": NOW_MS - 1_000}, NOW_MS - 2_000)
