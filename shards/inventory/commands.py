"""Carries out each command on the inventories of a shard: load, decide, propose.

``start`` does this without waiting where possible. It returns longer work only where a parent has
to be read at its home shard, or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, assert_never

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.governance.policies import NO_RULES
from nextgen.kernel.limits.cluster import PARENT_READ_ATTEMPTS_MAX
from nextgen.kernel.routing.names import NamespaceName, TopicName
from nextgen.runtime.telemetry import tracing
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import CommandResult
from shards.domain import namespace, parent_gate, tenant, topic
from shards.domain.parent import SetProperties
from shards.domain.parent_gate import ParentKind
from shards.domain.policies import NO_PACKED_POLICIES, PackedPolicies, SetPolicies
from shards.inventory.bulk_creation import BulkCreation
from shards.inventory.bulk_turns import BulkTurns
from shards.inventory.command_answer import Answer, answer_gate, conclude, finish, record
from shards.inventory.forced_deletions import ForcedDeletions
from shards.inventory.parents.deletion import NAMESPACES, TENANTS, ParentDeletion
from shards.inventory.parents.gates import ParentGates, ParentReads, WantedParent
from shards.inventory.placement_check import PlacementCheck
from shards.inventory.renames.pointers import NOT_ASKED, NamePointers, NameUses
from shards.inventory.renames.renaming import IsBusy, OnEnded, TopicRenaming
from shards.inventory.restoration import Restoration
from shards.inventory.scalable.commands import OnScalableDecided, ScalableCommands, note_decided
from shards.inventory.shadows.sources import SHADOWS_SHOWN, ShadowSources, has_shadows
from shards.inventory.shadows.topics import ShadowTopics
from shards.inventory.topic_bounds import NO_BOUNDS, NamespacePolicies, TopicBounds
from shards.inventory.topic_creation import TopicCreation, namespaces_of
from shards.inventory.topic_deletion import OnUnassigned, TopicDeletion
from shards.ports import AssignAhead, BrokerDirectory, ShadowDirectory
from shards.state.shard_state import ShardState
from shards.wire.command import (
    NewTopic,
    OnGate,
    OnNamespace,
    OnNewTopics,
    OnScalable,
    OnShadows,
    OnSource,
    OnTenant,
    OnTopic,
    ParsedCommand,
    RefusedCommand,
    first_policies,
    slots_of,
    to_policies,
    topic_of,
)
from shards.wire.event import DomainEvent, to_properties
from shards.wire.name_orders import OnPoint, OnRename

Work = Answer | Coroutine[Any, Any, CommandResult]
Attempt = Callable[[ParentReads], Answer | list[WantedParent]]
"""Tries to carry out a create; returns the parents that must be read first, if any."""


class InventoryCommands:
    """Decides for one shard, for one term."""

    def __init__(
        self,
        state: ShardState,
        directory: ShadowDirectory,
        on_unassigned: OnUnassigned | None,
        policies: NamespacePolicies | None,
        brokers: BrokerDirectory | None,
        on_scalable: OnScalableDecided | None = None,
        assign_ahead: AssignAhead | None = None,
        is_busy: IsBusy | None = None,
        on_ended: OnEnded | None = None,
    ) -> None:
        self._state = state
        self._policies = policies
        self._placement = None if brokers is None else PlacementCheck(state, brokers)
        self._gates = ParentGates(state, directory)
        self._bounds = None if policies is None else TopicBounds(state, policies)
        forced = ForcedDeletions(state)
        self.pointers = NamePointers(state, directory)
        self._creation = TopicCreation(
            state, self._gates, self._bounds, forced, self.pointers, on_scalable, assign_ahead
        )
        turns = BulkTurns(state)
        self.bulk = BulkCreation(state, self._gates, self._bounds, turns, self.pointers)
        """Counts against the same bounds as ordinary creates."""
        self.restoration = Restoration(state, turns, self._bounds)
        self._deletion = ParentDeletion(state, directory)
        self._scalable = ScalableCommands(state, on_scalable, assign_ahead)
        self._on_scalable = on_scalable
        self._topic_deletion = TopicDeletion(state, on_unassigned, self._bounds, forced)
        self.renaming = TopicRenaming(
            state,
            directory,
            self._gates,
            self._bounds,
            self.pointers,
            self._topic_deletion,
            is_busy,
            on_ended,
        )
        self._sources = ShadowSources(state, directory, self._topic_deletion)
        self._shadows = ShadowTopics(state, directory, self._topic_deletion)

    def start(self, command: ParsedCommand) -> Work:
        """Carry out ``command`` as far as it goes without waiting.

        Raises:
            NotLeader, Overloaded, InvalidRequest: Nothing was proposed.
        """
        match command:
            case RefusedCommand():
                return conclude(self._state, command.command_id, command.rejected, CommandResult())
            case OnNewTopics():
                return self._create_topics(command)
            case OnGate():
                return self._order_gate(command)
            case OnSource() | OnShadows():
                return self._on_shadows(command)
            case OnTenant():
                return self._on_tenant(command)
            case OnNamespace():
                return self._on_namespace(command)
            case OnTopic():
                return self._on_topic(command)
            case OnRename() | OnPoint():
                return self._on_name(command)
            case OnScalable():
                return self._scalable.carry_out(command)
            case _:
                assert_never(command)

    def _on_shadows(self, command: OnSource | OnShadows) -> Work:
        if isinstance(command, OnSource):
            return self._sources.carry_out(command)
        return self._shadows.grow(command)

    def _on_name(self, command: OnRename | OnPoint) -> Work:
        if isinstance(command, OnRename):
            return self.renaming.rename(command)
        return self.pointers.point(command)

    def note_deleted(self, namespace: str) -> None:
        """Note that a topic of a namespace was deleted without a command."""
        if self._bounds is not None:
            self._bounds.note(namespace, -1)

    # Tenants ----------------------------------------------------------------------------------

    def _on_tenant(self, command: OnTenant) -> Work:
        state, name, body = self._state, command.name, command.body
        match body:
            case pb.DeleteTenant():
                return self._deletion.delete(
                    TENANTS, name, command.command_id, body.expected_version
                )
            case pb.CreateTenant():
                order: tenant.TenantCommand = tenant.CreateTenant(
                    state.ids.mint(name),
                    name,
                    to_properties(body.properties),
                    first_policies(body),
                    body.is_rename,
                )
            case pb.SetTenantProperties():
                order = _set_properties(name, body)
            case pb.SetPolicies():
                order = to_policies(name, body)
            case _:
                assert_never(body)
        before = state.reads.load_tenant(name)
        decision = tenant.decide(before, order)
        policies = order.policies if isinstance(order, tenant.CreateTenant) else order
        if isinstance(policies, SetPolicies) and isinstance(decision, Accepted):
            present = NO_PACKED_POLICIES if before is None else before.policies
            if (refusal := self._unknown_broker(policies, present)) is not None:
                return refusal
        result = CommandResult()
        if isinstance(decision, Accepted):
            after = fold(tenant.evolve, before, decision.events)
            assert after is not None, "no order of these removes a tenant"
            result = CommandResult(id=after.tenant_id, version=after.version)
        return conclude(state, command.command_id, decision, result)

    # Namespaces -------------------------------------------------------------------------------

    def _on_namespace(self, command: OnNamespace) -> Work:
        name, body = command.name.text, command.body
        match body:
            case pb.DeleteNamespace():
                return self._deletion.delete(
                    NAMESPACES, name, command.command_id, body.expected_version
                )
            case pb.CreateNamespace():
                create = partial(self._create_namespace, command.command_id, command.name, body)
                return self._create(command, create)
            case pb.SetNamespaceProperties():
                return self._decide_namespace(command.command_id, _set_properties(name, body), ())
            case pb.SetPolicies():
                return self._decide_namespace(command.command_id, to_policies(name, body), ())
            case _:
                assert_never(body)

    def _create_namespace(
        self,
        command_id: bytes,
        name: NamespaceName,
        body: pb.CreateNamespace,
        reads: ParentReads,
    ) -> Answer | list[WantedParent]:
        parent = WantedParent(ParentKind.TENANT, name.tenant)
        admission = self._gates.admit((parent,), reads)[parent]
        if admission is None:
            return [parent]
        if isinstance(admission, Rejected):
            return conclude(self._state, command_id, admission, CommandResult())
        order = namespace.CreateNamespace(
            self._state.ids.mint(name.text),
            name.text,
            admission.parent_id,
            to_properties(body.properties),
            first_policies(body),
            body.is_rename,
        )
        return self._decide_namespace(command_id, order, admission.events)

    def _decide_namespace(
        self,
        command_id: bytes,
        order: namespace.CreateNamespace | SetProperties | SetPolicies,
        gate_events: tuple[parent_gate.ParentGateEvent, ...],
    ) -> Answer:
        before = self._state.reads.load_namespace(order.name)
        decision = namespace.decide(before, order)
        if isinstance(decision, Rejected):
            return conclude(self._state, command_id, decision, CommandResult())
        policies = order.policies if isinstance(order, namespace.CreateNamespace) else order
        if isinstance(policies, SetPolicies):
            present = NO_PACKED_POLICIES if before is None else before.policies
            if (refusal := self._unknown_broker(policies, present)) is not None:
                return refusal
        after = fold(namespace.evolve, before, decision.events)
        assert after is not None, "no order of these removes a namespace"
        result = CommandResult(id=after.namespace_id, version=after.version)
        events: tuple[DomainEvent, ...] = (*gate_events, *decision.events)
        return record(self._state, command_id, events, result)

    # Topics -----------------------------------------------------------------------------------

    def _create_topics(self, command: OnNewTopics) -> Work:
        if self._state.names.have_pointers:
            names = [each.name for each in command.topics if isinstance(each, NewTopic)]
            if any(map(self.pointers.of, names)):
                return self._create_named_topics(command, names)
        return self._create_topics_by(command, NOT_ASKED)

    async def _create_named_topics(
        self, command: OnNewTopics, names: Sequence[TopicName]
    ) -> CommandResult:
        """Create topics of which some may have the names of renamed ones."""
        uses = await self.pointers.ask(names)
        self._check_slots(command)
        work = self._create_topics_by(command, uses)
        return await (finish(self._state, work) if isinstance(work, Answer) else work)

    def _create_topics_by(self, command: OnNewTopics, uses: NameUses) -> Work:
        if self._bounds is None:
            return self._create(command, partial(self._creation.attempt, command, NO_BOUNDS, uses))
        policies = self._bounds.known(namespaces_of(command))
        if policies is not None:
            outcome = self._creation.attempt(command, policies, uses, {})
            if isinstance(outcome, Answer):
                return outcome
        return self._create_topics_later(command, self._bounds, uses)

    async def _create_topics_later(
        self, command: OnNewTopics, bounds: TopicBounds, uses: NameUses
    ) -> CommandResult:
        """Create topics by the policies as of the decision: a bound may change during the reads."""
        async with bounds.deciding(namespaces_of(command)) as policies:
            self._check_slots(command)
            attempt = partial(self._creation.attempt, command, policies, uses)
            work = self._create(command, attempt)
            return await (finish(self._state, work) if isinstance(work, Answer) else work)

    def _on_topic(self, command: OnTopic) -> Work:
        name, body = command.name.base_text, command.body
        before = self._state.reads.load_topic(name)
        if isinstance(body, pb.SetPolicies):
            return self._set_topic_policies(command, to_policies(name, body), before)
        match body:
            case pb.DeleteTopic():
                return self._delete_topic(command, body, before)
            case pb.SetTopicProperties():
                order: topic.TopicCommand = topic.SetTopicProperties(
                    name, to_properties(body.properties), body.expected_version
                )
            case pb.GrowTopic():
                twin = self._topic_deletion.layout_beside(command.name)
                if twin is not None:
                    refused = topic.taken_by_twin(command.name)
                    return conclude(self._state, command.command_id, refused, CommandResult())
                if self._state.reads.load_shadow_source(name) is not None:
                    return self._sources.grow(command, body)
                order = topic.GrowTopic(name, body.partitions)
            case _:
                assert_never(body)
        return self._decide_topic(command.command_id, before, order)

    def _delete_topic(
        self, command: OnTopic, body: pb.DeleteTopic, before: topic.TopicState
    ) -> Work:
        name = command.name.base_text
        if before is not None and before.source:
            return self._shadows.delete(command, before, body)
        if self._state.reads.load_shadow_source(name) is not None:
            return self._sources.delete(command, body)
        return self._topic_deletion.delete(command.command_id, name, before, body)

    def _decide_topic(
        self, command_id: bytes, before: topic.TopicState, order: topic.TopicCommand
    ) -> Answer:
        decision = topic.decide(before, order)
        result = CommandResult()
        if isinstance(decision, Accepted):
            after = fold(topic.evolve, before, decision.events)
            assert after is not None, "what is set on a topic removes none"
            result = CommandResult(id=after.topic_id, version=after.version)
        answer = conclude(self._state, command_id, decision, result)
        if isinstance(order, SetPolicies) and answer.commit and self._on_scalable:
            note_decided(self._on_scalable, order.name, answer.commit)
        return answer

    def _set_topic_policies(
        self, command: OnTopic, order: SetPolicies, before: topic.TopicState
    ) -> Work:
        check, policies = self._placement, self._policies
        if before is None or check is None or order.policies.placement == NO_RULES:
            return self._decide_topic(command.command_id, before, order)
        if (refusal := self._unknown_broker(order, before.policies)) is not None:
            return refusal
        if policies is None or not check.concerns_served(order, before):
            return self._decide_topic(command.command_id, before, order)
        return self._set_rules_of_served(command, order, check, policies)

    async def _set_rules_of_served(
        self,
        command: OnTopic,
        order: SetPolicies,
        check: PlacementCheck,
        policies: NamespacePolicies,
    ) -> CommandResult:
        """Set the rules of a topic that is served, unless they leave it no broker."""
        namespace_name = command.name.namespace_text
        async with policies.deciding((namespace_name,)) as decided_by:
            self._check_slots(command)
            parents = decided_by.of(namespace_name)
            if isinstance(parents, MetadataError):
                raise parents
            before = self._state.reads.load_topic(order.name)
            kind = "" if before is None else before.broker_kind
            nowhere = check.no_broker_left(order, parents, kind)
            if nowhere is not None:
                answer = conclude(self._state, b"", nowhere, CommandResult())
            else:
                answer = self._decide_topic(command.command_id, before, order)
            return await finish(self._state, answer)

    def _unknown_broker(self, order: SetPolicies, present: PackedPolicies) -> Answer | None:
        """Return the refusal of rules that pin to an unknown broker, None if there is none.

        It is not kept as the command's outcome: a broker may have registered by its repetition.
        """
        if self._placement is None or not order.policies.placement.pinned_brokers:
            return None
        unknown = self._placement.unknown_broker(order, present)
        if unknown is None:
            return None
        return conclude(self._state, b"", unknown, CommandResult())

    # Parents and gates ------------------------------------------------------------------------

    def _create(self, command: OnNamespace | OnNewTopics, attempt: Attempt) -> Work:
        unread = attempt({})
        return (
            unread if isinstance(unread, Answer) else self._create_later(command, attempt, unread)
        )

    async def _create_later(
        self, command: OnNamespace | OnNewTopics, attempt: Attempt, unread: list[WantedParent]
    ) -> CommandResult:
        reads: ParentReads = {}
        for _ in range(PARENT_READ_ATTEMPTS_MAX):
            reads.update(await self._gates.read(unread))
            self._check_slots(command)
            outcome = tracing.timed("decide", partial(attempt, reads))
            if isinstance(outcome, Answer):
                return await finish(self._state, outcome)
            unread = outcome
        parent = unread[0]
        raise Unavailable(f"the gate of {parent.kind.value} {parent.name} keeps changing")

    def _check_slots(self, command: ParsedCommand) -> None:
        """Check, behind a wait, that the shard still has the slots of ``command``: what it has left
        of them says nothing any more.

        Raises:
            StaleShardMap: One has left.
        """
        if (name := topic_of(command)) is not None:
            self._state.names.check(name)
            return
        for slot in slots_of(command):
            self._state.slots.check(slot)

    def _order_gate(self, command: OnGate) -> Answer:
        kind, body = command.kind, command.body
        name, parent_id = body.parent_name, body.parent_id
        order: parent_gate.ParentGateCommand
        if isinstance(body, pb.CloseParentGate):
            has_children = self._state.scans.has_children(kind, name)
            order = parent_gate.CloseParentGate(kind, name, parent_id, body.attempt, has_children)
        else:
            order = parent_gate.ReopenParentGate(kind, name, parent_id, body.attempt)
        decision = parent_gate.decide(self._state.reads.load_gate(kind, name), order)
        if kind is ParentKind.TOPIC and isinstance(decision, Rejected):
            decision = self._naming_shadows(name, decision)
        answer = conclude(self._state, command.command_id, decision, CommandResult(id=parent_id))
        gate = self._state.reads.load_gate(kind, name)
        return answer_gate(self._state, answer, body.attempt if gate is None else gate.attempt)

    def _naming_shadows(self, source: str, rejected: Rejected) -> Rejected:
        if rejected.code is not RejectionCode.NOT_EMPTY:
            return rejected
        return has_shadows(source, self._state.scans.shadows_of(source, SHADOWS_SHOWN + 1))


def _set_properties(
    name: str, body: pb.SetTenantProperties | pb.SetNamespaceProperties
) -> SetProperties:
    properties = to_properties(body.properties)
    return SetProperties(name, properties, body.expected_version, body.is_rename)
