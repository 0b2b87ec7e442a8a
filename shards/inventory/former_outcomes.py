"""First outcomes of commands whose slots were in another shard when they were sent first.

    command, not known here ── its slot came from A, and it may have been issued before that
            │                                    │
            ▼                                    ▼
      carried out ◀── unknown there ──── GetOutcomes at A (which asks where its own slots came from)
                                                 │
                                                 ╰── known: answered again

Outcomes do not move with slots. A shard decides nothing about slots that it released, so what A
does not know behind the adoption it will never have carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nextgen.client.wire.command_ids import derived_command_id
from nextgen.kernel.errors import (
    ConnectionLost,
    Definite,
    OutcomeForgotten,
    StaleShardMap,
    Unavailable,
)
from protos.nextgen.v1.shard_service_pb2 import (
    CommandResult,
    ExecuteRequest,
    GetOutcomesRequest,
    GetOutcomesResponse,
    IssuedAt,
)
from shards.domain.slots.events import CameSlots
from shards.inventory.command_answer import finish, repeated
from shards.ports import FormerShards
from shards.state.shard_state import ShardState
from shards.wire.command import OnNewTopics, ParsedCommand, slots_of, topic_of

Executing = Mapping[bytes, asyncio.Task[CommandResult]]
"""The commands at work here, by id."""


@dataclass(frozen=True, slots=True)
class Former:
    """What other shards know: results by command id, and those of the parts of batches."""

    results: Mapping[bytes, CommandResult] = field(default_factory=dict)
    parts: Mapping[bytes, Sequence[CommandResult]] = field(default_factory=dict)


NOTHING_FORMER = Former()


class FormerOutcomes:
    """Asks and answers for one shard, for one term."""

    def __init__(self, state: ShardState, shards: FormerShards | None) -> None:
        self._state = state
        self._shards = shards
        self._sure_from: dict[int, int] = {}
        """By move: a position behind its adoption."""

    def __repr__(self) -> str:
        return f"<FormerOutcomes moves={len(self._sure_from)}>"

    @property
    def may_be_needed(self) -> bool:
        """Whether any slot of this shard came from another one."""
        own = self._state.reads.load_shard()
        return own is not None and bool(own.came)

    async def of(
        self,
        commands: Sequence[ParsedCommand],
        request: ExecuteRequest,
        executing: Collection[bytes],
    ) -> Former:
        """Return what other shards know of ``commands``; ``executing`` are at work here.

        Raises:
            Unavailable: The client knew positions of none of the shards. Nothing was carried out.
            OutcomeForgotten: A command may have been carried out long ago.
            Indefinite: A shard cannot be asked. Repeat the commands.
        """
        ids = [each.command_id for each in commands if each.command_id]
        known = self._state.outcomes.find(ids)
        wanted: dict[int, list[ParsedCommand]] = {}
        for command in commands:
            is_part = isinstance(command, OnNewTopics) and bool(command.batch_id)
            if command.command_id in executing or not command.command_id:
                continue
            if command.command_id in known and not is_part:
                continue
            for source in await self._sources(command, request):
                wanted.setdefault(source, []).append(command)
        if not wanted:
            return NOTHING_FORMER
        asked = [
            self._ask(shard_id, _question(group, request.issued, [self._state.shard_id]))
            for shard_id, group in wanted.items()
        ]
        answers = await asyncio.gather(*asked)
        return _former(commands, answers)

    async def answer(
        self, request: GetOutcomesRequest, executing: Executing
    ) -> GetOutcomesResponse:
        """Answer the shard that adopted slots of this one. Linearizable.

        Raises:
            OutcomeForgotten: One that is not known may be older than what is remembered.
            NotLeader, Indefinite: It is not certain.
        """
        own_id = self._state.shard_id
        by_own_id = {each: each for each in request.command_ids}
        by_own_id |= {derived_command_id(each, own_id): each for each in request.batch_ids}
        at_work = [executing[each] for each in by_own_id if each in executing]
        if at_work:
            # Begun before the slots were released. What it has not proposed by then it never will.
            await asyncio.wait(at_work)
        response = GetOutcomesResponse()
        known = self._state.outcomes.find(by_own_id)
        for own_command_id, found in known.items():
            result = await finish(self._state, repeated(found))
            response.outcomes.add(
                command_id=by_own_id[own_command_id],
                outcome=found.outcome,
                position=result.position,
            )
        await self._state.proposer.confirm()
        unknown = [asked for own_id, asked in by_own_id.items() if own_id not in known]
        issued = {each.shard_id: each.position for each in request.issued}
        if unknown:
            self.check_remembered(issued.get(own_id, 0))
        await self._ask_further(request, unknown, issued, response)
        return response

    def check_named(self, commands: Iterable[ParsedCommand], request: ExecuteRequest) -> None:
        """Check that a client that names positions names one of this shard, or of shards that its
        slots came from.

        Raises:
            Unavailable: It does not. Nothing was carried out.
        """
        if request.issued_position or not request.issued:
            return
        named = {each.shard_id for each in request.issued if each.position}
        if not named:
            return
        for command in commands:
            if command.command_id and not (named & self._all_sources(self._slots_of(command))):
                raise Unavailable(
                    f"the command came without a position of shard {self._state.shard_id}"
                )

    def _all_sources(self, slots: Collection[int]) -> set[int]:
        return {came.from_shard for slot in slots if (came := self._came(slot)) is not None}

    async def _sources(self, command: ParsedCommand, request: ExecuteRequest) -> set[int]:
        """Return the shards that may know a command that is not known here."""
        found: set[int] = set()
        for slot in self._slots_of(command):
            came = self._came(slot)
            if came is None or came.from_shard in found:
                continue
            if not await self._is_later(came, request.issued_position):
                found.add(came.from_shard)
        return found

    def _slots_of(self, command: ParsedCommand) -> Collection[int]:
        """Return the slots of a command, with that in the id of the topic that it is about."""
        name = topic_of(command)
        home = None if name is None else self._state.names.home_slot(name)
        return slots_of(command) if home is None else (*slots_of(command), home)

    def _came(self, slot: int) -> CameSlots | None:
        """Return the last move that brought ``slot`` here, None if it was always here."""
        own = self._state.reads.load_shard()
        for came in reversed(own.came if own is not None else ()):
            if any(first <= slot <= last for first, last in came.ranges):
                return came
        return None

    async def _is_later(self, came: CameSlots, issued_position: int) -> bool:
        """Return whether a command was certainly issued behind the adoption of ``came``."""
        if came.move_id not in self._sure_from:
            # What is committed from here on, the adoption included, has lower positions.
            await self._state.proposer.confirm()
            self._sure_from[came.move_id] = self._state.position
        return issued_position >= self._sure_from[came.move_id]

    def check_remembered(self, issued_position: int) -> None:
        """Check that a command that is not known here was not carried out long ago.

        Raises:
            OutcomeForgotten: It may have been: its outcome would be forgotten.
        """
        if not issued_position:
            return
        forgotten = self._state.outcomes.forgotten_position()
        if issued_position <= forgotten:
            raise OutcomeForgotten(
                f"the command was first sent at position {issued_position} of shard "
                f"{self._state.shard_id}, outcomes are kept from {forgotten + 1} on"
            )

    async def _ask_further(
        self,
        request: GetOutcomesRequest,
        unknown: Sequence[bytes],
        issued: Mapping[int, int],
        response: GetOutcomesResponse,
    ) -> None:
        own = self._state.reads.load_shard()
        # Of a batch another shard may know other topics than this one.
        batches = set(request.batch_ids)
        wanted = [*dict.fromkeys([*unknown, *request.batch_ids])]
        if own is None or not own.came or not wanted:
            return
        asked = {*request.asked_shards, self._state.shard_id}
        position = issued.get(self._state.shard_id, 0)
        sources = {
            came.from_shard
            for came in own.came
            if came.from_shard not in asked and not await self._is_later(came, position)
        }
        for source in sorted(sources):
            asked.add(source)
            further = GetOutcomesRequest(
                command_ids=[each for each in wanted if each not in batches],
                batch_ids=[each for each in wanted if each in batches],
                issued=request.issued,
                asked_shards=sorted(asked - {source}),
            )
            answer = await self._ask(source, further)
            response.outcomes.extend(answer.outcomes)

    async def _ask(self, shard_id: int, request: GetOutcomesRequest) -> GetOutcomesResponse:
        if self._shards is None:
            raise ConnectionLost(f"shard {shard_id} cannot be asked for outcomes")
        try:
            return await self._shards.outcomes(shard_id, request)
        except Definite as error:
            # The command may have been carried out there.
            raise ConnectionLost(
                f"shard {shard_id} did not say whether it has carried the command out: {error}"
            ) from error


def check_here(state: ShardState, commands: Sequence[ParsedCommand]) -> None:
    """Check that the commands are this shard's: it has their slots, or their outcomes.

    By its first attempt a command may have removed the topic, and then its name leads nowhere.

    Raises:
        StaleShardMap: One is not.
    """
    try:
        check_slots(state, commands)
    except StaleShardMap:
        ids = {each.command_id for each in commands if topic_of(each) is not None}
        if len(ids) < len(commands) or not state.outcomes.find(ids).keys() >= ids:
            raise


def check_slots(state: ShardState, commands: Iterable[ParsedCommand]) -> None:
    """Check that the shard has the slots of the commands, or the topics that they are about.

    Raises:
        StaleShardMap: Of one it has neither.
    """
    owned = state.slots.owned()
    for command in commands:
        if (name := topic_of(command)) is not None:
            state.names.check(name)
            continue
        for slot in slots_of(command):
            if not owned[slot]:
                raise state.slots.refusal(slot)


def _question(
    commands: Iterable[ParsedCommand], issued: Iterable[IssuedAt], asked: Sequence[int]
) -> GetOutcomesRequest:
    request = GetOutcomesRequest(issued=issued, asked_shards=asked)
    for command in commands:
        if isinstance(command, OnNewTopics) and command.batch_id:
            request.batch_ids.append(command.batch_id)
        else:
            request.command_ids.append(command.command_id)
    return request


def _former(commands: Iterable[ParsedCommand], answers: Iterable[GetOutcomesResponse]) -> Former:
    batches = {each.batch_id for each in commands if isinstance(each, OnNewTopics)}
    results: dict[bytes, CommandResult] = {}
    parts: dict[bytes, list[CommandResult]] = {}
    for answer in answers:
        for outcome in answer.outcomes:
            result = CommandResult.FromString(outcome.outcome)
            if outcome.command_id in batches:
                parts.setdefault(outcome.command_id, []).append(result)
            else:
                results.setdefault(outcome.command_id, result)
    return Former(results, parts)
