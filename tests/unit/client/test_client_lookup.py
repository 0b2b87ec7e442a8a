"""What a lookup says when trouble does not pass in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from nextgen.client import Client
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX
from protos.nextgen.v1.discovery_service_pb2 import LookupResponse
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.simulated.virtual_time import run_virtual

TOPIC = "persistent://acme/orders/paid"


class ScriptedNodes:
    """Discovery nodes that answer each attempt with the next code; the last one again and again."""

    endpoint = "discovery-1:7000"

    def __init__(self, codes: Sequence[str], *, retry_after_ms: int = 0) -> None:
        self._codes = list(codes)
        self._retry_after_ms = retry_after_ms
        self.attempts = 0
        self.requests = []
        self.heeds = True
        self.left = []

    async def call(self, _method, request, _type, *, timeout_ms):
        self.attempts += 1
        self.requests.append(request)
        await asyncio.sleep(0.2)
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        refused = {"rejection_code": code, "retryable": True} if code else {}
        if code:
            refused["retry_after_ms"] = self._retry_after_ms
        return LookupResponse(
            answers=[LookupAnswer(topic=TOPIC, **refused)],
            fresh=self.heeds and (request.fresh or bool(request.min_epochs)),
        )

    def fail_over(self, failed):
        self.left.append(failed)

    async def close(self):
        """Nothing to close."""


def code_after(codes: Sequence[str]) -> tuple[str, int]:
    async def look_up() -> str:
        async with Client(["discovery-1:7000"], timeout_ms=2_000) as client:
            client._nodes = nodes
            (location,) = await client.lookup([TOPIC])
            return location.rejection_code

    nodes = ScriptedNodes(codes)
    return run_virtual(look_up), nodes.attempts


def test_an_attempt_without_time_does_not_hide_what_an_earlier_one_said():
    code, attempts = code_after(["NO_CAPACITY", "DEADLINE_EXCEEDED"])

    assert code == "NO_CAPACITY"
    assert attempts > 2


def test_a_later_reason_replaces_an_earlier_one():
    assert code_after(["DEADLINE_EXCEEDED", "NO_CAPACITY", "NO_BROKER"])[0] == "NO_BROKER"


def test_a_refused_lookup_comes_back_no_earlier_than_its_answer_says():
    """Each attempt takes 200 ms of the two seconds.

    Five fit without a pause, two with one of 900 ms or up to half as long again.
    """
    nodes = ScriptedNodes(["OVERLOADED"], retry_after_ms=900)

    (location,) = run_virtual(lambda: locations(nodes))

    assert (location.rejection_code, location.retry_after_ms) == ("OVERLOADED", 900)
    assert nodes.attempts == 2


def test_a_refusal_that_outlasts_the_deadline_is_returned_at_once():
    nodes = ScriptedNodes(["OVERLOADED"], retry_after_ms=60_000)

    (location,) = run_virtual(lambda: locations(nodes))

    assert (location.rejection_code, nodes.attempts) == ("OVERLOADED", 1)


def test_silence_is_told_when_nothing_else_was_ever_said():
    assert code_after(["DEADLINE_EXCEEDED"])[0] == "DEADLINE_EXCEEDED"


def test_a_topic_that_is_found_in_the_end_is_reported_as_found():
    code, attempts = code_after(["NO_CAPACITY", "DEADLINE_EXCEEDED", ""])

    assert (code, attempts) == ("", 3)


@pytest.mark.parametrize("demand", [{"fresh": True}, {"min_epochs": {TOPIC: 2}}])
def test_what_a_lookup_demands_is_asked_for(demand):
    nodes = ScriptedNodes([""])

    run_virtual(lambda: locations(nodes, **demand))

    (request,) = nodes.requests
    assert request.fresh == demand.get("fresh", False)
    assert list(request.min_epochs) == ([2] if "min_epochs" in demand else [])


@pytest.mark.parametrize("demand", [{"fresh": True}, {"min_epochs": {TOPIC: 2}}])
def test_an_answer_that_does_not_heed_what_was_demanded_is_not_given(demand):
    """It is of an earlier release, which skips what it does not know; the next node may know it."""
    nodes = ScriptedNodes([""])
    nodes.heeds = False

    with pytest.raises(Unavailable, match="earlier release"):
        run_virtual(lambda: locations(nodes, **demand))

    assert nodes.left == [nodes.endpoint]


def test_epochs_of_other_topics_demand_nothing():
    nodes = ScriptedNodes([""])

    run_virtual(lambda: locations(nodes, min_epochs={"persistent://acme/orders/other": 2}))

    assert not nodes.requests[0].min_epochs


async def locations(nodes, **demand):
    async with Client(["discovery-1:7000"], timeout_ms=2_000) as client:
        client._nodes = nodes
        return await client.lookup([TOPIC], **demand)


def test_lookups_carry_the_positions_of_recent_writes_only():
    """A discovery node must not answer from before them that a topic is absent (ADR 0061)."""

    async def look_up() -> list[list[tuple[int, int]]]:
        async with Client(["discovery-1:7000"], timeout_ms=2_000) as client:
            client._nodes = nodes
            await client.lookup([TOPIC])
            client._remember(1, 20)
            client._remember(2, 30)
            client._remember(1, 10)
            await client.lookup([TOPIC])
            await asyncio.sleep(2 * LOOKUP_STALENESS_MS_MAX / 1_000 + 0.1)
            await client.lookup([TOPIC])
        return [
            [(each.shard_id, each.position) for each in request.positions]
            for request in nodes.requests
        ]

    nodes = ScriptedNodes([""])
    assert run_virtual(look_up) == [[], [(1, 20), (2, 30)], []]
