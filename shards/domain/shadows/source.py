"""A topic that shadows were created of: which shards have gates of it, and what holds it up.

Kept in the home shard of the source, beside the topic; other topics have none. A shard is recorded
before it opens its gate, so an order to all recorded shards reaches every shadow that there is.

A hold says what has been begun and is not done in all these shards: the deletion of the source, or
its growth. Whoever needs the source next finishes a growth that was broken off, and gives a
deletion up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode

EVERY_SHARD = 0
"""Recorded by a restore, which does not know the shards of the shadows that it brings."""


@dataclass(frozen=True, slots=True)
class RecordShadowShard:
    """``shard_id`` is about to open a gate of this source; ``EVERY_SHARD``: all may have one."""

    name: str
    topic_id: str
    shard_id: int


@dataclass(frozen=True, slots=True)
class HoldSource:
    """Something is begun in all shards: a deletion, or a growth to ``growing_to`` partitions.

    With neither, nothing is under way any more.
    """

    name: str
    topic_id: str
    is_deleting: bool = False
    growing_to: int = 0


@dataclass(frozen=True, slots=True)
class RemoveSource:
    """The topic goes, in the same record."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class ShadowSourceCreated:
    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class ShadowShardRecorded:
    name: str
    topic_id: str
    shard_id: int


@dataclass(frozen=True, slots=True)
class ShadowSourceHeld:
    """Replaces the hold before; with neither there is none."""

    name: str
    topic_id: str
    is_deleting: bool
    growing_to: int


@dataclass(frozen=True, slots=True)
class ShadowSourceRemoved:
    name: str
    topic_id: str


ShadowSourceCommand = RecordShadowShard | HoldSource | RemoveSource
ShadowSourceEvent = (
    ShadowSourceCreated | ShadowShardRecorded | ShadowSourceHeld | ShadowSourceRemoved
)


@dataclass(frozen=True, slots=True)
class ShadowSource:
    """State of a source. ``shards`` ascend; ``EVERY_SHARD`` stands for all of them."""

    name: str
    topic_id: str
    shards: tuple[int, ...] = ()
    is_deleting: bool = False
    growing_to: int = 0

    @property
    def is_held(self) -> bool:
        return self.is_deleting or self.growing_to > 0


ShadowSourceState = ShadowSource | None
INITIAL: ShadowSourceState = None


def decide(
    source: ShadowSourceState, command: ShadowSourceCommand
) -> Accepted[ShadowSourceEvent] | Rejected:
    """Decide what ``command`` means for ``source``."""
    match command:
        case RecordShadowShard():
            return _decide_record(source, command)
        case HoldSource():
            return _decide_hold(source, command)
        case RemoveSource():
            if source is None or source.topic_id != command.topic_id:
                return Accepted(())
            return Accepted((ShadowSourceRemoved(command.name, command.topic_id),))
        case _:
            assert_never(command)


def evolve(source: ShadowSourceState, event: ShadowSourceEvent) -> ShadowSourceState:
    """Return ``source`` as it is after ``event``."""
    match event:
        case ShadowSourceCreated():
            return ShadowSource(event.name, event.topic_id)
        case ShadowShardRecorded():
            assert source is not None, f"a shard for {event.name}, of which there is no record"
            return replace(source, shards=tuple(sorted({*source.shards, event.shard_id})))
        case ShadowSourceHeld():
            assert source is not None, f"a hold of {event.name}, of which there is no record"
            return replace(source, is_deleting=event.is_deleting, growing_to=event.growing_to)
        case ShadowSourceRemoved():
            return None
        case _:
            assert_never(event)


def _decide_record(
    source: ShadowSourceState, command: RecordShadowShard
) -> Accepted[ShadowSourceEvent] | Rejected:
    recorded = ShadowShardRecorded(command.name, command.topic_id, command.shard_id)
    if source is None:
        return Accepted((ShadowSourceCreated(command.name, command.topic_id), recorded))
    if source.topic_id != command.topic_id:
        return _another(command.name)
    if command.shard_id in source.shards or EVERY_SHARD in source.shards:
        return Accepted(())
    return Accepted((recorded,))


def _decide_hold(
    source: ShadowSourceState, command: HoldSource
) -> Accepted[ShadowSourceEvent] | Rejected:
    if source is None or source.topic_id != command.topic_id:
        return _another(command.name)
    if (source.is_deleting, source.growing_to) == (command.is_deleting, command.growing_to):
        return Accepted(())
    held = ShadowSourceHeld(command.name, command.topic_id, command.is_deleting, command.growing_to)
    return Accepted((held,))


def _another(name: str) -> Rejected:
    return Rejected(RejectionCode.NOT_FOUND, f"topic {name} is not the one that has shadows")
