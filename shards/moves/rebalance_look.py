"""Reads one shard's units for a rebalance, in bounded steps.

    units of the fullest brokers ─▶ read again for each plan, up to a bound ─╮
    units behind the bound       ─▶ swept, a part for each plan; only those  ─┴─▶ ``Look``
                                    that a rule forbids where they are stay

To even out the brokers, the units of the fullest ones are enough. A rule may forbid a unit at any
broker, however full, so one run of plans reads every unit once for the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from nextgen.kernel.governance.policies import NO_RULES, Policies
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from shards.assignment.parent_policies import rules_for
from shards.assignment.placement_policies import PlacementPolicies
from shards.assignment.unit_placer import PlacementRound, UnitPlacer
from shards.domain.assignment import Assignment
from shards.domain.placement.rebalance import weight_of
from shards.domain.topic import Topic
from shards.moves.evacuation_loads import EvacuationLoads
from shards.ports import BrokerDirectory, Clock
from shards.state.shard_state import ShardState

REBALANCE_UNITS_READ_MAX = 20_000
"""Units of one shard that one plan evens out, and remembers as moved: some 20 MB. What a plan does
not see, the next one may."""

REBALANCE_UNITS_SWEPT_MAX = 20_000
"""Additional units that one plan reads to check rules that may forbid their brokers: half a second.
Each plan of a run continues where the one before it ended, until all were read."""

PAGE_UNITS = 500
"""Units read from the view and planned in one turn of the loop."""


@dataclass(slots=True)
class Unit:
    topic: Topic
    assignment: Assignment
    parents: Policies
    is_bound: bool
    """Whether a rule, or another partition, may restrict where it goes."""

    def is_forbidden_at(self, broker_id: str, placing: PlacementRound) -> bool:
        """Return whether a rule forbids it at a broker. If at its own, the unit has to leave."""
        if not self.is_bound:
            return False
        return bool(placing.forbids(self.topic, self.assignment, self.parents, broker_id))


@dataclass(slots=True)
class Sweep:
    """How far one run of plans has read the units behind the bound."""

    left: list[tuple[str, str]] = field(default_factory=list)
    """Sessions, each with the key behind which its units are still to be read."""

    units_read: int = 0
    """Includes the units that the first plan read to even out."""

    @property
    def is_over(self) -> bool:
        return not self.left


@dataclass(slots=True)
class Look:
    """The shard's units as of the beginning of a plan."""

    sweep: Sweep
    brokers: dict[str, BrokerRecorded] = field(default_factory=dict)
    """The brokers that may get units, by broker id."""

    units: dict[str, Unit] = field(default_factory=dict)
    """The units that may be planned, by name."""

    weights: dict[str, int] = field(default_factory=dict)
    """Weights of the units that load reports name, by name."""

    unnamed_weights: dict[str, int] = field(default_factory=dict)
    """Weight of each other unit of a broker, by broker id."""

    misplaced: dict[str, None] = field(default_factory=dict)
    """Names of units that a rule forbids where they are, in the order of reading."""

    units_unread: int = 0
    """Units of these brokers that the sweep has not read yet."""


