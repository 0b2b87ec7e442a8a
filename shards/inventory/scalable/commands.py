"""Commands about scalable topics that exist: their segments, subscriptions and consumers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import assert_never

from nextgen.kernel.errors import NotLeader
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.replication.ports import Commit
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import CommandResult
from shards.domain.scalable import decider
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    CreateSubscription,
    DeleteSubscription,
    PlanLayoutChange,
    RegisterConsumer,
    RemoveConsumer,
    ScalableTopicCommand,
    SeekSubscription,
)
from shards.domain.scalable.state import ScalableTopic, ScalableTopicState, evolve
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType
from shards.inventory.command_answer import Answer, conclude
from shards.ports import AssignAhead
from shards.state.shard_state import ShardState
from shards.wire.command import OnScalable, ScalableBody

OnScalableDecided = Callable[[str], object]
"""Is called with the name of a scalable topic once a command about it is committed."""

_REASONS = frozenset({"left", "expired"})


class ScalableCommands:
    """Decides for one shard, for one term."""

    def __init__(
        self,
        state: ShardState,
        on_decided: OnScalableDecided | None = None,
        assign_ahead: AssignAhead | None = None,
    ) -> None:
        """``assign_ahead`` is called with the children of each operation that is planned."""
        self._state = state
        self._on_decided = on_decided
        self._assign_ahead = assign_ahead

    def carry_out(self, command: OnScalable) -> Answer:
        """Decide and propose.

        Raises:
            NotLeader, Overloaded: Nothing was proposed.
        """
        name = command.name.base_text
        before = self._state.reads.load_scalable(name)
        if before is None:
            absent = Rejected(RejectionCode.NOT_FOUND, f"topic {name} does not exist")
            return conclude(self._state, command.command_id, absent, CommandResult())
        time_ms = self._state.now_ms()
        try:
            order = to_command(command.body, time_ms)
        except ValueError as error:
            unknown = Rejected(RejectionCode.NOT_ALLOWED, str(error))
            return conclude(self._state, command.command_id, unknown, CommandResult())
        decision = decider.decide(before, order)
        result = CommandResult(id=before.topic_id)
        children: list[TopicName] = []
        if isinstance(decision, Accepted):
            state: ScalableTopicState = before
            after = fold(evolve, state, decision.events)
            assert after is not None, "no command of these deletes a topic"
            result.version = after.version
            if isinstance(order, PlanLayoutChange):
                result.operation_id = after.last_operation_id
                children = _names_of_children(command.name, after)
        answer = conclude(self._state, command.command_id, decision, result, time_ms=time_ms)
        if answer.commit is not None and self._on_decided is not None:
            note_decided(self._on_decided, name, answer.commit)
        if children and answer.commit is not None and self._assign_ahead is not None:
            self._assign_ahead(children, "")
        return answer


def _names_of_children(name: TopicName, topic: ScalableTopic) -> list[TopicName]:
    """Return the names of the segments that the operation under way makes."""
    operation = topic.operation
    children = () if operation is None else operation.children
    return [parse_topic(each.name_in(name)) for each in children]


def note_decided(listener: OnScalableDecided, name: str, commit: asyncio.Future[Commit]) -> None:
    """Call ``listener`` with the topic's name once ``commit`` is done."""

    def note(done: asyncio.Future[Commit]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        # Without a leader there is nothing to note: the next one finds it in the view.
        with contextlib.suppress(NotLeader):
            listener(name)

    commit.add_done_callback(note)


def to_command(body: ScalableBody, time_ms: int) -> ScalableTopicCommand:
    """Return the command of the aggregate that a request's body means.

    Raises:
        ValueError: It has a kind, type or reason that is none. The message says which.
    """
    match body:
        case pb.ChangeLayout():
            return PlanLayoutChange(
                ChangeKind(body.kind),
                tuple(body.segments),
                time_ms,
                body.buckets,
                body.asked_by or "operator",
            )
        case pb.AbandonLayoutChange():
            return AbandonLayoutChange(body.operation_id, "an operator asked for it")
        case pb.CreateScalableSubscription():
            return CreateSubscription(body.subscription, SubscriptionType(body.type), time_ms)
        case pb.DeleteScalableSubscription():
            return DeleteSubscription(body.subscription)
        case pb.SeekScalableSubscription():
            return SeekSubscription(body.subscription, body.seek_to_ms, body.skips_all)
        case pb.RegisterScalableConsumer():
            return RegisterConsumer(
                body.subscription,
                body.consumer_name,
                SubscriptionType(body.type),
                body.takes_buckets,
                time_ms,
            )
        case pb.RemoveScalableConsumer():
            if body.reason not in _REASONS:
                raise ValueError(f"no consumer leaves for the reason {body.reason[:40]!r}")
            return RemoveConsumer(body.subscription, body.consumer_name, body.reason)
        case _:
            assert_never(body)
