"""Who consumes which segments of a subscription: deterministic, and with as few moves as possible.

With at least as many segments as consumers each segment has one owner. With fewer, every consumer
has one segment at most; a segment is shared by as many as it has entry buckets, and whoever is left
over has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.events import Assigned, ConsumerSegments
from shards.domain.scalable.state import Subscription
from shards.domain.scalable.vocabulary import SubscriptionType

_Owners = Mapping[int, Sequence[str]]
"""The owners of segments, by segment id."""


def eligible(segments: Iterable[Segment], subscription: Subscription) -> list[Segment]:
    """Return those of a topic's ``segments`` that consumers of a subscription are to have.

    Drained ones are left out. An active segment of a STREAM comes once all of its parents that are
    in the layout are drained, so that the messages of a key stay in order.
    """
    drained = subscription.drained
    is_stream = subscription.type is SubscriptionType.STREAM
    return [
        each
        for each in segments
        if each.segment_id not in drained
        and (each.is_sealed or not is_stream or drained.issuperset(each.parents))
    ]


def distribute(
    segments: Sequence[Segment], consumers: Mapping[str, bool], before: Assigned
) -> Assigned:
    """Return the segments of each consumer.

    ``segments`` are by range, ``consumers`` by name: whether each can share a segment. Without that
    ability of all, none is shared.
    """
    had = _owners_of(before)
    if len(consumers) <= len(segments):
        owners = _spread(segments, list(consumers), had)
    else:
        owners = _shared(segments, list(consumers), had, may_share=all(consumers.values()))
    shared = {segment_id for segment_id, names in owners.items() if len(names) > 1}
    held: dict[str, list[int]] = {name: [] for name in consumers}
    for segment in segments:
        for name in owners[segment.segment_id]:
            held[name].append(segment.segment_id)
    return tuple(
        [
            ConsumerSegments(name, tuple(ids), tuple([each for each in ids if each in shared]))
            for name, ids in held.items()
        ]
    )


def _owners_of(assigned: Assigned) -> dict[int, list[str]]:
    owners: dict[int, list[str]] = {}
    for each in assigned:
        for segment_id in each.segments:
            owners.setdefault(segment_id, []).append(each.consumer_name)
    return owners


def _spread(segments: Sequence[Segment], names: Sequence[str], had: _Owners) -> _Owners:
    """Give each segment one owner; no consumer has two more than another."""
    if not names:
        return {each.segment_id: () for each in segments}
    ids = [each.segment_id for each in segments]
    room = _room(ids, names, had)
    owners: dict[int, Sequence[str]] = {}
    for segment_id in ids:
        for name in had.get(segment_id, ()):
            if room.get(name, 0) and segment_id not in owners:
                owners[segment_id] = (name,)
                room[name] -= 1
    held = Counter([name for (name,) in owners.values()])
    turns = [(held[name], place) for place, name in enumerate(names) if room[name]]
    heapify(turns)
    for segment_id in ids:
        if segment_id not in owners:
            count, place = heappop(turns)
            name = names[place]
            owners[segment_id] = (name,)
            room[name] -= 1
            if room[name]:
                heappush(turns, (count + 1, place))
    return owners


def _room(ids: Sequence[int], names: Sequence[str], had: _Owners) -> dict[str, int]:
    """Return how many segments each consumer gets: whoever has had the most gets the most."""
    least, more = divmod(len(ids), len(names))
    counts = dict.fromkeys(names, 0)
    for segment_id in ids:
        for name in had.get(segment_id, ()):
            if name in counts:
                counts[name] += 1
    ranked = sorted(names, key=lambda name: (-counts[name], name))
    return {name: least + (place < more) for place, name in enumerate(ranked)}


def _shared(
    segments: Sequence[Segment], names: Sequence[str], had: _Owners, *, may_share: bool
) -> _Owners:
    """Give each consumer one segment at most; there are more consumers than segments."""
    room = _places(segments, len(names), may_share=may_share)
    placed: set[str] = set()
    owners: dict[int, list[str]] = {segment_id: [] for segment_id in room}
    known = set(names)
    for segment_id, places in room.items():
        for name in had.get(segment_id, ()):
            if name in known and name not in placed and len(owners[segment_id]) < places:
                owners[segment_id].append(name)
                placed.add(name)
    waiting = iter([name for name in names if name not in placed])
    for segment_id, places in room.items():
        while len(owners[segment_id]) < places:
            owners[segment_id].append(next(waiting))
    return owners


def _places(segments: Sequence[Segment], consumers: int, *, may_share: bool) -> dict[int, int]:
    """Return how many consumers each segment gets: one, and the others dealt out in turn."""
    room = {each.segment_id: each.bucket_count if may_share else 1 for each in segments}
    places = dict.fromkeys(room, 0)
    left = min(consumers, sum(room.values()))
    while left:
        for segment_id, most in room.items():
            if left and places[segment_id] < most:
                places[segment_id] += 1
                left -= 1
    return places
