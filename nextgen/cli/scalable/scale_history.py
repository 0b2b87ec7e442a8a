"""Why a scalable topic was split, merged or rebucketed by itself, as its log says.

Pure: events in, actions out; an action as the lines that ``why`` prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE
from protos.nextgen.v1.events_pb2 import AutoScaleDecided, Event

EVENTS = (
    "auto_scale_decided",
    "layout_changed",
    "layout_change_abandoned",
    "scalable_topic_created",
    "scalable_topic_restored",
)
"""Event types that are read from the topic's shard."""

_RULES = {
    "consumer-count": "there were more consumers than segments, and it was the busiest",
    "msgRateIn": "its messages in per second were above splitMsgRateInThreshold",
    "msgRateOut": "its messages out per second were above splitMsgRateOutThreshold",
    "bytesRateIn": "its bytes in per second were above splitBytesRateInThreshold",
    "bytesRateOut": "its bytes out per second were above splitBytesRateOutThreshold",
    "cold": "both were cold for mergeWindowSeconds, and the pair with the least traffic",
    "at-max-segments": "there were more consumers than buckets, and maxSegments segments",
    "below-split-rate-floor": "there were more consumers than buckets, and none was busy enough "
    "for a split (splitVsRebucketMinMsgRateInThreshold)",
}


@dataclass(frozen=True, slots=True)
class ScaleAction:
    """One operation that was begun by itself. ``outcome`` is ``committed``, ``taken back`` or
    ``under way``; ``epoch`` is that of the layout which it made."""

    time_ms: int
    shard_id: int
    position: int
    operation_id: int
    kind: str
    segments: tuple[int, ...]
    buckets: int
    reason: str
    rule: str
    consumers: int
    sharing: int
    rates: dict[int, dict[str, float]]
    cold_since_ms: dict[int, int]
    policy: dict[str, Any]
    policies_version: int
    clocks: dict[str, int]
    outcome: str = "under way"
    outcome_time_ms: int = 0
    epoch: int = 0


def actions_of(name: str, events: Iterable[Event]) -> list[ScaleAction]:
    """Return the actions on the topic that is called ``name`` at present, oldest first."""
    actions: dict[int, ScaleAction] = {}
    for event in events:
        payload = event.WhichOneof("payload") or ""
        change: Any = getattr(event, payload)
        if change.name != name:
            continue
        if payload in ("scalable_topic_created", "scalable_topic_restored"):
            actions.clear()  # What was before is about another topic of the same name.
        elif payload == "auto_scale_decided":
            actions[change.operation_id] = _action(event, change)
        elif change.operation_id in actions:
            action = actions[change.operation_id]
            is_committed = payload == "layout_changed"
            actions[change.operation_id] = replace(
                action,
                outcome="committed" if is_committed else "taken back",
                outcome_time_ms=event.time_ms,
                epoch=change.epoch if is_committed else 0,
            )
    return list(actions.values())


def lines(action: ScaleAction) -> Iterator[str]:
    """Yield an action for people: what, why, the numbers, and the policy where it is not
    Pulsar's default."""
    which = " and ".join(map(str, action.segments))
    what = f"{action.kind} of {which}"
    if action.buckets:
        what += f" to {action.buckets} buckets"
    yield f"{_time(action.time_ms)}  {action.shard_id}:{action.position:<8} {what}"
    yield f"{'':25}  because {action.rule}"
    for segment in action.segments:
        rates = action.rates.get(segment)
        if rates is None:
            yield f"{'':25}  segment {segment}: no load on record"
            continue
        numbers = ", ".join(f"{rates[key]:,.0f} {text}" for key, text in _RATES)
        since_ms = action.cold_since_ms.get(segment, 0)
        cold = f", cold since {_time(since_ms)}" if since_ms else ""
        yield f"{'':25}  segment {segment}: {numbers}{cold}"
    yield f"{'':25}  consumers {action.consumers}, who share segments {action.sharing}"
    default = json.loads(DEFAULT_AUTO_SCALE.text)
    own = {key: value for key, value in action.policy.items() if default.get(key) != value}
    policy = ", ".join(f"{key} {value}" for key, value in own.items())
    yield f"{'':25}  policy: {policy or 'all defaults'}"
    yield f"{'':25}  {_outcome(action)}"


_RATES = (
    ("messages_in", "msg/s in"),
    ("messages_out", "msg/s out"),
    ("bytes_in", "B/s in"),
    ("bytes_out", "B/s out"),
)


def _action(event: Event, why: AutoScaleDecided) -> ScaleAction:
    clocks = why.clocks
    return ScaleAction(
        time_ms=why.evaluated_at_ms,
        shard_id=event.shard_id,
        position=event.position,
        operation_id=why.operation_id,
        kind=why.kind,
        segments=tuple(why.segments),
        buckets=why.buckets,
        reason=why.reason,
        rule=_RULES.get(why.reason, why.reason),
        consumers=why.groups.consumers,
        sharing=why.groups.sharing,
        rates={
            each.segment_id: {key: getattr(each.rates, key) for key, _ in _RATES}
            for each in why.loads
        },
        cold_since_ms={each.segment_id: each.cold_since_ms for each in why.loads},
        policy=json.loads(why.policy or "{}"),
        policies_version=why.policies_version,
        clocks={
            "split_at_ms": clocks.split_at_ms,
            "merge_at_ms": clocks.merge_at_ms,
            "rebucket_at_ms": clocks.rebucket_at_ms,
        },
    )


def _outcome(action: ScaleAction) -> str:
    seconds = (action.outcome_time_ms - action.time_ms) / 1_000
    if action.outcome == "committed":
        return f"committed after {seconds:.3f} s as epoch {action.epoch}"
    if action.outcome == "taken back":
        return f"taken back after {seconds:.3f} s: no broker took over"
    return "under way"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
