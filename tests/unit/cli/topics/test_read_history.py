"""The events about a key, from every shard that had its slot."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from nextgen.cli.topics import placement_commands
from nextgen.cli.topics.placement_commands import read_history
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1 import events_pb2 as pb

KEY = "acme/orders/paid"
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

    monkeypatch.setattr(placement_commands, "read_log", read_log)
    return held


async def names(logs: dict[int, list[pb.Event]]) -> list[str]:
    found = await read_history((), TABLE, KEY, ("topic_properties_set",))
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
