"""Whether a scalable topic is to be split, merged or given other entry buckets: one pure decision.

    consumers   more consumers than segments ─▶ split the busiest, or give buckets to share by
    load        a rate above its threshold   ─▶ split the segment that is furthest above
    merge       two neighbours that are cold ─▶ merge the coldest pair

The first of these lanes that has an action has it alone. The others, and those that do nothing, say
why. Rules and names are those of PIP-483 and PIP-486 as of Pulsar 5.0. One is added: a pair is not
merged if what comes of it would be split again (ADR 0135).

The arguments are all that is looked at, so a recorded history gives the same decisions again. A
decision holds until its arguments change, or until ``again_at_ms``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.scalable import BUCKETS_PER_SEGMENT_MAX
from nextgen.kernel.scalable.segment_load import (
    SegmentLoad,
    in_order,
    is_believed,
    is_cold,
    refused_rates,
)
from nextgen.kernel.scalable.segments import Segment


class ActionKind(StrEnum):
    """The texts are stored: they never change."""

    SPLIT = "split"
    MERGE = "merge"
    REBUCKET = "rebucket"


class Reason(StrEnum):
    """Why a lane acts, or does not. The texts are stored: they never change."""

    # Of actions.
    CONSUMER_COUNT = "consumer-count"
    MSG_RATE_IN = "msgRateIn"
    MSG_RATE_OUT = "msgRateOut"
    BYTES_RATE_IN = "bytesRateIn"
    BYTES_RATE_OUT = "bytesRateOut"
    COLD = "cold"
    AT_MAX_SEGMENTS = "at-max-segments"
    BELOW_SPLIT_RATE_FLOOR = "below-split-rate-floor"

    # Of doing nothing. Those of a pair are in the order in which a pair passes them.
    NOT_REACHED = "not-reached"
    DISABLED = "disabled"
    CLASSIC_TOPIC = "classic-topic"
    ENOUGH_SEGMENTS = "enough-segments"
    ENOUGH_BUCKETS = "enough-buckets"
    MAX_BUCKETS = "max-buckets"
    SPLIT_COOLDOWN = "split-cooldown"
    REBUCKET_COOLDOWN = "rebucket-cooldown"
    MERGE_COOLDOWN = "merge-cooldown"
    NOTHING_HOT = "nothing-hot"
    AT_MIN_SEGMENTS = "at-min-segments"
    NOT_COLD = "not-cold"
    MAX_DAG_DEPTH = "max-dag-depth"
    MERGE_WINDOW = "merge-window"
    BUCKETS_IN_USE = "buckets-in-use"
    WOULD_SPLIT_AGAIN = "would-split-again"


_METRICS = (
    Reason.MSG_RATE_IN,
    Reason.MSG_RATE_OUT,
    Reason.BYTES_RATE_IN,
    Reason.BYTES_RATE_OUT,
)
_OF_PAIRS = (
    Reason.NOT_COLD,
    Reason.MAX_DAG_DEPTH,
    Reason.MERGE_WINDOW,
    Reason.BUCKETS_IN_USE,
    Reason.WOULD_SPLIT_AGAIN,
)


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """Registered consumers of the largest subscription: of any type, and of those whose consumers
    can share a segment by entry buckets."""

    consumers: int = 0
    sharing: int = 0


def group_sizes(groups: Iterable[tuple[bool, Mapping[str, bool]]]) -> GroupSizes:
    """Return the sizes of the largest of ``groups``.

    Each is whether its subscription is of the type STREAM, and its registered consumers: by name,
    whether each takes entry buckets.
    """
    consumers = sharing = 0
    for is_stream, members in groups:
        count = len(members)
        consumers = max(consumers, count)
        if is_stream and count > sharing and all(members.values()):
            sharing = count
    return GroupSizes(consumers, sharing)


@dataclass(frozen=True, slots=True)
class ScaleClocks:
    """When an operation of each kind was committed last, by hand or not; 0: never."""

    split_at_ms: int = 0
    merge_at_ms: int = 0
    rebucket_at_ms: int = 0


NEVER_CHANGED: Final = ScaleClocks()
_IDLE: Final = Rates()


@dataclass(frozen=True, slots=True)
class Action:
    """``segments`` in the order of the operation; ``buckets`` of ``REBUCKET`` alone."""

    kind: ActionKind
    segments: tuple[int, ...]
    reason: Reason
    buckets: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """One action at most. ``again_at_ms``: when it may be another one by time alone; 0: never."""

    action: Action | None
    consumers: Reason
    load: Reason = Reason.NOT_REACHED
    merge: Reason = Reason.NOT_REACHED
    again_at_ms: int = 0


def decide(
    segments: Sequence[Segment],
    loads: Mapping[int, SegmentLoad],
    groups: GroupSizes,
    policy: AutoScalePolicy,
    clocks: ScaleClocks,
    now_ms: int,
) -> Decision:
    """Return what is to be done with a topic of ``segments``, sealed ones included."""
    active = sorted(
        [each for each in segments if not each.is_sealed],
        key=lambda each: (each.hash_start, each.hash_end, each.segment_id),
    )
    if not policy.enabled:
        return Decision(None, Reason.DISABLED, Reason.DISABLED, Reason.DISABLED)
    if any(each.legacy_topic_name for each in active):
        classic = Reason.CLASSIC_TOPIC
        return Decision(None, classic, classic, classic)
    return _Look(active, loads, groups, policy, clocks, now_ms).decide()


@dataclass
class _Look:
    """One decision. ``edges`` are the times at which what holds a lane back by time is over."""

    active: Sequence[Segment]
    loads: Mapping[int, SegmentLoad]
    groups: GroupSizes
    policy: AutoScalePolicy
    clocks: ScaleClocks
    now_ms: int
    edges: list[int] = field(default_factory=list)
    rates: dict[int, Rates] = field(init=False)
    """By segment: the recorded rates, zeros if there are none, or none that can be."""

    def __post_init__(self) -> None:
        # Once for each segment: lanes ask for them several times, and of all segments.
        self.rates = {each.segment_id: self._recorded(each) for each in self.active}

    def decide(self) -> Decision:
        consumers = self._scale_with_consumers()
        if isinstance(consumers, Action):
            return Decision(consumers, consumers.reason)
        load = self._split_by_load()
        if isinstance(load, Action):
            return Decision(load, consumers, load.reason)
        merge = self._merge()
        if isinstance(merge, Action):
            return Decision(merge, consumers, load, merge.reason)
        return Decision(None, consumers, load, merge, min(self.edges, default=0))

    # Consumers --------------------------------------------------------------------------------

    def _scale_with_consumers(self) -> Action | Reason:
        present, policy = len(self.active), self.policy
        if self.groups.consumers <= present:
            return Reason.ENOUGH_SEGMENTS
        has_room = present < policy.max_segments
        busiest = max(self._splittable(), key=self._business, default=None)
        floor = policy.split_vs_rebucket_min_msg_rate_in_threshold
        if has_room and busiest is not None and self._busy(busiest) >= floor:
            if self._is_cooling(self.clocks.split_at_ms, policy.split_cooldown_seconds):
                return Reason.SPLIT_COOLDOWN
            return Action(ActionKind.SPLIT, (busiest.segment_id,), Reason.CONSUMER_COUNT)
        return self._rebucket(Reason.BELOW_SPLIT_RATE_FLOOR if has_room else Reason.AT_MAX_SEGMENTS)

    def _rebucket(self, reason: Reason) -> Action | Reason:
        sharing, present = self.groups.sharing, len(self.active)
        if sharing <= sum(each.bucket_count for each in self.active):
            return Reason.ENOUGH_BUCKETS
        wanted = 1 << (-(-sharing // present) - 1).bit_length()
        target = min(wanted, BUCKETS_PER_SEGMENT_MAX)
        below = sorted(each.segment_id for each in self.active if each.bucket_count < target)
        if not below:
            return Reason.MAX_BUCKETS
        if self._is_cooling(self.clocks.rebucket_at_ms, self.policy.rebucket_cooldown_seconds):
            return Reason.REBUCKET_COOLDOWN
        return Action(ActionKind.REBUCKET, tuple(below), reason, target)

    # Load -------------------------------------------------------------------------------------

    def _split_by_load(self) -> Action | Reason:
        if len(self.active) >= self.policy.max_segments:
            return Reason.AT_MAX_SEGMENTS
        scores = [
            (self._score(self.rates[each.segment_id]), each.segment_id)
            for each in self._splittable()
            if self._is_above(self.rates[each.segment_id])
        ]
        if not scores:
            return Reason.NOTHING_HOT
        (score, reason), hottest = max(scores, key=lambda each: (each[0][0], -each[1]))
        if score <= 1:
            return Reason.NOTHING_HOT
        if self._is_cooling(self.clocks.split_at_ms, self.policy.split_cooldown_seconds):
            return Reason.SPLIT_COOLDOWN
        return Action(ActionKind.SPLIT, (hottest,), reason)

    def _is_above(self, rates: Rates) -> bool:
        """Whether a rate is above its threshold: most are not, and need no score."""
        policy = self.policy
        return (
            rates.messages_in > policy.split_msg_rate_in_threshold
            or rates.messages_out > policy.split_msg_rate_out_threshold
            or rates.bytes_in > policy.split_bytes_rate_in_threshold
            or rates.bytes_out > policy.split_bytes_rate_out_threshold
        )

    def _score(self, rates: Rates) -> tuple[float, Reason]:
        """Return the largest part of a threshold that a rate is, and which rate that is."""
        policy = self.policy
        parts = (
            rates.messages_in / policy.split_msg_rate_in_threshold,
            rates.messages_out / policy.split_msg_rate_out_threshold,
            rates.bytes_in / policy.split_bytes_rate_in_threshold,
            rates.bytes_out / policy.split_bytes_rate_out_threshold,
        )
        score = max(parts)
        return score, _METRICS[parts.index(score)]

    # Merging ----------------------------------------------------------------------------------

    def _merge(self) -> Action | Reason:
        if len(self.active) <= self.policy.min_segments:
            return Reason.AT_MIN_SEGMENTS
        if self._is_cooling(self.clocks.merge_at_ms, self.policy.merge_cooldown_seconds):
            return Reason.MERGE_COOLDOWN
        furthest = -1
        coldest: tuple[float, int, int] | None = None
        over_at = [self._cold_at(each) for each in self.active]
        for first, second, *both_at in zip(
            self.active, self.active[1:], over_at, over_at[1:], strict=False
        ):
            held = self._held_back(first, second, *both_at)
            if held is not None:
                furthest = max(furthest, _OF_PAIRS.index(held))
                continue
            first_id, second_id = first.segment_id, second.segment_id
            both = (*in_order(self.rates[first_id]), *in_order(self.rates[second_id]))
            pair = (sum(both), first_id, second_id)
            coldest = pair if coldest is None else min(coldest, pair)
        if coldest is None:
            return _OF_PAIRS[furthest]
        return Action(ActionKind.MERGE, coldest[1:], Reason.COLD)

    def _cold_at(self, segment: Segment) -> int | None:
        """Return when a segment has been cold for the whole window, None if it is not cold."""
        load = self.loads.get(segment.segment_id)
        if load is None or not is_cold(load.rates, self.policy) or refused_rates(load.rates):
            return None
        since_ms = load.cold_since_ms
        if not since_ms or not is_believed(since_ms, self.now_ms):
            return None
        return since_ms + 1_000 * self.policy.merge_window_seconds

    def _held_back(
        self, first: Segment, second: Segment, first_at: int | None, second_at: int | None
    ) -> Reason | None:
        """Return why two neighbours are not merged, None if they may be.

        ``first_at`` and ``second_at`` are as of ``_cold_at``.
        """
        if first_at is None or second_at is None:
            return Reason.NOT_COLD
        if max(first.merge_depth, second.merge_depth) >= self.policy.max_dag_depth:
            return Reason.MAX_DAG_DEPTH
        over_at = max(first_at, second_at)
        if over_at > self.now_ms:
            self.edges.append(over_at)
            return Reason.MERGE_WINDOW
        if self._needs_buckets(first, second):
            return Reason.BUCKETS_IN_USE
        if self._would_split_again(first, second):
            return Reason.WOULD_SPLIT_AGAIN
        return None

    def _needs_buckets(self, first: Segment, second: Segment) -> bool:
        """Whether consumers share by buckets that the merged segment would not have."""
        present = sum(each.bucket_count for each in self.active)
        of_pair = first.bucket_count + second.bucket_count
        left = present - of_pair + min(of_pair, BUCKETS_PER_SEGMENT_MAX)
        return left < min(self.groups.sharing, present)

    def _would_split_again(self, first: Segment, second: Segment) -> bool:
        """Whether the same traffic would have the merged segment, or another one, split."""
        both = (self.rates[first.segment_id], self.rates[second.segment_id])
        merged = Rates(*(one + other for one, other in zip(*map(in_order, both), strict=True)))
        if self._score(merged)[0] > 1:
            return True
        if self.groups.consumers < len(self.active):
            return False
        pair = (first.segment_id, second.segment_id)
        left = [self._busy(each) for each in self._splittable() if each.segment_id not in pair]
        busiest = max([merged.messages_in, *left])
        return busiest >= self.policy.split_vs_rebucket_min_msg_rate_in_threshold

    # ------------------------------------------------------------------------------------------

    def _recorded(self, segment: Segment) -> Rates:
        load = self.loads.get(segment.segment_id)
        return _IDLE if load is None or refused_rates(load.rates) else load.rates

    def _busy(self, segment: Segment) -> float:
        return self.rates[segment.segment_id].messages_in

    def _business(self, segment: Segment) -> tuple[float, int]:
        return self._busy(segment), -segment.segment_id

    def _splittable(self) -> Iterator[Segment]:
        return (each for each in self.active if each.hash_end > each.hash_start)

    def _is_cooling(self, last_at_ms: int, cooldown_seconds: int) -> bool:
        if not last_at_ms or not is_believed(last_at_ms, self.now_ms):
            return False
        over_at = last_at_ms + 1_000 * cooldown_seconds
        if over_at <= self.now_ms:
            return False
        self.edges.append(over_at)
        return True
