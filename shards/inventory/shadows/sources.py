"""Sources of shadow topics, in their home shard: their shadows live in other shards.

    admit:   no hold ──▶ shard recorded ──▶ that shard opens its gate
    delete:  held ──▶ gates closed in all shards ──▶ all closed, in all slots ──▶ deleted
                                      ╰─ one has shadows ──▶ reopened ──▶ refused
    grow:    held ──▶ shadows grown in all shards, in all slots ──▶ grown

All shards are asked, and not only those that were recorded: a shadow may have moved to another one.
One run per source at a time. A run that fails leaves its hold. The next one that needs the source
finishes a growth, and gives a deletion up unless it deletes the source itself.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import DeadlineExceeded, Definite, InvalidRequest, MetadataError
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import (
    AdmitShadow,
    CommandResult,
    DeleteTopic,
    GrowTopic,
    UnlistShadow,
)
from shards.domain import topic
from shards.domain.parent_gate import ParentKind
from shards.domain.policies import SetPolicies
from shards.domain.shadows import source as shadow_source
from shards.domain.shadows.source import (
    HoldSource,
    RecordShadowShard,
    RemoveSource,
    ShadowSource,
    ShadowSourceEvent,
)
from shards.domain.topic import taken_by_twin, twin_of
from shards.inventory.command_answer import Answer, conclude, finish, record
from shards.inventory.parents.coverage import covers_all, latest_attempt
from shards.inventory.parents.turns import Turns
from shards.inventory.topic_deletion import TopicDeletion
from shards.ports import GateAnswer, ShadowDirectory
from shards.state.fan_out import gather
from shards.state.shard_state import ShardState
from shards.wire.command import OnSource, OnTopic
from shards.wire.inventory import rejected_result

SHADOWS_SHOWN = 3
"""Shadows that a refusal names."""

Work = Answer | Coroutine[Any, Any, CommandResult]


class ShadowSources:
    """Carries out what concerns sources at home in one shard, for one term."""

    def __init__(
        self, state: ShardState, directory: ShadowDirectory, topics: TopicDeletion
    ) -> None:
        self._state = state
        self._directory = directory
        self._topics = topics
        self._turns = Turns(state.term.number)

    # Shadows come and go ----------------------------------------------------------------------

    def carry_out(self, command: OnSource) -> Work:
        """Carry out the order of a shadow's shard.

        Raises:
            InvalidRequest: There is no such shard: an order to it would never be answered.
        """
        if isinstance(command.body, UnlistShadow):
            return self._unlist(command, command.body)
        if command.body.shard_id not in self._directory.shard_ids():
            raise InvalidRequest(f"there is no shard {command.body.shard_id} that has shadows")
        return self._admit(command, command.body)

    def _admit(self, command: OnSource, body: AdmitShadow) -> Work:
        name = command.name.base_text
        held = self._state.reads.load_shadow_source(name)
        if held is not None and held.is_held:
            if self._turns.is_taken(name):
                return self._answer(command, _busy(held))
            return self._admit_later(command, body)
        present = self._state.reads.load_topic(name)
        refusal = self._refusal(command, body, present)
        if refusal is not None:
            return self._answer(command, refusal)
        assert present is not None, "an absent topic is refused"
        order = RecordShadowShard(name, present.topic_id, body.shard_id)
        result = CommandResult(id=present.topic_id)
        decision = shadow_source.decide(held, order)
        return conclude(self._state, command.command_id, decision, result)

    async def _admit_later(self, command: OnSource, body: AdmitShadow) -> CommandResult:
        name = command.name.base_text
        async with self._turns.of(name):
            await self._settle(name)
        self._state.slots.check(command.slot)
        work = self._admit(command, body)
        return await (finish(self._state, work) if isinstance(work, Answer) else work)

    def _refusal(
        self, command: OnSource, body: AdmitShadow, present: topic.TopicState
    ) -> Rejected | None:
        name = command.name.base_text
        if self._topics.layout_beside(command.name) is not None:
            return taken_by_twin(command.name)
        if present is None:
            if self._state.reads.load_topic(twin_of(command.name)) is not None:
                return taken_by_twin(command.name)
            current = self._state.names.current(command.name).base_text
            if current != name:
                # Shadows follow their source by its name, and this one leads to it for a time only.
                return Rejected(
                    RejectionCode.NOT_ALLOWED,
                    f"{name} is a former name of topic {current}: name the source by that one",
                )
            return Rejected(RejectionCode.PARENT_NOT_FOUND, f"topic {name} does not exist")
        if present.source:
            return Rejected(
                RejectionCode.NOT_ALLOWED,
                f"topic {name} is itself a shadow, of {present.source}, and cannot be a source",
            )
        if present.broker_kind:
            return Rejected(
                RejectionCode.NOT_ALLOWED,
                f"topic {name} is served by {present.broker_kind} brokers, which feed no shadows",
            )
        if present.partitions != body.partitions:
            return Rejected(
                RejectionCode.PARTITIONS_DIFFER,
                f"topic {name} has {_counted(present.partitions)}, a shadow of it has as many, "
                f"not {_counted(body.partitions)}",
            )
        return None

    def _unlist(self, command: OnSource, body: UnlistShadow) -> Work:
        _, policies = self._with_policies(command)
        if body.shadow_id and body.shadow in policies.shadow_topics:
            return self._unlist_if_same(command, body)
        return self._unlist_now(command, body)

    async def _unlist_if_same(self, command: OnSource, body: UnlistShadow) -> CommandResult:
        """Unlist a shadow unless it is another by now: an order may be late, and the shadow created
        and listed again meanwhile."""
        present = await self._directory.topic_id(body.shadow)
        self._state.slots.check(command.slot)
        if present not in ("", body.shadow_id):
            return await finish(self._state, self._answer(command, Accepted(())))
        return await finish(self._state, self._unlist_now(command, body))

    def _unlist_now(self, command: OnSource, body: UnlistShadow) -> Answer:
        before, policies = self._with_policies(command)
        if before is None or body.shadow not in policies.shadow_topics:
            return self._answer(command, Accepted(()))
        policies.shadow_topics.remove(body.shadow)
        packed = policies.SerializeToString(deterministic=True)
        order = SetPolicies(command.name.base_text, packed, policies_from_proto(policies))
        return self._answer(command, topic.decide(before, order))

    def _with_policies(self, command: OnSource) -> tuple[topic.TopicState, Policies]:
        present = self._state.reads.load_topic(command.name.base_text)
        return present, Policies.FromString(b"" if present is None else present.policies)

    def _answer(self, command: OnSource, decision: Accepted[topic.TopicEvent] | Rejected) -> Answer:
        return conclude(self._state, command.command_id, decision, CommandResult())

    # The source goes --------------------------------------------------------------------------

    async def delete(self, command: OnTopic, body: DeleteTopic) -> CommandResult:
        """Delete a topic that shadows were created of, unless it has one.

        Raises:
            DeadlineExceeded: The run failed; repeat to continue.
            NotLeader, ProposalLost: Leadership moved; likewise.
        """
        name = command.name.base_text
        async with self._turns.of(name):
            shadows = await self._shadows_in_the_way(name, body)
            self._state.slots.check(command.slot)
            source, answer = self._begin_deletion(command, body, shadows)
            result = await finish(self._state, answer)
            if source is None:
                return result
            try:
                return await self._close_and_delete(source, command.command_id, body)
            except Definite as error:
                # A definite error of one step leaves the outcome of the deletion open.
                raise _unfinished(source.name, "deleted", str(error)) from error

    async def _shadows_in_the_way(self, name: str, body: DeleteTopic) -> Sequence[str]:
        """Return shadows of a source whose owners would be asked next.

        They disconnect clients, which is for nothing if the source is to stay.
        """
        source = self._state.reads.load_shadow_source(name)
        refusal = self._topics.refusal(name, self._state.reads.load_topic(name), body)
        if source is None or refusal is None or refusal.code is not RejectionCode.STALE_EPOCH:
            return ()
        pages = await gather(
            [
                self._directory.shadows_of(each, name, SHADOWS_SHOWN + 1)
                for each in self._directory.shard_ids()
            ]
        )
        names: list[str] = []
        for page in pages:
            if isinstance(page, MetadataError):
                raise page
            names += page
        return names

    def _begin_deletion(
        self, command: OnTopic, body: DeleteTopic, shadows: Sequence[str]
    ) -> tuple[ShadowSource | None, Answer]:
        """Hold the source; without one the answer is the result of the command."""
        state, name = self._state, command.name.base_text
        if shadows:
            refused = has_shadows(name, shadows)
            return None, conclude(state, command.command_id, refused, CommandResult())
        source, before = state.reads.load_shadow_source(name), state.reads.load_topic(name)
        if source is None or self._topics.refusal(name, before, body) is not None:
            return None, self._topics.delete(command.command_id, name, before, body)
        events = self._decide_hold(source, is_deleting=True, growing_to=source.growing_to)
        return source, record(state, b"", events, CommandResult())

    async def _close_and_delete(
        self, source: ShadowSource, command_id: bytes, body: DeleteTopic
    ) -> CommandResult:
        name, attempt = source.name, self._turns.next_attempt()
        answers = await gather(
            [
                self._directory.close_gate(
                    shard_id, ParentKind.TOPIC, name, source.topic_id, attempt
                )
                for shard_id in self._directory.shard_ids()
            ]
        )
        gates = [each for each in answers if isinstance(each, GateAnswer)]
        refusals = [each.rejected for each in gates if each.rejected is not None]
        errors = [each for each in answers if isinstance(each, MetadataError)]
        if any(each.code is not RejectionCode.NOT_EMPTY for each in refusals):
            # A later attempt is under way, so another leader has replaced this one; or the source
            # has come from another shard, which counted further.
            self._turns.exceed(latest_attempt(gates))
            raise _unfinished(name, "deleted", refusals[0].message)
        if errors and not refusals:
            raise _unfinished(name, "deleted", str(errors[0]))
        if not refusals and not covers_all(gates):
            raise _unfinished(name, "deleted", "slots are between two shards")
        refused = refusals[0] if refusals else self._refusal_now(name, body)
        if refused is None:
            return await finish(self._state, self._deleted(source, command_id, body))
        await self._reopen(source, attempt)
        return await self._release(source, command_id, refused)

    def _refusal_now(self, name: str, body: DeleteTopic) -> Rejected | None:
        self._state.slots.check_key(parse_topic(name).routing_key)
        return self._topics.refusal(name, self._state.reads.load_topic(name), body)

    def _deleted(self, source: ShadowSource, command_id: bytes, body: DeleteTopic) -> Answer:
        removed = shadow_source.decide(source, RemoveSource(source.name, source.topic_id))
        assert isinstance(removed, Accepted), "a source that is there can be removed"
        before = self._state.reads.load_topic(source.name)
        return self._topics.delete(command_id, source.name, before, body, removed.events)

    async def _release(
        self, source: ShadowSource, command_id: bytes, refused: Rejected
    ) -> CommandResult:
        """End the hold of a deletion that is refused, in the record of the refusal."""
        events = self._decide_hold(source, growing_to=source.growing_to)
        # What passes is not remembered: the same command comes again once owners were asked.
        passes = refused.code is RejectionCode.STALE_EPOCH
        result = rejected_result(refused)
        return await finish(
            self._state, record(self._state, b"" if passes else command_id, events, result)
        )

    # The source grows -------------------------------------------------------------------------

    async def grow(self, command: OnTopic, body: GrowTopic) -> CommandResult:
        """Give a topic that shadows were created of more partitions: all its shadows get them
        first.

        Raises:
            DeadlineExceeded: The run failed; repeat to continue.
            NotLeader, ProposalLost: Leadership moved; likewise.
        """
        name = command.name.base_text
        async with self._turns.of(name):
            await self._give_deletion_up(name)
            self._state.slots.check(command.slot)
            return await self._grow(command, name, body.partitions)

    async def _grow(self, command: OnTopic, name: str, partitions: int) -> CommandResult:
        state = self._state
        source = state.reads.load_shadow_source(name)
        decision = topic.decide(state.reads.load_topic(name), topic.GrowTopic(name, partitions))
        begun = 0 if source is None else source.growing_to
        if partitions < begun and isinstance(decision, Accepted):
            fewer = Rejected(
                RejectionCode.FEWER_PARTITIONS,
                f"topic {name} is growing to {begun} partitions, {partitions} would be fewer",
            )
            return await finish(state, conclude(state, command.command_id, fewer, CommandResult()))
        if source is not None and isinstance(decision, Accepted) and decision.events:
            await self._grow_shadows(source, partitions)
        return await self._end_growth(command.command_id, name, partitions)

    async def _grow_shadows(self, source: ShadowSource, partitions: int) -> None:
        await self._hold(source, growing_to=partitions)
        attempt = self._turns.next_attempt()
        answers = await gather(
            [
                self._directory.grow_shadows(
                    shard_id, source.name, source.topic_id, attempt, partitions
                )
                for shard_id in self._directory.shard_ids()
            ]
        )
        self._check_carried_out(source.name, "grown", answers)
        if not covers_all([each for each in answers if isinstance(each, GateAnswer)]):
            raise _unfinished(source.name, "grown", "slots are between two shards")

    async def _end_growth(self, command_id: bytes, name: str, partitions: int) -> CommandResult:
        """Let the source have its partitions, once its shadows have them."""
        state = self._state
        state.slots.check_key(parse_topic(name).routing_key)
        before = state.reads.load_topic(name)
        decision = topic.decide(before, topic.GrowTopic(name, partitions))
        if isinstance(decision, Rejected):
            answer = conclude(state, command_id, decision, CommandResult())
        else:
            after = fold(topic.evolve, before, decision.events)
            assert after is not None, "a topic that grows is there"
            source = state.reads.load_shadow_source(name)
            released = self._decide_hold(source) if source is not None else ()
            result = CommandResult(
                id=after.topic_id, version=after.version, has_shadows=source is not None
            )
            answer = record(state, command_id, (*decision.events, *released), result)
        return await finish(state, answer)

    # What was broken off ----------------------------------------------------------------------

    async def _settle(self, name: str) -> None:
        """End what an earlier run left of a source. The caller has its turn.

        Raises:
            DeadlineExceeded: A shard could not be reached.
        """
        await self._give_deletion_up(name)
        source = self._state.reads.load_shadow_source(name)
        if source is not None and source.growing_to:
            await self._grow_shadows(source, source.growing_to)
            await self._end_growth(b"", name, source.growing_to)

    async def _give_deletion_up(self, name: str) -> None:
        source = self._state.reads.load_shadow_source(name)
        if source is not None and source.is_deleting:
            await self._reopen(source, self._turns.next_attempt())
            await self._hold(source, growing_to=source.growing_to)

    async def _reopen(self, source: ShadowSource, attempt: int) -> None:
        """Abandon an attempt in every recorded shard, those that refused it included."""
        answers = await gather(
            [
                self._directory.reopen_gate(
                    shard_id, ParentKind.TOPIC, source.name, source.topic_id, attempt
                )
                for shard_id in self._directory.shard_ids()
            ]
        )
        self._check_carried_out(source.name, "deleted", answers)

    def _check_carried_out(
        self, name: str, what: str, answers: Sequence[GateAnswer | MetadataError]
    ) -> None:
        for answer in answers:
            if isinstance(answer, MetadataError):
                raise _unfinished(name, what, str(answer))
            if answer.rejected is not None:
                self._turns.exceed(answer.attempt)
                raise _unfinished(name, what, answer.rejected.message)

    async def _hold(
        self, source: ShadowSource, *, is_deleting: bool = False, growing_to: int = 0
    ) -> None:
        """Write down, durably, what is under way BEFORE it begins, or that nothing is."""
        events = self._decide_hold(source, is_deleting=is_deleting, growing_to=growing_to)
        await finish(self._state, record(self._state, b"", events, CommandResult()))

    def _decide_hold(
        self, source: ShadowSource, *, is_deleting: bool = False, growing_to: int = 0
    ) -> Sequence[ShadowSourceEvent]:
        present = self._state.reads.load_shadow_source(source.name)
        order = HoldSource(source.name, source.topic_id, is_deleting, growing_to)
        decision = shadow_source.decide(present, order)
        assert isinstance(decision, Accepted), "whoever has the turn knows the source"
        return decision.events


def has_shadows(source: str, names: Sequence[str]) -> Rejected:
    """Return why a source is not deleted while it has the shadows called ``names``."""
    shown = ", ".join(names[:SHADOWS_SHOWN]) + (" and others" if len(names) > SHADOWS_SHOWN else "")
    return Rejected(
        RejectionCode.NOT_EMPTY, f"topic {source} has shadows, delete them first: {shown}"
    )


def _busy(source: ShadowSource) -> Rejected:
    what = "deleted" if source.is_deleting else f"given {_counted(source.growing_to)}"
    return Rejected(
        RejectionCode.NOT_ALLOWED, f"topic {source.name} is being {what}, try again later"
    )


def _counted(partitions: int) -> str:
    return f"{partitions} partitions" if partitions else "no partitions"


def _unfinished(name: str, what: str, why: str) -> DeadlineExceeded:
    return DeadlineExceeded(f"topic {name} is still being {what}, repeat to go on: {why}")
