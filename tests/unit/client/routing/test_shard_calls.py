"""Requests about many names, while slots go from shard to shard."""

import asyncio

import pytest

from nextgen.client.routing.shard_calls import ask_home, call_home, questions, send_grouped
from nextgen.kernel.errors import StaleShardMap, Unavailable
from nextgen.kernel.limits.stream import MOVED_HOPS_MAX
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse


class Shards:
    """Keys that are known to be at ``known`` and are at ``owned``; a refusal tells of a move."""

    def __init__(self, known: dict[str, int], owned: dict[str, int] | None = None) -> None:
        self.known = dict(known)
        self.owned = owned or dict(known)
        self.asked: list[tuple[int, list[str]]] = []
        self.tells = True

    def shard_of_key(self, routing_key: str) -> int:
        return self.known[routing_key]

    async def send(self, shard_id: int, keys: list[str]) -> list[str]:
        self.asked.append((shard_id, list(keys)))
        await asyncio.sleep(0)
        if any(self.owned[key] != shard_id for key in keys):
            if self.tells:
                self.known = dict(self.owned)
            raise StaleShardMap("a slot is elsewhere", moved_to=9)
        return [f"{key} of {shard_id}" for key in keys]

    async def call(self, shard_id: int, request: ShardRequest, **_: object) -> ShardResponse:
        await self.send(shard_id, [request.trace_id])
        return ShardResponse(position=shard_id)


async def test_a_refused_group_is_grouped_again_and_the_others_are_not():
    shards = Shards({"a": 1, "b": 1, "c": 2}, {"a": 1, "b": 3, "c": 2})

    answers = await send_grouped(shards, {key: key for key in "abc"}, shards.send)

    assert answers == {"a": "a of 1", "b": "b of 3", "c": "c of 2"}
    assert sorted(shards.asked) == [(1, ["a"]), (1, ["a", "b"]), (2, ["c"]), (3, ["b"])]


async def test_a_group_that_is_refused_for_ever_is_answered_or_raised():
    shards = Shards({"a": 1, "c": 2}, {"a": 3, "c": 2})
    shards.tells = False

    answers = await send_grouped(
        shards, {"a": "a", "c": "c"}, shards.send, refused=lambda key, error: f"{key}: {error}"
    )
    assert answers == {"a": "a: a slot is elsewhere", "c": "c of 2"}
    assert len(shards.asked) == MOVED_HOPS_MAX + 2

    with pytest.raises(StaleShardMap):
        await send_grouped(shards, {"a": "a"}, shards.send)


async def test_other_errors_are_raised_at_once():
    shards = Shards({"a": 1})

    async def fail(_shard_id: int, _keys: list[str]) -> list[str]:
        shards.asked.append((0, []))
        raise Unavailable("no leader")

    with pytest.raises(Unavailable):
        await send_grouped(shards, {"a": "a"}, fail)
    assert len(shards.asked) == 1


async def test_a_shared_question_is_asked_where_its_slot_is():
    shards = Shards({"a": 1}, {"a": 2})

    async def carry_out(shard_id: int, asked: list[tuple[str, int]]) -> list[str]:
        return await shards.send(shard_id, [key for key, _ in asked])

    shared = questions(carry_out, 10)
    try:
        assert await ask_home(shards, shared, "a", "a") == "a of 2"
        shards.owned, shards.tells = {"a": 3}, False
        with pytest.raises(StaleShardMap):
            await ask_home(shards, shared, "a", "a")
    finally:
        await shared.stop()


async def test_a_request_about_one_name_is_sent_where_its_slot_is():
    shards = Shards({"a": 1}, {"a": 2})

    response = await call_home(shards, "a", ShardRequest(trace_id="a"), timeout_ms=1_000)

    assert response.position == 2
