"""A checkpoint: how far each segment of a topic was read, at one moment.

Applications store its bytes and do not look into them. Each segment is marked with its time of
creation, so that a topic of the same name that was created again is read from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from nextgen.client.st.domain.layout import Layout, LayoutSegment
from nextgen.client.st.domain.positions import Position
from nextgen.client.st.errors import InvalidCheckpoint
from nextgen.kernel.input.json_fields import as_count, parse_json
from nextgen.kernel.limits.scalable import CHECKPOINT_BYTES_MAX, LAYOUT_SEGMENTS_MAX

_VERSION = 1


class Edge(Enum):
    """A place that is not a message."""

    START = "start"
    LATEST = "latest"
    """Behind what is stored when reading begins. No checkpoint has it."""

    END = "end"
    """Everything was read, and nothing more will come: the segment is sealed."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one segment was read. Reading goes on behind ``place``."""

    created_at_ms: int
    place: Position | Edge


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Marks of the segments that were begun, by the segments' own topics."""

    topic: str
    marks: Mapping[str, Mark]

    def start_of(self, segment: LayoutSegment) -> Position | Edge:
        """Return where to begin reading a segment. One without mark was never begun."""
        mark = self.marks.get(segment.topic)
        if mark is None or mark.created_at_ms != segment.created_at_ms:
            return Edge.START
        return mark.place

    def to_bytes(self) -> bytes:
        document = {
            "version": _VERSION,
            "topic": self.topic,
            "segments": {
                segment: [mark.created_at_ms, _encoded(mark.place)]
                for segment, mark in self.marks.items()
            },
        }
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Checkpoint:
        """Return the checkpoint that ``to_bytes`` encoded.

        Raises:
            InvalidCheckpoint: ``data`` is something else.
        """
        if len(data) > CHECKPOINT_BYTES_MAX:
            raise InvalidCheckpoint(
                f"a checkpoint has {len(data)} bytes, at most {CHECKPOINT_BYTES_MAX} may be"
            )
        try:
            return _decoded(parse_json(data))
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidCheckpoint(f"the bytes are no checkpoint: {error}") from error


def readable_segments(layout: Layout, ended: frozenset[str] | set[str]) -> list[LayoutSegment]:
    """Return the segments that may be read so that each key's messages come in order.

    These are the segments whose parents, as far as the layout still has them, are all in ``ended``,
    and which are not in it themselves.
    """
    return [
        each
        for each in (*layout.sealed, *layout.active)
        if each.topic not in ended
        and all(
            parent.topic in ended
            for parent_id in each.parents
            if (parent := layout.segments.get(parent_id)) is not None
        )
    ]


def _encoded(place: Position | Edge) -> Any:
    if isinstance(place, Edge):
        return place.value
    return [place.ledger_id, place.entry_id, place.batch_index]


def _decoded(document: Any) -> Checkpoint:
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']!r} is not known")
    topic, segments = document["topic"], document["segments"]
    if not isinstance(topic, str) or not isinstance(segments, dict):
        raise ValueError("it has no topic or no segments")
    if len(segments) > LAYOUT_SEGMENTS_MAX:
        raise ValueError(f"it has more than {LAYOUT_SEGMENTS_MAX} segments")
    marks = {
        name: Mark(as_count(created_at_ms), _place(place))
        for name, (created_at_ms, place) in segments.items()
    }
    return Checkpoint(topic, marks)


def _place(document: Any) -> Position | Edge:
    if isinstance(document, str):
        edge = Edge(document)
        if edge is Edge.LATEST:
            raise ValueError("a segment is marked with a place that is not known")
        return edge
    ledger_id, entry_id, batch_index = document
    if batch_index != -1:
        as_count(batch_index)
    return Position(as_count(ledger_id), as_count(entry_id), batch_index)