class RebalanceLooks:
    """Reads the units of one shard for its plans, for one term."""

    def __init__(
        self,
        state: ShardState,
        placer: UnitPlacer,
        policies: PlacementPolicies,
        loads: EvacuationLoads,
        directory: BrokerDirectory,
        clock: Clock,
    ) -> None:
        self._state = state
        self._placer = placer
        self._policies = policies
        self._loads = loads
        self._directory = directory
        self._clock = clock

    def __repr__(self) -> str:
        return f"<RebalanceLooks of {self._state!r}>"

    async def look(self, sweep: Sweep | None = None) -> Look:
        """Read the units for one plan; go on with ``sweep``, or begin one.

        Raises:
            MetadataError: The term is over.
        """
        look = Look(Sweep() if sweep is None else sweep)
        now_ms = self._clock.wall_ms()
        for broker in self._directory.live():
            if not broker.draining and broker.quarantined_until_ms <= now_ms:
                look.brokers[broker.broker_id] = broker
        unread = await self._read_fullest(look)
        if sweep is None:
            look.sweep.left, look.sweep.units_read = unread, len(look.units)
        await self._go_on(look)
        self._weigh(look)
        if not look.sweep.is_over:
            sessions = [broker.session_id for broker in look.brokers.values()]
            total = sum(map(self._state.reads.used_units, sessions))
            look.units_unread = max(0, total - look.sweep.units_read)
        return look

    async def _read_fullest(self, look: Look) -> list[tuple[str, str]]:
        """Read units, of the fullest brokers first; return the sessions left behind the bound."""
        unread = []
        # Units behind the bound are not moved, so these must not be those of the fullest brokers.
        for broker in sorted(look.brokers.values(), key=self._use_of, reverse=True):
            after, is_read = "", False
            while not is_read and len(look.units) < REBALANCE_UNITS_READ_MAX:
                page = self._state.scans.units_of_session(broker.session_id, after, PAGE_UNITS)
                if page:
                    after = page[-1].key
                    await self._take(page, look)
                is_read = not page
            if not is_read:
                unread.append((broker.session_id, after))
        return unread

    async def _go_on(self, look: Look) -> None:
        """Sweep some more units; keep only the misplaced ones."""
        sweep, units_read = look.sweep, 0
        sessions = {broker.session_id for broker in look.brokers.values()}
        while sweep.left and units_read < REBALANCE_UNITS_SWEPT_MAX:
            session_id, after = sweep.left[0]
            page = []
            if session_id in sessions:
                page = self._state.scans.units_of_session(session_id, after, PAGE_UNITS)
            if not page:
                del sweep.left[0]
                continue
            sweep.left[0] = session_id, page[-1].key
            units_read += len(page)
            await self._take(page, look, keeps_all=False)
        sweep.units_read += units_read

    def _use_of(self, broker: BrokerRecorded) -> float:
        return self._state.reads.used_units(broker.session_id) / max(1, broker.capacity_units)

    async def _take(
        self, page: Sequence[Assignment], look: Look, *, keeps_all: bool = True
    ) -> None:
        names = [parse_topic(unit.name) for unit in page]
        parents = {name.namespace_text: self._policies.known(name.namespace_text) for name in names}
        missing = [namespace for namespace, known in parents.items() if known is None]
        if missing:
            found = await self._policies.read(missing)
            # Units whose policies cannot be read now stay where they are.
            parents |= {name: one for name, one in found.items() if isinstance(one, Policies)}
        topics = self._state.reads.load_topics([name.base_text for name in names])
        placing = self._placer.begin()
        for name, topic, assignment in zip(names, topics, page, strict=True):
            above = parents[name.namespace_text]
            if topic is None or above is None:
                continue
            is_bound = topic.partitions > 1 or rules_for(above, topic) != NO_RULES
            unit = Unit(topic, assignment, above, is_bound)
            # A unit that moved meanwhile is read twice: the later reading counts.
            look.misplaced.pop(name.text, None)
            if unit.is_forbidden_at(assignment.broker_id, placing):
                look.misplaced[name.text] = None
            elif not keeps_all and name.text not in look.units:
                continue
            look.units[name.text] = unit
        await asyncio.sleep(0)

    def _weigh(self, look: Look) -> None:
        self._loads.look(self._state.scans.usage())
        for broker in look.brokers.values():
            for name, rate in self._loads.rates(broker.session_id).items():
                unit = look.units.get(name)
                if unit is not None and unit.assignment.session_id == broker.session_id:
                    look.weights[name] = weight_of(rate)
            unnamed = self._loads.unnamed_rate(broker.session_id)
            look.unnamed_weights[broker.broker_id] = weight_of(unnamed)
