"""Deletes topics: checks that the owners of all units have ended their epochs, and ends the rest.

A deletion that was checked names the epochs that owners have ended for it (ADR 0076). Here these
are compared with the units as they are at the decision: a unit that was assigned since then may
have acknowledged messages, so it is to be asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import UNITS_PER_RECORD_MAX
from nextgen.kernel.routing.names import Domain, TopicName, parse_topic
from nextgen.replication.ports import Commit
from protos.nextgen.v1.shard_service_pb2 import (
    TOPIC_FORM_ANY,
    TOPIC_FORM_WITH_PARTITIONS,
    TOPIC_FORM_WITHOUT_PARTITIONS,
    CommandResult,
    DeleteTopic,
    TopicForm,
)
from shards.domain import assignment, topic
from shards.domain.assignment import REASON_TOPIC_DELETED, Assignment, UnassignTopic
from shards.domain.lookup import kept_units, listed_units
from shards.domain.scalable import decider as scalable
from shards.domain.scalable.commands import DeleteScalableTopic
from shards.domain.scalable.state import ScalableTopic
from shards.domain.states import StateKind
from shards.domain.topic import taken_by_twin, twin_of
from shards.inventory.command_answer import Answer, conclude, record
from shards.inventory.forced_deletions import ForcedDeletions
from shards.inventory.topic_bounds import TopicBounds
from shards.state.shard_state import ShardState
from shards.wire.event import DomainEvent

OnUnassigned = Callable[[Sequence[Assignment]], None]
"""Is called with the units of a deleted topic that were ever assigned, once that is committed: they
are to be released, and their messages removed. Those that had no owner have none here."""


class _Plan(NamedTuple):
    """What goes with a topic: its layout, the classic topic that it replaced, and the units of both
    that were ever assigned, by key."""

    decision: Accepted[topic.TopicEvent]
    layout: ScalableTopic | None
    classic: topic.TopicState
    units: dict[str, Assignment]


class TopicDeletion:
    """Decides deletions of topics for one shard, for one term."""

    def __init__(
        self,
        state: ShardState,
        on_unassigned: OnUnassigned | None,
        bounds: TopicBounds | None,
        forced: ForcedDeletions,
    ) -> None:
        self._state = state
        self._on_unassigned = on_unassigned
        self._bounds = bounds
        self._forced = forced

    def delete(
        self,
        command_id: bytes,
        name: str,
        before: topic.TopicState,
        body: DeleteTopic,
        also: Sequence[DomainEvent] = (),
    ) -> Answer:
        """Delete a topic with all its units, or refuse it; ``also`` goes into the last record.

        STALE_EPOCH: a unit was assigned that no owner has ended for this deletion. PARTITIONED and
        NOT_PARTITIONED: the topic has another form than the command is for.
        """
        topic_id = "" if before is None else before.topic_id
        result = CommandResult(id=topic_id)
        plan = self._plan(name, before, body)
        if isinstance(plan, Rejected):
            # What passes is not remembered: the same command comes again once owners were asked.
            passes = plan.code is RejectionCode.STALE_EPOCH
            return conclude(self._state, b"" if passes else command_id, plan, result)
        decision, layout, classic, units = plan
        # The assignments of a topic with very many units end in several records. The last record
        # deletes the topic: if it is lost, the topic exists without owners and gets new ones.
        ended = [each for _, each in sorted(units.items()) if each.is_assigned]
        idle = [each for _, each in sorted(units.items()) if not each.is_assigned]
        while len(ended) > UNITS_PER_RECORD_MAX:
            part, ended = ended[:UNITS_PER_RECORD_MAX], ended[UNITS_PER_RECORD_MAX:]
            self._notify_unassigned(part, self._state.proposer.propose(_unassign(part)))
        events = (
            *_unassign(ended),
            *decision.events,
            *_layout_deleted(layout, name, topic_id),
            *_classic_deleted(classic, body),
            *also,
        )
        answer = record(self._state, command_id, events, result)
        assert answer.commit is not None, "a topic that was there has an event when it goes"
        if body.force:
            self._forced.note(name)
        if self._bounds is not None:
            self._bounds.note(parse_topic(name).namespace_text, -1 if classic is None else -2)
        self._notify_unassigned([*ended, *idle], answer.commit)
        return answer

    def refusal(self, name: str, before: topic.TopicState, body: DeleteTopic) -> Rejected | None:
        """Return why ``delete`` would refuse a topic at this moment, None if it would not."""
        plan = self._plan(name, before, body)
        return plan if isinstance(plan, Rejected) else None

    def _plan(self, name: str, before: topic.TopicState, body: DeleteTopic) -> Rejected | _Plan:
        unfit = _check_form(name, before, body.form)
        if unfit is not None:
            return unfit
        topic_id = "" if before is None else before.topic_id
        decision = topic.decide(before, topic.DeleteTopic(name, topic_id, body.force))
        if isinstance(decision, Rejected):
            return decision
        parsed = parse_topic(name)
        if self.layout_beside(parsed) is not None:
            return taken_by_twin(parsed)
        layout = self._layout(name)
        classic = self._classic(layout)
        units = {**self._state.scans.assignments_of_topic(topic_id)}
        listed = listed_units(units.values(), layout)
        if classic is not None:
            of_classic = self._state.scans.assignments_of_topic(classic.topic_id)
            listed += kept_units(of_classic.values(), layout)
            units.update(of_classic)
        stale = _check_ended(name, topic_id, listed, body)
        return stale or _Plan(decision, layout, classic, units)

    def layout_beside(self, classic: TopicName) -> ScalableTopic | None:
        """Return the layout of the scalable topic that has replaced a classic one, if one has."""
        return self._layout(twin_of(classic)) if classic.domain is Domain.PERSISTENT else None

    def _layout(self, name: str) -> ScalableTopic | None:
        if self._state.reads.total(StateKind.SCALABLE_TOPIC) == 0:
            return None
        return self._state.reads.load_scalable(name)

    def _classic(self, layout: ScalableTopic | None) -> topic.TopicState:
        """Return the classic topic that the one with ``layout`` has replaced, if it is there."""
        if layout is None:
            return None
        return self._state.reads.load_topic(twin_of(parse_topic(layout.name)))

    def _notify_unassigned(
        self, ended: Sequence[Assignment], commit: asyncio.Future[Commit]
    ) -> None:
        listener = self._on_unassigned
        if listener is None or not ended:
            return

        def notify(done: asyncio.Future[Commit]) -> None:
            if not done.cancelled() and done.exception() is None:
                listener(ended)

        commit.add_done_callback(notify)


def _check_form(name: str, before: topic.TopicState, wanted: TopicForm) -> Rejected | None:
    """Return why the topic is not one that a command for this form deletes, None if it is."""
    if wanted == TOPIC_FORM_ANY or before is None:
        return None
    if before.partitions and wanted == TOPIC_FORM_WITHOUT_PARTITIONS:
        return Rejected(RejectionCode.PARTITIONED, f"topic {name} has partitions")
    if not before.partitions and wanted == TOPIC_FORM_WITH_PARTITIONS:
        return Rejected(RejectionCode.NOT_PARTITIONED, f"topic {name} has no partitions")
    return None


def _check_ended(
    name: str, topic_id: str, units: Iterable[Assignment], body: DeleteTopic
) -> Rejected | None:
    """Return which unit keeps the topic from being deleted, None if none does.

    A unit without an owner may have subscriptions, which only an owner can tell. A forced deletion
    does not ask for them.
    """
    if not body.is_checked:
        return None
    if body.topic_id and body.topic_id != topic_id:
        return _stale(f"topic {name} was created anew")
    ended = {each.unit: each.epoch for each in body.ended}
    for each in units:
        if not each.is_assigned and body.force:
            continue
        if not each.is_assigned or ended.get(each.unit) != each.epoch:
            return _stale(f"{each.name} is in epoch {each.epoch}, which was not ended")
    return None


def _layout_deleted(
    layout: ScalableTopic | None, name: str, topic_id: str
) -> Sequence[DomainEvent]:
    """Return the events that end the layout of a topic, none of a classic one."""
    decision = scalable.decide(layout, DeleteScalableTopic(name, topic_id))
    assert isinstance(decision, Accepted), "what is not there is deleted"
    return decision.events


def _classic_deleted(classic: topic.TopicState, body: DeleteTopic) -> Sequence[DomainEvent]:
    """Return the events that end the classic topic whose units were segments, none without one."""
    if classic is None:
        return ()
    order = topic.DeleteTopic(classic.name, classic.topic_id, body.force)
    decision = topic.decide(classic, order)
    assert isinstance(decision, Accepted), "a topic that exists can be deleted"
    return decision.events


def _stale(why: str) -> Rejected:
    return Rejected(RejectionCode.STALE_EPOCH, why)


def _unassign(ended: Sequence[Assignment]) -> list[DomainEvent]:
    events: list[DomainEvent] = []
    for each in ended:
        order = UnassignTopic(each.topic_id, each.unit, REASON_TOPIC_DELETED)
        decision = assignment.decide(each, order)
        assert isinstance(decision, Accepted), "an assigned unit can be unassigned"
        events += decision.events
    return events
