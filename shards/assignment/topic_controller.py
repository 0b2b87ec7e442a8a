"""The topic controllers of one shard: where is this topic served? Nowhere yet: assign it.

    names ──▶ plan (see unit_planner) ──▶ one record for a batch ──▶ the brokers ──▶ answers
                 ▲                                                     │ session ended, or full
                 └──── planned again: rules read, capacity leased ◀────┘

A unit on its way has one *flight*: whoever asks for it meanwhile waits for the same result.
Planning reads, decides and proposes without an await, which is all the locking there is.
One instance lives for one term of leadership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

import structlog

from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    Overloaded,
    Refused,
    SessionExpired,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX, UNITS_IN_FLIGHT_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from nextgen.replication.ports import Commit
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.background import start
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import UsedEpoch
from shards.assignment.broker_sync import BrokerSync, Placed
from shards.assignment.lease_keeper import LeaseKeeper
from shards.assignment.placement_policies import PlacementPolicies
from shards.assignment.tenant_quotas import TenantQuotas
from shards.assignment.unit_flight import Flight, Flights
from shards.assignment.unit_placer import UnitPlacer
from shards.assignment.unit_planner import Decided, UnitPlanner, batches
from shards.domain import assignment as assignments
from shards.domain.assignment import Assignment
from shards.domain.topic import Topic
from shards.metrics import ShardMetrics
from shards.ports import BrokerDirectory, Clock
from shards.state.shard_state import ShardState
from shards.wire.lookup import rejected_answer, served_answer

_ATTEMPTS_MAX = 3
"""Brokers tried for one unit whose chosen broker's session ends on the way."""

_DIRECTORY_WAIT_MS = 1_000
"""How long an answer waits for a session that its manager knows and the directory not yet."""

_ANSWER_MARGIN_MS = 20
"""A batch answers what it has so long before its deadline, rather than failing as a whole."""

_logger = structlog.get_logger(__name__)


