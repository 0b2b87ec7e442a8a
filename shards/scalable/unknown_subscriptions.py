"""Subscriptions that the topic does not know: consumers of a queue make their cursors at brokers
by themselves. When an operator names one, it becomes a subscription of the topic (ADR 0108).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container

from nextgen.kernel.routing.names import InvalidName, parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable.commands import CreateSubscription
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import SubscriptionType
from shards.scalable.layout_change import all_of
from shards.scalable.segment_units import SegmentUnits
from shards.scalable.topic_decisions import TopicDecisions
from shards.scalable.topic_work import WorkDependencies

_OF_PRESENT = ("seek_scalable_subscription", "delete_scalable_subscription")


FindKnown = Callable[[pb.ExecuteRequest], Awaitable[Container[bytes]]]
"""Returns the ids of those commands of a request that were carried out before, wherever."""


async def adopt_unknown(
    dependencies: WorkDependencies, request: pb.ExecuteRequest, find_known: FindKnown
) -> None:
    """Have the subscriptions that commands of ``request`` need and that brokers alone know.

    A command that comes again gets its first outcome. It must not bring back for good what it has
    deleted: a client may have made the cursor anew since.

    Raises:
        MetadataError: A broker did not answer, or leadership moved. Nothing of the request is done.
    """
    wanted = [each for each in request.commands if each.WhichOneof("body") in _OF_PRESENT]
    if not wanted:
        return
    known = await find_known(request)
    for command in wanted:
        kind = command.WhichOneof("body")
        if not command.command_id or command.command_id not in known:
            body = getattr(command, kind)
            await _adopt(dependencies, body.name, body.subscription)


async def _adopt(dependencies: WorkDependencies, name: str, subscription: str) -> None:
    try:
        parsed = parse_topic(name)
    except InvalidName:
        return  # The command is refused for it.
    topic = dependencies.state.reads.load_scalable(parsed.base_text)
    if topic is None or subscription in topic.subscriptions:
        return
    given = dependencies
    units = SegmentUnits(parsed, given.lookups, given.moves, given.unassigns, given.clock)
    if await _is_at_brokers(dependencies, units, topic, subscription):
        decisions = TopicDecisions(dependencies.state, topic.name)
        present = decisions.load()
        if present is not None and subscription in present.subscriptions:
            return  # A client has just made it, perhaps of another type.
        command = CreateSubscription(subscription, SubscriptionType.QUEUE, decisions.now_ms())
        await decisions.decide(topic.topic_id, command)


async def _is_at_brokers(
    dependencies: WorkDependencies, units: SegmentUnits, topic: ScalableTopic, subscription: str
) -> bool:
    found: set[str] = set()
    brokers = dependencies.brokers

    async def find(number: int) -> None:
        found.update(
            await units.at_owner(
                topic.segments[number],
                lambda unit, limit_ms: brokers.subscriptions(unit, timeout_ms=limit_ms),
            )
        )

    await all_of(find(each.segment_id) for each in topic.active if subscription not in found)
    return subscription in found
