"""Cases of the decision to split and merge: the tests' and, as a table, the documentation's.

python -m tests.support.scalable.auto_scale_cases --write
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from nextgen.kernel.governance.auto_scale_policy import AutoScalePolicy
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.auto_scale import Decision, GroupSizes, ScaleClocks, decide
from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.ranges import initial_ranges
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "flows" / "auto-scale.md"
BEGIN, END = "<!-- cases: begin -->", "<!-- cases: end -->"
NOW_MS = 1_000_000_000
COLD_MS = NOW_MS - 300_000
"""Since when segments are cold for just as long as the default window."""


def rates(messages_in: float = 0, messages_out: float = 0, bytes_in: float = 0) -> Rates:
    return Rates(messages_in, messages_out, bytes_in, 0)


def load(segment_id: int, of: Rates, cold_since_ms: int = 0) -> SegmentLoad:
    return SegmentLoad(segment_id, of, NOW_MS - 1, cold_since_ms)


def segments(count: int, *, buckets: int = 1, depth: int = 0) -> list[Segment]:
    return [
        Segment(
            number,
            each.start,
            each.end,
            0,
            0,
            bucket_starts=equal_buckets(buckets),
            merge_depth=depth,
        )
        for number, each in enumerate(initial_ranges(count))
    ]


@dataclass(frozen=True)
class Case:
    """One row of the truth table: a topic whose segments are equal, and the expected decision."""

    topic: str
    expected: str
    segments: list[Segment]
    messages: tuple[float, ...] = ()
    """In per second, of each segment; all cold ones for long enough."""
    consumers: int = 0
    sharing: int | None = None
    """None: all ``consumers`` can share segments."""
    policy: AutoScalePolicy = field(default_factory=AutoScalePolicy)
    clocks: ScaleClocks = field(default_factory=ScaleClocks)
    loads: dict[int, SegmentLoad] | None = None

    def decision(self) -> Decision:
        loads = self.loads
        if loads is None:
            loads = {
                number: load(number, rates(given), COLD_MS if given < 1_000 else 0)
                for number, given in enumerate(self.messages)
            }
        sharing = self.consumers if self.sharing is None else self.sharing
        groups = GroupSizes(self.consumers, sharing)
        return decide(self.segments, loads, groups, self.policy, self.clocks, NOW_MS)


def shown(decision: Decision) -> str:
    """Return a decision as the table has it: the action, or why each lane has none."""
    action = decision.action
    if action is None:
        lanes = dict.fromkeys((decision.consumers, decision.load, decision.merge))
        after = f", again in {(decision.again_at_ms - NOW_MS) // 1_000} s"
        return f"none: {', '.join(lanes)}{after if decision.again_at_ms else ''}"
    buckets = f" to {action.buckets} buckets" if action.buckets else ""
    which = ", ".join(map(str, action.segments))
    return f"{action.kind} {which}{buckets}: {action.reason}"


def _ago(seconds: int) -> int:
    return NOW_MS - 1_000 * seconds


CASES = (
    Case(
        "turned off, hot", "none: disabled", segments(1), (20_000,), policy=AutoScalePolicy(False)
    ),
    Case(
        "no load recorded",
        "none: enough-segments, nothing-hot, at-min-segments",
        segments(1),
    ),
    # Consumers.
    Case(
        "2 consumers, 1 segment with 1,000 msg/s",
        "split 0: consumer-count",
        segments(1),
        (1_000,),
        consumers=2,
    ),
    Case(
        "2 consumers, 1 segment with 999 msg/s and 4 buckets",
        "none: enough-buckets, nothing-hot, at-min-segments",
        segments(1, buckets=4),
        (999,),
        consumers=2,
    ),
    Case(
        "5 consumers, 1 segment with 999 msg/s and 4 buckets",
        "rebucket 0 to 8 buckets: below-split-rate-floor",
        segments(1, buckets=4),
        (999,),
        consumers=5,
    ),
    Case(
        "the same, a rebucket 59 s ago",
        "none: rebucket-cooldown, nothing-hot, at-min-segments, again in 1 s",
        segments(1, buckets=4),
        (999,),
        consumers=5,
        clocks=ScaleClocks(rebucket_at_ms=_ago(59)),
    ),
    Case(
        "5 members of a CHECKPOINT, 1 segment with 999 msg/s",
        "none: enough-buckets, nothing-hot, at-min-segments",
        segments(1, buckets=4),
        (999,),
        consumers=5,
        sharing=0,
    ),
    Case(
        "5 consumers, 2 segments at most, 2 hot ones with 1 bucket each",
        "rebucket 0, 1 to 4 buckets: at-max-segments",
        segments(2),
        (20_000, 20_000),
        consumers=5,
        policy=AutoScalePolicy(max_segments=2),
    ),
    Case(
        "3 consumers, 2 segments, a split 59 s ago",
        "none: split-cooldown, nothing-hot, not-cold, again in 1 s",
        segments(2),
        (5_000, 6_000),
        consumers=3,
        clocks=ScaleClocks(split_at_ms=_ago(59)),
    ),
    Case(
        "the same, 60 s ago",
        "split 1: consumer-count",
        segments(2),
        (5_000, 6_000),
        consumers=3,
        clocks=ScaleClocks(split_at_ms=_ago(60)),
    ),
    # Load.
    Case(
        "1 segment at its threshold",
        "none: enough-segments, nothing-hot, at-min-segments",
        segments(1),
        (10_000,),
    ),
    Case("1 segment above it", "split 0: msgRateIn", segments(1), (10_001,)),
    Case(
        "2 segments above it, equally",
        "split 0: msgRateIn",
        segments(2),
        (20_000, 20_000),
    ),
    Case(
        "the bytes of one further above than the messages of the other",
        "split 1: bytesRateIn",
        segments(2),
        loads={0: load(0, rates(11_000)), 1: load(1, rates(1, bytes_in=60_000_000))},
    ),
    Case(
        "1 hot segment of 1 at most",
        "none: enough-segments, at-max-segments, at-min-segments",
        segments(1),
        (20_000,),
        policy=AutoScalePolicy(max_segments=1),
    ),
    # Merging.
    Case("2 cold segments", "merge 0, 1: cold", segments(2), (1, 1)),
    Case(
        "the same, 2 at least",
        "none: enough-segments, nothing-hot, at-min-segments",
        segments(2),
        (1, 1),
        policy=AutoScalePolicy(min_segments=2),
    ),
    Case(
        "2 cold segments, one for 1 s less than the window",
        "none: enough-segments, nothing-hot, merge-window, again in 1 s",
        segments(2),
        loads={0: load(0, rates(1), COLD_MS), 1: load(1, rates(1), COLD_MS + 1_000)},
    ),
    Case(
        "the same, a merge 299 s ago",
        "none: enough-segments, nothing-hot, merge-cooldown, again in 1 s",
        segments(2),
        (1, 1),
        clocks=ScaleClocks(merge_at_ms=_ago(299)),
    ),
    Case(
        "one of two cold, and the other without a record",
        "none: enough-segments, nothing-hot, not-cold",
        segments(2),
        (1,),
    ),
    Case(
        "2 cold segments, a merge threshold of 0",
        "none: enough-segments, nothing-hot, not-cold",
        segments(2),
        (1, 1),
        policy=AutoScalePolicy(merge_msg_rate_out_threshold=0),
    ),
    Case(
        "2 cold segments after 10 merges each",
        "none: enough-segments, nothing-hot, max-dag-depth",
        segments(2, depth=10),
        (1, 1),
    ),
    Case(
        "3 cold segments, the first two the coldest pair",
        "merge 0, 1: cold",
        segments(3),
        (1, 2, 3),
    ),
    Case("3 segments, the first hot-ish", "merge 1, 2: cold", segments(3), (5_000, 2, 3)),
    Case(
        "4 consumers, 2 cold segments of 1,024 buckets each, 1,025 sharing",
        "none: enough-buckets, nothing-hot, buckets-in-use",
        segments(2, buckets=1_024),
        (1, 1),
        consumers=1_025,
    ),
    Case(
        "2 cold segments whose messages together are above the split's threshold",
        "none: enough-segments, nothing-hot, would-split-again",
        segments(2),
        (900, 900),
        policy=AutoScalePolicy(split_msg_rate_in_threshold=1_001),
    ),
    Case(
        "2 consumers, 2 cold segments with 1,000 msg/s together",
        "none: enough-segments, nothing-hot, would-split-again",
        segments(2),
        (500, 500),
        consumers=2,
    ),
    # Clocks.
    Case(
        "1 hot segment, a split 59 s in the future",
        "none: enough-segments, split-cooldown, at-min-segments, again in 119 s",
        segments(1),
        (20_000,),
        clocks=ScaleClocks(split_at_ms=_ago(-59)),
    ),
    Case(
        "the same, a year in the future: a clock that leapt",
        "split 0: msgRateIn",
        segments(1),
        (20_000,),
        clocks=ScaleClocks(split_at_ms=_ago(-31_536_000)),
    ),
)


def table() -> str:
    """Return the cases as a table of the documentation."""
    lines = [f"| {each.topic} | {each.expected} |" for each in CASES]
    return "\n".join(["| topic | decision |", "|---|---|", *lines])


def page_with_table(text: str) -> str:
    """Return the page with the present table in it."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    PAGE.write_text(page_with_table(PAGE.read_text()))
