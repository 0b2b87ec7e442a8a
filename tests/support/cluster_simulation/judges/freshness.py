"""Lookups of the simulated cluster, each judged by what the log had said when it began (ADR 0051).

LookupsAreRecent      an answer was true at most ``LOOKUP_STALENESS_MS_MAX`` before its lookup began
FreshIsLinearizable   it was true after the lookup began, where that was demanded
NodesNeverGoBack      behind an answer about a topic a node gives none of before that answer

The first two hold for topics that are answered as absent, too, and a node that has said where a
topic is does not say that it is absent unless it was deleted (ADR 0061).
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX
from protos.nextgen.v1.discovery_service_pb2 import (
    LookupRequest,
    LookupResponse,
    MoveTopicsRequest,
    MoveTopicsResponse,
)
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove

Assigned = tuple[str, str, int]
"""Topic id, canonical name, epoch."""

CALL_MS = 2_500
PAUSE_S_MAX = 0.3
NAMES_SOUGHT = 4
ABSENT_SHARE = 0.5
"""Of the rounds of questions: in it names are sought besides that may come to be."""

MOVES_SHARE = 0.15
"""Of the rounds of questions: before it a name is moved."""

_LATEST = 2**63
"""Beyond every epoch: what is demanded of an answer that is to be linearizable."""

_STALENESS_S = LOOKUP_STALENESS_MS_MAX / 1_000
_CLOCK_STEP_S = 0.001
"""Discovery counts the time to live in whole milliseconds."""


class Answer(Protocol):
    """Of a lookup that found its topic."""

    topic: str
    topic_id: str
    epoch: int


class Freshness:
    """Which assignment was replaced when, and which node has answered what when."""

    def __init__(self, violate: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.now = clock
        """The simulation's own clock, whatever the offsets of its processes' clocks."""
        self._violate = violate
        self._latest: dict[str, Assigned] = {}
        self._ranks: dict[Assigned, int] = {}
        """In the order of the shard's log."""
        self._ended_at: dict[Assigned, float] = {}
        """When a process first knew that the end of this was committed."""
        self._given: dict[tuple[str, str], tuple[list[float], list[int]]] = {}
        """(node, name) -> when a rank higher than all before was given, and the ranks."""
        self._created_at: dict[str, float] = {}
        """When a process first knew that the creation of an existing topic was committed."""
        self._deleted: dict[str, None] = {}
        self.judged = 0
        self.judged_absent = 0
        self.old_absences = 0
        """Answers that a topic is absent that had been created when their lookup began."""
        self.old = 0
        """Answers that did not hold any more when their lookup began."""
        self.oldest_s = 0.0

    @property
    def names(self) -> list[str]:
        """Names that were ever assigned."""
        return list(self._latest)

    def epoch_of(self, name: str) -> int:
        """Return the latest epoch that is committed of an assigned name."""
        return self._latest[name][2]

    def assigned(self, topic_id: str, name: str, epoch: int) -> None:
        """An assignment is committed."""
        before = self._latest.pop(name, None)
        if before is not None:
            self._ended_at.setdefault(before, self.now())
        assigned = topic_id, name, epoch
        self._latest[name] = assigned
        self._ranks[assigned] = len(self._ranks)

    def created(self, name: str) -> None:
        """It is committed that a topic came into being."""
        self._created_at[name] = self.now()
        self._deleted.pop(name, None)

    def deleted(self, name: str) -> None:
        """It is committed that a topic is no more."""
        self._created_at.pop(name, None)
        self._deleted[name] = None

    def absent_names(self) -> list[str]:
        """Return names that are absent and may be created: deleted ones, and those that follow
        the latest of a client that numbers its topics."""
        names = list(self._deleted)[-NAMES_SOUGHT:]
        for name in list(self._created_at)[-NAMES_SOUGHT:]:
            stem, dash, number = name.rpartition("-")
            if dash and number.isdigit():
                names += [f"{stem}-{int(number) + more}" for more in (1, 2, 3)]
        return [name for name in dict.fromkeys(names) if name not in self._created_at]

    def judge_absent(
        self, name: str, began_at: float, *, node: str = "", is_fresh: bool = False
    ) -> None:
        """Judge an answer that a topic is absent, as ``judge`` does one that names a broker."""
        self.judged_absent += 1
        created_at = self._created_at.get(name)
        if created_at is None or created_at >= began_at:
            return
        self.old_absences += 1
        age_s = began_at - created_at
        if is_fresh or age_s > _STALENESS_S + _CLOCK_STEP_S:
            self._violate(
                f"LookupsAreRecent: {name} had been there for {age_s:.3f} s when {node} was asked, "
                f"{'and the answer was to be fresh' if is_fresh else 'and is answered as absent'}"
            )
        times, _ = self._given.get((node, name), ([], []))
        if any(created_at <= given_at < began_at for given_at in times):
            self._violate(f"NodesNeverGoBack: {node} says {name} is absent behind where it is")

    def unassigned(self, topic_id: str, name: str, epoch: int) -> None:
        """It is committed that the unit has no owner any more."""
        self._ended_at.setdefault((topic_id, name, epoch), self.now())

    def judge(
        self, answer: Answer, began_at: float, *, node: str = "", is_fresh: bool = False
    ) -> None:
        """Judge an answer that has just arrived. ``node`` is who gave it, "" if that is not known;
        ``is_fresh``: it has to be linearizable."""
        assigned = answer.topic_id, answer.topic, answer.epoch
        rank = self._ranks.get(assigned)
        if rank is None:
            return  # It was never committed, which others find.
        self.judged += 1
        self._judge_age(assigned, began_at, node, is_fresh=is_fresh)
        if node:
            self._judge_order(assigned, rank, began_at, node)

    def _judge_age(self, assigned: Assigned, began_at: float, node: str, *, is_fresh: bool) -> None:
        age_s = began_at - self._ended_at.get(assigned, began_at)
        if age_s <= 0:
            return
        self.old += 1
        self.oldest_s = max(self.oldest_s, age_s)
        if is_fresh or age_s > _STALENESS_S + _CLOCK_STEP_S:
            self._violate(
                f"LookupsAreRecent: {assigned} had been over for {age_s:.3f} s when {node} was "
                f"asked, {'and the answer was to be fresh' if is_fresh else 'and is still given'}"
            )

    def _judge_order(self, assigned: Assigned, rank: int, began_at: float, node: str) -> None:
        times, ranks = self._given.setdefault((node, assigned[1]), ([], []))
        before = bisect_left(times, began_at)
        if before and ranks[before - 1] > rank:
            self._violate(f"NodesNeverGoBack: {node} gave {assigned} behind a later assignment")
        if not ranks or rank > ranks[-1]:
            times.append(self.now())
            ranks.append(rank)


