"""Histories of scalable topics, a right one and those in which a promise is broken once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nextgen.kernel.scalable.segments import SegmentEnd
from protos.nextgen.v1 import events_pb2 as e
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    MarkChildrenReady,
    PlanLayoutChange,
    PruneSegments,
    RemoveSegmentStorage,
    SealSegment,
)
from shards.domain.scalable.vocabulary import ChangeKind
from tests.support.spark.broken.log_breakages import LogBreakage, Named
from tests.support.spark.histories import History

SCALED = "topic://acme/orders/scaled"
BACK = "topic://acme/orders/back"


def tell_layouts(history: History) -> None:
    """Tell of a topic that is split, merged and pruned, and of one of a backup."""
    history.create_scalable(SCALED)
    history.assign(SCALED, "broker-1", "s0")
    _plan(history, ChangeKind.SPLIT, 0)
    for unit in ("s1", "s2"):
        history.assign(SCALED, "broker-2", unit)
    _finish(history, SCALED)
    _plan(history, ChangeKind.REBUCKET, 1)
    history.assign(SCALED, "broker-1", "s3")
    history.change_layout(SCALED, AbandonLayoutChange(2, "asked"))
    history.unassign(SCALED, "s3", "segment_removed")
    history.change_layout(SCALED, RemoveSegmentStorage(3))
    _plan(history, ChangeKind.MERGE, 1, 2)
    _finish(history, SCALED)
    history.change_layout(SCALED, PruneSegments((0,)))
    history.restore_scalable(BACK, history.layouts[SCALED])
    _finish(history, BACK)
    history.create_scalable(f"{SCALED}-gone", 3)
    history.delete_topic(f"{SCALED}-gone")


def _plan(history: History, kind: ChangeKind, *segments: int) -> Any:
    buckets = 3 if kind is ChangeKind.REBUCKET else 0
    command = PlanLayoutChange(kind, segments, history.now_ms, buckets)
    (planned,) = history.change_layout(SCALED, command)
    return planned


def _finish(history: History, name: str) -> Any:
    """Carry on an operation to its end; return that event."""
    operation = history.layouts[name].operation
    assert operation is not None
    number, end = operation.operation_id, SegmentEnd(3, 7)
    history.change_layout(name, MarkChildrenReady(number, ()))
    events = []
    for parent in operation.parents:
        events = history.change_layout(name, SealSegment(number, parent, end, history.now_ms))
    return events[-1]


def _created(history: History) -> Any:
    """Create the topic; return the event of its layout."""
    history.create_scalable(SCALED)
    return history.logs[history.home(SCALED)][-1]


def _split(history: History) -> Any:
    _plan(history, ChangeKind.SPLIT, 0)
    return _finish(history, SCALED)


def _epoch_jumps(history: History) -> Named:
    created, changed = _created(history), _split(history)
    changed.layout_changed.epoch += 1
    return changed, created


def _a_hash_without_a_segment(history: History) -> Named:
    _created(history)
    changed = _split(history)
    changed.layout_changed.changed[2].hash_end -= 1
    return changed, None


def _a_hash_with_two_segments(history: History) -> Named:
    """A parent stays active beside its children."""
    _created(history)
    changed = _split(history)
    changed.layout_changed.changed[0].is_sealed = False
    return changed, None


def _an_active_segment_is_removed(history: History) -> Named:
    _created(history)
    _split(history)
    (pruned,) = history.change_layout(SCALED, PruneSegments((0,)))
    pruned.layout_changed.removed.append(1)
    return pruned, None


def _id_used_again(history: History) -> Named:
    created = _created(history)
    planned = _plan(history, ChangeKind.SPLIT, 0)
    planned.layout_change_planned.children[0].segment_id = 0
    return planned, created


def _segment_out_of_nowhere(history: History) -> Named:
    created, changed = _created(history), _split(history)
    changed.layout_changed.changed[2].segment_id = 9
    return changed, created


def _assigned_without_being_there(history: History) -> Named:
    _created(history)
    history.assign(SCALED, "broker-1", "s0")
    assigned = history.logs[history.home(SCALED)][-1]
    assigned.topic_assigned.unit = "s7"
    return assigned, None


def _assigned_behind_its_removal(history: History) -> Named:
    _created(history)
    _split(history)
    (pruned,) = history.change_layout(SCALED, PruneSegments((0,)))
    history.assign(SCALED, "broker-1", "s0")
    return history.logs[history.home(SCALED)][-1], pruned


def _assigned_behind_its_operation(history: History) -> Named:
    _created(history)
    _plan(history, ChangeKind.SPLIT, 0)
    (abandoned,) = history.change_layout(SCALED, AbandonLayoutChange(1, "asked"))
    history.assign(SCALED, "broker-1", "s1")
    return history.logs[history.home(SCALED)][-1], abandoned


def _two_operations(history: History) -> Named:
    _created(history)
    first = _plan(history, ChangeKind.SPLIT, 0)
    history.layouts[SCALED] = replace(history.layouts[SCALED], operation=None)
    return _plan(history, ChangeKind.REBUCKET, 0), first


def _operation_id_jumps(history: History) -> Named:
    created = _created(history)
    planned = _plan(history, ChangeKind.SPLIT, 0)
    planned.layout_change_planned.operation_id += 1
    return planned, created


def _step_of_nothing(history: History) -> Named:
    created = _created(history)
    ready = e.SegmentChildrenReady(name=SCALED, topic_id=history.ids[SCALED], operation_id=1)
    return history.add(history.home(SCALED), segment_children_ready=ready), created


def _step_behind_the_deletion(history: History) -> Named:
    _created(history)
    topic_id, home = history.ids[SCALED], history.home(SCALED)
    history.delete_topic(SCALED)
    deleted = history.logs[home][-1]
    removed = e.SegmentStorageRemoved(name=SCALED, topic_id=topic_id)
    return history.add(home, segment_storage_removed=removed), deleted


LAYOUT_BREAKAGES = (
    LogBreakage("layout_epoch", "an epoch of a layout that jumps", _epoch_jumps),
    LogBreakage("ranges_uneven", "a hash without a segment", _a_hash_without_a_segment),
    LogBreakage("ranges_uneven", "a hash with two segments", _a_hash_with_two_segments),
    LogBreakage("ranges_uneven", "a removed active segment", _an_active_segment_is_removed),
    LogBreakage("segment_id_again", "an id of a segment used again", _id_used_again),
    LogBreakage("unknown_segment", "a segment out of nowhere", _segment_out_of_nowhere),
    LogBreakage("unlisted_segment", "a segment never planned", _assigned_without_being_there),
    LogBreakage("unlisted_segment", "a segment that was pruned", _assigned_behind_its_removal),
    LogBreakage("unlisted_segment", "a child taken back", _assigned_behind_its_operation),
    LogBreakage("operation_beside_another", "two operations", _two_operations),
    LogBreakage("operation_id", "an operation that skips an id", _operation_id_jumps),
    LogBreakage("no_such_operation", "a step of nothing", _step_of_nothing),
    LogBreakage("not_there", "a step behind the deletion", _step_behind_the_deletion),
)
