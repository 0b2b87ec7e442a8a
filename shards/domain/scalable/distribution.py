"""Who consumes which segments of a subscription: deterministic, and with as few moves as possible.

With at least as many segments as consumers each segment has one owner. With fewer, every consumer
has one segment at most; a segment is shared by as many as it has entry buckets, and whoever is left
over has none. Within that, no other distribution leaves more segments where they were. A segment
that nobody had goes to an owner of its parents, if that costs nothing: the keys stay there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.events import Assigned, ConsumerSegments
from shards.domain.scalable.state import Subscription
from shards.domain.scalable.vocabulary import SubscriptionType

_Key = TypeVar("_Key", int, str)
_Owners = Mapping[int, Sequence[str]]
"""The owners of segments, by segment id."""

_by_id = attrgetter("segment_id")
_by_range = attrgetter("hash_start", "hash_end")


class Layout:
    """The segments of a topic, prepared for any number of its subscriptions."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        ascending = sorted(segments, key=_by_id)
        self.by_range = sorted(ascending, key=_by_range)
        self._children = [(each.segment_id, each.parents) for each in ascending if each.parents]
        """Parents come before their children."""

    def eligible(self, subscription: Subscription) -> list[Segment]:
        """Return the segments that consumers of a subscription are to have, by range.

        Drained ones are left out. A segment of a STREAM follows once everything before it in the
        layout is drained, be it active or sealed itself: the messages of a key stay in order.
        """
        left_out = set(subscription.drained)
        if subscription.type is SubscriptionType.STREAM:
            left_out.update(self._held_back(subscription.drained))
        return [each for each in self.by_range if each.segment_id not in left_out]

    def reassign(self, subscription: Subscription) -> Assigned:
        """Return the segments of each consumer of ``subscription``."""
        consumers = subscription.consumers
        may_share = subscription.type is SubscriptionType.STREAM and all(consumers.values())
        given = self.eligible(subscription)
        return distribute(given, list(consumers), subscription.assigned, may_share=may_share)

    def _held_back(self, drained: frozenset[int]) -> set[int]:
        """Return the segments with an ancestor that is not drained.

        Parents do not suffice: one that took no message is drained before its own parents are.
        """
        held_back: set[int] = set()
        for segment_id, parents in self._children:
            if not drained.issuperset(parents) or not held_back.isdisjoint(parents):
                held_back.add(segment_id)
        return held_back


def distribute(
    segments: Sequence[Segment], consumers: Sequence[str], before: Assigned, *, may_share: bool
) -> Assigned:
    """Return the segments of each consumer.

    ``segments`` are by range, ``consumers`` by name. ``may_share``: all of them can consume a part
    of a segment.
    """
    former = _Former(segments, consumers, before)
    shared: set[int] = set()
    if len(consumers) <= len(segments):
        owners = _spread(segments, consumers, former)
    else:
        owners = _shared(segments, consumers, former, may_share=may_share)
        shared.update([segment_id for segment_id, names in owners.items() if len(names) > 1])
    held: dict[str, list[int]] = {name: [] for name in consumers}
    for segment in segments:
        segment_id = segment.segment_id
        for name in owners[segment_id]:
            held[name].append(segment_id)
    if not shared:
        return tuple([ConsumerSegments(name, tuple(ids), ()) for name, ids in held.items()])
    return tuple(
        [
            ConsumerSegments(name, tuple(ids), tuple([each for each in ids if each in shared]))
            for name, ids in held.items()
        ]
    )


class _Former:
    """The owners of before that are still there: of each segment, or else of its parents."""

    def __init__(
        self, segments: Sequence[Segment], consumers: Sequence[str], before: Assigned
    ) -> None:
        present = set(consumers)
        owners: dict[int, list[str]] = {}
        for each in before:
            if each.consumer_name in present:
                for segment_id in each.segments:
                    owners.setdefault(segment_id, []).append(each.consumer_name)
        self.kept: dict[int, list[str]] = {}
        self.inherited: dict[int, list[str]] = {}
        for segment in segments:
            segment_id = segment.segment_id
            former = owners.get(segment_id)
            if former is not None:
                self.kept[segment_id] = former
            elif segment.parents:
                of_parents = chain.from_iterable([owners.get(each, ()) for each in segment.parents])
                self.inherited[segment_id] = list(dict.fromkeys(of_parents))


def _spread(segments: Sequence[Segment], names: Sequence[str], former: _Former) -> _Owners:
    """Give each segment one owner; no consumer has two more than another."""
    if not names:
        return {each.segment_id: () for each in segments}
    room = _fill(
        len(segments),
        dict.fromkeys(names, len(segments)),
        Counter(chain.from_iterable(former.kept.values())),
        Counter(chain.from_iterable(former.inherited.values())),
    )
    owners: dict[int, Sequence[str]] = {}
    left = {**room}
    for wanted in (former.kept, former.inherited):
        for segment_id, candidates in wanted.items():
            for name in candidates:
                if left[name] and segment_id not in owners:
                    owners[segment_id] = (name,)
                    left[name] -= 1
    turns = [(room[name] - left[name], place) for place, name in enumerate(names) if left[name]]
    heapify(turns)
    for segment in segments:
        if segment.segment_id not in owners:
            count, place = heappop(turns)
            name = names[place]
            owners[segment.segment_id] = (name,)
            left[name] -= 1
            if left[name]:
                heappush(turns, (count + 1, place))
    return owners


def _shared(
    segments: Sequence[Segment], names: Sequence[str], former: _Former, *, may_share: bool
) -> _Owners:
    """Give each consumer one segment at most; there are more consumers than segments."""
    places = {each.segment_id: each.bucket_count if may_share else 1 for each in segments}
    places = _fill(
        min(len(names), sum(places.values())),
        places,
        Counter({segment_id: len(owners) for segment_id, owners in former.kept.items()}),
        Counter({segment_id: len(owners) for segment_id, owners in former.inherited.items()}),
    )
    placed: set[str] = set()
    owners: dict[int, list[str]] = {segment_id: [] for segment_id in places}
    for wanted in (former.kept, former.inherited):
        for segment_id, candidates in wanted.items():
            for name in candidates:
                if name not in placed and len(owners[segment_id]) < places[segment_id]:
                    owners[segment_id].append(name)
                    placed.add(name)
    waiting = iter([name for name in names if name not in placed])
    for segment_id, count in places.items():
        while len(owners[segment_id]) < count:
            owners[segment_id].append(next(waiting))
    return owners


def _fill(
    total: int, most: Mapping[_Key, int], kept: Mapping[_Key, int], inherited: Mapping[_Key, int]
) -> dict[_Key, int]:
    """Divide ``total`` evenly, giving nobody more than ``most``.

    What cannot be divided goes to those that keep more for it, then to those that had most.
    """
    level, left = _level(total, most.values())
    ranked = sorted(
        [key for key, limit in most.items() if limit > level],
        key=lambda key: (kept.get(key, 0) <= level, -kept.get(key, 0) - inherited.get(key, 0)),
    )
    more = set(ranked[:left])
    return {key: min(limit, level) + (key in more) for key, limit in most.items()}


def _level(total: int, limits: Iterable[int]) -> tuple[int, int]:
    """Return what everybody gets up to his limit, and how much of ``total`` is left then."""
    ascending = sorted(limits)
    left = total
    for place, limit in enumerate(ascending):
        level, rest = divmod(left, len(ascending) - place)
        if limit > level:
            return level, rest
        left -= limit
    return max(ascending, default=0), 0
