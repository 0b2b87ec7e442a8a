"""Assignments on their way to brokers: chunks, what counts as synced, what old owners are sent."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import MetadataError, SessionExpired, Unavailable
from protos.nextgen.v1.events_pb2 import BrokerEndpoints, BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import (
    AssignRequest,
    AssignResponse,
    ReleaseRequest,
    ReleaseResponse,
)
from shards.assignment import broker_sync
from shards.assignment.broker_sync import BrokerSync, Placed
from shards.domain.assignment import Assignment
from shards.domain.topic import Topic
from tests.support.shards.harness import Cluster


class Managers:
    """Broker managers that answer at once, or with an error."""

    def __init__(self) -> None:
        self.assigns: list[AssignRequest] = []
        self.releases: list[ReleaseRequest] = []
        self.asked: list[str] = []
        """The session of each request, also of those that failed."""
        self.errors: dict[str, MetadataError] = {}

    async def assign(self, request: AssignRequest, *, timeout_ms: int) -> AssignResponse:
        self._fail(request.session_id)
        self.assigns.append(request)
        return AssignResponse(synced=True)

    async def release(self, request: ReleaseRequest, *, timeout_ms: int) -> ReleaseResponse:
        self._fail(request.session_id)
        self.releases.append(request)
        return ReleaseResponse(synced=True)

    def _fail(self, session_id: str) -> None:
        self.asked.append(session_id)
        if session_id in self.errors:
            raise self.errors[session_id]


class World:
    def __init__(self) -> None:
        self.managers = Managers()
        self.cluster = Cluster(10)
        self.sync = BrokerSync(1, self.managers, self.cluster)


def assignment(name: str, session_id: str = "s-1", epoch: int = 1) -> Assignment:
    return Assignment(f"id of {name}", "", name, epoch, f"broker of {session_id}", session_id)


def placed(name: str, session_id: str = "s-1") -> Placed:
    topic = Topic(f"id of {name}", name, 0, 1, "namespace", 5, (("k", "v"),))
    return Placed(topic, assignment(name, session_id), 9)


async def test_units_are_synced_once_the_manager_says_so_and_at_that_epoch_only() -> None:
    world = World()

    assert await world.sync.assign([placed("a")]) is None

    assert world.sync.is_synced(assignment("a"))
    assert not world.sync.is_synced(assignment("a", epoch=2))
    assert not world.sync.is_synced(assignment("a", session_id="s-2"))
    (request,) = world.managers.assigns
    assert (request.broker_id, request.session_id) == ("broker of s-1", "s-1")
    (message,) = request.assignments
    assert (message.name, message.epoch, message.shard_id) == ("a", 1, 1)
    assert dict(message.topic.properties) == {"k": "v"}


async def test_trouble_is_returned_and_nothing_is_synced() -> None:
    world = World()
    world.managers.errors["s-1"] = Unavailable("no leader")

    assert isinstance(await world.sync.assign([placed("a")]), Unavailable)

    assert not world.sync.is_synced(assignment("a"))
    assert not world.sync.has_ended("broker of s-1", "s-1")


async def test_a_session_that_is_over_is_remembered_before_the_directory_knows() -> None:
    world = World()
    world.managers.errors["s-1"] = SessionExpired("over")

    assert isinstance(await world.sync.assign([placed("a")]), SessionExpired)

    assert world.sync.has_ended("broker of s-1", "s-1")
    assert not world.sync.has_ended("broker of s-2", "s-2")


async def test_large_batches_go_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(broker_sync, "ASSIGNMENTS_PER_REQUEST_MAX", 2)

    await world.sync.assign([placed(name) for name in "abcde"])

    assert [len(request.assignments) for request in world.managers.assigns] == [2, 2, 1]
    monkeypatch.setattr(broker_sync, "DELIVERIES_BYTES_MAX", 1)
    world.managers.assigns.clear()
    await world.sync.assign([placed(name) for name in "abc"])
    assert [len(request.assignments) for request in world.managers.assigns] == [1, 1, 1]


async def test_units_synced_max_are_known_and_one_more_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr(broker_sync, "UNITS_SYNCED_MAX", 2)

    for name in "abc":
        await world.sync.assign([placed(name)])

    assert [world.sync.is_synced(assignment(name)) for name in "abc"] == [False, True, True]


async def test_old_owners_get_the_ended_epoch_and_the_new_place() -> None:
    world = World()
    world.cluster.report(
        BrokerRecorded(
            broker_id="broker of s-2",
            session_id="s-2",
            is_live=True,
            endpoints=BrokerEndpoints(grpc="there:1", pulsar_url="pulsar://there:2"),
        )
    )

    await world.sync.release(
        [
            (assignment("a"), assignment("a", "s-2", 2)),
            (assignment("b"), None),
            (assignment("c", "s-3"), assignment("c", "s-2", 2)),
        ]
    )

    first, second = world.managers.releases
    assert (first.session_id, second.session_id) == ("s-1", "s-3")
    moved, gone = first.releases
    assert (moved.name, moved.epoch) == ("a", 1)
    assert (moved.new_broker_id, moved.new_epoch) == ("broker of s-2", 2)
    assert (moved.new_broker_grpc, moved.new_broker_url) == ("there:1", "pulsar://there:2")
    assert (gone.name, gone.new_broker_id, gone.new_epoch) == ("b", "", 0)


async def test_an_owner_whose_session_is_over_needs_no_telling() -> None:
    world = World()
    world.managers.errors["s-1"] = SessionExpired("over")

    await world.sync.release([(assignment("a"), None)])
    await world.sync.release([(assignment("a"), None)])

    assert world.sync.has_ended("broker of s-1", "s-1")
    assert world.managers.releases == []
    assert world.managers.asked == ["s-1"], "its manager has said once that it is over"


async def test_a_manager_is_asked_nothing_of_a_session_that_the_directory_calls_over() -> None:
    """Whoever has died had thousands of units: each would cost its manager a request."""
    world = World()
    for session_id, is_live in (("s-1", False), ("s-2", True)):
        world.cluster.report(
            BrokerRecorded(
                broker_id=f"broker of {session_id}", session_id=session_id, is_live=is_live
            )
        )
    ended = [(assignment("a"), None), (assignment("b", "s-2"), None)]

    await world.sync.release(ended)
    await world.sync.announce(ended)

    assert world.managers.asked == ["s-2", "s-2"]


async def test_trouble_with_one_owner_keeps_no_other_from_being_told() -> None:
    world = World()
    world.managers.errors["s-1"] = Unavailable("no leader")

    with pytest.raises(Unavailable):
        await world.sync.release([(assignment("a"), None), (assignment("b", "s-2"), None)])

    assert [request.session_id for request in world.managers.releases] == ["s-2"]
