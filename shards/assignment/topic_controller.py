"""Lookups of one shard: returns the broker of each unit, and assigns the units that have none.

    names ──▶ plan (see unit_planner) ──▶ one record for a batch ──▶ the brokers ──▶ answers
                 ▲                                                     │ session ended, or full
                 └── planned again: policies read, capacity leased ◀───┘

A unit that has no answer yet has one *flight*, and later lookups of it wait for the same answer.
Planning reads, decides and proposes without an await: that is the lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    Overloaded,
    Refused,
    SessionExpired,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX, UNITS_IN_FLIGHT_MAX
from nextgen.kernel.routing.names import TopicName
from nextgen.replication.ports import Commit
from nextgen.runtime.telemetry import tracing
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import UsedEpoch
from shards.assignment.broker_sync import BrokerSync, Placed
from shards.assignment.lease_keeper import LeaseKeeper
from shards.assignment.placement_policies import PlacementPolicies
from shards.assignment.shard_units import ShardUnits
from shards.assignment.unit_flight import Flight
from shards.assignment.unit_placer import UnitPlacer
from shards.assignment.unit_planner import Decided, UnitPlanner, batches
from shards.domain import assignment as assignments
from shards.metrics import ShardMetrics
from shards.ports import Clock
from shards.state.proposer import Proposer

_ATTEMPTS_MAX = 3
"""Brokers tried for one unit, if the session of each ends before it has the assignment."""

_ANSWER_MARGIN_MS = 20
"""A batch returns its partial answers this long before its deadline, rather than failing."""

_logger = structlog.get_logger(__name__)


class TopicController:
    """Lookups and first assignments of one shard's topics, for one term."""

    def __init__(
        self,
        shard_id: int,
        proposer: Proposer,
        units: ShardUnits,
        planner: UnitPlanner,
        sync: BrokerSync,
        leases: LeaseKeeper,
        placer: UnitPlacer,
        policies: PlacementPolicies,
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._proposer = proposer
        self._units = units
        self._flights = units.flights
        self._answers = units.answers
        self._tasks = units.tasks
        self._planner = planner
        self._sync = sync
        self._leases = leases
        self._placer = placer
        self._policies = policies
        self._clock = clock
        self._metrics = metrics

    def __repr__(self) -> str:
        return f"<TopicController shard={self._shard_id} in_flight={len(self._flights)}>"

    @property
    def units_in_flight(self) -> int:
        return len(self._flights)

    async def lookup(
        self,
        topics: Sequence[str],
        *,
        timeout_ms: int,
        used: Iterable[UsedEpoch] = (),
        preferred_broker_id: str = "",
        may_be_planned: bool = False,
    ) -> list[LookupAnswer]:
        """Return one answer per name, in order. Linearizable.

        A unit in ``used`` gets an epoch above the one that its ledger knows. Not if another
        assignment holds by now, or if the unit is in flight.

        A unit without a broker goes to ``preferred_broker_id`` if that broker has leased capacity
        and the rules allow it, else to any; "" for none.

        With ``may_be_planned`` the children of a layout's operation are assigned as well, before
        clients may reach them.

        A unit whose broker has not acknowledged it shortly before the deadline gets a retryable
        answer; its assignment goes on.

        Raises:
            InvalidRequest: Too many names.
            Overloaded: ``UNITS_IN_FLIGHT_MAX`` units are in flight.
            NotLeader, ProposalLost: Leadership moved.
        """
        if len(topics) > NAMES_PER_LOOKUP_MAX:
            raise InvalidRequest(f"{len(topics)} names, at most {NAMES_PER_LOOKUP_MAX} are allowed")
        self._tasks.check_open()
        now = self._clock.monotonic()
        deadline = now + (timeout_ms - _ANSWER_MARGIN_MS) / 1000
        self._metrics.lookups.inc(len(topics))
        answers: dict[str, LookupAnswer] = {}
        waiting: dict[str, asyncio.Future[LookupAnswer]] = {}
        names = self._units.reads.parse(topics, answers)
        fresh: list[Flight] = []
        used_by_name = {each.topic: each for each in used}
        for text, name in names.items():
            answer = self._flights.get(text)
            if answer is None:
                flight = self._flights.make(name, now, used=used_by_name.get(text))
                flight.preferred_broker_id = preferred_broker_id
                flight.may_be_planned = may_be_planned
                fresh.append(flight)
            else:
                waiting[text] = answer
        has_joined = bool(waiting)
        settled = self._launch(fresh)
        answers.update(settled)
        waiting.update((flight.text, flight.future) for flight in fresh)
        for text in settled:
            del waiting[text]
        # A flight may be older than this request, and a leader that was paused since then may have
        # been replaced. A flight of this request is proven by its own commit.
        if settled or has_joined:
            await self._proposer.confirm()
        if waiting:
            answers.update(await self._wait(waiting, deadline))
        return [answers[text] for text in topics]

    def assign_ahead(self, names: Iterable[TopicName], preferred_broker_id: str = "") -> None:
        """Begin to assign units that are about to be looked up; their brokers open them at once.

        Call it in the step of the loop that proposed what the units need: both records are then
        committed together. The lookups find the work under way, and take up what is not. Units of
        which the brokers may not be asked at this moment are left to their lookups.
        """
        now = self._clock.monotonic()
        flights: list[Flight] = []
        for name in names:
            if self._flights.get(name.text) is None:
                flight = self._flights.make(name, now)
                flight.preferred_broker_id = preferred_broker_id
                flight.may_be_planned = flight.opens_at_once = True
                flights.append(flight)
        try:
            self._launch(flights)
        except MetadataError as error:
            _logger.debug("units not assigned ahead", shard=self._shard_id, why=str(error))

    # Starting --------------------------------------------------------------------------------

    def _launch(self, flights: Sequence[Flight]) -> dict[str, LookupAnswer]:
        """Start the work on units that need any; return the answers of the others, by name."""
        if not flights:
            return {}
        plan = self._planner.plan(flights)
        # Units that are planned again are in flight already, and never refused.
        fresh = sum(self._flights.get(flight.text) is not flight.future for flight in flights)
        more = min(fresh, plan.units_in_flight)
        if more and len(self._flights) + more > UNITS_IN_FLIGHT_MAX:
            raise Overloaded(f"shard {self._shard_id} has {UNITS_IN_FLIGHT_MAX} units in flight")
        for batch in batches(plan.placed):
            commit = self._proposer.propose([event for _, _, event in batch])
            self._flights.register(flight for flight, _, _ in batch)
            self._tasks.run(self._carry_out(commit, batch))
        if plan.resent:
            self._flights.register(flight for flight, _ in plan.resent)
            self._tasks.run(self._resend(plan.resent))
        if plan.unread:
            self._flights.register(plan.unread)
            self._tasks.run(self._read_policies(plan.unread))
        if plan.starved:
            self._flights.register(plan.starved)
            self._leases.want(len(plan.starved))
            self._tasks.run(self._wait_for_capacity(plan.starved))
        return {flight.text: answer for flight, answer in plan.settled}

    # Carrying out -----------------------------------------------------------------------------

    async def _carry_out(
        self,
        commit: asyncio.Future[Commit],
        placed: Sequence[Decided],
    ) -> None:
        try:
            first = (await commit).first_position
        except MetadataError as error:
            self._flights.fail([flight for flight, _, _ in placed], error)
            return
        self._metrics.assignments.inc(len(placed))
        units = []
        for offset, (flight, topic, event) in enumerate(placed):
            assignment = assignments.evolve(None, event)
            assert assignment is not None, "an assigned unit has an assignment"
            units.append((flight, Placed(topic, assignment, first + offset)))
        await self._hand_over(units)

    async def _resend(self, units: Sequence[tuple[Flight, Placed]]) -> None:
        try:
            # The state may be stale by now, if another replica leads.
            await self._proposer.confirm()
        except MetadataError as error:
            self._flights.fail([flight for flight, _ in units], error)
            return
        await self._hand_over(units)

    async def _hand_over(self, units: Sequence[tuple[Flight, Placed]]) -> None:
        by_session: dict[str, list[tuple[Flight, Placed]]] = {}
        for flight, placed in units:
            by_session.setdefault(placed.assignment.session_id, []).append((flight, placed))
        groups = list(by_session.values())
        if len(groups) == 1:
            await self._hand_over_group(groups[0])
        else:
            await asyncio.gather(*map(self._hand_over_group, groups))

    async def _hand_over_group(self, units: Sequence[tuple[Flight, Placed]]) -> bool:
        """Send units to their one broker; False if it has no room for all of them."""
        with tracing.span("assign", units=len(units)):
            error = await self._sync.assign(
                [placed for _, placed in units],
                take_over=any(flight.opens_at_once for flight, _ in units),
            )
        if isinstance(error, SessionExpired):
            await self._start_over([flight for flight, _ in units], RejectionCode.NO_BROKER, error)
            return True
        if isinstance(error, Refused) and error.code == RejectionCode.NO_CAPACITY:
            await self._keep_what_fits(units, error)
            return False
        if error is None:
            broker = await self._units.owners.find(units[0][1].assignment)
            if broker is not None:
                self._answer(units, broker)
                return True
        owner = units[0][1].assignment.broker_id
        why = f"broker {owner} did not take the assignment yet"
        if error is not None:
            why = f"{why}: {error}"
            _logger.info("assignment not synced", shard=self._shard_id, broker=owner, why=why)
        now = self._clock.monotonic()
        for flight, _ in units:
            self._metrics.assign_given_up.observe(now - flight.started_at)
            self._flights.land(
                flight, self._answers.rejected(flight.text, RejectionCode.NO_BROKER, why)
            )
        return True

    def _answer(self, units: Sequence[tuple[Flight, Placed]], broker: BrokerRecorded) -> None:
        now = self._clock.monotonic()
        for flight, placed in units:
            self._metrics.assign_latency.observe(now - flight.started_at)
            answer = self._answers.served(placed.assignment, broker, placed.position)
            self._flights.land(flight, answer)

    async def _keep_what_fits(self, units: Sequence[tuple[Flight, Placed]], error: Refused) -> None:
        """Send what fits of a batch that was refused; plan the other units again.

        A refusal that does not say how many fit is of metadata, or of an earlier release: what fits
        is found by halves.
        """
        is_known = error.room is not None
        fitting = len(units) // 2 if error.room is None else min(error.room, len(units) - 1)
        fit = fitting > 0 and await self._hand_over_group(units[:fitting])
        if fit and not is_known:
            await self._hand_over_group(units[fitting:])
            return
        session_id = units[0][1].assignment.session_id
        self._placer.note_full(session_id)
        elsewhere = [flight for flight, _ in units[fitting:]]
        for flight in elsewhere:
            flight.refused_by |= {session_id}
        await self._start_over(elsewhere, RejectionCode.NO_CAPACITY, error)

    async def _start_over(
        self, flights: Sequence[Flight], code: RejectionCode, error: MetadataError
    ) -> None:
        """Plan units again that their broker did not take because of ``error``."""
        again = []
        for flight in flights:
            flight.attempts += 1
            if flight.attempts < _ATTEMPTS_MAX:
                again.append(flight)
            else:
                self._flights.land(flight, self._answers.rejected(flight.text, code, str(error)))
        await self._launch_again(again)

    async def _launch_again(self, flights: Sequence[Flight]) -> None:
        """Plan units again that are in flight."""
        try:
            settled = self._launch(flights)
            for flight in flights:
                flight.parents = None
            if settled:
                await self._proposer.confirm()
        except MetadataError as error:
            self._flights.fail(flights, error)
            return
        for flight in flights:
            if flight.text in settled:
                self._flights.land(flight, settled[flight.text])

    async def _read_policies(self, flights: Sequence[Flight]) -> None:
        """Read the policies of the units' namespaces, then plan them."""
        async with self._policies.deciding(
            flight.name.namespace_text for flight in flights
        ) as policies:
            known = []
            for flight in flights:
                found = policies.of(flight.name.namespace_text)
                if isinstance(found, MetadataError):
                    why = f"the placement rules of its namespace cannot be read: {found}"
                    refusal = self._answers.rejected(flight.text, RejectionCode.NO_BROKER, why)
                    self._flights.land(flight, refusal)
                else:
                    flight.parents = found
                    known.append(flight)
            await self._launch_again(known)

    async def _wait_for_capacity(self, flights: Sequence[Flight]) -> None:
        """Plan units again when leases have grown, as many as there is room for: to plan thousands
        for each unit of room would keep the node from everything else.

        Units whose time to wait is over are refused as when they were planned last.
        """
        deadline = max(flight.waits_until or 0.0 for flight in flights)
        useless = self._room()
        while flights and (left := deadline - self._clock.monotonic()) > 0:
            if not await self._leases.wait_change(left * 1000):
                break
            # The room that there was they may not have: it is other tenants' reserve, for one.
            useless = min(useless, self._room())
            room = self._room() - useless
            some, flights = flights[:room], flights[room:]
            await self._launch_again(some)
            if flights:
                self._leases.want(len(flights))
        room = max(0, self._room() - useless)
        await self._launch_again(flights[:room])
        await self._refuse(flights[room:])

    def _room(self) -> int:
        """Return how many more units the leases in force have room for."""
        found = self._leases.candidates()
        return sum(each.units_leased - each.units_used for each in found if each.has_room)

    async def _refuse(self, flights: Sequence[Flight]) -> None:
        """Answer units for which no capacity has come with the reason."""
        try:
            if flights:
                await self._proposer.confirm()
        except MetadataError as error:
            self._flights.fail(flights, error)
            return
        for flight in flights:
            assert flight.refusal is not None, "a unit waits because it was refused"
            if flight.refusal.code is RejectionCode.SHARE_EXCEEDED:
                self._metrics.share_refusals.inc()
            self._flights.land(flight, self._answers.refused(flight.text, flight.refusal))

    async def _wait(
        self, waiting: dict[str, asyncio.Future[LookupAnswer]], deadline: float
    ) -> dict[str, LookupAnswer]:
        timeout = max(0.0, deadline - self._clock.monotonic())
        # Not gathered: cancelling one caller must not cancel a flight that others share.
        await asyncio.wait(set(waiting.values()), timeout=timeout)
        return {
            text: future.result() if future.done() else self._unfinished(text)
            for text, future in waiting.items()
        }

    def _unfinished(self, text: str) -> LookupAnswer:
        why = "the assignment has not reached its broker yet"
        return self._answers.rejected(text, RejectionCode.NO_BROKER, why)
