"""Drains, rebalances and counts of units: sends them to the shards and merges the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from discovery.ports import Directory, Shards
from nextgen.kernel.errors import Definite, InvalidRequest, MetadataError, Unavailable
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.placement import REBALANCE_MOVES_NAMED_MAX
from protos.nextgen.v1.shard_service_pb2 import (
    BrokerUnits,
    DrainRequest,
    DrainResponse,
    RebalanceRequest,
    RebalanceResponse,
    SetCapacityRequest,
    SetCapacityResponse,
    ShardRequest,
    ShardResponse,
    UnitCountRequest,
    UnitCountResponse,
)


class EvacuationService:
    """Carries out operators' requests about brokers' units. Raises ``MetadataError`` kinds only.

    ``timeout_ms`` is the time until the caller's deadline. Every request may be repeated.
    """

    def __init__(self, shards: Shards, directory: Directory) -> None:
        self._shards = shards
        self._directory = directory

    async def drain_broker(self, request: DrainRequest, timeout_ms: int) -> DrainResponse:
        """Begin or cancel a broker's drain; answered when the request is committed.

        Raises:
            Refused: The broker is not alive, or the last that may be given units.
        """
        _check_broker_id(request.broker_id)
        response = await self._shards.call_key(
            request.broker_id, ShardRequest(drain=request), timeout_ms=timeout_ms
        )
        return response.drain

    async def set_capacity(
        self, request: SetCapacityRequest, timeout_ms: int
    ) -> SetCapacityResponse:
        """Change a live broker's capacity; answered when the request is committed.

        Raises:
            Refused: The broker is not alive, or never announced that much.
        """
        _check_broker_id(request.broker_id)
        response = await self._shards.call_key(
            request.broker_id, ShardRequest(set_capacity=request), timeout_ms=timeout_ms
        )
        return response.set_capacity

    async def rebalance(self, request: RebalanceRequest, timeout_ms: int) -> RebalanceResponse:
        """Plan, begin or stop a rebalance in every shard, and merge the answers.

        If one shard cannot be reached the request fails, though other shards may have begun.
        Repeat it: a shard that has begun answers that the rebalance is in progress.
        """
        answers = [
            response.rebalance
            for response in await self._ask_all(ShardRequest(rebalance=request), timeout_ms)
        ]
        moves = [move for answer in answers for move in answer.moves]
        return RebalanceResponse(
            moves=moves[:REBALANCE_MOVES_NAMED_MAX],
            count=sum(answer.count for answer in answers),
            before=_together(units for answer in answers for units in answer.before),
            after=_together(units for answer in answers for units in answer.after),
            reason="; ".join(dict.fromkeys(answer.reason for answer in answers if answer.reason)),
            under_way=sum(answer.under_way for answer in answers),
            evacuating=sum(answer.evacuating for answer in answers),
        )

    async def count_units(self, request: UnitCountRequest, timeout_ms: int) -> UnitCountResponse:
        """Return how many units each broker session has, over all shards."""
        answers = [
            response.unit_count
            for response in await self._ask_all(ShardRequest(unit_count=request), timeout_ms)
        ]
        return UnitCountResponse(
            brokers=_together(units for answer in answers for units in answer.brokers),
            under_way=sum(answer.under_way for answer in answers),
            evacuating=sum(answer.evacuating for answer in answers),
        )

    async def _ask_all(self, request: ShardRequest, timeout_ms: int) -> Sequence[ShardResponse]:
        """Send a request to every shard; raise the worst error, indefinite before definite."""
        shard_ids = self._directory.view.shard_ids
        if not shard_ids:
            raise Unavailable("no shard map is known here yet")
        outcomes = await asyncio.gather(
            *(self._ask(shard_id, request, timeout_ms) for shard_id in shard_ids),
            return_exceptions=True,
        )
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors:
            raise next((error for error in errors if not isinstance(error, Definite)), errors[0])
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    async def _ask(self, shard_id: int, request: ShardRequest, timeout_ms: int) -> ShardResponse:
        own = ShardRequest()
        own.CopyFrom(request)
        try:
            return await self._shards.call(shard_id, own, timeout_ms=timeout_ms)
        except MetadataError as error:
            error.add_note(f"asked of shard {shard_id}")
            raise


def _check_broker_id(broker_id: str) -> None:
    if not 0 < len(broker_id.encode()) <= NODE_ID_BYTES_MAX:
        raise InvalidRequest(f"a broker id has 1 to {NODE_ID_BYTES_MAX} bytes")


def _together(parts: Iterable[BrokerUnits]) -> list[BrokerUnits]:
    """Return the units of each broker session, summed over the shards, by broker id."""
    summed: dict[tuple[str, str], BrokerUnits] = {}
    for part in parts:
        key = (part.broker_id, part.session_id)
        whole = summed.setdefault(
            key, BrokerUnits(broker_id=part.broker_id, session_id=part.session_id)
        )
        whole.units += part.units
        whole.load_permille = max(whole.load_permille, part.load_permille)
    return [summed[key] for key in sorted(summed)]
