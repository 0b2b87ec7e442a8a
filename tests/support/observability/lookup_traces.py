"""The steps of lookups in traces: which there are, and that none comes before what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nextgen.runtime.telemetry.lookup_steps import (
    AHEAD,
    REFERENCES,
    SESSION_TRACE,
    STEP,
    STEP_NAMES,
    TRACE,
)

METADATA_STEPS = (13, 14, 16, 17)
"""Of tenants and namespaces: once for each session, in the trace of its first lookup."""

BEFORE = (
    *((1, 2), (2, 3), (3, 4), (1, 6), (6, 7), (5, 8), (7, 8), (8, 11)),
    *((9, 10), (10, 11), (11, 13), (11, 14), (11, 15)),
    *((13, 16), (14, 17), (15, 18), (16, 19), (17, 19), (18, 19)),
    *((11, 12), (12, 19), (19, 20), (20, 21), (21, 22), (22, 23)),
)
"""Step and one that rests on it, so they are in order however long any process stands still. A
controller asks for leases (5) whenever it likes, and an assignment has its position (12) when the
metadata is there that has its place before the assignment."""

BEFORE_IF_PROMPT = ((2, 6), (3, 11))
"""A session is there before its broker has read so (2), and capacity is granted and topics are
assigned whether or not it has: a broker that stands still then is behind the seed's diagram."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One step, ``place`` its place in time: nanoseconds, and the order within one process."""

    step: int
    place: tuple[int, int]
    attributes: Mapping[str, Any]


Marks = Mapping[str, Sequence[Mark]]
"""By trace id, in order of place."""


def marks_by_trace(
    marks: Iterable[tuple[str, tuple[int, int], Mapping[str, Any]]],
) -> dict[str, list[Mark]]:
    """Return the marks among spans: trace id, place and attributes of each."""
    found: dict[str, list[Mark]] = {}
    for trace_id, place, attributes in marks:
        if STEP in attributes:
            mark = Mark(attributes[STEP], place, attributes)
            found.setdefault(trace_id, []).append(mark)
    for of_trace in found.values():
        of_trace.sort(key=lambda mark: mark.place)
    return found


def check_lookup_trace(trace_id: str, marks: Marks, *, is_prompt: bool = False) -> int:
    """Assert that the trace shows each of the 23 steps, in order, what it refers to included.

    A grant is asked for again at times, a lease by each leader: their first counts.
    ``is_prompt`` is for brokers that never stand still: their sessions' beginnings have an order.
    Returns how many steps of metadata had happened ahead, in the trace of another lookup.
    """
    own = marks[trace_id]
    found = sorted(mark.step for mark in own)
    assert found == list(range(9, 24)), f"{found}: each once"
    steps = {mark.step: mark for mark in own}
    assign = steps[11]
    for reference in REFERENCES:
        for mark in marks[assign.attributes[reference]]:
            steps.setdefault(mark.step, mark)
    assert sorted(steps) == list(STEP_NAMES)
    ahead = 0
    for mark in own:
        if mark.attributes.get(AHEAD):
            ahead += 1
            _check_ahead(mark, marks, assign)
    for earlier, later in BEFORE + BEFORE_IF_PROMPT if is_prompt else BEFORE:
        assert steps[earlier].place <= steps[later].place, f"{later} came before {earlier}"
    return ahead


def _check_ahead(mark: Mark, marks: Marks, assign: Mark) -> None:
    """What was sent ahead was sent in another trace, to the same session, and really there."""
    assert mark.step in METADATA_STEPS
    there = marks[mark.attributes[TRACE]]
    (sent,) = [each for each in there if each.step == mark.step]
    assert not sent.attributes.get(AHEAD)
    assert sent.place <= mark.place
    (asked,) = [each for each in there if each.step == 11]
    assert asked.attributes[SESSION_TRACE] == assign.attributes[SESSION_TRACE]
