"""The inventories of one shard on its leader: commands in, results out.

    parse ──▶ known outcome? ──▶ load, decide, propose (no await) ──▶ wait for commit ──▶ answer
                                     └── parent not known here: read it, then once more

A command whose id is known is answered with its first outcome, rejections included. Every answer
waits until the state that it rests on is committed and leadership is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from nextgen.client.routing.write_admission import AdmissionHold, WriteAdmission
from nextgen.kernel.errors import (
    Definite,
    Indefinite,
    InvalidRequest,
    MetadataError,
    ProposalLost,
)
from nextgen.kernel.limits.cluster import (
    COMMANDS_PER_EXECUTE_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
    TOPICS_PER_EXECUTE_MAX,
)
from nextgen.kernel.limits.write import WRITE_READ_MS_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.background import start
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import (
    BulkCreateRequest,
    BulkCreateResponse,
    CommandResult,
    ExecuteRequest,
    ExecuteResponse,
    GetOutcomesRequest,
    GetOutcomesResponse,
    TopicUnitsResponse,
    UseTopicsRequest,
    UseTopicsResponse,
)
from shards.domain.lookup import kept_units, listed_units
from shards.domain.states import StateKind
from shards.domain.topic import twin_of
from shards.inventory.batch_parts import begin_part
from shards.inventory.command_answer import Answer, finish, repeated
from shards.inventory.commands import InventoryCommands
from shards.inventory.former_outcomes import (
    NOTHING_FORMER,
    Former,
    FormerOutcomes,
    check_here,
    check_slots,
)
from shards.inventory.reader import InventoryReader
from shards.inventory.renames.pointers import NamePointers
from shards.inventory.renames.renaming import IsBusy, OnEnded, TopicRenaming
from shards.inventory.restoration import Restoration
from shards.inventory.scalable.commands import OnScalableDecided
from shards.inventory.topic_bounds import NamespacePolicies
from shards.inventory.topic_creation import existing_topic
from shards.inventory.topic_deletion import OnUnassigned
from shards.ports import AssignAhead, BrokerDirectory, ShadowDirectory
from shards.projections.reading import RecordedOutcome
from shards.state.command_outcomes import PendingOutcome
from shards.state.shard_state import ShardState
from shards.wire.command import (
    NewTopic,
    OnNewTopics,
    ParsedCommand,
    cost_of,
    is_of_tenant,
    parse_command,
    tenants_of,
    used_topics,
)

__all__ = ["InventoryReader", "InventoryService"]

_logger = structlog.get_logger(__name__)

Begun = Answer | asyncio.Task[CommandResult] | MetadataError
"""A command under way: decided, still at work, or failed before anything was proposed."""


class InventoryService:
    """Carries out commands while this replica leads the shard; lives for one term.

    ``on_unassigned`` is called with the assignments that ended with a deleted topic, once that is
    committed: their brokers have to release them. ``on_scalable`` is called with the name of a
    scalable topic, once a command about it is committed. ``policies`` bound the number of topics in
    a namespace; without them there is no bound. Placement rules are checked by ``brokers``, and by
    ``policies``; without ``brokers`` all are accepted. ``assign_ahead`` is called with units that
    are about to be looked up, once what they need is proposed. ``is_busy`` and ``on_ended`` are for
    renames: see ``TopicRenaming``.
    """

    def __init__(
        self,
        state: ShardState,
        directory: ShadowDirectory,
        *,
        on_unassigned: OnUnassigned | None = None,
        on_scalable: OnScalableDecided | None = None,
        policies: NamespacePolicies | None = None,
        brokers: BrokerDirectory | None = None,
        admission: WriteAdmission | None = None,
        assign_ahead: AssignAhead | None = None,
        is_busy: IsBusy | None = None,
        on_ended: OnEnded | None = None,
    ) -> None:
        self._state = state
        self._admission = admission or WriteAdmission(state.shard_id)
        self._commands = InventoryCommands(
            state,
            directory,
            on_unassigned,
            policies,
            brokers,
            on_scalable,
            assign_ahead,
            is_busy,
            on_ended,
        )
        self._former = FormerOutcomes(state, directory)
        self._executing: dict[bytes, asyncio.Task[CommandResult]] = {}
        self._tasks: set[asyncio.Task[CommandResult]] = set()

    def __repr__(self) -> str:
        return f"<InventoryService {self._state!r} executing={len(self._tasks)}>"

    async def execute(self, request: ExecuteRequest, *, trace_id: str = "") -> ExecuteResponse:
        """Carry out commands in order and return their results in the same order.

        Cancelling does not stop a command that has begun.

        Raises:
            InvalidRequest, StaleShardMap: Nothing of the request was carried out.
            Definite: None of the commands was carried out. ``Overloaded``: too many writes of the
                tenant wait here.
            OutcomeForgotten: A command may have been carried out long ago. None was now, and none
                may be repeated.
            Indefinite: At least one may have been carried out: repeat with the same command ids.
        """
        commands = self._parse(request)
        former = await self._outcomes_elsewhere(commands, request)
        results = await self._carry_out(commands, request.issued_position, former)
        if trace_id and (logged := tracing.logged_trace_id(trace_id)):
            _logger.info(
                "commands carried out",
                trace_id=logged,
                shard=self._state.shard_id,
                commands=len(results),
                position=max(each.position for each in results),
            )
        return ExecuteResponse(results=results)

    async def known_commands(self, request: ExecuteRequest) -> Container[bytes]:
        """Return the ids of those commands of ``request`` that have an outcome, here or in a shard
        that their slots came from: these are not carried out again.

        Raises:
            MetadataError: As of ``execute``. Nothing of the request was carried out.
        """
        commands = self._parse(request)
        former = await self._outcomes_elsewhere(commands, request)
        ids = [each.command_id for each in commands if each.command_id]
        return {*self._state.outcomes.find(ids), *former.results}

    async def use_topics(self, request: UseTopicsRequest) -> UseTopicsResponse:
        """Return the partitions of topics; those that are absent are created by the policies of
        their namespaces.

        Raises:
            MetadataError: As of ``execute``. Nothing is lost if the request is repeated: what was
                created is found.
        """
        command = used_topics(request)
        for each in command.topics:
            if isinstance(each, NewTopic):
                self._state.names.check(each.name)
        names = [each.name.base_text for each in command.topics if isinstance(each, NewTopic)]
        topics = dict(zip(names, self._state.reads.load_topics(names), strict=True))
        existing = {
            name: existing_topic(topic) for name, topic in topics.items() if topic is not None
        }
        found = [
            existing.get(each.name.base_text) if isinstance(each, NewTopic) else None
            for each in command.topics
        ]
        absent = [each for each, was in zip(command.topics, found, strict=True) if was is None]
        if not absent:
            # What exists needs neither policies nor a turn.
            await self._state.proposer.confirm()
            return UseTopicsResponse(topics=[each for each in found if each is not None])
        command = replace(command, topics=tuple(absent))
        check_slots(self._state, (command,))
        (result,) = await self._carry_out([command], 0)
        created = iter(result.topics)
        return UseTopicsResponse(topics=[was or next(created) for was in found])

    async def first_outcomes(self, request: GetOutcomesRequest) -> GetOutcomesResponse:
        """Return first outcomes to a shard that adopted slots of this one; see
        ``FormerOutcomes.answer``."""
        return await self._former.answer(request, self._executing)

    def read_ahead(self, requests: Iterable[ExecuteRequest]) -> None:
        """Read at once what ``execute`` looks up for each of ``requests``, which come next.

        Raises:
            NotLeader: The term is over.
        """
        commands = [command for request in requests for command in request.commands]
        self._state.outcomes.read_ahead([each.command_id for each in commands if each.command_id])
        names = [new.name for each in commands for new in each.create_topics.topics]
        short = [each for each in names if len(each) <= TOPIC_TEXT_CHARACTERS_MAX]
        if short:
            # A name in another form than its key's is looked up again.
            self._state.reads.load(StateKind.TOPIC, short)

    async def create_in_bulk(self, request: BulkCreateRequest) -> BulkCreateResponse:
        """Create topics of an inventory; see ``BulkCreation.create``."""
        return await self._commands.bulk.create(request.names)

    @property
    def pointers(self) -> NamePointers:
        """The pointers to topics that have their homes elsewhere."""
        return self._commands.pointers

    @property
    def renaming(self) -> TopicRenaming:
        """What this shard's topics are called, and who may know."""
        return self._commands.renaming

    def note_deleted(self, namespace: str) -> None:
        """Note that a topic of a namespace was deleted without a command."""
        self._commands.note_deleted(namespace)

    @property
    def restoration(self) -> Restoration:
        return self._commands.restoration

    async def units_of_topic(self, name: str) -> TopicUnitsResponse:
        """Return the units of a topic that were ever assigned and that clients may use.
        Linearizable.

        Raises:
            InvalidRequest: It is no topic's name.
            NotLeader: Leadership moved.
        """
        try:
            base = parse_topic(name).base_text
        except InvalidName as error:
            raise InvalidRequest(str(error)) from error
        await self._state.proposer.confirm()
        topic = self._state.reads.load_topic(base)
        if topic is None:
            return TopicUnitsResponse()
        assigned = self._state.scans.assignments_of_topic(topic.topic_id).values()
        layout = self._state.reads.load_scalable(base)
        units = listed_units(assigned, layout)
        if layout is not None:
            classic = self._state.reads.load_topic(twin_of(parse_topic(base)))
            if classic is not None:
                assigned = self._state.scans.assignments_of_topic(classic.topic_id).values()
                units += kept_units(assigned, layout)
        return TopicUnitsResponse(
            topic_id=topic.topic_id,
            units=[
                UnitAssignment(
                    topic_id=each.topic_id,
                    unit=each.unit,
                    name=each.name,
                    epoch=each.epoch,
                    broker_id=each.broker_id,
                    session_id=each.session_id,
                )
                for each in units
            ],
        )

    def close(self) -> None:
        """Cancel the work under way; its callers get an indefinite error."""
        for task in self._tasks:
            task.cancel()

    async def _admit(self, commands: Sequence[ParsedCommand]) -> int:
        """Wait for a turn of each tenant; return the cost to be released, 0 if there is none.

        Orders to gates do not wait: the home shards of parents wait for them. Nor do commands
        without an object, which are refused at once.
        """
        if not any(map(is_of_tenant, commands)):
            return 0
        cost = cost_of(commands)
        if self._admission.try_enter(cost):
            return cost
        tenants = tenants_of(commands)
        if not tenants:
            return 0
        await self._admission.enter(tenants, cost)
        return cost

    async def _outcomes_elsewhere(
        self, commands: Sequence[ParsedCommand], request: ExecuteRequest
    ) -> Former:
        self._former.check_named(commands, request)
        if not self._former.may_be_needed:
            return NOTHING_FORMER
        former = await self._former.of(commands, request, self._executing)
        check_here(self._state, commands)  # One may have moved on while the others were asked.
        return former

    async def _carry_out(
        self,
        commands: Sequence[ParsedCommand],
        issued_position: int,
        former: Former = NOTHING_FORMER,
    ) -> list[CommandResult]:
        owned = self._state.slots.owned()
        cost = await self._admit(commands)
        begun: list[Begun] = []
        try:
            if self._state.slots.owned() is not owned:
                check_slots(self._state, commands)
            begun = self._begin_all(commands, issued_position, former)
        finally:
            self._leave_once_committed(cost, begun)
        return await self._finish(begun)

    def _begin_all(
        self, commands: Sequence[ParsedCommand], issued_position: int, former: Former
    ) -> list[Begun]:
        known = self._state.outcomes.find([each.command_id for each in commands if each.command_id])
        is_new = {each.command_id for each in commands}.difference({b""}, known, self._executing)
        if is_new:
            self._former.check_remembered(issued_position)
        return tracing.timed(
            "decide", lambda: [self._begin(each, known, former) for each in commands]
        )

    def _leave_once_committed(self, cost: int, begun: Sequence[Begun]) -> None:
        """Release ``cost`` once the last proposal is committed, even if its caller gave up.

        A command that reads its parents first counts for ``WRITE_READ_MS_MAX`` at most.
        """
        if not cost:
            return
        hold = AdmissionHold(self._admission, cost)
        tasks = [each for each in begun if isinstance(each, asyncio.Task)]
        commits = [each.commit for each in begun if isinstance(each, Answer) and each.commit]
        if tasks:
            asyncio.get_running_loop().call_later(WRITE_READ_MS_MAX / 1_000, hold.release)
            tasks[-1].add_done_callback(hold.release)
        elif commits:
            commits[-1].add_done_callback(hold.release)
        else:
            hold.release()

    def _parse(self, request: ExecuteRequest) -> list[ParsedCommand]:
        if not 0 < len(request.commands) <= COMMANDS_PER_EXECUTE_MAX:
            raise InvalidRequest(
                f"{len(request.commands)} commands in a request, "
                f"1 to {COMMANDS_PER_EXECUTE_MAX} are allowed"
            )
        topics = sum(len(each.create_topics.topics) for each in request.commands)
        if topics > TOPICS_PER_EXECUTE_MAX:
            raise InvalidRequest(
                f"{topics} topics to create in a request, "
                f"at most {TOPICS_PER_EXECUTE_MAX} are allowed"
            )
        commands = [parse_command(each) for each in request.commands]
        check_here(self._state, commands)
        return commands

    def _begin(
        self,
        command: ParsedCommand,
        known: dict[bytes, PendingOutcome | RecordedOutcome],
        former: Former,
    ) -> Begun:
        command_id = command.command_id
        if command_id:
            if command_id in self._executing:
                return self._behind(self._executing[command_id], command, former)
            first = self._state.outcomes.pending(command_id) or known.get(command_id)
            if isinstance(command, OnNewTopics) and command.batch_id:
                begun = begin_part(command, first, former.parts.get(command.batch_id, ()))
                if not isinstance(begun, OnNewTopics):
                    return begun
                command = begun
            elif first is not None:
                return repeated(first)
            elif command_id in former.results:
                return Answer(former.results[command_id])
        try:
            work = self._commands.start(command)
        except MetadataError as error:
            return error
        return work if isinstance(work, Answer) else self._run(command_id, work)

    def _behind(
        self, task: asyncio.Task[CommandResult], command: ParsedCommand, former: Former
    ) -> asyncio.Task[CommandResult]:
        """Return the task of a command at work, or for a part of another split one behind it."""
        if not isinstance(command, OnNewTopics) or not command.batch_id:
            return task

        async def repeat() -> CommandResult:
            await asyncio.wait((task,))
            known = self._state.outcomes.find([command.command_id])
            begun = self._begin(command, known, former)
            return await self._result(begun)

        return self._run(b"", repeat())

    def _run(
        self, command_id: bytes, work: Coroutine[Any, Any, CommandResult]
    ) -> asyncio.Task[CommandResult]:
        task = start("command", work, expected=MetadataError)
        self._tasks.add(task)
        if command_id:
            self._executing[command_id] = task

        def end(done: asyncio.Task[CommandResult]) -> None:
            self._tasks.discard(done)
            self._executing.pop(command_id, None)

        task.add_done_callback(end)
        return task

    async def _finish(self, begun: Sequence[Begun]) -> list[CommandResult]:
        await self._confirm(begun)
        results: list[CommandResult] = []
        errors: list[MetadataError] = []
        for each in begun:
            try:
                results.append(await self._result(each))
            except MetadataError as error:
                errors.append(error)
        if not errors:
            return results
        for failure in errors:
            if isinstance(failure, Indefinite):
                raise failure
        if results:
            raise ProposalLost(
                f"{len(errors)} of {len(begun)} commands failed, the first: {errors[0]}"
            ) from errors[0]
        raise errors[0]

    async def _confirm(self, begun: Sequence[Begun]) -> None:
        """Confirm leadership, once for all results that were decided without a proposal."""
        unproposed = [each for each in begun if isinstance(each, Answer) and each.is_unproposed]
        if unproposed:
            try:
                await self._state.proposer.confirm()
            except Definite as error:
                if len(unproposed) == len(begun):
                    raise
                raise ProposalLost(f"some commands were proposed, then: {error}") from error
            for answer in unproposed:
                answer.result.position = self._state.position

    async def _result(self, begun: Begun) -> CommandResult:
        if isinstance(begun, MetadataError):
            raise begun
        if isinstance(begun, Answer):
            return begun.result if begun.is_unproposed else await finish(self._state, begun)
        await asyncio.wait((begun,))
        if begun.cancelled():
            raise ProposalLost(f"shard {self._state.shard_id}: leadership moved")
        result = CommandResult()
        result.CopyFrom(begun.result())
        return result
