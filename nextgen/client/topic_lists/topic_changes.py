"""What events do to the names of a namespace's topics: a partitioned topic is its partitions.

Of scalable topics their properties too, by which watches of them are filtered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nextgen.kernel.routing.names import Domain
from nextgen.kernel.routing.system_topics import is_system_topic
from nextgen.kernel.routing.unit_names import unit_names
from protos.nextgen.v1.events_pb2 import Event

_SCALABLE = f"{Domain.TOPIC}://"


class TopicChange(NamedTuple):
    """One event, or half a rename: names that exist from ``position`` on, or no longer exist."""

    position: int
    base_name: str
    created: Sequence[str]
    """Some of them may have existed before, if partitions were added."""
    deleted: Sequence[str]
    properties: Mapping[str, str] | None = None
    """All that a scalable topic has from then on; None if the event does not say."""


def topic_changes(events: Iterable[Event]) -> list[TopicChange]:
    """Return the changes of users' topics, in order. Pulsar's own topics are left out.

    A rename is two changes at one position: the former name is deleted, the new one created.
    """
    changes: list[TopicChange] = []
    for event in events:
        match event.WhichOneof("payload"):
            case "topic_created":
                topic = event.topic_created
                change = TopicChange(
                    event.position,
                    topic.name,
                    unit_names(topic.name, topic.partitions),
                    (),
                    topic.properties if topic.name.startswith(_SCALABLE) else None,
                )
            case "topic_properties_set":
                changed = event.topic_properties_set
                if not changed.name.startswith(_SCALABLE):
                    continue
                change = TopicChange(event.position, changed.name, (), (), changed.properties)
            case "topic_partitions_grown":
                grown = event.topic_partitions_grown
                change = TopicChange(
                    event.position, grown.name, unit_names(grown.name, grown.partitions), ()
                )
            case "topic_deleted":
                gone = event.topic_deleted
                change = TopicChange(
                    event.position, gone.name, (), unit_names(gone.name, gone.partitions)
                )
            case "topic_renamed":
                renamed = event.topic_renamed
                units = unit_names(renamed.new_name, renamed.partitions)
                # Lists of two namespaces may be concerned, each by one of the names.
                changes.append(
                    TopicChange(
                        event.position,
                        renamed.name,
                        (),
                        unit_names(renamed.name, renamed.partitions),
                    )
                )
                change = TopicChange(event.position, renamed.new_name, units, ())
            case _:
                continue
        if not is_system_topic(change.base_name):
            changes.append(change)
    return changes
