"""What the target of a move does when source, logs or disk are not as they should be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import slot_of_id
from nextgen.kernel.routing.names import parse_topic
from nextgen.replication.ports import LogStatus
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import SlotRow, TopicRow
from protos.nextgen.v1.shard_service_pb2 import CopySlotsResponse
from shards.slots import slot_source
from shards.slots.slot_scan import SlotScan
from tests.support.logs.memory_log import MemoryLog
from tests.support.slots.renames import Renamer, check_names, living
from tests.support.slots.world import NAMESPACES, RANGES, A, SlotWorld, in_slot_world, the_move

END_S_MAX = 30.0


async def ended(world: SlotWorld) -> str:
    """Return the last phase of the move, planned here unless it is under way."""
    if not world.manager.moves:
        world.manager.plan(the_move())
    async with timeout(END_S_MAX):
        while world.manager.moves[1].phase not in ("done", "taken_back"):
            await asyncio.sleep(0.05)
    return world.manager.moves[1].phase.value


def _older(answer: CopySlotsResponse) -> None:
    answer.tail_position = 1


def _of_another_slot(answer: CopySlotsResponse) -> None:
    topic = TopicRow(topic_id="3fff" + "0" * 20, name="persistent://t/n/other")
    answer.rows.append(SlotRow(kind="topic", key="persistent://t/n/x", topic=topic))


def _of_no_kind(answer: CopySlotsResponse) -> None:
    answer.rows.append(SlotRow(kind="usage", key="s-1"))


def _back_to_the_start(answer: CopySlotsResponse) -> None:
    answer.scanned_kind, answer.scanned_after = "tenant", ""


def _at_no_kind(answer: CopySlotsResponse) -> None:
    answer.scanned_kind = "everything"


@pytest.mark.parametrize(
    "spoil", [_older, _of_another_slot, _of_no_kind, _back_to_the_start, _at_no_kind]
)
def test_an_answer_that_cannot_be_true_ends_the_move_and_nothing_is_lost(
    spoil: Callable[[CopySlotsResponse], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_source, "COPY_ROWS_MAX", 5)

    async def story(world: SlotWorld) -> None:
        await world.fill(30)
        before = world.a.view.dump()["topics"]
        copy, answers = world.a.source.copy, 0

        async def spoilt(request: object) -> CopySlotsResponse:
            nonlocal answers
            answer = await copy(request)  # type: ignore[arg-type]
            answers += 1
            if answers > 3:
                spoil(answer)
            return answer

        monkeypatch.setattr(world.a.source, "copy", spoilt)

        assert await ended(world) == "taken_back"
        assert world.a.own.ranges == world.table.ranges_of(A)
        assert world.a.view.dump()["topics"] == before
        assert world.b.own.incoming == ()

    in_slot_world(story)


def test_a_source_whose_log_was_cut_ends_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_source, "COPY_ROWS_MAX", 5)

    async def story(world: SlotWorld) -> None:
        await world.fill(30)

        async def no_pin(*_: object) -> None:
            raise Unavailable("no replica pins its log")

        monkeypatch.setattr(MemoryLog, "pin_reader", no_pin)
        world.manager.plan(the_move())
        while not world.b.own.incoming:
            await asyncio.sleep(0.001)
        for number in range(30):
            await world.delete_topic(str(world.a.view.dump()["topics"][0][0]))
            if number % 10 == 0:
                await world.a.log.compact()
        await world.a.log.compact()

        assert await ended(world) == "taken_back"
        refusals = [each.reason for each in world.manager.reports if each.phase == "refused"]
        assert "no longer in the log" in refusals[0]
        assert world.a.own.incoming == world.b.own.incoming == ()

    in_slot_world(story)


def test_a_target_without_room_asks_for_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    is_full = True
    present = MemoryLog.status.fget
    assert present is not None

    def status(log: MemoryLog) -> LogStatus:
        found: LogStatus = present(log)
        is_target = found.group_id == 2
        return replace(found, disk_trouble="less than 64 MiB") if is_target and is_full else found

    async def story(world: SlotWorld) -> None:
        nonlocal is_full
        await world.fill(30)
        monkeypatch.setattr(MemoryLog, "status", property(status))
        world.manager.plan(the_move())
        await asyncio.sleep(5.0)

        assert world.a.own.ranges == world.table.ranges_of(A)
        assert "room on the disk" in world.b.keeper.waits_for
        is_full = False
        assert await ended(world) == "done"

    in_slot_world(story)


def test_a_stop_that_comes_before_a_move_has_begun_is_recorded_by_both() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(10)
        world.manager.plan(the_move())
        assert world.manager.stop(1)

        while world.manager.moves[1].phase != "taken_back":
            await asyncio.sleep(0.05)

        assert world.a.own.settled_move_id == world.b.own.settled_move_id == 1
        assert world.a.own.ranges == world.table.ranges_of(A)

    in_slot_world(story)


def test_topics_go_with_the_slots_in_their_ids_whatever_they_are_called() -> None:
    """One was renamed before the move, one is while it is copied; their names stay behind."""

    async def story(world: SlotWorld) -> None:
        await world.fill(30)
        client, topics = Renamer(world), living(world)
        wants = SlotScan(world.a.query, RANGES).wants
        first, second = [name for name, it in topics.items() if wants(slot_of_id(it))][:2]
        names = (f"persistent://{NAMESPACES[0]}/again-{number}" for number in count())
        new, newer = islice(
            (name for name in names if not wants(slot_of(parse_topic(name).routing_key))), 2
        )
        assert await client.rename(first, new) == ""
        world.manager.plan(the_move())
        assert await client.rename(second, newer) == ""

        assert await ended(world) == "done"

        found = living(world)
        assert (found[new], found[newer]) == (topics[first], topics[second])
        moved = {row[0] for row in world.b.view.dump()["topics"]}
        assert {new, newer} <= moved
        check_names(world)

    in_slot_world(story)


def test_a_renamed_topic_is_never_absent_by_its_name_while_its_home_slot_moves() -> None:
    """The shard of the name has a pointer, and a row of the topic until that is removed."""

    async def story(world: SlotWorld) -> None:
        await world.fill(30)
        client, topics = Renamer(world), living(world)
        wants = SlotScan(world.a.query, RANGES).wants
        first = next(name for name, it in topics.items() if wants(slot_of_id(it)))
        names = (f"persistent://{NAMESPACES[0]}/again-{number}" for number in count())
        new = next(
            name
            for name in names
            if world.table.shard_of(slot := slot_of(parse_topic(name).routing_key)) == A
            and not wants(slot)
        )
        assert await client.rename(first, new) == ""
        world.manager.plan(the_move())

        found = set()
        while world.manager.moves[1].phase not in ("done", "taken_back"):
            topic = await Renamer(world).get(new)
            found.add("" if topic is None else topic.topic_id)
            order = pb.SetTopicProperties(name=new, properties={"step": str(len(found))})
            result = await Renamer(world).execute(new, pb.Command(set_topic_properties=order))
            found.add(result.rejection_code or result.id)
            await asyncio.sleep(0.001)

        assert world.manager.moves[1].phase == "done"
        assert found == {topics[first]}

    in_slot_world(story)


def test_slots_come_back_by_a_second_move() -> None:
    async def story(world: SlotWorld) -> None:
        await world.fill(30)
        before = world.a.view.dump()
        assert await ended(world) == "done"

        back = replace(the_move(2), from_shard=2, to_shard=1)
        world.manager.plan(back)
        while world.manager.moves[2].phase != "done":
            await asyncio.sleep(0.05)

        after = world.a.view.dump()
        for table in ("topics", "assignments", "broker_usage", "tenant_usage", "totals"):
            assert after[table] == before[table]
        assert world.b.own.ranges == world.table.ranges_of(2)
        assert RANGES[0] not in world.b.own.ranges

    in_slot_world(story)
