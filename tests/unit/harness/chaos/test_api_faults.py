"""Faults that the cluster is asked for: what is asked, what took hold, and that drains end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nextgen.harness.chaos.faults.api_faults import (
    ATTEMPTS,
    TOPICS_PER_FAULT,
    ApiFaults,
    PromiseBroken,
)
from nextgen.harness.chaos.schedule import FaultKind, FaultStep, Group
from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused, Unavailable
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import (
    BrokerUnits,
    DrainResponse,
    UnassignOutcome,
    UnitCountResponse,
)

TOPICS = [f"persistent://chaos/messages/lane-{number}" for number in range(TOPICS_PER_FAULT + 2)]
pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ATTEMPT_PAUSE_MS", "UNDO_INTERVAL_MS", "DRAIN_KNOWN_MS"):
        monkeypatch.setattr(f"nextgen.harness.chaos.faults.api_faults.{name}", 0)


class FakeDiscovery:
    """Two brokers, of which each can be drained; ``moved`` and ``gone`` units per drain."""

    def __init__(self) -> None:
        self.units = {"b-1": 10, "b-2": 10}
        self.draining: set[str] = set()
        self.asked: list[tuple[str, Any]] = []
        self.trouble: dict[str, list[MetadataError | None]] = {}
        self.leaves_per_drain = 4
        self.comes_at_each_count = 0
        self.rejects: Callable[[str], bool] = lambda _topic: False

    async def __aenter__(self) -> FakeDiscovery:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """Nothing is open."""

    async def call(self, method: str, request: Any) -> Any:
        self.asked.append((method, request))
        trouble = self.trouble.get(method, [])
        error = trouble.pop(0) if trouble else None
        if error is not None:
            raise error
        return getattr(self, f"_{method}")(request)

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    def _Lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        return pb.LookupResponse(answers=[LookupAnswer(topic=name) for name in request.topics])

    def _MoveTopics(self, request: pb.MoveTopicsRequest) -> pb.MoveTopicsResponse:
        return pb.MoveTopicsResponse(
            answers=[
                LookupAnswer(topic=move.topic, rejection_code="NO_BROKER", message="full")
                if self.rejects(move.topic)
                else LookupAnswer(topic=move.topic, epoch=2)
                for move in request.moves
            ]
        )

    def _UnloadTopics(self, request: pb.UnloadTopicsRequest) -> pb.UnloadTopicsResponse:
        return pb.UnloadTopicsResponse(
            outcomes=[UnassignOutcome(name=name, unassigned=True) for name in request.topics]
        )

    def _GetCluster(self, _request: Any) -> ClusterUpdate:
        return ClusterUpdate(brokers=[self._recorded(name) for name in self.units])

    def _CountUnits(self, _request: Any) -> UnitCountResponse:
        for broker_id in self.draining:
            self.units[broker_id] += self.comes_at_each_count
        return UnitCountResponse(
            brokers=[
                BrokerUnits(broker_id=name, session_id=f"s-{name}", units=units)
                for name, units in self.units.items()
            ]
        )

    def _DrainBroker(self, request: Any) -> DrainResponse:
        if request.undo:
            self.draining.discard(request.broker_id)
        else:
            self.draining.add(request.broker_id)
            self.units[request.broker_id] -= self.leaves_per_drain
        return DrainResponse(broker=self._recorded(request.broker_id))

    def _recorded(self, broker_id: str) -> BrokerRecorded:
        return BrokerRecorded(
            broker_id=broker_id,
            session_id=f"s-{broker_id}",
            is_live=True,
            draining=broker_id in self.draining,
        )


async def no_status() -> dict[str, Any]:
    raise AssertionError("only a transfer asks for the status")


def faults_on(discovery: FakeDiscovery) -> ApiFaults:
    faults = ApiFaults(("target:1",), no_status, connect=lambda: discovery)
    faults.topics = TOPICS
    return faults


def step(kind: FaultKind, pick: int = 0) -> FaultStep:
    detail = {"units_per_second": 5} if kind is FaultKind.DRAIN else {}
    return FaultStep(0, 0, kind, Group.UNITS, pick=pick, detail=detail)


async def test_a_move_takes_some_topics_of_the_load_and_looks_them_up_before():
    discovery = FakeDiscovery()

    happened = await faults_on(discovery).carry_out(step(FaultKind.MOVE, pick=len(TOPICS) - 1))

    assert discovery.methods() == ["Lookup", "MoveTopics"]
    moved = [move.topic for move in discovery.asked[1][1].moves]
    assert moved == [TOPICS[-1], *TOPICS[: TOPICS_PER_FAULT - 1]]
    assert happened.took_hold
    assert happened.detail == "8 of 8 topics moved to other brokers"


async def test_a_move_that_moves_nothing_does_not_take_hold_and_says_why():
    discovery = FakeDiscovery()
    discovery.rejects = lambda _topic: True

    happened = await faults_on(discovery).carry_out(step(FaultKind.MOVE))

    assert not happened.took_hold
    assert happened.detail == "0 of 8 topics moved to other brokers, the others: full"


async def test_an_unload_says_how_many_left():
    happened = await faults_on(FakeDiscovery()).carry_out(step(FaultKind.UNLOAD))

    assert happened.took_hold
    assert happened.detail == "8 of 8 topics unloaded"


async def test_a_drain_is_undone_and_takes_hold_if_units_left():
    discovery = FakeDiscovery()

    happened = await faults_on(discovery).carry_out(step(FaultKind.DRAIN, pick=1))

    assert happened.target.node_id == "b-2"
    assert happened.took_hold
    assert happened.detail == "10 units at 5/s, 6 left when it was undone"
    assert discovery.draining == set()


async def test_a_drain_without_effect_does_not_take_hold():
    discovery = FakeDiscovery()
    discovery.leaves_per_drain = 0

    happened = await faults_on(discovery).carry_out(step(FaultKind.DRAIN))

    assert not happened.took_hold
    assert discovery.draining == set()


async def test_a_broker_that_gets_units_while_it_drains_breaks_a_promise():
    discovery = FakeDiscovery()
    discovery.comes_at_each_count = 1

    with pytest.raises(PromiseBroken, match="b-1 got 1 units"):
        await faults_on(discovery).carry_out(step(FaultKind.DRAIN))

    assert discovery.draining == set()
    assert discovery.methods().count("DrainBroker") == 2


async def test_the_end_of_a_drain_is_asked_for_until_it_is_known():
    discovery = FakeDiscovery()
    discovery.trouble["DrainBroker"] = [None, Unavailable("no leader"), Unavailable("no leader")]

    await faults_on(discovery).carry_out(step(FaultKind.DRAIN))

    assert discovery.draining == set()
    assert discovery.methods().count("DrainBroker") == 4


async def test_a_broker_that_died_meanwhile_is_not_draining_any_more():
    discovery = FakeDiscovery()
    discovery.trouble["DrainBroker"] = [Refused("SESSION_EXPIRED", "it has no session")]
    faults = faults_on(discovery)
    faults._draining["b-1"] = None  # As after a run that was ended in the middle of its drain.

    await faults.undo_all()
    await faults.undo_all()

    assert discovery.methods() == ["DrainBroker", "GetCluster"]


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (FaultKind.MOVE, "MoveTopics"),
        (FaultKind.UNLOAD, "UnloadTopics"),
        (FaultKind.DRAIN, "DrainBroker"),
    ],
)
async def test_a_request_that_the_cluster_does_not_know_is_an_error_at_once(kind, method):
    discovery = FakeDiscovery()
    discovery.trouble[method] = [InvalidRequest("Method not found!")] * 2

    with pytest.raises(InvalidRequest, match="Method not found!"):
        await faults_on(discovery).carry_out(step(kind))


async def test_what_passes_is_tried_again_and_what_goes_on_is_an_error():
    discovery = FakeDiscovery()
    discovery.trouble["MoveTopics"] = [Unavailable("no leader")] * (ATTEMPTS - 1)

    assert (await faults_on(discovery).carry_out(step(FaultKind.MOVE))).took_hold

    discovery.trouble["MoveTopics"] = [Unavailable("no leader")] * ATTEMPTS
    with pytest.raises(Unavailable):
        await faults_on(discovery).carry_out(step(FaultKind.MOVE))
