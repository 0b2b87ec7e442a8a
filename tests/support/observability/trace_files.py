"""Spans that processes wrote into trace files, read back."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class WrittenSpan:
    """One line of a trace file."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    error: str
    process: str
    component: str
    attributes: dict[str, Any]


class WrittenTrace:
    """All spans of one trace, whichever process wrote them."""

    def __init__(self, spans: list[WrittenSpan]) -> None:
        self.spans = spans
        self.by_id = {span.span_id: span for span in spans}

    def named(self, name: str) -> list[WrittenSpan]:
        return [span for span in self.spans if span.name == name]

    def ancestors(self, span: WrittenSpan) -> list[str]:
        """Return the names of the spans above, the nearest first."""
        names = []
        while span.parent_id:
            span = self.by_id[span.parent_id]
            names.append(span.name)
        return names

    @property
    def components(self) -> set[str]:
        return {span.component for span in self.spans}

    @property
    def is_undisturbed(self) -> bool:
        """Whether no request was repeated, as happens after a long stall."""
        counts = Counter(span.name for span in self.spans)
        return (
            all(counts[name] <= 1 for name in _ASKED_AGAIN)
            and all(span.attributes.get("attempt", 1) == 1 for span in self.spans)
            and not any(span.error for span in self.spans)
        )

    @property
    def is_connected(self) -> bool:
        """Whether the parent of every span is written as well."""
        return all(span.parent_id in self.by_id for span in self.spans if span.parent_id)


_ASKED_AGAIN = (
    *("discovery.CreateTopics", "discovery.Lookup", "discovery.ask_shard"),
    *("commit", "assign", "deliver", "broker.apply"),
)
"""Spans that may occur twice, because a request, decision or delivery was repeated."""


def read_spans(directory: Path) -> list[WrittenSpan]:
    """Return what has been written so far; half a line is being written."""
    paths = directory.glob("*.jsonl*")
    lines = [line for path in paths for line in path.read_text("utf-8").split("\n")[:-1]]
    return [WrittenSpan(**json.loads(line)) for line in lines]


def trace_of(directory: Path, trace_id: str) -> WrittenTrace:
    return WrittenTrace([span for span in read_spans(directory) if span.trace_id == trace_id])
