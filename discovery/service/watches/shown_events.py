"""What a shard tells of topics, as one watcher sees it.

A watcher of the former name of a topic alone learns that the topic left, and not where it went: it
may be that the watcher must not know. Who watches the new name sees the whole topic, and with it
what it was called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protos.nextgen.v1.events_pb2 import Event, TopicDeleted
from protos.nextgen.v1.inventory_pb2 import Item

_INTERNAL = frozenset({"topic_name_pointed", "topic_name_freed"})
"""What shards keep of names. It is no change of any object."""


def shown_items(items: Iterable[Item]) -> list[Item]:
    """Return the items that are objects of their names: no pointers, no former names."""
    return [item for item in items if not (item.HasField("pointer") or _is_former(item))]


def shown_events(
    events: Iterable[Event], selects: Callable[[str], bool]
) -> tuple[list[Event], bool]:
    """Return what a watcher of the names that it ``selects`` sees, and whether all watchers see the
    same of these events."""
    shown: list[Event] = []
    is_for_all = True
    for event in events:
        payload = event.WhichOneof("payload")
        if payload in _INTERNAL:
            continue
        if payload == "topic_renamed" and not selects(event.topic_renamed.new_name):
            is_for_all = False
            event = _left(event)
        shown.append(event)
    return shown, is_for_all


def _left(event: Event) -> Event:
    """Return the rename as a deletion."""
    message = event.topic_renamed
    left = Event()
    left.CopyFrom(event)
    deleted = TopicDeleted(
        name=message.name, topic_id=message.topic_id, partitions=message.partitions
    )
    left.topic_deleted.CopyFrom(deleted)
    return left


def _is_former(item: Item) -> bool:
    return item.HasField("topic") and item.topic.name != item.name
