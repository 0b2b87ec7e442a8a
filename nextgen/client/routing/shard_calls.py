"""The calls to shards that the parts of a topic directory need, and requests about many names.

Names are grouped by the shards that have their slots. A shard that has given a slot of a group away
refuses the group (``StaleShardMap``); its names are grouped again, by what is known then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from nextgen.client.routing.shared_questions import (
    Answer,
    CarryOut,
    GroupOf,
    SharedQuestions,
)
from nextgen.kernel.errors import StaleShardMap
from nextgen.kernel.limits.pulsar import DIRECTORY_NAMES_WAITING_MAX, DIRECTORY_READS_IN_FLIGHT_MAX
from nextgen.kernel.limits.stream import MOVED_HOPS_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb

Key = TypeVar("Key")
GroupAnswer = TypeVar("GroupAnswer")

Send = Callable[[int, list[Key]], Awaitable[Sequence[GroupAnswer]]]
"""Sends a shard a request about keys; returns an answer for each, in their order."""


class Slots(Protocol):
    """Which shard has the slot of a key: a ``ShardRouter``."""

    def shard_of_key(self, routing_key: str) -> int: ...


class Shards(Slots, Protocol):
    """A ``ShardRouter``. Every method raises ``MetadataError``."""

    async def call(
        self, shard_id: int, request: pb.ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> pb.ShardResponse: ...


def questions(
    carry_out: CarryOut[Answer], batch_max: int, group_of: GroupOf | None = None
) -> SharedQuestions[Answer]:
    """Return one kind of question of a topic directory, with a directory's limits."""
    return SharedQuestions(
        carry_out,
        batch_max=batch_max,
        in_flight_max=DIRECTORY_READS_IN_FLIGHT_MAX,
        waiting_max=DIRECTORY_NAMES_WAITING_MAX,
        group_of=group_of,
    )


async def send_grouped(
    shards: Slots,
    routing_keys: Mapping[Key, str],
    send: Send[Key, GroupAnswer],
    *,
    joined: Callable[[Iterable[Any]], Awaitable[Sequence[Any]]] | None = None,
    refused: Callable[[Key, StaleShardMap], GroupAnswer] | None = None,
    rounds: int = MOVED_HOPS_MAX,
) -> dict[Key, GroupAnswer]:
    """Have the shards of ``routing_keys`` answer, all at once; return the answers by key.

    A group that its shard refuses because a slot is elsewhere is grouped again, up to ``rounds``
    times; then ``refused`` gives each answer, or else the refusal is raised. ``joined`` runs the
    groups and decides which of their errors is raised; ``asyncio.gather`` by default.
    """
    groups: dict[int, list[Key]] = {}
    for key, routing_key in routing_keys.items():
        groups.setdefault(shards.shard_of_key(routing_key), []).append(key)

    async def sent(shard_id: int, keys: list[Key]) -> dict[Key, GroupAnswer]:
        try:
            return dict(zip(keys, await send(shard_id, keys), strict=True))
        except StaleShardMap as error:
            if not rounds:
                if refused is None:
                    raise
                return {key: refused(key, error) for key in keys}
        return await send_grouped(
            shards,
            {key: routing_keys[key] for key in keys},
            send,
            joined=joined,
            refused=refused,
            rounds=rounds - 1,
        )

    parts = [sent(shard_id, keys) for shard_id, keys in groups.items()]
    answered = await (joined(parts) if joined is not None else asyncio.gather(*parts))
    return {key: answer for part in answered for key, answer in part.items()}


async def ask_home(
    shards: Slots,
    asked: SharedQuestions[Answer],
    routing_key: str,
    key: str,
    number: int = 0,
) -> Answer:
    """Ask the shard that has the slot of ``routing_key``; ask anew if the slot went elsewhere.

    Raises:
        MetadataError: As ``SharedQuestions.ask``.
    """
    for _ in range(MOVED_HOPS_MAX):
        try:
            return await asked.ask(shards.shard_of_key(routing_key), key, number)
        except StaleShardMap:
            continue
    return await asked.ask(shards.shard_of_key(routing_key), key, number)


async def call_home(
    shards: Shards, routing_key: str, request: pb.ShardRequest, *, timeout_ms: int
) -> pb.ShardResponse:
    """Have the shard that has the slot of ``routing_key`` answer, wherever the slot goes meanwhile.

    Raises:
        MetadataError: As ``Shards.call``.
    """
    for _ in range(MOVED_HOPS_MAX):
        try:
            shard_id = shards.shard_of_key(routing_key)
            return await shards.call(shard_id, request, timeout_ms=timeout_ms)
        except StaleShardMap:
            continue
    return await shards.call(shards.shard_of_key(routing_key), request, timeout_ms=timeout_ms)
