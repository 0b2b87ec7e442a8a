"""What the leader of the shard that slots move from answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused
from nextgen.kernel.limits import snapshot as limits
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import SlotRange
from shards.domain.slots.events import SCAN_DONE
from shards.slots import slot_source, touched_keys
from tests.support.slots.world import RANGES, B, SlotWorld, in_slot_world, moves

MOVED = [SlotRange(first=first, last=last) for first, last in RANGES]


async def copy(world: SlotWorld, **fields: Any) -> pb.CopySlotsResponse:
    request = pb.CopySlotsRequest(**{"move_id": 1, "ranges": MOVED, **fields})
    return await world.a.source.copy(request)


async def release(world: SlotWorld, tail_position: int, **fields: Any) -> pb.ReleaseSlotsResponse:
    wanted = {"move_id": 1, "ranges": MOVED, "to_shard": B, **fields}
    return await world.a.source.release(
        pb.ReleaseSlotsRequest(tail_position=tail_position, **wanted)
    )


async def copy_all(world: SlotWorld, tail: int) -> tuple[list[pb.CopySlotsResponse], int]:
    answers = []
    kind, after = "", ""
    while kind != SCAN_DONE:
        answer = await copy(world, scanned_kind=kind, scanned_after=after, tail_position=tail)
        kind, after, tail = answer.scanned_kind, answer.scanned_after, answer.tail_position
        answers.append(answer)
    return answers, tail


def topics_in(world: SlotWorld) -> list[str]:
    return [str(row[0]) for row in world.a.view.dump()["topics"] if moves(str(row[0]))]


def unassigned(world: SlotWorld) -> list[str]:
    assigned = {row[1] for row in world.a.view.dump()["assignments"]}
    return [name for name in topics_in(world) if name not in assigned]


def keys(answers: Sequence[pb.CopySlotsResponse], kind: str) -> list[str]:
    return [row.key for answer in answers for row in answer.rows if row.kind == kind]


def test_a_scan_finds_every_row_of_the_slots_once_and_no_other() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)

        answers, _ = await copy_all(world, (await copy(world)).tail_position)

        assert keys(answers, "topic") == topics_in(world)
        units = [key for key in keys(answers, "assignment")]
        assert len(units) == len(set(units)) > 3
        assert all(any(f <= int(key[:4], 16) <= last for f, last in RANGES) for key in units)

    in_slot_world(story)


def test_an_answer_has_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        tail = (await copy(world)).tail_position

        whole, _ = await copy_all(world, tail)
        assert max(len(answer.rows) for answer in whole) > 7
        for rows_max in (7, 1_000):
            monkeypatch.setattr(slot_source, "COPY_ROWS_MAX", 7)
            answer = await copy(world, tail_position=tail, rows_max=rows_max)
            assert len(answer.rows) == 7
        answers, _ = await copy_all(world, tail)

        assert keys(answers, "topic") == keys(whole, "topic")
        assert limits.COPY_ROWS_MAX > 7

    in_slot_world(story)


def test_an_answer_takes_no_more_rows_behind_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        tail = (await copy(world)).tail_position
        monkeypatch.setattr(slot_source, "COPY_BYTES_MAX", 1)

        answers, _ = await copy_all(world, tail)

        assert max(len(answer.rows) for answer in answers) == 1
        assert keys(answers, "topic") == topics_in(world)
        for name in topics_in(world)[:3]:
            await world.delete_topic(name)
        tail = answers[-1].tail_position
        changed = await copy(world, scanned_kind=SCAN_DONE, tail_position=tail)
        assert len({row.key for row in changed.rows if row.kind == "topic"}) == 1
        assert changed.is_behind

    in_slot_world(story)


def test_what_changes_behind_the_copy_is_answered_as_it_is_now() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        _, tail = await copy_all(world, (await copy(world)).tail_position)
        gone, assigned, *_ = topics_in(world)
        await world.delete_topic(gone)
        world.assign(assigned, "session-1")
        await asyncio.sleep(0.01)

        answer = await copy(world, scanned_kind=SCAN_DONE, tail_position=tail)

        rows = {(row.kind, row.key): row.WhichOneof("state") for row in answer.rows}
        assert rows.pop(("topic", gone)) is None
        assert ("topic", assigned) not in rows
        names = {
            row.assignment.name for row in answer.rows if row.WhichOneof("state") == "assignment"
        }
        assert names == {assigned}
        assert answer.tail_position == world.a.log.commit_position
        assert not answer.is_behind

    in_slot_world(story)


def test_slots_are_released_when_few_states_have_changed_behind_the_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(60)
        _, tail = await copy_all(world, (await copy(world)).tail_position)
        monkeypatch.setattr(slot_source, "RELEASE_KEYS_MAX", 3)
        for name in unassigned(world)[:4]:
            await world.delete_topic(name)

        early = await release(world, tail)
        assert early.is_early
        assert world.a.own.ranges == world.table.ranges_of(1)
        tail = (await copy(world, scanned_kind=SCAN_DONE, tail_position=tail)).tail_position
        for name in unassigned(world)[:3]:
            await world.delete_topic(name)
        answer = await release(world, tail)

        assert not answer.is_early
        assert {row.WhichOneof("state") for row in answer.rows if row.kind == "topic"} == {None}
        assert answer.from_position == world.a.log.commit_position
        assert world.a.own.outgoing[0].to_shard == B

    in_slot_world(story)


def test_slots_are_not_released_while_the_log_has_so_many_events_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        _, tail = await copy_all(world, (await copy(world)).tail_position)
        monkeypatch.setattr(slot_source, "RELEASE_EVENTS_MAX", 2)
        others = [name for name in _topics(world) if not moves(name)]
        for name in others[:3]:
            await world.delete_topic(name)

        committed = world.a.log.commit_position
        assert committed >= tail + 3
        assert (await release(world, committed - 3)).is_early
        assert not (await release(world, committed - 2)).is_early

    in_slot_world(story)


def _topics(world: SlotWorld) -> list[str]:
    return [str(row[0]) for row in world.a.view.dump()["topics"]]


def test_a_repeated_release_gets_the_same_answer_from_the_next_leader() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        _, tail = await copy_all(world, (await copy(world)).tail_position)
        await world.delete_topic(topics_in(world)[0])
        first = await release(world, tail)
        assert await release(world, tail) == first

        world.a.stop()
        world.a.next_term()

        assert await release(world, tail) == first
        assert len(first.session_units) > 1

    in_slot_world(story)


def test_released_units_are_counted_with_those_that_are_not_in_the_view_yet() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        _, tail = await copy_all(world, (await copy(world)).tail_position)
        free = unassigned(world)
        world.a.log.hold_applies()
        world.assign(free[0], "session-new")
        releasing = asyncio.create_task(release(world, tail))
        await asyncio.sleep(0.1)
        world.a.log.release_applies()
        answer = await releasing

        units = {each.of: each.units for each in answer.session_units}
        assert units["session-new"] == 1
        tenants = {each.of: each.units for each in answer.tenant_units}
        assert sum(tenants.values()) == sum(units.values())

    in_slot_world(story)


@pytest.mark.parametrize(
    "fields",
    [
        {"ranges": []},
        {"ranges": [SlotRange(first=5, last=4)]},
        {"ranges": [SlotRange(first=0, last=16_384)]},
        {"ranges": [SlotRange(first=5, last=6), SlotRange(first=6, last=7)]},
        {"move_id": 0},
        {"scanned_kind": "usage", "tail_position": 1},
    ],
)
def test_a_question_that_is_none_is_refused(fields: dict[str, Any]) -> None:
    async def story(world: SlotWorld) -> None:
        with pytest.raises(InvalidRequest):
            await copy(world, **fields)

    in_slot_world(story)


def test_slots_that_a_shard_does_not_have_are_neither_copied_nor_released() -> None:
    async def story(world: SlotWorld) -> None:
        elsewhere = [SlotRange(first=8_000, last=9_000)]
        with pytest.raises(Refused):
            await copy(world, ranges=elsewhere)
        with pytest.raises(Refused):
            await release(world, 1, ranges=elsewhere)

    in_slot_world(story)


def test_a_leader_that_is_behind_answers_nothing_older_than_the_asker_has() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(10)
        ahead = world.a.log.commit_position + 5

        asking = asyncio.create_task(copy(world, tail_position=ahead))
        await asyncio.sleep(5.0)
        assert not asking.done()
        asking.cancel()

    in_slot_world(story)


def test_what_was_cut_from_the_log_is_not_passed_over() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(10)
        _, tail = await copy_all(world, (await copy(world)).tail_position)
        await world.delete_topic(_topics(world)[0])
        await world.a.log.compact()

        with pytest.raises(MetadataError, match="no longer in the log"):
            await copy(world, scanned_kind=SCAN_DONE, tail_position=tail)

    in_slot_world(story)


def test_a_pinned_log_is_not_cut() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(10)
        _, tail = await copy_all(world, (await copy(world)).tail_position)
        await world.a.log.pin_reader("slots-1", tail + 1, 1_000)
        await world.delete_topic(_topics(world)[0])
        await world.a.log.compact()

        await copy(world, scanned_kind=SCAN_DONE, tail_position=tail)

    in_slot_world(story)


def test_events_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(40)
        whole = await copy(world, scanned_kind=SCAN_DONE, tail_position=1)
        monkeypatch.setattr(touched_keys, "_EVENTS_AT_ONCE", 3)

        assert await copy(world, scanned_kind=SCAN_DONE, tail_position=1) == whole

    in_slot_world(story)
