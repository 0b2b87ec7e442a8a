"""Moves and unloads of topics: each is routed to the shard of its topic and has its own result."""

from __future__ import annotations

from collections.abc import Sequence

from discovery.ports import Shards
from discovery.service.counters import DiscoveryCounters
from nextgen.client.routing.repeatable_moves import are_repeatable
from nextgen.client.routing.shard_calls import send_grouped
from nextgen.kernel.errors import Indefinite, InvalidRequest, MetadataError, StaleShardMap
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.input.short_text import shortened
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX, TOPIC_TEXT_CHARACTERS_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment

UNLOADED = "unloaded"


class MoveService:
    """Carries out operators' requests about assigned topics. Raises ``MetadataError`` kinds only.

    ``timeout_ms`` is the time until the caller's deadline.
    """

    def __init__(self, shards: Shards, counters: DiscoveryCounters) -> None:
        self._shards = shards
        self._counters = counters

    async def move_topics(
        self, request: pb.MoveTopicsRequest, timeout_ms: int
    ) -> pb.MoveTopicsResponse:
        """Move topics, each with its own answer, which has the reason if the topic stays."""
        _check_count("moves", len(request.moves))
        answers: dict[int, LookupAnswer] = {}
        routing_keys: dict[int, str] = {}
        moves: dict[int, shard_pb.TopicMove] = {}
        for place, move in enumerate(request.moves):
            try:
                name = parse_topic(move.topic)
            except InvalidName as error:
                answers[place] = LookupAnswer(
                    topic=shortened(move.topic, TOPIC_TEXT_CHARACTERS_MAX),
                    rejection_code=RejectionCode.INVALID_NAME,
                    message=str(error),
                )
                continue
            routing_keys[place] = name.routing_key
            moves[place] = shard_pb.TopicMove(
                topic=name.text,
                target_broker_id=move.target_broker_id,
                expected_epoch=move.expected_epoch,
                asked_by=move.asked_by,
            )

        async def send(shard_id: int, at_shard: list[int]) -> Sequence[LookupAnswer]:
            return await self._move_in(shard_id, [moves[place] for place in at_shard], timeout_ms)

        answers |= await send_grouped(
            self._shards,
            routing_keys,
            send,
            refused=lambda place, error: _not_moved(moves[place], error),
        )
        self._counters.topics_moved += sum(not a.rejection_code for a in answers.values())
        return pb.MoveTopicsResponse(answers=[answers[place] for place in range(len(answers))])

    async def unload_topics(
        self, request: pb.UnloadTopicsRequest, timeout_ms: int
    ) -> pb.UnloadTopicsResponse:
        """Unassign topics, each with its own answer; the next lookup assigns them again."""
        _check_count("topics to unload", len(request.topics))
        outcomes: dict[int, shard_pb.UnassignOutcome] = {}
        routing_keys: dict[int, str] = {}
        units: dict[int, UnitAssignment] = {}
        for place, topic in enumerate(request.topics):
            try:
                name = parse_topic(topic)
            except InvalidName as error:
                outcomes[place] = shard_pb.UnassignOutcome(
                    name=shortened(topic, TOPIC_TEXT_CHARACTERS_MAX), message=str(error)
                )
                continue
            routing_keys[place] = name.routing_key
            units[place] = UnitAssignment(name=name.text)

        async def send(shard_id: int, at_shard: list[int]) -> Sequence[shard_pb.UnassignOutcome]:
            return await self._unload_in(shard_id, [units[place] for place in at_shard], timeout_ms)

        outcomes |= await send_grouped(
            self._shards,
            routing_keys,
            send,
            refused=lambda place, error: _not_unloaded(units[place], error),
        )
        return pb.UnloadTopicsResponse(outcomes=[outcomes[place] for place in range(len(outcomes))])

    async def _move_in(
        self, shard_id: int, moves: Sequence[shard_pb.TopicMove], timeout_ms: int
    ) -> Sequence[LookupAnswer]:
        request = shard_pb.ShardRequest(move=shard_pb.MoveRequest(moves=moves))
        try:
            response = await self._shards.call(
                shard_id, request, timeout_ms=timeout_ms, idempotent=are_repeatable(moves)
            )
        except StaleShardMap:
            raise
        except MetadataError as error:
            return [_not_moved(move, error) for move in moves]
        return response.move.answers

    async def _unload_in(
        self, shard_id: int, units: Sequence[UnitAssignment], timeout_ms: int
    ) -> Sequence[shard_pb.UnassignOutcome]:
        wanted = shard_pb.UnassignRequest(units=units, reason=UNLOADED)
        request = shard_pb.ShardRequest(unassign=wanted)
        try:
            # Done twice it ends, at worst, what a lookup has assigned in between. One more handover
            # costs less than an operator who does not know whether the topic was unloaded.
            response = await self._shards.call(
                shard_id, request, timeout_ms=timeout_ms, idempotent=True
            )
        except StaleShardMap:
            raise
        except MetadataError as error:
            return [_not_unloaded(unit, error) for unit in units]
        return response.unassign.outcomes


def _not_moved(move: shard_pb.TopicMove, error: MetadataError) -> LookupAnswer:
    return LookupAnswer(
        topic=move.topic,
        rejection_code=error.reason,
        message=str(error),
        retryable=True,
        under_way=isinstance(error, Indefinite),
    )


def _not_unloaded(unit: UnitAssignment, error: MetadataError) -> shard_pb.UnassignOutcome:
    under_way = isinstance(error, Indefinite)
    return shard_pb.UnassignOutcome(
        name=unit.name, message=str(error), under_way=under_way, failed=True
    )


def _check_count(what: str, count: int) -> None:
    if not 1 <= count <= MOVES_PER_REQUEST_MAX:
        raise InvalidRequest(
            f"a request has {count} {what}, 1 to {MOVES_PER_REQUEST_MAX} are allowed"
        )
