"""Checks whether a looked-up name can be served at all."""

from __future__ import annotations

from collections.abc import Iterable

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.routing.names import Domain, TopicName, Unit
from shards.domain.assignment import Assignment
from shards.domain.scalable.state import ScalableTopic
from shards.domain.topic import Topic


def check_served(name: TopicName, topic: Topic | None) -> Rejected | None:
    """Return why no broker may serve ``name``, None if one may.

    ``topic`` is the inventory's topic of the name ``name.base_text``.
    """
    if topic is None:
        return Rejected(RejectionCode.NOT_FOUND, f"topic {name.base_text} does not exist")
    if name.domain is Domain.TOPIC:
        return Rejected(
            RejectionCode.SCALABLE, f"topic {name.text} is scalable, name one of its segments"
        )
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


def check_listed(
    name: TopicName, layout: ScalableTopic | None, *, may_be_planned: bool
) -> Rejected | None:
    """Return why no broker may serve the segment ``name`` of a topic with ``layout``; None if one
    may. ``may_be_planned``: also a child of the operation that is under way.

    The layout must list it with the very range that the name has.
    """
    wanted = name.segment
    assert wanted is not None, f"{name.text} is no segment"
    segment = None if layout is None else layout.segments.get(wanted.segment_id)
    if may_be_planned and segment is None and layout is not None and layout.operation is not None:
        planned = {each.segment_id: each for each in layout.operation.children}
        segment = planned.get(wanted.segment_id)
    if segment is None or segment.legacy_topic_name:
        return Rejected(
            RejectionCode.NOT_FOUND,
            f"topic {name.base_text} has no segment {wanted.segment_id} of its own",
        )
    if segment.descriptor != wanted:
        return Rejected(
            RejectionCode.NOT_FOUND,
            f"segment {wanted.segment_id} of topic {name.base_text} is {segment.descriptor.text}, "
            f"not {wanted.text}",
        )
    return None


def check_kept(name: TopicName, layout: ScalableTopic | None) -> Rejected | None:
    """Return why no broker is to have the classic unit ``name``; None if one may.

    ``layout`` is that of the scalable topic which has replaced its topic, if one has: a unit that
    left it is never served again.
    """
    if layout is None:
        return None
    if any(each.legacy_topic_name == name.text for each in layout.segments.values()):
        return None
    twin = layout.name
    return Rejected(RejectionCode.NOT_FOUND, f"{name.text} is no segment of {twin} any more")


def listed_units(units: Iterable[Assignment], layout: ScalableTopic | None) -> list[Assignment]:
    """Return those of a topic's ``units`` that clients may use; all of a classic topic.

    Of a scalable one, segments that left the layout and children that are not in it yet are left
    out: no lookup leads to them.
    """
    if layout is None:
        return list(units)
    listed = {Unit.segment(each).text for each in layout.segments}
    return [each for each in units if each.unit in listed]


def kept_units(units: Iterable[Assignment], layout: ScalableTopic | None) -> list[Assignment]:
    """Return those of a classic topic's ``units`` that are segments of the scalable topic with
    ``layout``; none without one."""
    segments = () if layout is None else layout.segments.values()
    listed = {each.legacy_topic_name for each in segments}
    return [each for each in units if each.name in listed]
