"""What is drawn for one scalable topic: traffic by the day, bursts, consumers, its own policy.

Everything follows from the seed and the topic's number.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.routing.hashing import hash64
from nextgen.kernel.scalable.ranges import HASHES
from pipelines.durations import DAY_MS, HOUR_MS, MINUTE_MS

STEP_MS = 15 * MINUTE_MS
"""Between two looks at the traffic of a topic."""

STEP_CHANGE = 0.08
"""The part by which traffic has to move before it is looked at."""

CELLS = 8
"""Parts of the range of hashes that have traffic of their own."""

_BUSIEST_HOUR = 14
_BURSTS_PER_DAY = 0.3
_OWN_POLICY_SHARE = 0.15
_POLICIES = (
    {"maxSegments": 4},
    {"splitMsgRateInThreshold": 5_000, "mergeMsgRateInThreshold": 500},
    {"splitCooldownSeconds": 300, "mergeWindowSeconds": 1_800},
    {"enabled": False},
)


@dataclass(frozen=True, slots=True)
class ConsumerChange:
    """A consumer of the topic's subscription that comes or goes."""

    at_ms: int
    name: str
    joins: bool


class TopicDraws:
    """The draws of one topic that lives from ``created_ms`` to ``ends_ms``."""

    def __init__(self, seed: int, topic_no: int, created_ms: int, ends_ms: int) -> None:
        self._random = random.Random(hash64(f"{seed}/scaling/{topic_no}"))
        self._created_ms = created_ms
        self._ends_ms = ends_ms
        draw = self._random
        self._messages_in = 10 ** draw.uniform(1.2, 4.6)
        self._bytes_each = 10 ** draw.uniform(2.0, 3.3)
        self._fan_out = draw.choice((0.0, 1.0, 1.0, 2.0, 4.0))
        self._swing = draw.uniform(0.1, 0.8)
        self._noise = draw.uniform(0.02, 0.15)
        self._bursts = self._drawn_bursts()
        self.operation_ms = draw.randrange(150, 900)

    def cells(self) -> list[tuple[int, int, float]]:
        """Return the first and last hash of each cell, and its part of the traffic."""
        weights = [math.exp(self._random.gauss(0, 0.4)) for _ in range(CELLS)]
        width, total = HASHES // CELLS, sum(weights)
        return [
            (place * width, (place + 1) * width - 1, weight / total)
            for place, weight in enumerate(weights)
        ]

    def traffic(self) -> Iterator[tuple[int, Rates]]:
        """Yield times and the rates of the whole topic from then on, where they moved."""
        last = 0.0
        at_ms = self._created_ms + self._random.randrange(1_000, STEP_MS)
        while at_ms < self._ends_ms:
            factor = self._factor(at_ms)
            if abs(factor - last) > STEP_CHANGE * last:
                last = factor
                yield at_ms, self._rates(factor)
            at_ms += STEP_MS - 5_000 + self._random.randrange(10_000)

    def consumers(self) -> list[ConsumerChange]:
        """Return how consumers come and go, in the order of time."""
        draw, changes = self._random, []
        for number in range(draw.choice((1, 1, 2, 3, 6))):
            changes.append(ConsumerChange(self._created_ms + 50 + number, f"c{number}", True))
        at_ms, number = self._created_ms, 100
        while True:
            at_ms += int(draw.expovariate(1 / (2.5 * DAY_MS))) + MINUTE_MS
            leaves_ms = at_ms + draw.randrange(HOUR_MS, 8 * HOUR_MS)
            if leaves_ms >= self._ends_ms:
                return sorted(changes, key=lambda each: each.at_ms)
            # A deployment at peak time has more consumers for some hours.
            for _ in range(draw.choice((1, 2, 5, 12))):
                number += 1
                changes.append(ConsumerChange(at_ms + number, f"c{number}", True))
                changes.append(ConsumerChange(leaves_ms + number, f"c{number}", False))

    def own_policy(self) -> tuple[int, str] | None:
        """Return when the topic gets an override, and which; None if it never does."""
        if self._random.random() >= _OWN_POLICY_SHARE:
            return None
        at_ms = self._random.randrange(self._created_ms + 1_000, max(self._ends_ms, 0) + 2_000)
        text = json.dumps(self._random.choice(_POLICIES), separators=(",", ":"))
        return (at_ms, text) if at_ms < self._ends_ms else None

    # ---------------------------------------------------------------------------------------------

    def _drawn_bursts(self) -> list[tuple[int, int, float]]:
        draw, at_ms = self._random, self._created_ms
        bursts: list[tuple[int, int, float]] = []
        while True:
            at_ms += int(draw.expovariate(_BURSTS_PER_DAY / DAY_MS)) + 1
            if at_ms >= self._ends_ms:
                return bursts
            length_ms = draw.randrange(20 * MINUTE_MS, 3 * HOUR_MS)
            bursts.append((at_ms, at_ms + length_ms, draw.uniform(2, 10)))

    def _factor(self, at_ms: int) -> float:
        hours = at_ms % DAY_MS / HOUR_MS
        wave = math.cos((hours - _BUSIEST_HOUR) * 2 * math.pi / 24)
        factor = (1 + self._swing * wave) * math.exp(self._random.gauss(0, self._noise))
        for began_ms, ended_ms, times in self._bursts:
            if began_ms <= at_ms < ended_ms:
                factor *= times
        return factor

    def _rates(self, factor: float) -> Rates:
        messages_in = round(self._messages_in * factor, 1)
        messages_out = messages_in * self._fan_out
        each = self._bytes_each
        return Rates(messages_in, messages_out, messages_in * each, messages_out * each)
