"""Events from the logs of shards: of a slot wherever it was, of a topic whatever its name was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from nextgen.client.log.event_keys import event_keys
from nextgen.kernel.errors import PositionCompacted
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id, slot_of_id

if TYPE_CHECKING:
    from nextgen.kernel.routing.names import TopicName
    from nextgen.kernel.routing.slots import SlotTable
    from protos.nextgen.v1.events_pb2 import Event
    from protos.nextgen.v1.inventory_pb2 import Topic

_NAMINGS = ("topic_created", "topic_name_pointed", "topic_renamed")
"""Types of events behind which a name may lead to another topic."""

Read = Callable[[str], Awaitable[list["Event"]]]
"""Returns the events about names that begin with this one."""


def home_slot(topic: Topic, routing_key: str) -> int:
    """Return the slot in whose shard a topic lives: the one in its id, whatever it is called.

    ``routing_key`` is of the name that it was found by.
    """
    return slot_of_id(topic.topic_id) if is_id(topic.topic_id) else slot_of(routing_key)


async def last_topic(nodes: Sequence[str], table: SlotTable, name: TopicName) -> Topic | None:
    """Return the deleted topic that ``name``, of a topic, led to last, with its id and this name.

    None if that is unknown, or if the topic was created under the name: then the events about it
    are where the name is.
    """
    from protos.nextgen.v1.inventory_pb2 import Topic

    topic_id, text = "", name.base_text
    async for event in read_log(nodes, table.shard_for_key(name.routing_key), _NAMINGS, text):
        if text in event_keys(event):
            topic_id = "" if event.HasField("topic_created") else topic_id_of(event)
    return Topic(name=text, topic_id=topic_id) if topic_id else None


async def read_names(topic: Topic, read: Read) -> tuple[list[str], list[Event]]:
    """Return all names that a topic has had, the present one first, and what ``read`` returned of
    each. Renames that the log does not have any more are left out, and so are other topics that
    have had one of several names."""
    names: list[str] = [topic.name]
    events: list[Event] = []
    for name in names:
        found = await read(name)
        events += found
        for event in found:
            renamed = event.topic_renamed
            if renamed.topic_id == topic.topic_id:
                names += {renamed.name, renamed.new_name}.difference(names)
    if len(names) > 1:
        events = [event for event in events if topic_id_of(event) in ("", topic.topic_id)]
    return names, events


def topic_id_of(event: Event) -> str:
    """Return the id of the topic that ``event`` names, "" if it names none."""
    payload = event.WhichOneof("payload")
    topic_id: str = getattr(getattr(event, payload), "topic_id", "") if payload else ""
    return topic_id


async def read_history(
    nodes: Sequence[str], table: SlotTable, slot: int, types: Sequence[str], prefix: str = ""
) -> list[Event]:
    """Return these events from each shard that had ``slot``, and its adoptions.

    Those of a shard come before those of the shards that had it later.
    """
    runs: list[list[Event]] = []
    pending, seen = [table.shard_of(slot)], set[int]()
    while pending:
        shard_id = pending.pop()
        seen.add(shard_id)
        found = [event async for event in read_log(nodes, shard_id, types, prefix)]
        runs.append(found)
        async for event in read_log(nodes, shard_id, ("slots_adopted",)):
            adopted = event.slots_adopted
            if any(each.first <= slot <= each.last for each in adopted.came):
                found.append(event)
                if adopted.from_shard not in (*seen, *pending):
                    pending.append(adopted.from_shard)
    return [event for found in reversed(runs) for event in found]


async def read_log(
    nodes: Sequence[str], shard_id: int, types: Sequence[str], prefix: str = ""
) -> AsyncGenerator[Event, None]:
    """Yield these events from a shard's log, from its oldest to the present."""
    from nextgen.client.log.reader import ShardLogReader

    reader = ShardLogReader(nodes, shard_id, prefer_follower=True, types=types, key_prefix=prefix)
    first = 1
    while True:
        try:
            async with aclosing(reader.pages(first)) as pages:
                async for page in pages:
                    for event in page.events:
                        yield event
            return
        except PositionCompacted as error:
            # Only the outcome of cut events is known; the chain begins where the log does.
            first = max(error.oldest, first + 1)
