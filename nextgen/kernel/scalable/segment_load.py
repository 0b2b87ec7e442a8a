"""The load of a segment as it is recorded: its rates, and since when it is cold.

A rate is written when it moved by more than a quarter of what was written last, when it becomes or
stops being zero, and when it crosses a threshold of the policy. So a record is never on another
side of a threshold than the traffic, and a steady load writes nothing (finding 3 of PIP-483's
review).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.placement import LOAD_RATE_MAX
from nextgen.kernel.limits.scalable import AUTO_SCALE_CLOCK_LEAP_MS, SEGMENT_LOAD_CHANGE


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """Times are those of the clock of the topic's shard; ``cold_since_ms`` 0: it is not cold."""

    segment_id: int
    rates: Rates
    recorded_at_ms: int
    cold_since_ms: int = 0


def in_order(rates: Rates) -> tuple[float, float, float, float]:
    """Return the rates in the order of the policy's thresholds."""
    return rates.messages_in, rates.messages_out, rates.bytes_in, rates.bytes_out


def refused_rates(rates: Rates) -> str:
    """Return why no segment has these rates, "" if one may."""
    if (
        0 <= rates.messages_in <= LOAD_RATE_MAX
        and 0 <= rates.messages_out <= LOAD_RATE_MAX
        and 0 <= rates.bytes_in <= LOAD_RATE_MAX
        and 0 <= rates.bytes_out <= LOAD_RATE_MAX
    ):
        return ""  # NaN is not between any numbers.
    name, rate = next(
        (name, rate) for name, rate in rates.named() if not 0 <= rate <= LOAD_RATE_MAX
    )
    return f"{name} of {rate} cannot be"


def is_cold(rates: Rates, policy: AutoScalePolicy) -> bool:
    """Return whether all four rates are below the policy's thresholds for a merge."""
    # Written out, like the next one: a leader asks it of every segment of a topic.
    return (
        rates.messages_in < policy.merge_msg_rate_in_threshold
        and rates.messages_out < policy.merge_msg_rate_out_threshold
        and rates.bytes_in < policy.merge_bytes_rate_in_threshold
        and rates.bytes_out < policy.merge_bytes_rate_out_threshold
    )


def is_material(
    written: Rates | None,
    rates: Rates,
    policy: AutoScalePolicy,
    change: float = SEGMENT_LOAD_CHANGE,
) -> bool:
    """Return whether ``rates`` are to be written behind ``written``; None: there is no record.

    ``change`` is the part of a written rate by which it has to move.
    """
    if written is None:
        return True
    floor = policy.split_vs_rebucket_min_msg_rate_in_threshold
    if (rates.messages_in >= floor) is not (written.messages_in >= floor):
        return True
    return any(
        abs(now - then) > change * then
        or (now > split) is not (then > split)
        or (now < merge) is not (then < merge)
        for then, now, split, merge in zip(
            in_order(written),
            in_order(rates),
            policy.split_thresholds,
            policy.merge_thresholds,
            strict=True,
        )
    )


def cold_since(
    before: SegmentLoad | None,
    rates: Rates,
    policy: AutoScalePolicy,
    now_ms: int,
    leapt_at_ms: int = 0,
) -> int:
    """Return since when a segment with ``rates`` is cold, 0 if it is not.

    A time of a clock that leapt does not count, so the segment is cold from now on: one that is far
    ahead of the clock, or from before ``leapt_at_ms``, when the clock leapt.
    """
    if not is_cold(rates, policy):
        return 0
    since_ms = 0 if before is None else before.cold_since_ms
    is_kept = since_ms and leapt_at_ms <= since_ms and is_believed(since_ms, now_ms)
    return since_ms if is_kept else now_ms


def is_believed(time_ms: int, now_ms: int) -> bool:
    """Return whether a recorded time may come from a clock like the one that shows ``now_ms``."""
    return time_ms <= now_ms + AUTO_SCALE_CLOCK_LEAP_MS


def newly_recorded(
    active: Iterable[int],
    known: Mapping[int, SegmentLoad],
    samples: Mapping[int, Rates],
    policy: AutoScalePolicy,
    now_ms: int,
    leapt_at_ms: int = 0,
    *,
    change: float = SEGMENT_LOAD_CHANGE,
) -> list[SegmentLoad]:
    """Return what is to be recorded of ``samples``, in the order of ``active``: ids of segments.

    ``change`` is the part of a recorded rate by which it has to move.

    A segment is recorded again, too, if the time since which it is cold is another one: the policy
    was changed, or its time is that of a clock that leapt (``cold_since``).
    """
    loads = []
    for number in active:
        last = known.get(number)
        rates = samples.get(number)
        written = None if last is None else last.rates
        if rates is None or not is_material(written, rates, policy, change):
            if last is None:
                continue
            rates = last.rates
            if cold_since(last, rates, policy, now_ms, leapt_at_ms) == last.cold_since_ms:
                continue
        since_ms = cold_since(last, rates, policy, now_ms, leapt_at_ms)
        loads.append(SegmentLoad(number, rates, now_ms, since_ms))
    return loads
