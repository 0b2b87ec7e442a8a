"""The answer of a command waits for what it began: a new layout, or a subscription's cursors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import InvalidName, parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase
from shards.scalable.controller import ScalableController

_IsSettled = Callable[[ScalableTopic], bool]


async def settle_all(
    controller: ScalableController, request: pb.ExecuteRequest, response: pb.ExecuteResponse
) -> None:
    """Return once what the accepted commands of ``request`` began is done.

    Results get the version and the position of then. If an operation was taken back, the result is
    a rejection.

    Raises:
        ProposalLost: Leadership moved meanwhile: repeat the commands with their ids.
    """
    for command, result in zip(request.commands, response.results, strict=True):
        kind = command.WhichOneof("body")
        if kind == "create_topics":
            await _settle_migrations(controller, command.create_topics, result)
            continue
        make = None if kind is None else _SETTLED.get(kind)
        if make is not None and not result.rejection_code:
            body = getattr(command, kind)
            await _settle(controller, body, result, make(body, result))


async def _settle(
    controller: ScalableController, body: Any, result: pb.CommandResult, is_settled: _IsSettled
) -> None:
    try:
        name = parse_topic(body.name).base_text
    except InvalidName:
        return  # The id was used before: this is the outcome of another command.
    topic = await controller.wait(
        name,
        lambda topic: topic is None or topic.topic_id != result.id or is_settled(topic),
    )
    result.position = max(result.position, controller.position)
    if topic is None or topic.topic_id != result.id:
        _reject(result, RejectionCode.NOT_FOUND, f"topic {name} was deleted meanwhile")
        return
    result.version = topic.version
    if isinstance(body, pb.ChangeLayout) and _has_active(topic, body.segments):
        why = f"operation {result.operation_id} of {name} was taken back: no broker took over"
        _reject(result, RejectionCode.NOT_ALLOWED, why)


async def _settle_migrations(
    controller: ScalableController, body: pb.CreateTopics, result: pb.CommandResult
) -> None:
    for spec, outcome in zip(body.topics, result.topics, strict=False):
        if not spec.migrates or outcome.rejection_code:
            continue
        try:
            name = parse_topic(spec.name).base_text
        except InvalidName:
            continue
        topic = await controller.wait(name, _has_no_migration)
        result.position = max(result.position, controller.position)
        if topic is None or topic.topic_id != outcome.topic_id:
            outcome.rejection_code = RejectionCode.NOT_FOUND.value
            outcome.message = f"topic {name} was deleted meanwhile"
        elif any(each.legacy_topic_name for each in topic.active):
            outcome.rejection_code = RejectionCode.NOT_ALLOWED.value
            outcome.message = f"the migration of {name} was taken back: no broker took over"


def _has_no_migration(topic: ScalableTopic | None) -> bool:
    operation = None if topic is None else topic.operation
    return operation is None or operation.kind is not ChangeKind.MIGRATE


def _has_active(topic: ScalableTopic, segments: Any) -> bool:
    """Whether the parents of an operation that is over take messages still."""
    return any(
        (segment := topic.segments.get(each)) is not None and not segment.is_sealed
        for each in segments
    )


def _reject(result: pb.CommandResult, code: RejectionCode, why: str) -> None:
    result.rejection_code = code.value
    result.message = why


def _operation_is_over(_body: pb.ChangeLayout, result: pb.CommandResult) -> _IsSettled:
    return lambda topic: (
        topic.operation is None or topic.operation.operation_id != result.operation_id
    )


def _has_left(phase: SubscriptionPhase) -> Callable[[Any, pb.CommandResult], _IsSettled]:
    def of_command(body: Any, _result: pb.CommandResult) -> _IsSettled:
        def is_settled(topic: ScalableTopic) -> bool:
            subscription = topic.subscriptions.get(body.subscription)
            return subscription is None or subscription.phase is not phase

        return is_settled

    return of_command


_SETTLED: dict[str, Callable[[Any, pb.CommandResult], _IsSettled]] = {
    "change_layout": _operation_is_over,
    "create_scalable_subscription": _has_left(SubscriptionPhase.CREATING),
    "register_scalable_consumer": _has_left(SubscriptionPhase.CREATING),
    "seek_scalable_subscription": _has_left(SubscriptionPhase.SEEKING),
    "delete_scalable_subscription": _has_left(SubscriptionPhase.DELETING),
}
