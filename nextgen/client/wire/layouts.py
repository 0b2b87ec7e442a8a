"""Segments of scalable topics as messages: events, views, snapshots and answers have them alike."""

from __future__ import annotations

from nextgen.client.wire.fields import REPEATED, FieldMap
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from protos.nextgen.v1 import layouts_pb2 as pb

SEGMENT_END = FieldMap(SegmentEnd, pb.SegmentEnd)
SEGMENT = FieldMap(
    Segment,
    pb.TopicSegment,
    converted={
        "parents": REPEATED,
        "children": REPEATED,
        "bucket_starts": REPEATED,
        "end": SEGMENT_END.one,
    },
    optional={"end": None},
)
