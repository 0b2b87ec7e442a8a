"""Spans that processes wrote into trace files, read back."""

from __future__ import annotations

import json
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
    """All spans of one trace, whoever wrote them."""

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


def read_spans(directory: Path) -> list[WrittenSpan]:
    paths = directory.glob("*.jsonl*")
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return [WrittenSpan(**json.loads(line)) for line in lines]


def trace_of(directory: Path, trace_id: str) -> WrittenTrace:
    return WrittenTrace([span for span in read_spans(directory) if span.trace_id == trace_id])
