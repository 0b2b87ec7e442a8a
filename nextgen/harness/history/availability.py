"""Waiting times of writes: the worst of each shard, and those after each fault. These are numbers
without a verdict: the run decides whether they are good enough."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nextgen.audit.verdict import Recovery, Unavailable
from nextgen.harness.history.log_fold import LogIndex
from nextgen.harness.history.model import WRITES, Fault, Operation

_IDLE_NS = 5_000_000_000
"""A shard that nobody writes to for so long behind a fault is not waited for."""


def writes_by_shard(operations: Iterable[Operation], index: LogIndex) -> dict[int, list[Operation]]:
    """Return the writes of each shard, by their answers, or by the log if they have none."""
    found: dict[int, list[Operation]] = {}
    for operation in operations:
        if operation.kind in WRITES:
            shard = operation.shard or index.shard_of(operation.key)
            if shard:
                found.setdefault(shard, []).append(operation)
    return found


def unavailable_intervals(
    writes: Mapping[int, Sequence[Operation]], ended_ns: int
) -> tuple[Unavailable, ...]:
    """Return for each shard the longest time in which a write was pending and none was
    acknowledged. A refusal counts too, because the leader answered it."""
    return tuple(
        max(
            (Unavailable(shard, *gap) for gap in _gaps(of_shard, ended_ns)),
            key=lambda each: each.duration_ms,
        )
        for shard, of_shard in sorted(writes.items())
    )


def recoveries(
    faults: Sequence[Fault], writes: Mapping[int, Sequence[Operation]]
) -> tuple[Recovery, ...]:
    """Return for each fault, and each shard that it affects, when writes were acknowledged
    again.

    Where nothing was requested for long, as of a shard without slots, the time counts from the
    first request.
    """
    firsts = {shard: _FirstAnswers(of_shard) for shard, of_shard in writes.items()}
    found = []
    for fault in faults:
        for shard in fault.shards or sorted(firsts):
            known = firsts.get(shard)
            asked_ns = None if known is None else known.asked_after(fault.began_ns)
            answered_ns = None if known is None else known.after(fault.began_ns)
            taken = None
            if asked_ns is not None and answered_ns is not None:
                is_idle = asked_ns - fault.began_ns > _IDLE_NS
                taken = (answered_ns - (asked_ns if is_idle else fault.began_ns)) / 1e6
            found.append(Recovery(fault.kind, fault.target, shard, fault.began_ns, taken))
    return tuple(found)


def _gaps(writes: Sequence[Operation], ended_ns: int) -> Iterator[tuple[int, int]]:
    """Yield the intervals without an answer, from the first pending request in each on."""
    answers = sorted(op.returned_ns for op in writes if _is_answer(op) and op.returned_ns)
    ends = [*answers, ended_ns]
    asked = sorted(
        (op.invoked_ns, op.returned_ns if op.returned_ns is not None else ended_ns) for op in writes
    )
    waiting = 0
    before = asked[0][0]
    for answer in ends:
        # The first write that was pending after the last answer.
        while waiting < len(asked) and asked[waiting][1] <= before:
            waiting += 1
        if waiting < len(asked) and asked[waiting][0] < answer:
            yield max(before, asked[waiting][0]), answer
        before = max(before, answer)
    yield before, before


def _is_answer(operation: Operation) -> bool:
    return operation.is_ok or operation.refusal != ""


class _FirstAnswers:
    """Finds the earliest acknowledgement of a write that was requested after a given time."""

    def __init__(self, writes: Sequence[Operation]) -> None:
        self._asked = sorted(op.invoked_ns for op in writes)
        answered = sorted(
            (op.invoked_ns, op.returned_ns)
            for op in writes
            if _is_answer(op) and op.returned_ns is not None
        )
        self._invoked = [invoked_ns for invoked_ns, _ in answered]
        self._earliest: list[int] = []
        for _, returned_ns in reversed(answered):
            last = self._earliest[-1] if self._earliest else returned_ns
            self._earliest.append(min(last, returned_ns))
        self._earliest.reverse()

    def asked_after(self, at_ns: int) -> int | None:
        """Return when the first write from ``at_ns`` on was requested."""
        place = bisect_left(self._asked, at_ns)
        return self._asked[place] if place < len(self._asked) else None

    def after(self, at_ns: int) -> int | None:
        place = bisect_left(self._invoked, at_ns)
        return self._earliest[place] if place < len(self._earliest) else None
