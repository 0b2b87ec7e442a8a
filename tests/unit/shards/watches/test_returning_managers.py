"""Which broker managers a home shard's new leader waits for, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

from nextgen.kernel.errors import MetadataError, Unavailable
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.watches import returning_managers
from shards.watches.returning_managers import ManagerRollCall, ReturningManagers
from tests.support.simulated.virtual_time import run_virtual

UNTIL_S = 5.0


def test_without_a_map_any_manager_may_exist_until_the_wait_is_over():
    returning = ReturningManagers(until=UNTIL_S)

    assert not returning.are_back(UNTIL_S - 0.01)
    assert returning.are_back(UNTIL_S)


def test_without_shards_nobody_is_waited_for():
    returning = ReturningManagers(until=UNTIL_S)

    returning.expect((), term=3)

    assert returning.are_back(0.0)


def test_each_shard_has_a_manager_that_is_waited_for():
    returning = ReturningManagers(until=UNTIL_S)
    returning.expect((1, 2), term=3)

    returning.note_back(1)
    assert not returning.are_back(0.0)
    assert list(returning.expected(0.0)) == [2]
    returning.note_back(2)

    assert returning.are_back(0.0)


def test_a_manager_that_does_not_come_is_waited_for_until_its_time_is_over():
    returning = ReturningManagers(until=UNTIL_S)

    returning.expect((1,), term=3)

    assert not returning.are_back(UNTIL_S - 0.01)
    assert returning.are_back(UNTIL_S)
    assert not returning.expected(UNTIL_S)


@pytest.mark.parametrize("term", [3, 4])
def test_a_manager_that_watches_all_in_this_term_is_back(term):
    returning = ReturningManagers(until=UNTIL_S)
    returning.expect((1,), term=3)

    assert returning.note_complete(1, term)
    assert returning.are_back(0.0)
    assert not returning.note_complete(1, term), "it was back before"


@pytest.mark.parametrize(("shard_id", "term"), [(1, 2), (1, 0), (2, 3)])
def test_an_acknowledgement_of_an_earlier_term_or_another_shard_brings_nobody_back(shard_id, term):
    returning = ReturningManagers(until=UNTIL_S)
    returning.expect((1,), term=3)

    assert not returning.note_complete(shard_id, term)
    assert not returning.are_back(0.0)


class Effective:
    def __init__(self) -> None:
        self.returning = ReturningManagers(asyncio.get_running_loop().time() + UNTIL_S)

    def expect_managers(self, shard_ids: Iterable[int], term: int) -> None:
        self.returning.expect(shard_ids, term)

    def manager_is_back(self, shard_id: int) -> None:
        self.returning.note_back(shard_id)


class Managers:
    """Answers as ``answers`` says, by shard, one question after the other; then not at all."""

    def __init__(self, **answers: Sequence[bool | MetadataError]) -> None:
        self.answers = {int(shard.strip("s")): list(each) for shard, each in answers.items()}
        self.asked: list[tuple[int, int, int, str]] = []
        self.nodes: dict[int, Sequence[int]] = {}
        """Shards whose idle managers answer with that of a shard."""
        self.asked_now = 0
        self.asked_at_once = 0

    async def follow(
        self, shard_id: int, request: pb.FollowRequest, *, timeout_ms: int
    ) -> pb.FollowResponse:
        self.asked.append((shard_id, request.home_shard_id, request.term, request.node_id))
        self.asked_now += 1
        self.asked_at_once = max(self.asked_at_once, self.asked_now)
        try:
            response: pb.FollowResponse = await self._answer(self.answers[shard_id], timeout_ms)
            for other in self.nodes.get(shard_id, ()):
                response.idle.add(shard_id=other, term=1)
            return response
        finally:
            self.asked_now -= 1

    async def _answer(self, answers: list[bool | MetadataError], timeout_ms: int) -> Any:
        if not answers:
            await asyncio.sleep(timeout_ms / 1000)
            raise Unavailable("no answer")
        await asyncio.sleep(0)
        answer = answers.pop(0)
        if isinstance(answer, MetadataError):
            raise answer
        return pb.FollowResponse(follows=answer)


def in_roll_call(
    managers: Managers,
    scenario: Callable[[Effective], Awaitable[None]],
    shard_ids: Callable[[], Sequence[int]] | None = None,
) -> None:
    async def main() -> None:
        effective = Effective()
        roll_call = ManagerRollCall(
            pb.FollowRequest(home_shard_id=9, term=3, node_id="node-1"),
            managers,  # type: ignore[arg-type]
            effective,
            shard_ids or (lambda: sorted(managers.answers)),
            asyncio.get_running_loop().time,
        )
        roll_call.start()
        try:
            await scenario(effective)
        finally:
            roll_call.close()

    run_virtual(main)


def is_back(effective: Effective) -> bool:
    return effective.returning.are_back(asyncio.get_running_loop().time())


def test_managers_that_follow_nothing_are_back_with_their_answer():
    managers = Managers(s1=[False], s2=[False])

    async def scenario(effective: Effective) -> None:
        await asyncio.sleep(0.01)
        assert is_back(effective)
        assert sorted(managers.asked) == [(1, 9, 3, "node-1"), (2, 9, 3, "node-1")]

    in_roll_call(managers, scenario)


def test_managers_of_a_node_that_has_answered_are_not_asked(monkeypatch):
    monkeypatch.setattr(returning_managers, "FOLLOW_REQUESTS_MAX", 1)
    managers = Managers(**{f"s{number}": [number == 5] for number in range(1, 7)})
    managers.nodes = dict.fromkeys((1, 2, 3), (1, 2, 3)) | dict.fromkeys((4, 5, 6), (4, 6))

    async def scenario(effective: Effective) -> None:
        await asyncio.sleep(0.1)
        # Which one of a node is asked first is left to chance; 5 follows something.
        asked = [shard_id for shard_id, *_ in managers.asked]
        assert len([shard_id for shard_id in asked if shard_id < 4]) == 1
        assert len([shard_id for shard_id in asked if shard_id in (4, 6)]) <= 1
        assert asked.count(5) == 1
        assert list(effective.returning.expected(0.0)) == [5]

    in_roll_call(managers, scenario)


def test_a_manager_that_follows_something_is_back_when_its_stream_says_so():
    managers = Managers(s1=[True] * 9, s2=[False])

    async def scenario(effective: Effective) -> None:
        await asyncio.sleep(1.0)
        assert not is_back(effective)
        effective.returning.note_complete(1, 3)
        assert is_back(effective)
        asked = len(managers.asked)
        await asyncio.sleep(UNTIL_S)
        assert len(managers.asked) == asked, "it is not asked again"

    in_roll_call(managers, scenario)


def test_a_manager_that_lets_go_of_all_before_its_stream_came_is_asked_again():
    managers = Managers(s1=[True, False])

    async def scenario(effective: Effective) -> None:
        await asyncio.sleep(1.0)
        assert is_back(effective)

    in_roll_call(managers, scenario)


def test_a_manager_that_cannot_be_asked_is_asked_again_as_long_as_it_counts():
    managers = Managers(s1=[Unavailable("an election")] * 3 + [False], s2=[])

    async def scenario(effective: Effective) -> None:
        await asyncio.sleep(2.0)
        assert list(effective.returning.expected(0.0)) == [2]
        await asyncio.sleep(UNTIL_S)
        assert is_back(effective)
        asked = len(managers.asked)
        await asyncio.sleep(UNTIL_S)
        assert len(managers.asked) == asked

    in_roll_call(managers, scenario)


@pytest.mark.parametrize("excess", [0, 1])
def test_follow_requests_max_are_sent_at_a_time_and_one_more_in_the_end(monkeypatch, excess):
    monkeypatch.setattr(returning_managers, "FOLLOW_REQUESTS_MAX", 3)
    managers = Managers(**{f"s{number}": [False] for number in range(1, 4 + excess)})

    async def scenario(effective: Effective) -> None:
        await asyncio.sleep(0.1)
        assert managers.asked_at_once == 3
        assert is_back(effective)

    in_roll_call(managers, scenario)


def test_without_a_map_nobody_is_asked_and_all_are_waited_for():
    def no_map() -> Any:
        raise Unavailable("no shard map is known here yet")

    managers = Managers()

    async def scenario(effective: Effective) -> None:
        await asyncio.sleep(UNTIL_S - 0.1)
        assert not is_back(effective)
        await asyncio.sleep(0.1)
        assert is_back(effective)

    in_roll_call(managers, scenario, no_map)