class TopicController:
    """Lookups and first assignments of one shard's topics, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        sync: BrokerSync,
        leases: LeaseKeeper,
        directory: BrokerDirectory,
        placer: UnitPlacer,
        policies: PlacementPolicies,
        quotas: TenantQuotas,
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._sync = sync
        self._leases = leases
        self._directory = directory
        self.placer = placer
        self.policies = policies
        self._clock = clock
        self._metrics = metrics
        self._planner = UnitPlanner(
            shard_id, state, sync, directory, placer, policies, quotas, clock, metrics
        )
        self.flights = Flights()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed: MetadataError | None = None

    def __repr__(self) -> str:
        return f"<TopicController shard={self._shard_id} in_flight={len(self.flights)}>"

    @property
    def units_in_flight(self) -> int:
        return len(self.flights)

    def close(self, error: MetadataError) -> None:
        """Stop leading: everybody who waits fails with ``error``."""
        self._closed = error
        for task in self._tasks:
            task.cancel()
        self.flights.fail_all(error)

    async def lookup(
        self, topics: Sequence[str], *, timeout_ms: int, used: Iterable[UsedEpoch] = ()
    ) -> list[LookupAnswer]:
        """Return one answer per name, in order. Linearizable.

        Of those in ``used`` the epoch is raised above what their ledgers know, unless another
        assignment holds by now; one that is on its way to a broker already is not.

        A unit whose broker is not done when the time is nearly over is answered as retryable;
        its assignment goes on.

        Raises:
            InvalidRequest: Too many names.
            Overloaded: ``UNITS_IN_FLIGHT_MAX`` units are on their way.
            NotLeader, ProposalLost: Leadership moved.
        """
        if len(topics) > NAMES_PER_LOOKUP_MAX:
            raise InvalidRequest(f"{len(topics)} names, at most {NAMES_PER_LOOKUP_MAX} are allowed")
        self.check_open()
        now = self._clock.monotonic()
        deadline = now + (timeout_ms - _ANSWER_MARGIN_MS) / 1000
        self._metrics.lookups.inc(len(topics))
        answers: dict[str, LookupAnswer] = {}
        waiting: dict[str, asyncio.Future[LookupAnswer]] = {}
        names = self.parse(topics, answers)
        fresh: list[Flight] = []
        used_by_name = {each.topic: each for each in used}
        for text, name in names.items():
            answer = self.flights.get(text)
            if answer is None:
                fresh.append(self.flights.make(name, now, used=used_by_name.get(text)))
            else:
                waiting[text] = answer
        has_joined = bool(waiting)
        settled = self._launch(fresh)
        answers.update(settled)
        waiting.update((flight.text, flight.future) for flight in fresh)
        for text in settled:
            del waiting[text]
        # What is on its way was begun before this question: a leader that slept since then may
        # have been replaced. What starts with it is proven by its own commit.
        if settled or has_joined:
            await self._state.proposer.confirm()
        if waiting:
            answers.update(await self._wait(waiting, deadline))
        return [answers[text] for text in topics]

    # Shared with moves ------------------------------------------------------------------------

    def parse(
        self, topics: Iterable[str], answers: dict[str, LookupAnswer]
    ) -> dict[str, TopicName]:
        """Return the names by text, each once; ``answers`` gets those that are none.

        Raises:
            StaleShardMap: A name has its slot in another shard.
        """
        names: dict[str, TopicName] = {}
        for text in topics:
            if text in names or text in answers:
                continue
            try:
                name = parse_topic(text)
            except InvalidName as error:
                answers[text] = self.rejected(text, RejectionCode.INVALID_NAME, str(error))
                continue
            if name.text != text:
                why = f"{text!r} is not canonical, {name.text!r} is"
                answers[text] = self.rejected(text, RejectionCode.INVALID_NAME, why)
                continue
            if not self._state.slots.has(slot_of(name.routing_key)):
                raise StaleShardMap(f"topic {text} has its slot in another shard")
            names[text] = name
        return names

    def check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def rejected(
        self, text: str, code: RejectionCode, message: str, partitions: int = 0
    ) -> LookupAnswer:
        return rejected_answer(
            text,
            Rejected(code, message),
            shard_id=self._shard_id,
            position=self._state.position,
            partitions=partitions,
        )

    def load(self, names: Sequence[TopicName]) -> list[tuple[Topic | None, Assignment | None]]:
        """Return topic and assignment of each name, what is pending included."""
        return self._planner.load(names)

    def known_broker(self, assignment: Assignment) -> BrokerRecorded | None:
        """Return the session an assignment names if the directory has it."""
        return self._directory.session(assignment.session_id)

    async def broker_of(self, assignment: Assignment) -> BrokerRecorded | None:
        """Return the session an assignment names, waiting a little for the directory."""
        found = self._directory.session(assignment.session_id)
        if found is not None:
            return found
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look() -> None:
            known = self._directory.session(assignment.session_id)
            if known is not None and not arrived.done():
                arrived.set_result(None)

        unsubscribe = self._directory.on_change(look)
        try:
            await asyncio.wait((arrived,), timeout=_DIRECTORY_WAIT_MS / 1000)
        finally:
            unsubscribe()
        return self._directory.session(assignment.session_id)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out ``work`` whatever becomes of who asked for it; ends with the term."""
        start("assignment", work, self._tasks, on_failure=self._failed, expected=MetadataError)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, MetadataError):
            # The term is over, which the log says a moment later.
            self.flights.fail_all(error)
        else:
            # A mistake of ours. Nobody is to wait for ever for what it left behind.
            self.flights.fail_all(Unavailable(f"shard {self._shard_id} broke: {error!r}"))

    # Starting --------------------------------------------------------------------------------

    def _launch(self, flights: Sequence[Flight]) -> dict[str, LookupAnswer]:
        """Start what has to be waited for; return what can be answered at once, by name."""
        if not flights:
            return {}
        plan = self._planner.plan(flights)
        # Units that are planned again are among the flights already: they are never refused.
        fresh = sum(self.flights.get(flight.text) is not flight.future for flight in flights)
        more = min(fresh, plan.units_on_their_way)
        if more and len(self.flights) + more > UNITS_IN_FLIGHT_MAX:
            raise Overloaded(f"shard {self._shard_id} has {UNITS_IN_FLIGHT_MAX} units in flight")
        for batch in batches(plan.placed):
            commit = self._state.proposer.propose([event for _, _, event in batch])
            self.flights.register(flight for flight, _, _ in batch)
            self.run(self._carry_out(commit, batch))
        if plan.resent:
            self.flights.register(flight for flight, _ in plan.resent)
            self.run(self._resend(plan.resent))
        if plan.unruled:
            self.flights.register(plan.unruled)
            self.run(self._read_rules(plan.unruled))
        if plan.starved:
            self.flights.register(plan.starved)
            self._leases.want(len(plan.starved))
            self.run(self._wait_for_capacity(plan.starved))
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
            self.flights.fail([flight for flight, _, _ in placed], error)
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
            # What was read may be the past by now, if somebody else leads.
            await self._state.proposer.confirm()
        except MetadataError as error:
            self.flights.fail([flight for flight, _ in units], error)
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
        """Bring units to their one broker; False if it has no room for all of them."""
        with tracing.span("assign", units=len(units)):
            error = await self._sync.assign([placed for _, placed in units])
        if isinstance(error, SessionExpired):
            await self._start_over([flight for flight, _ in units], RejectionCode.NO_BROKER, error)
            return True
        if isinstance(error, Refused) and error.code == RejectionCode.NO_CAPACITY:
            await self._keep_what_fits(units, error)
            return False
        if error is None:
            broker = await self.broker_of(units[0][1].assignment)
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
            self.flights.land(flight, self.rejected(flight.text, RejectionCode.NO_BROKER, why))
        return True

    def _answer(self, units: Sequence[tuple[Flight, Placed]], broker: BrokerRecorded) -> None:
        now = self._clock.monotonic()
        for flight, placed in units:
            self._metrics.assign_latency.observe(now - flight.started_at)
            answer = served_answer(
                placed.assignment, broker, shard_id=self._shard_id, position=placed.position
            )
            self.flights.land(flight, answer)

    async def _keep_what_fits(self, units: Sequence[tuple[Flight, Placed]], error: Refused) -> None:
        """Offer halves of what was refused as a whole; what does not fit is planned again."""
        half = len(units) // 2
        if half and await self._hand_over_group(units[:half]):
            await self._hand_over_group(units[half:])
            return
        session_id = units[0][1].assignment.session_id
        self.placer.note_full(session_id)
        elsewhere = [flight for flight, _ in units[half:]]
        for flight in elsewhere:
            flight.refused_by |= {session_id}
        await self._start_over(elsewhere, RejectionCode.NO_CAPACITY, error)

    async def _start_over(
        self, flights: Sequence[Flight], code: RejectionCode, error: MetadataError
    ) -> None:
        """Plan units again that their broker did not take; ``error`` is why."""
        again = []
        for flight in flights:
            flight.attempts += 1
            if flight.attempts < _ATTEMPTS_MAX:
                again.append(flight)
            else:
                self.flights.land(flight, self.rejected(flight.text, code, str(error)))
        await self._launch_again(again)

    async def _launch_again(self, flights: Sequence[Flight]) -> None:
        """Plan units again that are waited for."""
        try:
            settled = self._launch(flights)
            for flight in flights:
                flight.parents = None
            if settled:
                await self._state.proposer.confirm()
        except MetadataError as error:
            self.flights.fail(flights, error)
            return
        for flight in flights:
            if flight.text in settled:
                self.flights.land(flight, settled[flight.text])

    async def _read_rules(self, flights: Sequence[Flight]) -> None:
        """Read what is said of the units' namespaces, then plan them."""
        async with self.policies.deciding(
            flight.name.namespace_text for flight in flights
        ) as rules:
            known = []
            for flight in flights:
                said = rules.of(flight.name.namespace_text)
                if isinstance(said, MetadataError):
                    why = f"the placement rules of its namespace cannot be read: {said}"
                    refusal = self.rejected(flight.text, RejectionCode.NO_BROKER, why)
                    self.flights.land(flight, refusal)
                else:
                    flight.parents = said
                    known.append(flight)
            await self._launch_again(known)

    async def _wait_for_capacity(self, flights: Sequence[Flight]) -> None:
        """Plan units again whenever leases change, until their time to wait is over."""
        deadline = max(flight.waits_until or 0.0 for flight in flights)
        while (left := deadline - self._clock.monotonic()) > 0:
            if not await self._leases.wait_change(left * 1000):
                break
            if any(candidate.has_room for candidate in self._leases.candidates()):
                break
        await self._launch_again(flights)

    async def _wait(
        self, waiting: dict[str, asyncio.Future[LookupAnswer]], deadline: float
    ) -> dict[str, LookupAnswer]:
        timeout = max(0.0, deadline - self._clock.monotonic())
        # Not gathered: a caller that goes away must not cancel what others wait for.
        await asyncio.wait(set(waiting.values()), timeout=timeout)
        return {
            text: future.result() if future.done() else self._unfinished(text)
            for text, future in waiting.items()
        }

    def _unfinished(self, text: str) -> LookupAnswer:
        why = "the assignment has not reached its broker yet"
        return self.rejected(text, RejectionCode.NO_BROKER, why)
