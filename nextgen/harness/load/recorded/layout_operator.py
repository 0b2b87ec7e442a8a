"""An operator that splits, merges and rebuckets the segments of a scalable topic all the time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from nextgen.client import Client
from nextgen.client.model import ScalableTopic
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.scalable.segments import Segment

ACTIVE_MAX = 8
"""Active segments from which on the operator only merges."""

SEGMENTS_MAX = 600
"""Segments of a topic, sealed ones included, from which on it is left alone: more of them take a
reader longer than a run's end waits."""

BUCKETS = (1, 2, 4, 8)

Choice = tuple[str, tuple[int, ...], int]
"""Kind of the change, segments, buckets."""


class LayoutOperator:
    """Changes the layout of one topic until stopped. ``done`` counts acknowledged changes."""

    def __init__(
        self,
        topic: str,
        client: Client,
        calls: RecordedCalls,
        stopping: asyncio.Event,
        *,
        interval_ms: float,
        seed: str,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._topic = topic
        self._client = client
        self._calls = calls
        self._stopping = stopping
        self._interval_s = interval_ms / 1000
        self._chooser = random.Random(f"{seed} operator {topic}")

    async def run(self) -> None:
        """Return once stopped; a change that was requested is waited for."""
        while not self._stopping.is_set():
            await asyncio.sleep(self._interval_s * self._chooser.uniform(0.5, 1.5))
            try:
                layout = await self._client.get_scalable_topic(self._topic)
            except MetadataError:
                continue  # Nobody leads the shard; the next attempt may find a leader.
            choice = choose(layout, self._chooser) if layout is not None else None
            if choice is None or self._stopping.is_set():
                continue
            kind, segments, buckets = choice
            changed = await self._calls.change_layout(self._topic, kind, segments, buckets)
            self.done[kind] += changed.is_ok


def choose(layout: ScalableTopic, chooser: random.Random) -> Choice | None:
    """Return a change that the layout allows, None if it is to stay."""
    active = sorted(
        (each for each in layout.segments if not each.is_sealed), key=lambda each: each.hash_start
    )
    if len(layout.segments) >= SEGMENTS_MAX:
        return None
    kinds = ["rebucket"]
    if len(active) < ACTIVE_MAX:
        kinds += ["split"] * 4
    if len(active) > 1:
        kinds += ["merge"] * 4
    kind = chooser.choice(kinds)
    place = chooser.randrange(len(active) - (kind == "merge"))
    chosen: Segment = active[place]
    if kind == "merge":
        return kind, (chosen.segment_id, active[place + 1].segment_id), 0
    if kind == "rebucket":
        return kind, (chosen.segment_id,), chooser.choice(BUCKETS)
    return kind, (chosen.segment_id,), 0
