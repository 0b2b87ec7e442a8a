"""Finding the leading cluster manager: hints are followed, and never in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nextgen.cli.calls import manager_leader
from nextgen.cli.calls.manager_leader import ask_manager_leader
from nextgen.kernel.errors import NotLeader, Refused
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate

MANAGERS = ["m1", "m2"]


class Discovery:
    """Knows the managers."""

    def __init__(self, _endpoints: object) -> None:
        pass

    async def __aenter__(self) -> Discovery:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def call(self, _method: str, _request: object) -> ClusterUpdate:
        return ClusterUpdate(manager_endpoints=MANAGERS)


class Managers:
    """What each says in turn: an answer, or an error. ``asked`` has pauses as ``None``."""

    def __init__(self, *answers: tuple[str, object]) -> None:
        self._answers = list(answers)
        self.asked: list[str | None] = []

    async def ask(self, endpoint: str, _ask: Callable[[Any], Awaitable[Any]]) -> object:
        expected, answer = self._answers.pop(0)
        self.asked.append(endpoint)
        assert endpoint == expected
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def pause(self, _seconds: float) -> None:
        self.asked.append(None)


async def find(monkeypatch: pytest.MonkeyPatch, managers: Managers) -> object:
    monkeypatch.setattr(manager_leader, "DiscoveryClient", Discovery)
    monkeypatch.setattr(manager_leader, "_ask_one", managers.ask)
    monkeypatch.setattr(manager_leader.asyncio, "sleep", managers.pause)
    return await ask_manager_leader(["d1"], lambda _stub: asyncio.Future())


async def test_a_hint_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    managers = Managers(("m1", NotLeader(0, "m2")), ("m2", "done"))
    assert await find(monkeypatch, managers) == "done"
    assert managers.asked == ["m1", "m2"]


async def test_two_that_believe_in_each_other_are_asked_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    circle = [("m1", NotLeader(0, "m2")), ("m2", NotLeader(0, "m1"))] * 3
    managers = Managers(*circle, ("m1", "done"))
    assert await find(monkeypatch, managers) == "done"
    assert managers.asked == ["m1", "m2", *[None, "m1", None, "m2"] * 2, None, "m1"]


async def test_a_refusal_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused):
        await find(monkeypatch, Managers(("m1", Refused("NOT_ALLOWED", "no"))))
