"""Renames of topics that have their home in this shard.

    check ──▶ reserve the name at its shard ──▶ check again, propose one record ──▶ answer
                                                 units unassigned, topic renamed

The topic stays here, with all its units; other shards have pointers at most. While a rename is
under way its new name is *pending*: the shard of the name gives it to nobody else. If this leader
ends before the record, the reservation leads nowhere and the next who wants the name replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nextgen.kernel.errors import InvalidRequest, MetadataError, ProposalLost, Unavailable
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import PARENT_READ_ATTEMPTS_MAX, UNITS_PER_RECORD_MAX
from nextgen.kernel.limits.write import FORMER_NAME_REST_MS, RENAME_GRACE_MS
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from nextgen.replication.ports import Commit
from nextgen.tasks.background import cancel_and_wait, join
from protos.nextgen.v1.shard_service_pb2 import (
    NAME_USE_CURRENT,
    NAME_USE_FORMER,
    NAME_USE_FREE,
    NAME_USE_PENDING,
    NAME_USE_RESTING,
    CommandResult,
    ExecuteRequest,
    ExecuteResponse,
    GetNameUseRequest,
    GetNameUseResponse,
)
from shards.domain import assignment, topic
from shards.domain.assignment import REASON_RENAMED, Assignment, UnassignTopic
from shards.domain.parent_gate import ParentKind
from shards.domain.topic import RenameTopic, Topic, taken_by_twin
from shards.inventory.command_answer import Answer, conclude, finish, record
from shards.inventory.parents.gates import Admission, ParentGates, ParentReads, WantedParent
from shards.inventory.renames.pointers import NamePointers, NameUses, pointed
from shards.inventory.topic_bounds import NO_BOUNDS, PoliciesByNamespace, TopicBounds, kind_for
from shards.inventory.topic_deletion import TopicDeletion
from shards.ports import ShadowDirectory
from shards.state.event_levels import level_of, not_known
from shards.state.shard_state import ShardState
from shards.state.topic_names import home_slot_of
from shards.wire.event import DomainEvent
from shards.wire.name_orders import OnRename

IsBusy = Callable[[str], bool]
"""Returns whether a unit of the topic with this id is in a move, or has to be released yet."""

OnEnded = Callable[[asyncio.Future[Commit], Sequence[Assignment]], None]
"""Called with the proposal that begins with the ends of these assignments, in this order: their
brokers have to release them once it is committed."""


@dataclass(frozen=True, slots=True)
class _Reserved:
    """A name that nobody else gets, in a namespace that was there."""

    parent: WantedParent
    reads: ParentReads
    uses: NameUses


class TopicRenaming:
    """Decides renames for one shard, for one term. ``is_busy`` and ``on_ended`` are None where no
    unit is ever assigned."""

    def __init__(
        self,
        state: ShardState,
        directory: ShadowDirectory,
        gates: ParentGates,
        bounds: TopicBounds | None,
        pointers: NamePointers,
        deletion: TopicDeletion,
        is_busy: IsBusy | None,
        on_ended: OnEnded | None,
    ) -> None:
        self._state = state
        self._directory = directory
        self._gates = gates
        self._bounds = bounds
        self._pointers = pointers
        self._deletion = deletion
        self._is_busy = is_busy or (lambda _topic_id: False)
        self._on_ended = on_ended or (lambda _commit, _ended: None)
        self._pending: dict[str, str] = {}
        """By new name: the id of the topic that is about to get it."""

    async def rename(self, command: OnRename) -> CommandResult:
        """Rename a topic, or refuse it.

        NOT_FOUND; NOT_ALLOWED: such a topic is not renamed; ALREADY_EXISTS: the new name is taken,
        or leads to a topic; LIMIT_EXCEEDED: by former names, or by the new namespace;
        PARENT_NOT_FOUND. A topic that was renamed so already stays as it is.

        Raises:
            MetadataError: Nothing was renamed, unless it is indefinite. ``Unavailable``: a unit of
                the topic is in a move, or the name is another's in a moment.
        """
        before = self._topic(command)
        if isinstance(before, Answer):
            return await finish(self._state, before)
        new_name = command.new_name.base_text
        if new_name in self._pending:
            raise Unavailable(f"another rename to {new_name} is under way")
        self._pending[new_name] = before.topic_id
        try:
            answer = await self._rename(command, before.topic_id)
        finally:
            # From here on the proposed state says it, or nothing was renamed.
            del self._pending[new_name]
        return await finish(self._state, answer)

    async def make_known(self, request: ExecuteRequest, response: ExecuteResponse) -> None:
        """Return once no cache takes the new names of topics for absent that ``request`` renamed.

        Raises:
            ProposalLost: It is not known. The commands were carried out.
        """
        for command, result in zip(request.commands, response.results, strict=True):
            if not command.HasField("rename_topic") or result.rejection_code:
                continue
            name = parse_topic(command.rename_topic.new_name)
            if self._state.names.has_slot(name):
                continue
            try:
                await self._directory.point_name(name.base_text, result.id, effective=True)
            except MetadataError as error:
                raise ProposalLost(f"renamed, and not known to be effective: {error}") from error

    async def use(self, request: GetNameUseRequest) -> GetNameUseResponse:
        """Return what a name is to a topic that has its home here. Linearizable.

        Raises:
            InvalidRequest: It is no topic's name.
            StaleShardMap: The home is another shard.
            NotLeader: Leadership moved.
        """
        try:
            name = parse_topic(request.name)
        except InvalidName as error:
            raise InvalidRequest(str(error)) from error
        await self._state.proposer.confirm()
        self._state.slots.check(home_slot_of(request.topic_id, name))
        if self._pending.get(request.name) == request.topic_id:
            return GetNameUseResponse(use=NAME_USE_PENDING)
        present = self._state.reads.load_topic(request.name)
        if present is not None and present.topic_id == request.topic_id:
            return GetNameUseResponse(use=NAME_USE_CURRENT)
        former = self._state.names.former(request.name)
        if former is not None and former.topic_id == request.topic_id:
            # The clock of the next leader may be behind this one's.
            until_ms, now_ms = former.until_ms + FORMER_NAME_REST_MS, self._state.now_ms()
            if now_ms < until_ms:
                use = NAME_USE_FORMER if now_ms < former.until_ms else NAME_USE_RESTING
                return GetNameUseResponse(use=use, until_ms=until_ms)
        return GetNameUseResponse(use=NAME_USE_FREE)

    # Inside -----------------------------------------------------------------------------------

    def _topic(self, command: OnRename) -> Topic | Answer:
        """Return the topic to rename, or the answer if it is refused or was renamed so before."""
        state = self._state
        name = state.names.current(command.name)
        before = state.reads.load_topic(name.base_text)
        again = self._renamed_before(command, name)
        if again is not None:
            result = CommandResult(id=again.topic_id, version=again.version)
            return conclude(state, command.command_id, Accepted(()), result)
        refusal = self._refusal(command, name, before)
        if refusal is not None:
            return conclude(state, command.command_id, refusal, CommandResult())
        assert before is not None, "an absent topic is refused"
        if self._is_busy(before.topic_id):
            raise Unavailable(f"a unit of topic {before.name} is being moved or released")
        return before

    def _renamed_before(self, command: OnRename, name: TopicName) -> Topic | None:
        """Return the topic if it has the new name, and had the old one."""
        old, new = command.name.base_text, command.new_name.base_text
        if self._state.reads.load_topic(old) is not None or name.base_text not in (old, new):
            return None
        found = self._state.reads.load_topic(new)
        if found is None or all(each.name != old for each in found.former_names):
            return None
        return found

    def _refusal(
        self, command: OnRename, name: TopicName, before: topic.TopicState
    ) -> Rejected | None:
        """Return why the topic cannot get the new name, whatever other shards say."""
        # The namespaces are compared once the new one's is read.
        kind = "" if before is None else before.broker_kind
        decision = topic.decide(before, self._order(command, name, before, "", kind))
        if isinstance(decision, Rejected):
            return decision
        if self._deletion.layout_beside(name) is not None:
            return taken_by_twin(name)
        if self._state.reads.load_shadow_source(name.base_text) is not None:
            return Rejected(
                RejectionCode.NOT_ALLOWED,
                f"topic {name.base_text} has shadows, which follow it by its name",
            )
        assert before is not None, "an absent topic is refused"
        if (late := self._not_known(decision.events)) is not None:
            return late
        if self._state.slots.has(slot_of(command.new_name.routing_key)):
            return self._pointers.taken_by_topic(command.new_name, before.topic_id)
        return None

    def _not_known(self, events: Sequence[DomainEvent]) -> Rejected | None:
        """Return why the events cannot be stored yet: some replica's program does not know them."""
        log, level = self._state.log, level_of(events)
        if level <= log.event_level:
            return None
        behind = log.behind_event_level(level)
        refused = not_known(self._state.shard_id, events, log.event_level, behind)
        return Rejected(RejectionCode(refused.code), str(refused))

    def _order(
        self,
        command: OnRename,
        name: TopicName,
        before: topic.TopicState,
        namespace_id: str,
        broker_kind: str,
    ) -> RenameTopic:
        body = command.body
        return RenameTopic(
            name,
            "" if before is None else before.topic_id,
            command.new_name,
            namespace_id,
            self._state.now_ms(),
            body.grace_ms if body.HasField("grace_ms") else RENAME_GRACE_MS,
            broker_kind,
        )

    async def _rename(self, command: OnRename, topic_id: str) -> Answer:
        bounds, namespaces = self._bounds, [command.new_name.namespace_text]
        if bounds is None or bounds.known(namespaces) is not None:
            reserved = await self._admit(command, topic_id)
            known = partial(bounds.known, namespaces) if bounds else lambda: NO_BOUNDS
            answer = await self._decide_by(command, topic_id, reserved, known)
            if answer is not None:
                return answer
        assert bounds is not None, "without bounds it is decided"
        # They have to be read, which is done meanwhile. To hold them until the decision is certain
        # costs the group a round of messages.
        reserving = join(self._admit(command, topic_id))
        try:
            async with bounds.deciding(namespaces) as policies:
                reserved = await reserving
                answer = await self._decide_by(command, topic_id, reserved, lambda: policies)
        finally:
            await cancel_and_wait(reserving)
        assert answer is not None, "the policies were read"
        return answer

    async def _admit(self, command: OnRename, topic_id: str) -> _Reserved | Rejected:
        """Reserve the new name if its namespace is there."""
        parent = WantedParent(ParentKind.NAMESPACE, command.new_name.namespace_text)
        reads: ParentReads = {}
        admission = await self._admission(parent, reads)
        if isinstance(admission, Rejected):
            return admission
        uses = await self._reserve(command.new_name, topic_id)
        return uses if isinstance(uses, Rejected) else _Reserved(parent, reads, uses)

    async def _admission(self, parent: WantedParent, reads: ParentReads) -> Admission | Rejected:
        for _ in range(1 + PARENT_READ_ATTEMPTS_MAX):
            admission = self._gates.admit((parent,), reads)[parent]
            if admission is not None:
                return admission
            reads.update(await self._gates.read([parent]))
        raise Unavailable(f"the gate of namespace {parent.name} keeps changing")

    async def _decide_by(
        self,
        command: OnRename,
        topic_id: str,
        reserved: _Reserved | Rejected,
        known: Callable[[], PoliciesByNamespace | None],
    ) -> Answer | None:
        """Return None, with nothing decided, if ``known`` has no policies at the decision.

        Raises:
            StaleShardMap: The topic's slot has left meanwhile.
        """
        if isinstance(reserved, Rejected):
            self._state.names.check(command.name)
            return conclude(self._state, command.command_id, reserved, CommandResult())
        # The gate may have changed while the name was reserved.
        admission = await self._admission(reserved.parent, reserved.reads)
        # What is left here of a topic that moved meanwhile says nothing: it is not NOT_FOUND.
        self._state.names.check(command.name)
        if isinstance(admission, Rejected):
            return conclude(self._state, command.command_id, admission, CommandResult())
        policies = known()
        if policies is None:
            return None
        return self._decide(command, topic_id, admission, policies, reserved.uses)

    async def _reserve(self, new_name: TopicName, topic_id: str) -> NameUses | Rejected:
        """Have nobody else get the name, or return who has it."""
        if self._state.slots.has(slot_of(new_name.routing_key)):
            self._pointers.note_pointed(new_name.base_text)
            return await self._pointers.ask([new_name], topic_id)
        rejected = await self._directory.point_name(new_name.base_text, topic_id)
        return NameUses() if rejected is None else rejected

    def _decide(
        self,
        command: OnRename,
        topic_id: str,
        admission: Admission,
        policies: PoliciesByNamespace,
        uses: NameUses,
    ) -> Answer:
        """Decide the rename by the present state and propose it, without an await in between."""
        state, new_name = self._state, command.new_name
        before = self._topic(command)
        if isinstance(before, Answer):
            return before
        if before.topic_id != topic_id:
            raise Unavailable(f"topic {before.name} was created anew meanwhile")
        name = parse_topic(before.name)
        events = self._name_events(name, new_name, topic_id, uses)
        if isinstance(events, Rejected):
            return conclude(state, command.command_id, events, CommandResult())
        namespace, old_namespace = new_name.namespace_text, name.namespace_text
        if self._bounds is not None and namespace != old_namespace:
            full = self._bounds.check(namespace, policies[namespace], 0)
            if full is not None:
                return conclude(state, command.command_id, full, CommandResult())
        kind = kind_for(policies, namespace, admission.parent_id)
        order = self._order(command, name, before, admission.parent_id, kind)
        decision = topic.decide(before, order)
        if isinstance(decision, Rejected):
            return conclude(state, command.command_id, decision, CommandResult())
        return self._propose(command, before, (*admission.events, *events), decision.events, order)

    def _name_events(
        self, name: TopicName, new_name: TopicName, topic_id: str, uses: NameUses
    ) -> Sequence[DomainEvent] | Rejected:
        """Return the events that keep both names taken, as far as this shard has their slots."""
        state = self._state
        events: list[DomainEvent] = []
        if state.slots.has(slot_of(new_name.routing_key)):
            found = self._pointers.admit(new_name, uses, topic_id)
            if isinstance(found, Rejected):
                return found
            events += [each for each in found.events if each.name != new_name.base_text]
            events += pointed(state, new_name.base_text, topic_id)
        if state.slots.has(slot_of(name.routing_key)):
            events += pointed(state, name.base_text, topic_id)
        return events

    def _propose(
        self,
        command: OnRename,
        before: Topic,
        first: Sequence[DomainEvent],
        renamed: Sequence[DomainEvent],
        order: RenameTopic,
    ) -> Answer:
        state = self._state
        units = state.scans.assignments_of_topic(before.topic_id)
        ended = [each for _, each in sorted(units.items()) if each.is_assigned]
        # As with deletions: if the last record is lost, the units get owners under the old name.
        while len(ended) > UNITS_PER_RECORD_MAX:
            part, ended = ended[:UNITS_PER_RECORD_MAX], ended[UNITS_PER_RECORD_MAX:]
            self._on_ended(state.proposer.propose(_unassigned(part)), part)
        result = CommandResult(id=before.topic_id, version=before.version + 1)
        events = (*_unassigned(ended), *first, *renamed)
        answer = record(state, command.command_id, events, result, time_ms=order.time_ms)
        if answer.commit is None or answer.result is not result:
            return answer  # Some replica does not know such an event yet.
        if ended:
            self._on_ended(answer.commit, ended)
        if self._bounds is not None:
            self._bounds.note(order.new_name.namespace_text, 1)
            self._bounds.note(order.name.namespace_text, -1)
        return answer


def _unassigned(ended: Sequence[Assignment]) -> list[DomainEvent]:
    events: list[DomainEvent] = []
    for each in ended:
        order = UnassignTopic(each.topic_id, each.unit, REASON_RENAMED)
        decision = assignment.decide(each, order)
        assert isinstance(decision, Accepted), "an assigned unit can be unassigned"
        events += decision.events
    return events
