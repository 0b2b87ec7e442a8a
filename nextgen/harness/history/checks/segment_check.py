"""Checks the layouts of scalable topics and who consumes which segments, by the log.

Active ranges tile the space of hashes. Each segment that a stream or checkpoint group may read has
exactly one consumer, or several that share it by entry buckets. A drained segment has none, nor has
one of a stream with anything before it that is not drained. The record of a change has the
assignments behind it, so whatever comes next finds each group complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nextgen.audit.verdict import Finding, FindingKind
from nextgen.harness.history.log_fold import LogIndex
from nextgen.harness.history.model import LogEvent
from nextgen.kernel.scalable.ranges import HashRange, are_tiling

CHECK = "segments"

_ASSIGNED = "segments_assigned"
_RESTORED = "scalable_topic_restored"
_BIRTHS = ("scalable_topic_created", _RESTORED)


@dataclass(slots=True)
class _Segment:
    hash_range: HashRange
    is_sealed: bool
    parents: frozenset[int]
    buckets: int


@dataclass(slots=True)
class _Group:
    name: str
    type: str
    consumers: dict[str, bool] = field(default_factory=dict)
    """By name: whether it takes buckets."""
    drained: set[int] = field(default_factory=set)
    owners: dict[int, list[str]] = field(default_factory=dict)
    shared: frozenset[int] = frozenset()

    @property
    def may_share(self) -> bool:
        return self.type == "stream" and all(self.consumers.values())


@dataclass(slots=True)
class _Topic:
    name: str
    shard: int
    epoch: int = 0
    segments: dict[int, _Segment] = field(default_factory=dict)
    groups: dict[str, _Group] = field(default_factory=dict)
    unchecked: dict[str, LogEvent] = field(default_factory=dict)
    """Groups that changed since they were checked, with the event that changed them."""


def check_segments(index: LogIndex) -> Iterator[Finding]:
    """Fold the events of every scalable topic and check each state. A topic whose creation is not
    in the log is left out."""
    for events in index.folded():
        topics: dict[str, _Topic] = {}
        for event in events:
            if event.type in _BIRTHS:
                topics[event.key] = _Topic(event.key, event.shard)
            elif event.type == "scalable_topic_deleted":
                topics.pop(event.key, None)
            topic = topics.get(event.key) if event.facts else None
            if topic is None:
                continue
            if event.type != _ASSIGNED:
                yield from _check_unchecked(topic)
            yield from _apply(topic, event)
        for topic in topics.values():
            yield from _check_unchecked(topic)


def _apply(topic: _Topic, event: LogEvent) -> Iterator[Finding]:
    facts: Mapping[str, Any] = event.facts
    if "segments" in facts:
        yield from _change_layout(topic, event, facts)
        return
    name = facts.get("subscription")
    if name is None:
        return
    if event.type == "scalable_subscription_created":
        topic.groups[name] = _Group(name, facts["type"])
    elif event.type == "scalable_subscription_deleted":
        topic.groups.pop(name, None)
        topic.unchecked.pop(name, None)
    group = topic.groups.get(name)
    if group is None:
        return
    _change_group(group, event, facts)
    topic.unchecked[name] = event
    if event.type == _ASSIGNED:
        yield from _check_group(topic, group, topic.unchecked.pop(name))


def _change_layout(topic: _Topic, event: LogEvent, facts: Mapping[str, Any]) -> Iterator[Finding]:
    for each in facts["segments"]:
        within = HashRange(each["start"], each["end"])
        parents = frozenset(each["parents"])
        topic.segments[each["id"]] = _Segment(within, each["sealed"], parents, each["buckets"])
    for segment_id in facts["removed"]:
        topic.segments.pop(segment_id, None)
        for group in topic.groups.values():
            group.drained.discard(segment_id)
    topic.unchecked.update(dict.fromkeys(topic.groups, event))
    expected = 0 if event.type in _BIRTHS else topic.epoch + 1
    topic.epoch = event.epoch
    if event.epoch != expected and event.type != _RESTORED:
        message = f"{topic.name} came to layout epoch {event.epoch} instead of {expected}"
        yield _finding(FindingKind.VIOLATION, message, topic, event)
    active = [each.hash_range for each in topic.segments.values() if not each.is_sealed]
    if not are_tiling(active):
        message = f"the active segments of {topic.name} do not tile the hashes: {_shown(active)}"
        yield _finding(FindingKind.VIOLATION, message, topic, event)


def _change_group(group: _Group, event: LogEvent, facts: Mapping[str, Any]) -> None:
    match event.type:
        case "scalable_subscription_sought":
            group.drained.clear()
        case "scalable_subscription_deletion_started":
            group.consumers.clear()
            group.owners.clear()
        case "segment_drained":
            group.drained.add(facts["segment"])
        case "scalable_consumer_registered":
            group.consumers[facts["consumer"]] = facts["takes_buckets"]
        case "scalable_consumer_left":
            group.consumers.pop(facts["consumer"], None)
        case "segments_assigned":
            group.owners = {}
            for consumer, segments in facts["assigned"].items():
                for segment_id in segments:
                    group.owners.setdefault(segment_id, []).append(consumer)
            group.shared = frozenset(facts["shared"])


def _check_unchecked(topic: _Topic) -> Iterator[Finding]:
    for name, event in topic.unchecked.items():
        yield from _check_group(topic, topic.groups[name], event)
    topic.unchecked.clear()


def _check_group(topic: _Topic, group: _Group, event: LogEvent) -> Iterator[Finding]:
    for kind, message in _broken(topic, group):
        text = f"subscription {group.name} of {topic.name}: {message}"
        yield _finding(kind, text, topic, event)


def _broken(topic: _Topic, group: _Group) -> Iterator[tuple[FindingKind, str]]:
    readable = _readable(topic, group)
    for segment_id, owners in group.owners.items():
        segment = topic.segments.get(segment_id)
        strangers = sorted(set(owners) - group.consumers.keys())
        if segment is None:
            yield FindingKind.VIOLATION, f"{_shown(owners)} consume {segment_id}, which is gone"
            continue
        if strangers:
            message = f"{_shown(strangers)} consume segment {segment_id} and are not registered"
            yield FindingKind.VIOLATION, message
        if segment_id not in readable:
            is_drained = segment_id in group.drained
            why = "is drained" if is_drained else "has undrained segments before it"
            yield FindingKind.VIOLATION, f"{_shown(owners)} consume {segment_id}, which {why}"
        if len(owners) > 1:
            yield from _broken_sharing(group, segment_id, segment, owners)
    if group.consumers:
        for segment_id in sorted(readable - group.owners.keys()):
            yield FindingKind.VIOLATION, f"nobody consumes segment {segment_id}"


def _broken_sharing(
    group: _Group, segment_id: int, segment: _Segment, owners: Iterable[str]
) -> Iterator[tuple[FindingKind, str]]:
    counts = Counter(owners)
    if segment_id not in group.shared or not group.may_share or max(counts.values()) > 1:
        message = f"segment {segment_id} has several consumers: {_shown(owners)}"
        yield FindingKind.OWNER_OVERLAP, message
    elif len(counts) > segment.buckets:
        message = f"segment {segment_id} has {segment.buckets} buckets and {len(counts)} consumers"
        yield FindingKind.OWNER_OVERLAP, message


def _readable(topic: _Topic, group: _Group) -> set[int]:
    """Return the segments that consumers are to have: of a stream those that all before it in the
    layout are drained."""
    held_back: set[int] = set()
    if group.type == "stream":
        for segment_id, segment in sorted(topic.segments.items()):
            if segment.parents - group.drained or segment.parents & held_back:
                held_back.add(segment_id)
    return topic.segments.keys() - group.drained - held_back


def _shown(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _finding(kind: FindingKind, message: str, topic: _Topic, event: LogEvent) -> Finding:
    return Finding(kind, CHECK, message, topic.name, topic.shard, events=(event.name,))
