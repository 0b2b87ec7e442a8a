"""Hands a namespace over to placement by topic while clients use it, and back.

    over  claim what is open where it is open ─▶ set the property ─▶ settle
    back  move what is open to its bundle's broker ─▶ remove the property ─▶ settle ─▶ release

Before the property changes, each open topic belongs to the same broker by topic and by bundle. So
it does not matter that brokers hear of the change at different moments, and no topic is closed for
it. ``settle`` is for what changed in between: each broker closes topics of others and sends their
clients there, until no broker has one.

Every step looks at what is, and does what is missing. So either direction may end at any moment and
be begun again, or be turned round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nextgen.kernel.errors import DeadlineExceeded, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX
from nextgen.kernel.limits.stream import HANDOVER_TOPICS_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.migration.adoption.pace import Pace
from nextgen.migration.adoption.ports import Brokers, Cluster, Outcome, Placement

CLAIM_TOPICS = 250
"""Topics of one claim. Several of them make progress visible."""

CLAIM_ROUNDS = 10
"""A topic that is created, or for which its shard leases capacity of the broker, is claimed in the
next round. A shard leases more within a second."""

RETURN_ROUNDS = 2
"""A topic that a balance moved meanwhile is moved again; what is left then is settled."""

RELEASE_ROUNDS = 3
"""Topics that are looked up while others are released are assigned again."""

LOOK_S = 0.5
"""Pause before brokers are asked again. Each of them reads the property within milliseconds."""

SETTLE_S_MAX = 120.0
"""How long brokers may take until none has a topic of another, without getting any further."""

NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step has come, in topics. ``total`` may grow."""

    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Handed:
    """What was done, in topics."""

    kept: int = 0
    """Open topics that stayed where they were: clients noticed nothing."""
    moved: int = 0
    """Open topics that were moved to another broker, or closed with their clients sent there."""
    released: int = 0
    """Assignments that were given up at the end of a handing back."""
    assigned_again: int = 0
    """Topics that clients had assigned again meanwhile: they look up through discovery."""


OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class _Claims:
    """What one broker's claims have not brought."""

    homeless: list[Outcome] = field(default_factory=list)
    """Nobody can have these."""
    late: list[Outcome] = field(default_factory=list)
    """Another broker has these, which may pass."""


