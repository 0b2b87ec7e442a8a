"""Moves and unloads go to the shards of their topics, and each stands for itself."""

from __future__ import annotations

from typing import Any

import pytest

from discovery.service.admin.moves import MoveService
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest, MetadataError, NotLeader
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import (
    MoveResponse,
    ShardRequest,
    ShardResponse,
    TopicMove,
    UnassignOutcome,
    UnassignResponse,
)

SHARDS = 2
TOPICS = [f"persistent://acme/orders/t-{number}" for number in range(6)]


class Shards:
    """Two shards that do what they are asked to, but for one that may have no leader."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, ShardRequest, bool]] = []
        self.errors: dict[int, MetadataError] = {}

    def shard_of_key(self, routing_key: str) -> int:
        return sum(routing_key.encode()) % SHARDS + 1

    async def call(
        self, shard_id: int, request: ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> ShardResponse:
        self.requests.append((shard_id, request, idempotent))
        if shard_id in self.errors:
            raise self.errors[shard_id]
        if request.HasField("move"):
            moved = [LookupAnswer(topic=move.topic, epoch=2) for move in request.move.moves]
            return ShardResponse(move=MoveResponse(answers=moved))
        ended = [
            UnassignOutcome(name=unit.name, unassigned=True) for unit in request.unassign.units
        ]
        return ShardResponse(unassign=UnassignResponse(outcomes=ended))


def service(shards: Shards) -> MoveService:
    unused: Any = shards
    return MoveService(unused, DiscoveryCounters())


def home(topic: str) -> int:
    return Shards().shard_of_key(parse_topic(topic).routing_key)


async def test_moves_keep_their_order_over_shards_and_say_who_asked():
    shards = Shards()
    moves = [TopicMove(topic=topic, target_broker_id="b", asked_by="pin") for topic in TOPICS]

    response = await service(shards).move_topics(pb.MoveTopicsRequest(moves=moves), 1_000)

    assert [answer.topic for answer in response.answers] == TOPICS
    assert {shard_id for shard_id, _, _ in shards.requests} == {1, 2}
    assert all(
        move.asked_by == "pin" for _, request, _ in shards.requests for move in request.move.moves
    )


async def test_only_a_move_to_a_named_broker_or_from_a_named_epoch_may_be_sent_again():
    shards = Shards()
    for target, epoch in (("b", 0), ("", 3), ("", 0)):
        move = TopicMove(topic=TOPICS[0], target_broker_id=target, expected_epoch=epoch)
        await service(shards).move_topics(pb.MoveTopicsRequest(moves=[move]), 1_000)

    assert [idempotent for _, _, idempotent in shards.requests] == [True, True, False]


async def test_what_is_no_name_and_whose_shard_cannot_be_asked_stands_for_itself():
    shards = Shards()
    shards.errors[1] = NotLeader(1)
    topics = ["persistent://no-name", *TOPICS]

    moved = await service(shards).move_topics(
        pb.MoveTopicsRequest(moves=[TopicMove(topic=topic) for topic in topics]), 1_000
    )
    unloaded = await service(shards).unload_topics(pb.UnloadTopicsRequest(topics=topics), 1_000)

    assert moved.answers[0].rejection_code == "INVALID_NAME"
    assert not unloaded.outcomes[0].unassigned
    for topic, answer, outcome in zip(
        topics[1:], moved.answers[1:], unloaded.outcomes[1:], strict=True
    ):
        is_asked = home(topic) != 1
        assert (answer.epoch == 2) == outcome.unassigned == is_asked
        assert answer.retryable == bool(outcome.message) == (not is_asked)


@pytest.mark.parametrize(
    ("error", "under_way"), [(NotLeader(1), False), (DeadlineExceeded("no answer"), True)]
)
async def test_what_may_have_been_begun_is_not_told_as_if_nothing_had(
    error: MetadataError, under_way: bool
) -> None:
    shards = Shards()
    shards.errors = {1: error, 2: error}

    moved = await service(shards).move_topics(
        pb.MoveTopicsRequest(moves=[TopicMove(topic=topic) for topic in TOPICS]), 1_000
    )
    unloaded = await service(shards).unload_topics(pb.UnloadTopicsRequest(topics=TOPICS), 1_000)

    assert {answer.rejection_code for answer in moved.answers} == {error.reason}
    assert {answer.under_way for answer in moved.answers} == {under_way}
    assert {outcome.under_way for outcome in unloaded.outcomes} == {under_way}


async def test_an_unload_is_an_operators_and_may_be_sent_again():
    shards = Shards()

    response = await service(shards).unload_topics(pb.UnloadTopicsRequest(topics=TOPICS), 1_000)

    assert [outcome.name for outcome in response.outcomes] == TOPICS
    assert all(outcome.unassigned for outcome in response.outcomes)
    for _, request, idempotent in shards.requests:
        assert request.unassign.reason == "unloaded"
        assert idempotent
        assert not any(unit.epoch or unit.session_id for unit in request.unassign.units)


@pytest.mark.parametrize("count", [0, MOVES_PER_REQUEST_MAX + 1])
async def test_so_many_at_once(count: int):
    moves = pb.MoveTopicsRequest(moves=[TopicMove(topic=TOPICS[0])] * count)
    unloads = pb.UnloadTopicsRequest(topics=[TOPICS[0]] * count)

    with pytest.raises(InvalidRequest, match=f"{count} moves"):
        await service(Shards()).move_topics(moves, 1_000)
    with pytest.raises(InvalidRequest, match=f"{count} topics to unload"):
        await service(Shards()).unload_topics(unloads, 1_000)


async def test_as_many_as_are_allowed():
    moves = pb.MoveTopicsRequest(moves=[TopicMove(topic=TOPICS[0])] * MOVES_PER_REQUEST_MAX)

    response = await service(Shards()).move_topics(moves, 1_000)

    assert len(response.answers) == MOVES_PER_REQUEST_MAX