class Seeker:
    """A client that moves a few topics, and asks every discovery node for them all the time.

    ``run`` it until ``stopping``.
    """

    def __init__(
        self, endpoints: Sequence[str], chance: random.Random, freshness: Freshness
    ) -> None:
        self.stopping = False
        self.sought = self.moved = 0
        self._endpoints = list(endpoints)
        self._nodes = DiscoveryNodes(endpoints)
        self._chance = chance
        self._freshness = freshness
        self._names: list[str] = []
        self._moving: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            while not self.stopping:
                await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
                self._pick()
                if self._names:
                    # Of every node at the same time: that is when they differ.
                    await asyncio.gather(*(self._seek(each) for each in self._endpoints))
        finally:
            await asyncio.gather(*self._moving, return_exceptions=True)
            await self._nodes.close()

    def _pick(self) -> None:
        """Take another name into the few that are sought, or move one of them."""
        known = self._freshness.names
        if known and (len(self._names) < NAMES_SOUGHT or self._chance.random() < 0.02):
            self._names = [*self._names, self._chance.choice(known)][-NAMES_SOUGHT:]
        if self._names and self._chance.random() < MOVES_SHARE:
            move = self._move(
                self._chance.choice(self._names), self._chance.choice(self._endpoints)
            )
            moving = asyncio.ensure_future(move)
            self._moving.add(moving)
            moving.add_done_callback(self._moving.discard)

    async def _move(self, name: str, node: str) -> None:
        request = MoveTopicsRequest(moves=[TopicMove(topic=name)])
        began_at = self._freshness.now()
        try:
            response = await self._nodes.call_at(
                node, "MoveTopics", request, MoveTopicsResponse, timeout_ms=CALL_MS
            )
        except MetadataError:
            return
        self.moved += sum(not answer.rejection_code for answer in response.answers)
        self._take(response.answers, began_at, node, [_LATEST])

    async def _seek(self, node: str) -> None:
        names = list(self._names)
        demanded = [0] * len(names)
        match self._chance.randrange(6):
            case 0:
                demanded = [_LATEST] * len(names)
            case 1:
                demanded = [self._freshness.epoch_of(name) for name in names]
        is_fresh = bool(demanded) and demanded[0] == _LATEST
        if self._chance.random() < ABSENT_SHARE:
            absent = self._freshness.absent_names()[-NAMES_SOUGHT:]
            names += absent
            demanded += [_LATEST * is_fresh] * len(absent)
        request = LookupRequest(topics=names, fresh=is_fresh)
        if not is_fresh and any(demanded):
            request.min_epochs.extend(demanded)
        began_at = self._freshness.now()
        try:
            response = await self._nodes.call_at(
                node, "Lookup", request, LookupResponse, timeout_ms=CALL_MS
            )
        except MetadataError:
            return
        self._take(response.answers, began_at, node, demanded)
        for answer, epoch in zip(response.answers, demanded, strict=True):
            if answer.rejection_code == RejectionCode.NOT_FOUND:
                self._freshness.judge_absent(answer.topic, began_at, node=node, is_fresh=epoch > 0)

    def _take(
        self, answers: Iterable[LookupAnswer], began_at: float, node: str, demanded: list[int]
    ) -> None:
        for answer, epoch in zip(answers, demanded, strict=True):
            if not answer.rejection_code:
                self.sought += 1
                is_fresh = answer.epoch < epoch
                self._freshness.judge(answer, began_at, node=node, is_fresh=is_fresh)