class Adoption:
    """One namespace, between a stock cluster and this one. ``brokers``: ids there by ids here."""

    def __init__(
        self,
        namespace: str,
        brokers: Mapping[str, str],
        *,
        placement: Placement,
        at_brokers: Brokers,
        cluster: Cluster,
        pace: Pace,
        on_progress: OnProgress = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._namespace = namespace
        self._brokers = dict(brokers)
        self._ids = {there: here for here, there in brokers.items()}
        self._placement = placement
        self._at_brokers = at_brokers
        self._cluster = cluster
        self._pace = pace
        self._on_progress = on_progress
        self._clock = clock
        self._sleep = sleep
        self._progress = Progress("", 0, 0)
        self._kept: set[str] = set()
        self._moved: set[str] = set()

    async def hand_over(self) -> Handed:
        """Have the namespace placed by topic.

        Raises:
            Refused: An open topic cannot be assigned. Nothing has changed for clients.
            MetadataError: A broker, Pulsar or this cluster does not answer. Call this again.
        """
        await self._claim()
        self._begin("switching")
        await self._placement.set_by_topic(self._namespace, by_topic=True)
        await self._settle(by_topic=True)
        return self._handed()

    async def hand_back(self) -> Handed:
        """Have the namespace placed by bundle again, and give its assignments up.

        Raises:
            MetadataError: A broker, Pulsar or this cluster does not answer. Call this again.
        """
        await self._return()
        self._begin("switching")
        await self._placement.set_by_topic(self._namespace, by_topic=False)
        await self._settle(by_topic=False)
        return await self._release()

    # Before the property changes ---------------------------------------------------------------

    async def _claim(self) -> None:
        """Have every open topic assigned to the broker where it is open.

        Those that a rule keeps from it, or that it has no room for, change their broker later.
        """
        homeless: list[Outcome] = []
        for number in range(CLAIM_ROUNDS):
            if number:
                await self._sleep(LOOK_S)
            self._begin("claiming")
            of_brokers = await asyncio.gather(*map(self._claim_at, self._brokers))
            homeless = [outcome for claims in of_brokers for outcome in claims.homeless]
            if not homeless and not any(claims.late for claims in of_brokers):
                return
            # A namespace that creates no topics on demand has not created those that are Pulsar's
            # own, which a listing does not name.
            await self._cluster.create(
                [
                    each.topic
                    for each in homeless
                    if each.code == RejectionCode.NOT_FOUND
                    and parse_topic(each.topic).partition is None
                ]
            )
        if not homeless:
            return
        shown = "; ".join(f"{each.topic}: {each.message}" for each in homeless[:NAMES_SHOWN_MAX])
        raise Refused(
            RejectionCode.NOT_ALLOWED,
            f"nothing has changed for clients, because {len(homeless)} open topics cannot be "
            f"assigned, such as {shown}",
        )

    async def _claim_at(self, broker_id: str) -> _Claims:
        claims = _Claims()
        found = await self._at_brokers.open_topics(broker_id, self._namespace)
        if found.by_topic:
            return claims  # A former run has come further: what is left is settled.
        names = [each.topic for each in found.topics]
        self._add(total=len(names))
        elsewhere: dict[str, str] = {}
        for batch in _batches(names, CLAIM_TOPICS):
            for outcome in await self._at_brokers.claim(broker_id, batch):
                if not outcome.broker_id:
                    claims.homeless.append(outcome)
                elif outcome.broker_id != broker_id:
                    elsewhere[outcome.topic] = broker_id
                else:
                    self._kept.add(outcome.topic)
            self._add(done=len(batch))
        # Clients that use discovery already have had these assigned, or the broker had no room for
        # a moment. No other broker has them open.
        for outcome in await self._move(elsewhere):
            if outcome.broker_id == broker_id:
                self._kept.add(outcome.topic)
            elif outcome.code != RejectionCode.NOT_ALLOWED:
                claims.late.append(outcome)
        return claims

    async def _return(self) -> None:
        """Have every open topic served by the broker that has its bundle."""
        for _ in range(RETURN_ROUNDS):
            self._begin("returning")
            moves: dict[str, str] = {}
            for broker_id in self._brokers:
                found = await self._at_brokers.open_topics(broker_id, self._namespace)
                for each in found.topics if found.by_topic else ():
                    self._kept.add(each.topic)
                    target = self._ids.get(each.bundle_owner)
                    if each.is_owned and target is not None and target != broker_id:
                        moves[each.topic] = target
            if not moves:
                return
            self._add(total=len(moves))
            for outcome in await self._move(moves):
                if outcome.broker_id:
                    self._moved.add(outcome.topic)
                self._add(done=1)

    async def _move(self, moves: Mapping[str, str]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for batch in self._pace.batches(list(moves), at_most=MOVES_PER_REQUEST_MAX):
            await self._pace.take(len(batch))
            outcomes += await self._cluster.move({topic: moves[topic] for topic in batch})
        return outcomes

    # Behind it ---------------------------------------------------------------------------------

    async def _settle(self, *, by_topic: bool) -> None:
        """Return when every broker has heard of the change and has no topic of another."""
        self._begin("settling")
        fewest, since = None, self._clock()
        while True:
            left = sum(
                await asyncio.gather(
                    *(self._settle_at(each, by_topic=by_topic) for each in self._brokers)
                )
            )
            if not left:
                return
            if fewest is None or left < fewest:
                fewest, since = left, self._clock()
            elif self._clock() - since >= SETTLE_S_MAX:
                raise DeadlineExceeded(
                    f"{left} brokers or topics have not followed the change for {SETTLE_S_MAX:.0f} "
                    "s: the same command goes on"
                )
            await self._sleep(LOOK_S)

    async def _settle_at(self, broker_id: str, *, by_topic: bool) -> int:
        """Return how many topics of others were open at a broker, 1 if it has not heard yet."""
        found = await self._at_brokers.open_topics(broker_id, self._namespace)
        if found.by_topic != by_topic:
            return 1
        foreign = [each.topic for each in found.topics if not each.is_owned]
        self._add(total=len(foreign))
        strays = foreign
        if by_topic:
            strays = []
            for batch in _batches(foreign, CLAIM_TOPICS):
                outcomes = await self._at_brokers.claim(broker_id, batch)
                strays += [each.topic for each in outcomes if each.broker_id != broker_id]
        for batch in self._pace.batches(strays, at_most=HANDOVER_TOPICS_MAX):
            await self._pace.take(len(batch))
            await self._at_brokers.close_foreign(broker_id, batch)
            self._moved.update(batch)
        self._add(done=len(foreign))
        return len(foreign)

    async def _release(self) -> Handed:
        """Give up the assignments, which decide nothing any more."""
        self._begin("releasing")
        released: set[str] = set()
        assigned: list[str] = []
        for _ in range(RELEASE_ROUNDS):
            assigned = await self._cluster.assigned(self._namespace)
            if not assigned:
                break
            self._add(total=len(set(assigned) - released))
            for batch in _batches(assigned, MOVES_PER_REQUEST_MAX):
                await self._cluster.unload(batch)
                self._add(done=len(set(batch) - released))
                released.update(batch)
        else:
            assigned = await self._cluster.assigned(self._namespace)
        return self._handed(len(released), len(assigned))

    # ------------------------------------------------------------------------------------------

    def _handed(self, released: int = 0, assigned_again: int = 0) -> Handed:
        kept = len(self._kept - self._moved)
        return Handed(kept, len(self._moved), released, assigned_again)

    def _begin(self, step: str) -> None:
        self._progress = Progress(step, 0, 0)
        self._on_progress(self._progress)

    def _add(self, *, done: int = 0, total: int = 0) -> None:
        before = self._progress
        self._progress = Progress(before.step, before.done + done, before.total + total)
        self._on_progress(self._progress)


def _batches(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
