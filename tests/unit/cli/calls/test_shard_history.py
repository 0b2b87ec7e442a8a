"""The events about a slot, from every shard that had it, and those about a renamed topic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from nextgen.cli.calls import shard_history
from nextgen.cli.calls.shard_history import (
    home_slot,
    last_topic,
    read_history,
    read_names,
    topic_id_of,
)
from nextgen.client.log.event_keys import event_keys
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Topic

KEY = "acme/orders/paid"
PAID = f"persistent://{KEY}"
SLOT = slot_of(KEY)
TABLE = initial_table((1, 2, 3))
HOME = TABLE.shard_of(SLOT)
FIRST, SECOND = sorted({1, 2, 3} - {HOME})


def adopted(from_shard: int, slot: int = SLOT) -> pb.Event:
    came = [pb.SlotRange(first=slot, last=slot)]
    return pb.Event(slots_adopted=pb.SlotsAdopted(move_id=1, came=came, from_shard=from_shard))


def about(name: str) -> pb.Event:
    return pb.Event(topic_properties_set=pb.TopicPropertiesSet(name=name))


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[pb.Event]]:
    held: dict[int, list[pb.Event]] = {1: [], 2: [], 3: []}

    async def read_log(
        _nodes: Sequence[str], shard_id: int, types: Sequence[str], _prefix: str = ""
    ) -> AsyncGenerator[pb.Event, None]:
        for event in held[shard_id]:
            if event.WhichOneof("payload") in types:
                yield event

    monkeypatch.setattr(shard_history, "read_log", read_log)
    return held


async def names(logs: dict[int, list[pb.Event]]) -> list[str]:
    found = await read_history((), TABLE, SLOT, ("topic_properties_set",))
    return [each.topic_properties_set.name or "adopted" for each in found]


async def test_a_slot_that_never_moved_is_read_from_its_shard(
    logs: dict[int, list[pb.Event]],
) -> None:
    logs[HOME] = [about("a"), adopted(FIRST, (SLOT + 1) % 16_384)]
    logs[FIRST] = [about("other")]

    assert await names(logs) == ["a"]


async def test_the_shards_that_had_a_slot_come_before_the_one_that_has_it(
    logs: dict[int, list[pb.Event]],
) -> None:
    """It was in the first shard, then in the second, and came back once."""
    logs[FIRST] = [about("1")]
    logs[SECOND] = [adopted(FIRST), about("2")]
    logs[HOME] = [adopted(SECOND), about("3"), adopted(SECOND)]

    assert await names(logs) == ["1", "2", "adopted", "3", "adopted", "adopted"]


def renamed(name: str, new_name: str, topic_id: str = "t-1") -> pb.Event:
    event = pb.Event()
    event.topic_renamed.name, event.topic_renamed.new_name = name, new_name
    event.topic_renamed.topic_id = topic_id
    return event


async def test_a_topics_names_are_found_through_all_its_renames_and_no_other_topics() -> None:
    created = pb.Event(topic_created=pb.TopicCreated(name="a", topic_id="t-1"))
    another = pb.Event(topic_created=pb.TopicCreated(name="a", topic_id="t-2"))
    log = [created, renamed("a", "b"), another, renamed("a", "x", "t-2"), renamed("b", "c")]

    async def read(name: str) -> list[pb.Event]:
        return [event for event in log if name in event_keys(event)]

    names, events = await read_names(Topic(name="c", topic_id="t-1"), read)

    assert names == ["c", "b", "a"]
    assert {topic_id_of(event) for event in events} == {"t-1"}
    assert all(events.count(event) for event in (created, log[1], log[4]))


def pointed(name: str, topic_id: str) -> pb.Event:
    return pb.Event(topic_name_pointed=pb.TopicNamePointed(name=name, topic_id=topic_id))


def created(name: str, topic_id: str) -> pb.Event:
    return pb.Event(topic_created=pb.TopicCreated(name=name, topic_id=topic_id))


@pytest.mark.parametrize(
    ("log", "topic_id"),
    [
        ([], None),
        ([created(PAID, "t-0"), pointed(PAID, "t-1")], "t-1"),
        ([created(PAID, "t-0"), pointed(PAID, "t-1"), pointed(PAID, "t-2")], "t-2"),
        ([created(PAID, "t-1"), renamed(PAID, "new")], "t-1"),
        ([renamed("old", PAID)], "t-1"),
        ([pointed(PAID, "t-1"), created(PAID, "t-3")], None),
        ([pointed(f"{PAID}-too", "t-1")], None),
    ],
)
async def test_a_name_that_is_free_led_last_to_the_topic_that_its_shard_says(
    logs: dict[int, list[pb.Event]], log: list[pb.Event], topic_id: str | None
) -> None:
    logs[HOME] = log

    found = await last_topic((), TABLE, parse_topic(PAID))

    assert found == (None if topic_id is None else Topic(name=PAID, topic_id=topic_id))


async def test_a_topic_that_kept_its_name_has_all_events_of_the_name() -> None:
    of_name = [about("a"), pb.Event(topic_deleted=pb.TopicDeleted(name="a", topic_id="t-0"))]

    async def read(_: str) -> list[pb.Event]:
        return of_name

    assert await read_names(Topic(name="a", topic_id="t-1"), read) == (["a"], of_name)


def test_a_topics_home_is_in_its_id_and_else_where_its_name_is() -> None:
    assert home_slot(Topic(topic_id="00ff" + "0" * 20), KEY) == 0xFF
    assert home_slot(Topic(topic_id="of another release"), KEY) == SLOT
