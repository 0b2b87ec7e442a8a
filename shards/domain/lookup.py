"""Checks whether a looked-up name can be served at all."""

from __future__ import annotations

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.routing.names import TopicName
from shards.domain.topic import Topic


def check_served(name: TopicName, topic: Topic | None) -> Rejected | None:
    """Return why no broker may serve ``name``, None if one may.

    ``topic`` is the inventory's topic of the name ``name.base_text``.
    """
    if topic is None:
        return Rejected(RejectionCode.NOT_FOUND, f"topic {name.base_text} does not exist")
    if name.partition is None and topic.partitions:
        return Rejected(
            RejectionCode.PARTITIONED,
            f"topic {name.base_text} has {topic.partitions} partitions, name one of them",
        )
    if name.partition is not None and name.partition >= topic.partitions:
        return Rejected(
            RejectionCode.NOT_FOUND,
            f"topic {name.base_text} has {topic.partitions} partitions, "
            f"there is no partition {name.partition}",
        )
    return None
