"""Prints the layout of a scalable topic: its drawing, its segments and its subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

from nextgen.cli.console.output import counted, print_line, print_table
from nextgen.cli.scalable.drawing import draw_layout, listed, share_of
from nextgen.client.wire.layouts import SEGMENT
from nextgen.kernel.scalable.segments import Segment
from protos.nextgen.v1.layouts_pb2 import LayoutOperation, ScalableSubscription, ScalableTopic


def print_layout(
    layout: ScalableTopic,
    properties: Mapping[str, str],
    *,
    columns: int | None,
    epochs_max: int,
    has_signs: bool,
) -> None:
    """Print the whole of a layout. ``columns``: the width of the terminal, None if it has none."""
    segments = [SEGMENT.from_stored(each) for each in layout.segments]
    active = sum(not each.is_sealed for each in segments)
    print_line(layout.name, style="bold")
    print_line(
        f"epoch {layout.epoch}, {counted(active, 'active segment')}, "
        f"{len(segments) - active:,} sealed"
    )
    for key, value in sorted(properties.items()):
        print_line(f"{key}={value}")
    if layout.HasField("operation"):
        print_line(_operation(layout.operation))
    if layout.removals:
        print_line(f"{counted(len(layout.removals), 'segment')} being removed")
    lines = draw_layout(
        segments, layout.epoch, columns=columns, epochs_max=epochs_max, has_signs=has_signs
    )
    if lines is None:
        print_line("(the drawing is wider than the terminal: --wide shows it)")
    for line in lines or ():
        print_line(line)
    print_table(
        "segments",
        ("segment", "range", "share", "state", "buckets", "parents", "children"),
        [_row(each) for each in segments],
        extra=("share", "buckets"),
    )
    if layout.subscriptions:
        print_table(
            "subscriptions",
            ("subscription", "type", "phase", "consumers", "drained sealed"),
            [_subscription(each, len(segments) - active) for each in layout.subscriptions],
        )


def _operation(operation: LayoutOperation) -> str:
    parents = listed(operation.parents)
    children = listed([each.segment_id for each in operation.children])
    if not operation.are_children_ready:
        step = "its children are being made ready"
    else:
        step = f"{len(operation.sealed)} of {len(operation.parents)} parents sealed"
    return (
        f"operation {operation.operation_id} is under way: {operation.kind} of {parents} "
        f"into {children}, {step}"
    )


def _row(segment: Segment) -> tuple[object, ...]:
    return (
        segment.segment_id,
        f"{segment.hash_start:04x}-{segment.hash_end:04x}",
        share_of(segment),
        "sealed" if segment.is_sealed else "active",
        segment.bucket_count,
        listed(segment.parents),
        listed(segment.children),
    )


def _subscription(subscription: ScalableSubscription, sealed: int) -> tuple[object, ...]:
    return (
        subscription.name,
        subscription.type,
        subscription.phase,
        len(subscription.consumers),
        f"{len(subscription.drained):,} of {sealed:,}",
    )
