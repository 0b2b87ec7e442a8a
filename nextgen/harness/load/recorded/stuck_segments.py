"""Which segments of a scalable topic keep a subscription waiting, for a complaint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nextgen.client.model import ScalableTopic
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.scalable.segments import Segment

TOLD_MAX = 4
"""Segments that are described one by one, in the order of the layout; the others are counted."""


@dataclass(frozen=True, slots=True)
class StuckSegment:
    """One that misses messages, or that is sealed and not drained. ``name`` is its own."""

    name: str
    segment: Segment
    missing: int
    is_drained: bool
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stuck:
    """Segments of a subscription with missing messages. ``more``: how many are not in ``told``.
    ``gone``: missing messages of segments that the layout no longer has."""

    condition: str
    told: tuple[StuckSegment, ...]
    more: int
    gone: int


def find_stuck(layout: ScalableTopic, subscription: str, missing: Mapping[str, int]) -> Stuck:
    """Return what a subscription waits for. ``missing``: messages by the segments' own names."""
    topic = parse_topic(layout.name)
    group = next((each for each in layout.subscriptions if each.name == subscription), None)
    drained = set() if group is None else set(group.drained)
    consumers = {} if group is None else group.consumers
    stuck, known = [], set()
    for segment in layout.segments:
        name, number = segment.name_in(topic), segment.segment_id
        known.add(name)
        is_drained = number in drained
        if missing.get(name) or (segment.is_sealed and not is_drained):
            readers = tuple(each for each, given in consumers.items() if number in given)
            stuck.append(StuckSegment(name, segment, missing.get(name, 0), is_drained, readers))
    phase = "absent" if group is None else f"{group.phase}, with {len(consumers)} consumers"
    return Stuck(
        f"epoch {layout.epoch}, subscription {phase}",
        tuple(stuck[:TOLD_MAX]),
        len(stuck[TOLD_MAX:]),
        sum(count for name, count in missing.items() if name not in known),
    )


def describe_stuck(stuck: Stuck, owners: Mapping[str, str]) -> str:
    """Return it as a sentence. ``owners``: brokers by the segments' own names."""
    parts = [_described(each, owners.get(each.name) or "nowhere") for each in stuck.told]
    if stuck.more:
        parts.append(f"{stuck.more} segments more")
    if stuck.gone:
        parts.append(f"{stuck.gone} of segments that are not in the layout")
    return f"{stuck.condition}: {'; '.join(parts) or 'no segment is stuck'}"


def _described(stuck: StuckSegment, owner: str) -> str:
    state = "sealed" if stuck.segment.is_sealed else "active"
    mark = " and drained" if stuck.is_drained else ""
    readers = "+".join(stuck.readers) or "nobody"
    number = stuck.segment.segment_id
    return f"segment {number} {state}{mark} at {owner}, of {readers}, misses {stuck.missing}"
