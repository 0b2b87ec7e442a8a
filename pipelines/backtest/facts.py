"""Events about scalable topics as Spark hands them to Python: Arrow batches in, facts out.

Loads come as columns of lists, because nearly all facts are loads; all others as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment

LOADS = "segment_loads_recorded"
NAMESPACE_POLICY = "namespace_policy"
"""A change of the topic's namespace's policies: it may come from another shard's log."""

PLAIN_COLUMNS = ("topic_id", "shard_id", "position", "term", "time_ms", "kind", "body")
LOAD_COLUMNS = (
    "segment_ids",
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "recorded_at_ms",
    "cold_since_ms",
)
FACT_COLUMNS = (*PLAIN_COLUMNS, *LOAD_COLUMNS)


@dataclass(slots=True)
class Fact:
    """One event about one topic. ``loads`` are those of ``LOADS``, ``body`` is the payload of
    every other kind, in which fields may be missing that have their defaults."""

    topic_id: str
    shard_id: int
    position: int
    term: int
    time_ms: int
    kind: str
    loads: list[SegmentLoad] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)


def facts_of(columns: Sequence[pa.Array]) -> Iterator[Fact]:
    """Yield the facts of one batch, whose columns are ``FACT_COLUMNS``, in their order."""
    plain = [column.to_pylist() for column in columns[: len(PLAIN_COLUMNS)]]
    of_loads = columns[len(PLAIN_COLUMNS) :]
    counts = pc.list_value_length(of_loads[0]).to_pylist()
    loads = _loads([column.flatten().to_pylist() for column in of_loads])
    for *row, body, count in zip(*plain, counts, strict=True):
        fact = Fact(*row)
        if fact.kind == LOADS:
            fact.loads = list(islice(loads, count or 0))
        elif body is not None:
            fact.body = json.loads(body)
        yield fact


def _loads(flat: Sequence[Sequence[Any]]) -> Iterator[SegmentLoad]:
    for number, messages_in, messages_out, bytes_in, bytes_out, at_ms, cold in zip(
        *flat, strict=True
    ):
        rates = Rates(messages_in or 0.0, messages_out or 0.0, bytes_in or 0.0, bytes_out or 0.0)
        yield SegmentLoad(number, rates, at_ms or 0, cold or 0)


def segments_in(body: dict[str, Any], name: str) -> list[Segment]:
    """Return the segments in a list of an event's payload, as far as decisions need them."""
    return [
        Segment(
            segment_id=each.get("segment_id", 0),
            hash_start=each.get("hash_start", 0),
            hash_end=each.get("hash_end", 0),
            created_at_epoch=each.get("created_at_epoch", 0),
            created_at_ms=each.get("created_at_ms", 0),
            parents=tuple(each.get("parents", ())),
            is_sealed=each.get("is_sealed", False),
            bucket_starts=tuple(each.get("bucket_starts", ())),
            merge_depth=each.get("merge_depth", 0),
            legacy_topic_name=each.get("legacy_topic_name", ""),
        )
        for each in body.get(name) or ()
    ]


def loads_in(body: dict[str, Any]) -> tuple[SegmentLoad, ...]:
    """Return the loads in a payload, in its order."""
    return tuple(
        [
            SegmentLoad(
                each.get("segment_id", 0),
                _rates_in(each.get("rates") or {}),
                each.get("recorded_at_ms", 0),
                each.get("cold_since_ms", 0),
            )
            for each in body.get("loads") or ()
        ]
    )


def _rates_in(rates: dict[str, Any]) -> Rates:
    """Return rates of JSON, where numbers that are none are texts."""
    names = ("messages_in", "messages_out", "bytes_in", "bytes_out")
    return Rates(*[float(rates.get(name, 0.0)) for name in names])
